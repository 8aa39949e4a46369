"""Which files of a bucket are read as they are and which are merged: see `tests/tables.py`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lakecore.format.layout import data_file_name
from lakecore.model.files import EMPTY_ROW, Split, Stats
from lakecore.plan.splits import (
    BucketPlan,
    FileColumns,
    may_hold_deletions,
    pack,
    plan_bucket,
    plan_columns,
    without_statistics,
)
from tests.tables import files, names, ranks


def planned(text: str, *, settled: bool = False) -> BucketPlan:
    found = files(text)
    return plan_bucket(found, *ranks(found), settled=settled)


def shown(text: str, *, settled: bool = False) -> tuple[str, list[list[str]]]:
    plan = planned(text, settled=settled)
    return names(plan.raw), [[names(run) for run in section] for section in plan.merged]


@pytest.mark.parametrize(
    "text", ["", "L5 a-m", "L5 a-m | L5 n-z", "L3 a-m | L3 n-z", "L5 a-m -? | L5 n-z"]
)
def test_files_of_one_level_above_zero_are_read_as_they_are(text: str) -> None:
    assert shown(text) == (text, [])


def test_files_of_several_levels_are_merged_where_they_touch() -> None:
    assert shown("L1 c-f | L5 a-c | L5 x-z") == ("L5 x-z", [["L5 a-c", "L1 c-f"]])


def test_files_of_level_0_are_merged_with_what_they_touch() -> None:
    assert shown("L0 m-p | L5 a-f | L5 g-n") == ("L5 a-f", [["L5 g-n", "L0 m-p"]])


def test_file_of_level_0_of_another_engine_is_merged_even_alone() -> None:
    assert shown("L0 a-b | L5 c-d") == ("L5 c-d", [["L0 a-b"]])


@pytest.mark.parametrize(
    ("text", "raw"),
    [("L0 a-b", 1), ("L0 a-b | L0 c-d", 2), ("L0 a-b | L0 b-d", 0), ("L0 a-b -1", 0)],
)
def test_file_of_level_0_that_lakecore_counted_is_raw_if_it_is_alone(text: str, raw: int) -> None:
    found = [
        replace(file, name=data_file_name("data-", "u", at, "parquet"))
        for at, file in enumerate(files(text))
    ]
    plan = plan_bucket(found, *ranks(files(text)), settled=False)

    assert len(plan.raw) == raw
    assert bool(plan.merged) == (raw == 0)


@pytest.mark.parametrize("deletes", ["-2", "-?"])
def test_file_with_deletions_is_merged_even_alone(deletes: str) -> None:
    text = f"L4 a-b {deletes} | L5 c-d"

    assert shown(text) == ("L5 c-d", [[f"L4 a-b {deletes}"]])


def test_file_with_deletions_is_merged_on_the_only_level() -> None:
    assert shown("L5 a-b -1 | L5 c-d") == ("L5 c-d", [["L5 a-b -1"]])


def test_settled_table_needs_no_merging_whatever_the_levels() -> None:
    assert shown("L1 c-f | L5 a-c | L5 x-z", settled=True) == ("L1 c-f | L5 a-c | L5 x-z", [])


def test_settled_table_merges_what_holds_deletions() -> None:
    assert shown("L1 c-f -1 | L5 a-c", settled=True) == ("", [["L5 a-c", "L1 c-f -1"]])


def test_sections_come_in_key_order() -> None:
    raw, merged = shown("L0 x-z | L0 a-c | L5 b-d | L5 x-y | L5 m-n")

    assert raw == "L5 m-n"
    assert merged == [["L5 b-d", "L0 a-c"], ["L5 x-y", "L0 x-z"]]


@pytest.mark.parametrize(
    ("text", "target", "open_cost", "wanted"),
    [
        ("", 10, 1, []),
        ("L0 a-a @4 | L0 b-b @6 | L0 c-c @1", 10, 1, ["L0 a-a @4 | L0 b-b @6", "L0 c-c @1"]),
        ("L0 a-a @20 | L0 b-b @1", 10, 1, ["L0 a-a @20", "L0 b-b @1"]),
        ("L0 a-a @1 | L0 b-b @1 | L0 c-c @1", 10, 5, ["L0 a-a @1 | L0 b-b @1", "L0 c-c @1"]),
    ],
)
def test_files_are_packed_in_order_up_to_the_target_size(
    text: str, target: int, open_cost: int, wanted: list[str]
) -> None:
    assert [names(group) for group in pack(files(text), target, open_cost)] == wanted


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "L5 a-m | L5 n-z",
        "L1 c-f | L5 a-c | L5 x-z",
        "L0 m-p | L5 a-f | L5 g-n",
        "L4 a-b -2 | L5 c-d",
        "L0 x-z | L0 a-c | L5 b-d | L5 x-y | L5 m-n",
    ],
)
def test_columns_of_several_buckets_are_planned_as_each_bucket(text: str, *, settled: bool) -> None:
    one = files(text)
    found, count = [*one, *one], len(one)
    of_bucket = np.repeat([0, 1], count)
    lows, highs = (np.concatenate([each, each]) for each in map(np.asarray, ranks(one)))

    splits = plan_columns(
        FileColumns(
            partitions=np.zeros(2 * count, np.int64),
            buckets=of_bucket,
            total_buckets=np.full(2 * count, 2),
            levels=np.array([file.level for file in found]),
            sizes_bytes=np.ones(2 * count, np.int64),
            sequences_min=np.zeros(2 * count, np.int64),
            holds_deletions=np.array([bool(file.delete_row_count) for file in found]),
            may_hold_deletions=np.array([may_hold_deletions(file) for file in found]),
        ),
        lambda rows: (lows[rows], highs[rows]),
        settled=settled,
        target_bytes=1,  # each raw file is a split
        open_cost_bytes=1,
    )

    plan = planned(text, settled=settled)
    wanted = [(True, {file.name}) for file in plan.raw]
    wanted += [(False, {file.name for run in runs for file in run}) for runs in plan.merged]
    parts = np.split(splits.files, splits.starts[1:-1])
    assert [
        (raw, {found[at].name for at in part})
        for raw, part in zip(splits.raw.tolist(), parts, strict=True)
    ] == [*wanted, *wanted]
    assert splits.bucket_starts.tolist() == [0, count]


def test_split_for_a_task_has_no_statistics() -> None:
    bare = [
        replace(file, key_min=EMPTY_ROW, key_max=EMPTY_ROW) for file in files("L5 a-b | L5 c-d")
    ]
    stats = Stats(min_values=b"a", max_values=b"b", null_counts=(1,))
    full = [
        replace(file, key_min=b"a", key_max=b"b", key_stats=stats, value_stats=stats)
        for file in bare
    ]
    full = [replace(file, extra_files=("x",), embedded_index=b"i") for file in full]
    split, expected = (
        Split(partition=b"p", partition_path="", bucket=1, total_buckets=2, runs=runs, raw=True)
        for runs in ((tuple(full[:1]), tuple(full[1:])), (tuple(bare[:1]), tuple(bare[1:])))
    )

    assert without_statistics(split) == expected
