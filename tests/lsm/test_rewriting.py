"""What a full compaction merges, and what only changes its level; see `tests.tables.files`."""

from __future__ import annotations

import pytest

from lakecore.lsm.rewriting import Output, Rewrite, Upgrade, full_compaction
from tests.tables import files, names, ranks

SMALL = Output(level=5, small_bytes=10)


def steps(text: str, output: Output = SMALL) -> list[str]:
    """The steps for the files of a line: `merge` with sections in brackets, or `move`."""
    found = files(text)
    told = []
    for step in full_compaction(found, *ranks(found), output):
        if isinstance(step, Upgrade):
            told.append(f"move {names([step.file])}")
            continue
        assert isinstance(step, Rewrite)
        sections = [
            "(" + " + ".join(names(run.files) for run in section) + ")" for section in step.sections
        ]
        told.append("merge " + " ".join(sections))
    return told


def test_no_files_make_no_steps() -> None:
    assert steps("") == []


def test_files_that_overlap_are_merged_oldest_first() -> None:
    assert steps("L0 a-m | L5 a-z") == ["merge (L5 a-z + L0 a-m)"]


def test_one_run_at_the_last_level_is_left_alone_however_small() -> None:
    assert steps("L5 a-c | L5 d-f | L5 g-i @100") == []


def test_file_with_deletions_at_the_last_level_is_rewritten_alone() -> None:
    assert steps("L5 a-c | L5 d-f -1 | L5 g-i") == ["merge (L5 d-f -1)"]
    assert steps("L5 a-c -?") == ["merge (L5 a-c -?)"]


def test_files_of_the_last_level_that_overlap_are_merged() -> None:
    assert steps("L5 a-m | L5 k-z | L5 zz-zzz") == ["merge (L5 k-z + L5 a-m) (L5 zz-zzz)"]


def test_large_file_by_itself_is_moved() -> None:
    assert steps("L0 a-c @10") == ["move L0 a-c @10"]
    assert steps("L3 a-c @10 | L5 d-f @10") == ["move L3 a-c @10"]


def test_one_small_file_alone_is_moved() -> None:
    assert steps("L0 a-c @9") == ["move L0 a-c @9"]
    assert steps("L0 a-c @9 | L5 d-f @10") == ["move L0 a-c @9"]


def test_small_neighbours_are_merged_up_to_the_next_large_file() -> None:
    assert steps("L0 a-b | L0 c-d | L0 e-f @10 | L0 g-h | L0 i-j") == [
        "merge (L0 a-b) (L0 c-d)",
        "move L0 e-f @10",
        "merge (L0 g-h) (L0 i-j)",
    ]


def test_small_neighbour_goes_with_a_section_that_is_merged() -> None:
    assert steps("L0 a-b | L0 c-m | L5 d-e @100") == ["merge (L0 a-b) (L5 d-e @100 + L0 c-m)"]


def test_large_file_with_deletions_is_rewritten() -> None:
    assert steps("L0 a-b -1 @10 | L5 c-d @10") == ["merge (L0 a-b -1 @10)"]


@pytest.mark.parametrize("text", ["L5 a-c @100", "L0 a-c @100", "L5 a-c | L5 d-f @100"])
def test_all_is_rewritten_where_it_is_asked_for(text: str) -> None:
    output = Output(level=5, small_bytes=10, rewrites_all=True)
    wanted = " ".join(f"({each.name})" for each in files(text))

    assert steps(text, output) == [f"merge {wanted}"]
