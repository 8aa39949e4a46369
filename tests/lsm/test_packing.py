"""Which files go together, on sizes alone: `"30 5 5"` are files of so many bytes, oldest first."""

from __future__ import annotations

import pytest

from lakecore.lsm.packing import (
    Group,
    PackingPolicy,
    cut,
    fewer_adjacent,
    in_order,
    is_stale,
    pick_adjacent,
    pick_adjacent_full,
    pick_small,
    pick_small_full,
    picks_adjacent,
)
from lakecore.model.files import DataFile
from lakecore.options import parse_options


def policy(**options: str) -> PackingPolicy:
    """Target 100, small below 70, no cost of opening, three files at least."""
    stated = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    given = {
        "target-file-size": "100 b",
        "source.split.open-file-cost": "0 b",
        "compaction.min.file-num": "3",
        **stated,
    }
    return PackingPolicy.of(parse_options(given))


def sizes(text: str) -> list[DataFile]:
    """Files of ten rows each."""
    return [
        DataFile(
            name=f"{number}",
            size_bytes=int(word),
            row_count=10,
            sequence_min=10 * number,
            sequence_max=10 * number + 9,
            schema_id=0,
        )
        for number, word in enumerate(text.split())
    ]


def shown(*groups: Group | None) -> str:
    """The sizes in each group."""
    return " | ".join(
        "none" if group is None else " ".join(str(file.size_bytes) for file in group)
        for group in groups
    )


def test_target_is_that_of_tables_without_a_key() -> None:
    assert PackingPolicy.of(parse_options({})).target_bytes == 256 << 20


# --- buckets in order ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "picked"),
    [
        ("", "none"),
        ("5 5", "none"),
        ("5 6 7", "5 6 7"),
        ("5 6 7 8", "5 6 7"),
        ("250 5 6 7", "5 6 7"),
        ("150 60 6 7 8", "60 6 7"),
        ("150 150 150", "none"),
        ("90 90 90", "90 90 90"),
        ("100 99 1", "100 99 1"),
        ("100 100 1", "none"),
    ],
)
def test_oldest_neighbours_are_picked_as_soon_as_they_are_enough(files: str, picked: str) -> None:
    assert shown(pick_adjacent(sizes(files), policy())) == picked


def test_neighbours_are_so_by_sequence_number_and_then_by_commit() -> None:
    files = sizes("5 6 7 8")
    backwards = [files[3], files[0], files[2], files[1]]

    assert in_order(backwards) == tuple(files)
    assert shown(pick_adjacent(backwards, policy())) == "5 6 7"


def test_picks_go_on_behind_the_last() -> None:
    assert shown(*picks_adjacent(sizes("1 2 3 250 4 5 6 7"), policy())) == "1 2 3 | 4 5 6"
    assert picks_adjacent(sizes("1 2"), policy()) == ()


@pytest.mark.parametrize(
    ("files", "picked"),
    [
        ("", ""),
        ("5 6 7", "5 6 7"),
        ("90 90 90", ""),
        ("66 66 66", "66 66 66"),
        ("67 67 66", ""),
        ("90 90 90 5 6 7", "90 90 5"),
        ("100 100 5 6 7 8", "100 5 6"),
        ("1 2 3 250 4 5 6 7", "1 2 3 | 4 5 6"),
    ],
)
def test_neighbours_that_would_become_as_many_files_stay(files: str, picked: str) -> None:
    assert shown(*fewer_adjacent(sizes(files), policy())) == picked


def test_pairs_of_whole_files_are_not_packed_for_ever() -> None:
    pairs = policy(compaction__min__file_num="2")

    assert fewer_adjacent(sizes("100 100 100"), pairs) == ()
    assert shown(*fewer_adjacent(sizes("100 40 30 100"), pairs)) == "40 30"


def test_one_file_is_never_packed() -> None:
    few = policy(compaction__min__file_num="1")

    assert shown(*picks_adjacent(sizes("1 2 3"), few)) == "1 2"
    assert pick_small(sizes("1"), few) == ()


