from __future__ import annotations

import pytest
from rich.cells import cell_len

from lakecore.cli.printing import Cell, Column, Style, layout

COLUMNS = [Column("id", number=True), Column("name"), Column("a rather long head")]


def rows(*texts: tuple[str, ...]) -> list[list[Cell]]:
    return [[Cell(text) for text in row] for row in texts]


def test_grid_is_as_wide_as_its_cells() -> None:
    assert layout(
        [Column("n", number=True), Column("text")], rows(("1", "a"), ("20", "")), Style()
    ) == [
        "┌────┬──────┐",
        "│  n │ text │",
        "├────┼──────┤",
        "│  1 │ a    │",
        "│ 20 │      │",
        "└────┴──────┘",
    ]


def test_terminal_without_line_characters_gets_others() -> None:
    style = Style(width=20, unicode=False)

    assert layout([Column("text")], rows(("x" * 30,)), style) == [
        "+------------------+",
        "| text             |",
        "+------------------+",
        f"| {'x' * 15}~ |",
        "+------------------+",
    ]


@pytest.mark.parametrize("width", [60, 79, 100, 120])
def test_grid_fits_the_width_and_cuts_the_widest_texts_alone(width: int) -> None:
    texts = rows(("12345678901234567", "short", "word " * 40), ("1", "日本語" * 20, "x"))
    lines = layout(COLUMNS, texts, Style(width=width))

    assert {cell_len(line) for line in lines} == {width}
    assert len(lines) == 6
    assert "12345678901234567" in lines[3]
    assert "short" in lines[3]
    assert lines[3].count("…") == lines[4].count("…") == 1


def test_columns_that_would_be_too_narrow_make_a_block_of_each_row() -> None:
    columns = [Column(f"column {n}") for n in range(9)]
    lines = layout(columns, rows(("some words of text",) * 9, ("",) * 9), Style(width=100))

    assert len(lines) == 20
    assert lines[0].startswith("── row 1 ──")
    assert lines[1] == "column 0  some words of text"
    assert max(map(cell_len, lines)) <= 100


def test_faint_cells_are_so_only_where_there_are_colours() -> None:
    null = [[Cell("NULL", faint=True)]]

    assert "\x1b[2mNULL" in layout([Column("name")], null, Style(colour=True))[3]
    assert layout([Column("name")], null, Style())[3] == "│ NULL │"


def test_a_cell_of_several_lines_takes_several_lines() -> None:
    assert layout(
        [Column("n", number=True), Column("t")], rows(("1", "a\nlong"), ("2", "b")), Style()
    )[3:-1] == ["│ 1 │ a    │", "│   │ long │", "│ 2 │ b    │"]


def test_whole_texts_are_wrapped_and_never_cut() -> None:
    lines = layout([Column("t")], rows(("one two three four",)), Style(width=16, whole=True))

    assert lines[3:-1] == ["│ one two      │", "│ three four   │"]


def test_whole_lines_that_do_not_fit_stay_as_they_are() -> None:
    wide = "a wide line of a plan\nand one more"
    style = Style(width=20, whole=True)

    assert layout([Column("plan")], rows((wide,)), style) == wide.split("\n")
    assert layout([Column("part"), Column("plan")], rows(("p", wide)), style) == [
        "── row 1 ───────────",
        "part  p",
        "plan",
        *wide.split("\n"),
    ]
