from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lakecore.cdc.file_source import FilesSettings, FilesSource
from lakecore.cdc.types.mapping import DEFAULT_MAPPING
from lakecore.errors import InvalidRequest
from lakecore.io.ambient import seeded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakecore.cdc.events import Position, Step


def lines(*numbers: int) -> str:
    return "".join(f'{{"n": {number}}}\n' for number in numbers)


def steps(folder: Path, after: Position | None = None) -> Iterator[Step]:
    settings = FilesSettings(path=str(folder), value_format="json")
    return FilesSource(settings, DEFAULT_MAPPING, seeded(0)).steps(after)


def numbers(step: Step) -> list[int]:
    return [int(each) for batch in step.batches for each in batch.rows["n"].to_pylist()]


def read(folder: Path, after: Position | None = None) -> tuple[list[int], Position]:
    """The numbers until the source has caught up, and the position there."""
    found: list[int] = []
    for step in steps(folder, after):
        found += numbers(step)
        if step.caught_up:
            return found, step.position
    raise AssertionError


def test_files_are_read_by_name_and_left_out_by_mark(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(lines(3, 4))
    (tmp_path / "a.json").write_text(lines(1, 2) + "\n\n")
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / "_tmp").write_text("x")
    (tmp_path / "folder").mkdir()

    found, position = read(tmp_path)

    assert found == [1, 2, 3, 4]
    assert position == {"file": "b.json", "bytes": 18}
    assert json.loads(json.dumps(position)) == position


def test_new_lines_and_files_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "1.json"
    path.write_text(lines(1) + '{"n": 2')
    following = steps(tmp_path)

    first = next(following)
    waiting = next(following)
    path.write_text(lines(1, 2))
    second = next(following)
    (tmp_path / "2.json").write_text(lines(3))
    third = next(following)

    assert [numbers(each) for each in (first, waiting, second, third)] == [[1], [], [2], [3]]
    assert waiting.caught_up


def test_a_position_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(lines(1, 2))
    _, position = read(tmp_path)
    with (tmp_path / "1.json").open("a") as file:
        file.write(lines(3))

    assert read(tmp_path, position)[0] == [3]


def test_the_last_line_needs_no_line_break_if_it_is_whole(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(lines(1) + '{"n": 2}')

    found, position = read(tmp_path)
    with (tmp_path / "1.json").open("a") as file:
        file.write("\n" + lines(3))

    assert found == [1, 2]
    assert read(tmp_path, position)[0] == [3]


def test_an_empty_folder_has_caught_up(tmp_path: Path) -> None:
    assert read(tmp_path) == ([], {"file": "", "bytes": 0})


def test_a_line_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(lines(1) + "{broken\n" + lines(2))

    first = next(steps(tmp_path))

    assert numbers(first) == [1, 2]
    assert "1.json byte=9" in str(first.bad[0])


def test_a_file_that_became_shorter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(lines(1))

    with pytest.raises(InvalidRequest, match="shorter"):
        read(tmp_path, {"file": "1.json", "bytes": 100})


@pytest.mark.parametrize("position", [{}, {"file": 1, "bytes": 2}, {"offsets": {}}])
def test_the_position_of_another_source_is_refused(tmp_path: Path, position: Position) -> None:
    with pytest.raises(InvalidRequest, match="not a position"):
        next(steps(tmp_path, position))


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    settings = FilesSettings(path=str(tmp_path / "no"), value_format="json")

    with pytest.raises(InvalidRequest, match="does not exist"):
        FilesSource(settings, DEFAULT_MAPPING, seeded(0)).tables()


@pytest.mark.parametrize(
    "conf",
    [
        {"path": "x"},
        {"path": "x", "value.format": "csv"},
        {"path": "x", "value.format": "json", "other": "1"},
    ],
)
def test_options_are_checked(conf: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        FilesSettings.parse(conf)


def test_a_last_line_that_ends_within_an_object_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "1.json"
    path.write_text(lines(1) + '{"n": 2, "more": {}')
    found, position = read(tmp_path)
    assert found == [1]

    with path.open("a") as file:
        file.write("}")

    assert read(tmp_path, position)[0] == [2]
