"""Files of a bucket to sections and sorted runs; a file is `L0 a-m`, see `tests/tables.py`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakecore.errors import CorruptTable
from lakecore.lsm.levels import (
    SortedRun,
    level_runs,
    runs_are_ordered,
    sections,
    sorted_runs,
)
from tests.tables import files, names, ranks


def sections_of(text: str) -> list[str]:
    found = files(text)
    return [names([found[index] for index in section]) for section in sections(*ranks(found))]


def runs_of(text: str) -> list[str]:
    found = files(text)
    lows, highs = ranks(found)
    return [names(run.files) for run in sorted_runs(found, lows.tolist(), highs.tolist())]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", []),
        ("L0 a-b", ["L0 a-b"]),
        ("L0 c-d | L5 a-b", ["L5 a-b", "L0 c-d"]),
        ("L0 b-c | L5 a-b", ["L5 a-b | L0 b-c"]),
        ("L0 a-z | L5 c-d | L5 e-f", ["L0 a-z | L5 c-d | L5 e-f"]),
        ("L0 a-c | L0 b-d | L0 e-f | L5 d-d", ["L0 a-c | L0 b-d | L5 d-d", "L0 e-f"]),
        ("L0 m-m | L0 m-m | L5 a-l | L5 n-z", ["L5 a-l", "L0 m-m | L0 m-m", "L5 n-z"]),
    ],
)
def test_section_ends_where_no_key_range_reaches_on(text: str, wanted: list[str]) -> None:
    assert sections_of(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("L0 a-z", ["L0 a-z"]),
        ("L0 a-m | L5 a-z", ["L5 a-z", "L0 a-m"]),
        ("L0 a-m | L0 f-z | L5 a-z", ["L5 a-z", "L0 f-z", "L0 a-m"]),
        ("L5 a-f 5..5 | L5 g-z 3..3 | L0 a-z 8..9", ["L5 a-f 5..5 | L5 g-z 3..3", "L0 a-z 8..9"]),
    ],
)
def test_runs_come_oldest_first(text: str, wanted: list[str]) -> None:
    assert runs_of(text) == wanted


def test_newer_files_join_the_run_before_if_they_lie_beside_it() -> None:
    assert runs_of("L0 n-z | L0 g-m | L0 a-f | L5 a-z") == ["L5 a-z", "L0 a-f | L0 g-m | L0 n-z"]


def test_newer_file_does_not_join_a_run_it_overlaps() -> None:
    assert runs_of("L0 c-d | L0 a-f | L5 a-z") == ["L5 a-z", "L0 a-f", "L0 c-d"]


def test_files_of_one_age_are_dealt_to_as_few_runs_as_they_overlap() -> None:
    text = "L0 a-c 0..9 | L0 b-d 5..9 | L0 d-e 0..4 | L0 e-f 3..3"

    assert runs_of(text) == ["L0 a-c 0..9 | L0 d-e 0..4", "L0 b-d 5..9 | L0 e-f 3..3"]


def test_age_of_several_runs_does_not_join_the_run_before() -> None:
    text = "L0 m-n 5..9 | L0 m-o 6..8 | L5 a-l 0..4"

    assert runs_of(text) == ["L5 a-l 0..4", "L0 m-n 5..9", "L0 m-o 6..8"]


@pytest.mark.parametrize("text", ["L0 a-m 1..5 | L0 a-z 5..9 | L1 b-c 0..1", "L0 a-z 3..3"])
def test_runs_hold_every_file_once_in_key_order_without_overlap(text: str) -> None:
    found = files(text)
    lows, highs = ranks(found)
    low, high = (dict(zip(map(id, found), side.tolist(), strict=True)) for side in (lows, highs))
    runs = sorted_runs(found, lows.tolist(), highs.tolist())

    assert sorted(file.name for run in runs for file in run.files) == sorted(f.name for f in found)
    for run in runs:
        for before, after in zip(run.files, run.files[1:], strict=False):
            assert high[id(before)] < low[id(after)]


@pytest.mark.parametrize(
    ("text", "ordered"),
    [
        ("L0 a-z 5..9", True),
        ("L0 a-z 5..9 | L5 a-z 0..4", True),
        ("L0 a-z 5..9 | L5 a-z 0..5", False),
        ("L0 a-z 5..5 | L5 a-z 5..5", False),
        ("L0 a-z 3..3 | L1 a-z 9..9 | L5 a-z 0..2", True),
    ],
)
def test_runs_are_ordered_if_no_row_of_one_is_newer_than_the_next(
    text: str, *, ordered: bool
) -> None:
    found = files(text)
    lows, highs = ranks(found)

    assert runs_are_ordered(sorted_runs(found, lows.tolist(), highs.tolist())) is ordered


def test_run_knows_its_bytes_and_sequence_numbers() -> None:
    run = SortedRun(files=tuple(files("L5 a-b 7..9 @3 | L5 c-d 2..4 @4")))

    assert (run.size_bytes, run.sequence_min, run.sequence_max) == (7, 2, 9)


# --- the runs that compaction sees --------------------------------------------------------------


def levels_of(text: str) -> list[str]:
    found = files(text)
    return [names(run.files) for run in level_runs(found, *ranks(found))]


def test_each_file_of_level_0_is_a_run_and_so_is_each_level_above() -> None:
    text = "L5 n-z | L0 a-m | L2 a-z | L0 n-z | L5 a-m"

    assert levels_of(text) == ["L0 a-m", "L0 n-z", "L2 a-z", "L5 a-m | L5 n-z"]
    assert levels_of("") == []


def test_newest_file_of_level_0_comes_first_then_the_wider_then_by_name() -> None:
    assert levels_of("L0 a-b 5..7 | L0 a-b 6..9") == ["L0 a-b 6..9", "L0 a-b 5..7"]
    assert levels_of("L0 a-b 5..9 | L0 a-b 2..9") == ["L0 a-b 2..9", "L0 a-b 5..9"]
    assert levels_of("L0 c-d 2..9 | L0 a-b 2..9") == ["L0 a-b 2..9", "L0 c-d 2..9"]


def test_of_files_with_the_same_numbers_the_one_created_first_comes_first() -> None:
    late, early = files("L0 a-b 2..9 | L0 c-d 2..9")
    found = [replace(late, creation_time_ms=9), replace(early, creation_time_ms=8)]

    runs = level_runs(found, *ranks(found))

    assert [run.files[0].name for run in runs] == ["L0 c-d 2..9", "L0 a-b 2..9"]


def test_overlap_above_level_0_is_corruption() -> None:
    with pytest.raises(CorruptTable, match=r"run overlaps\. level=5 .*L5 a-m.*L5 m-z"):
        levels_of("L0 a-z | L5 m-z | L5 a-m")