@pytest.mark.parametrize(
    ("files", "picked"),
    [
        ("", "none"),
        ("5 6", "none"),
        ("5 6 7", "5 6 7"),
        ("80 90 5 6 7", "5 6 7"),
        ("70 5 6 7", "5 6 7"),
        ("80 5 6", "none"),
        ("5 80 6 90 7", "5 80 6 90 7"),
        ("5 80 6 90", "none"),
        ("80 90 100", "none"),
    ],
)
def test_full_packing_begins_at_the_first_small_file_if_more_are_small(
    files: str, picked: str
) -> None:
    assert shown(pick_adjacent_full(sizes(files), policy())) == picked


def test_more_than_a_share_of_deleted_rows_makes_a_file_stale() -> None:
    (file,) = sizes("100")
    stated = policy(compaction__delete_ratio_threshold="0.2")

    assert [is_stale(file, deleted, stated) for deleted in (None, 2, 3)] == [True, False, True]


# --- no buckets ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "picked"),
    [
        ("", ""),
        ("5 6", ""),
        ("7 5 6", "7 5 6"),
        ("7 80 5 90 6", "7 5 6"),
        ("60 60 60 60", "60 60 60 60"),
        ("60 60 60 60 60 60", "60 60 60 60"),
        ("60 50 60 60 60 60 60 1 2", "60 50 60 60 1 2 | 60 60 60"),
    ],
)
def test_small_files_are_grouped_smallest_first_and_stand_in_order_of_commit(
    files: str, picked: str
) -> None:
    assert shown(*pick_small(sizes(files), policy())) == picked


def test_opening_a_file_counts_as_bytes() -> None:
    costly = policy(source__split__open_file_cost="95 b")

    assert shown(*pick_small(sizes("6 5 7 8"), costly)) == "6 5 | 7 8"


def test_full_packing_takes_every_small_file() -> None:
    assert shown(pick_small_full(sizes("5 80 6"), policy())) == "5 6"
    assert shown(pick_small_full(sizes("5 80"), policy())) == "none"
    assert shown(pick_small_full(sizes("60 60 60 60 60 60 60"), policy())) == " ".join(["60"] * 7)


@pytest.mark.parametrize(
    ("files", "bytes_max", "parts"),
    [
        ("100 50 50 60 60", 1, "100 50 50 | 60 60"),
        ("60 60 60 60 60 60 60", 200, "60 60 60 | 60 60 60 60"),
        ("60 60 60 60 60 60", 300, "60 60 60 60 60 60"),
        ("60 60 60 60 60 60 60", 300, "60 60 60 60 60 | 60 60"),
        ("300 300 300 300", 1, "300 300 | 300 300"),
        ("5 6", 1, "5 6"),
        ("5", 1, "5"),
    ],
)
def test_parts_hold_so_many_bytes_and_two_new_files_at_least(
    files: str, bytes_max: int, parts: str
) -> None:
    group = tuple(sizes(files))

    assert shown(*cut(group, bytes_max, policy())) == parts


# --- options -------------------------------------------------------------------------------------


def test_groups_have_no_more_files_than_an_older_option_says() -> None:
    most = policy(compaction__max__file_num="2")

    assert shown(*pick_small(sizes("1 2 3 4 5"), most)) == "1 2 | 3 4"
    assert shown(*picks_adjacent(sizes("1 2 3 4 5"), most)) == "1 2 | 3 4"


def test_full_packing_takes_large_files_too_if_all_are_to_be_rewritten() -> None:
    every = policy(compaction__force_rewrite_all_files="true")

    assert shown(pick_adjacent_full(sizes("80 5"), every)) == "80 5"
    assert shown(pick_small_full(sizes("80"), every)) == "80"
    assert pick_small_full([], every) is None
    group = tuple(sizes("300 300 300 300"))
    assert cut(group, 1, every) == (group,)


def test_target_is_256_mebibytes_and_small_is_a_share_of_it() -> None:
    found = PackingPolicy.of(parse_options({"compaction.small-file-ratio": "0.5"}))

    assert (found.target_bytes, found.small_file_bytes) == (256 << 20, 128 << 20)
    assert (found.files_min, found.open_cost_bytes) == (5, 4 << 20)
