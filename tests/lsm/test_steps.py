"""What becomes of the files of a compaction unit; a file of 70 bytes is not small."""

from __future__ import annotations

import pytest

from lakecore.lsm.levels import level_runs
from lakecore.lsm.universal import (
    CompactionPolicy,
    CompactionUnit,
    Reason,
    Rewrite,
    Step,
    pick_full,
    unit_steps,
)
from lakecore.options import parse_options
from tests.tables import files, names, ranks

LAST_LEVEL = 5


def policy(**options: str) -> CompactionPolicy:
    stated = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    return CompactionPolicy.of(parse_options({"target-file-size": "100 b", **stated}))


def shown(step: Step) -> str:
    """A step as `move FILE`, or as `rewrite FILE | FILE / FILE`, sections parted by `/`."""
    if isinstance(step, Rewrite):
        sections = [
            names([file for run in section for file in run.files]) for section in step.sections
        ]
        return f"rewrite {' / '.join(sections)}"
    return f"move {step.file.name}"


def steps_of(
    text: str, level: int = LAST_LEVEL, expired: tuple[str, ...] = (), **options: str
) -> list[str]:
    """The steps of all these files to a level."""
    found = files(text)
    unit = CompactionUnit(
        runs=level_runs(found, *ranks(found)),
        level_output=level,
        reason=Reason.FULL,
        is_full=level == LAST_LEVEL,
        drops_deletions=level == LAST_LEVEL,
    )
    steps = unit_steps(unit, *ranks(unit.files), policy(**options), expired)
    return [shown(step) for step in steps]


def test_large_file_that_overlaps_nothing_is_moved() -> None:
    assert steps_of("L0 a-m @70") == ["move L0 a-m @70"]
    assert steps_of("L0 a-m @70 | L2 n-z @99") == ["move L0 a-m @70", "move L2 n-z @99"]


def test_files_that_overlap_are_rewritten_together_whatever_their_size() -> None:
    assert steps_of("L0 a-m @70 | L5 m-z @900") == ["rewrite L5 m-z @900 | L0 a-m @70"]


def test_sections_that_lie_beside_each_other_are_rewritten_as_one() -> None:
    text = "L0 a-b @1 | L0 n-o @1 | L5 a-c @900 | L5 n-z @900"

    assert steps_of(text) == [
        "rewrite L5 a-c @900 | L0 a-b @1 / L5 n-z @900 | L0 n-o @1",
    ]


def test_small_files_are_rewritten_with_their_neighbours() -> None:
    assert steps_of("L0 a-b @69 | L0 c-d @69") == ["rewrite L0 a-b @69 / L0 c-d @69"]
    assert steps_of("L0 a-b @9 | L0 c-d @9 | L5 c-f @90") == [
        "rewrite L0 a-b @9 / L5 c-f @90 | L0 c-d @9"
    ]


def test_nothing_is_rewritten_across_a_large_file() -> None:
    text = "L0 a-b @1 | L0 c-d @1 | L5 e-f @70 | L0 g-h @1 | L0 i-j @1"

    assert steps_of(text) == [
        "rewrite L0 a-b @1 / L0 c-d @1",
        "rewrite L0 g-h @1 / L0 i-j @1",
    ]


def test_small_file_alone_is_moved() -> None:
    assert steps_of("L0 a-b @1") == ["move L0 a-b @1"]
    assert steps_of("L0 a-b @1 | L2 c-d @70 | L0 e-f @1") == [
        "move L0 a-b @1",
        "move L2 c-d @70",
        "move L0 e-f @1",
    ]


def test_file_at_the_output_level_stays_if_nothing_is_merged_with_it() -> None:
    assert steps_of("L0 a-b @70 | L5 c-d @70 | L5 e-f @1") == ["move L0 a-b @70"]


@pytest.mark.parametrize("deletions", ["-1", "-?"])
def test_file_that_may_hold_deletions_comes_to_the_last_level_by_a_rewrite(deletions: str) -> None:
    file = f"L0 a-b {deletions} @70"

    assert steps_of(file) == [f"rewrite {file}"]
    assert steps_of(file, level=4) == [f"move {file}"]
    assert steps_of(f"L5 a-b {deletions} @70") == [f"rewrite L5 a-b {deletions} @70"]


def test_file_with_deletions_is_rewritten_alone() -> None:
    assert steps_of("L0 a-b -1 @70 | L0 c-d -1 @70") == [
        "rewrite L0 a-b -1 @70",
        "rewrite L0 c-d -1 @70",
    ]


def test_file_with_expired_rows_is_rewritten() -> None:
    text = "L0 a-b @70 | L0 c-d @70"

    assert steps_of(text, 4, expired=("L0 c-d @70",)) == ["move L0 a-b @70", "rewrite L0 c-d @70"]


def test_every_file_is_rewritten_if_the_table_says_so() -> None:
    text = "L0 a-b @70 | L5 c-d @70"

    assert steps_of(text, compaction__force_rewrite_all_files="true") == [
        "rewrite L0 a-b @70",
        "rewrite L5 c-d @70",
    ]


def test_share_of_the_target_size_at_which_a_file_is_large_is_an_option() -> None:
    text = "L0 a-b @30 | L0 c-d @30"

    assert steps_of(text, compaction__small_file_ratio="0.3") == [
        "move L0 a-b @30",
        "move L0 c-d @30",
    ]
    assert steps_of(text, compaction__small_file_ratio="0.31") == [
        "rewrite L0 a-b @30 / L0 c-d @30"
    ]


def test_stale_files_are_rewritten_one_by_one_be_they_small_or_large() -> None:
    found = files("L5 a-b @1 | L5 c-d @1 | L5 e-f @90")
    unit = pick_full(
        level_runs(found, *ranks(found)), policy(), {"L5 a-b @1", "L5 c-d @1", "L5 e-f @90"}
    )

    assert unit is not None
    assert [shown(step) for step in unit_steps(unit, *ranks(unit.files), policy())] == [
        "rewrite L5 a-b @1",
        "rewrite L5 c-d @1",
        "rewrite L5 e-f @90",
    ]
