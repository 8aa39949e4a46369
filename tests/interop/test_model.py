from __future__ import annotations

from typing import TYPE_CHECKING

from tests.interop import cases
from tests.interop.columns import columns
from tests.interop.model import KIND_COLUMN, case

if TYPE_CHECKING:
    from tests.interop.columns import Json

FIELDS = columns(k="INT", s="INT", v="STRING")


def test_newest_row_wins_and_deletions_hide_keys() -> None:
    found = case(
        "",
        FIELDS,
        [
            [("+I", [1, 1, "a"]), ("+I", [2, 1, "b"])],
            [("+U", [1, 0, "c"]), ("-D", [2, 9, None]), ("-D", [3, 1, None])],
        ],
        primary_keys=["k"],
    )

    assert found.expected(1) == [[1, 1, "a"], [2, 1, "b"]]
    assert found.expected() == [[1, 0, "c"]]


def test_sequence_field_outranks_arrival() -> None:
    commits: list[list[tuple[str, list[Json]]]] = [
        [("+I", [1, 5, "a"])],
        [("+I", [1, 4, "b"])],
        [("-D", [1, None, "c"])],
    ]
    ascending = case("", FIELDS, commits, primary_keys=["k"], options={"sequence.field": "s"})
    descending = case(
        "",
        FIELDS,
        commits,
        primary_keys=["k"],
        options={"sequence.field": "s", "sequence.field.sort-order": "descending"},
    )

    assert ascending.expected() == [[1, 5, "a"]]
    assert descending.expected() == [[1, 4, "b"]]


def test_kinds_in_a_column_mean_the_same_rows() -> None:
    for plain in cases.key_cases():
        with_column = plain.with_kind_column()

        assert [row[:-1] for row in with_column.expected()] == plain.expected()
        assert with_column.columns[-1].name == KIND_COLUMN


def test_names_of_cases_are_unique() -> None:
    names = [found.name for found in cases.all_cases()]

    assert len(names) == len(set(names))
