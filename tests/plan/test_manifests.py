"""Which manifests are merged, and which a reader may leave closed."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from math import nan

import numpy as np
import pyarrow as pa
import pytest

from lakecore.format.statistics import StatsCollector, StatsKind, StatsMode
from lakecore.model.files import NO_STATS
from lakecore.model.manifest import ManifestFile
from lakecore.model.validation import create_schema
from lakecore.plan.manifests import (
    full_merge_is_due,
    hull_of,
    live_count,
    may_hold,
    must_change,
    neighbours_to_merge,
)
from lakecore.plan.partitions import Partitions
from tests.conditions import from_sql


def manifests(text: str) -> list[ManifestFile]:
    """`"5 100-"`: a manifest of 5 bytes, and one of 100 with deletions."""
    return [
        ManifestFile(
            name=word,
            size_bytes=int(word.rstrip("-")),
            added_count=1,
            deleted_count=word.count("-"),
            schema_id=0,
        )
        for word in text.split()
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", []),
        ("5", ["5"]),
        ("5 5", ["5", "5"]),
        ("5 5 5", ["5 5 5"]),
        ("100 5 5", ["100", "5", "5"]),
        ("60 60 5", ["60 60", "5"]),
        ("5 5 100 5 5 5", ["5 5 100", "5 5 5"]),
        ("100 100 100", ["100", "100", "100"]),
    ],
)
def test_neighbours_gather_up_to_the_target_or_the_count(text: str, wanted: list[str]) -> None:
    groups = neighbours_to_merge(manifests(text), target_bytes=100, count_min=3)

    assert [" ".join(manifest.name for manifest in group) for group in groups] == wanted


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("", False),
        ("98", False),
        ("99", True),
        ("50 49", True),
        ("50 48", False),
        ("500 500", False),
        ("500- 500", True),
        ("500- 500-", True),
    ],
)
def test_full_merge_is_due_when_small_and_deleting_manifests_reach_the_threshold(
    text: str, *, due: bool
) -> None:
    assert full_merge_is_due(manifests(text), target_bytes=100, threshold_bytes=99) is due


@pytest.mark.parametrize(("word", "changes"), [("99", True), ("100", False), ("100-", True)])
def test_small_manifests_and_those_with_deletions_must_change(word: str, *, changes: bool) -> None:
    (manifest,) = manifests(word)

    assert must_change(manifest, 100) is changes


def test_live_files_are_counted_without_reading() -> None:
    assert live_count(manifests("5 5 5- 5")) == 3


# --- which may stay closed ----------------------------------------------------------------------

SCHEMA = create_schema(
    {"id": "INT", "dt": "DATE", "region": "STRING"}, partition_keys=["region", "dt"], now_ms=0
)
PARTITIONS = Partitions(SCHEMA, SCHEMA.parsed_options())


def values(text: str) -> pa.RecordBatch:
    """`"eu 1 | _ 2"`: partitions of these regions and days of January 2026."""
    words = [[None if word == "_" else word for word in row.split()] for row in text.split("|")]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([region for region, _ in words], pa.string()),
            pa.array([None if day is None else date(2026, 1, int(day)) for _, day in words]),
        ],
        names=["region", "dt"],
    )


def holding(text: str) -> ManifestFile:
    """A manifest of an entry in each of these partitions."""
    stats = StatsCollector(PARTITIONS.fields, [StatsMode(StatsKind.FULL)] * 2)
    stats.update(values(text))
    (manifest,) = manifests("100")
    return replace(manifest, added_count=text.count("|") + 1, partition_stats=stats.finish())


HELD = ("eu 1 | eu 9", "us 3 | us 5", "_ 3", "eu _ | us _", "asia 2 | us 20")


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("region = 'eu'", [0, 3, 4]),
        ("region = 'africa'", []),
        ("region IS NULL", [2]),
        ("dt = DATE '2026-01-04'", [0, 1, 4]),
        ("dt = DATE '2026-01-04' AND region = 'us'", [1, 4]),
        ("dt IS NULL", [3]),
        ("dt > DATE '2026-01-09'", [4]),
        ("region = 'eu' OR dt IS NULL", [0, 3, 4]),
    ],
)
def test_manifests_are_opened_by_the_bounds_of_their_partitions(
    where: str, wanted: list[int]
) -> None:
    found = may_hold(from_sql(where, SCHEMA.arrow), [holding(text) for text in HELD], PARTITIONS)

    assert [number for number, may in enumerate(found) if may] == wanted


def test_manifest_without_statistics_may_hold_anything() -> None:
    bare = replace(holding("eu 1"), partition_stats=NO_STATS)
    known = holding("eu 1")
    uncounted = replace(known, partition_stats=replace(known.partition_stats, null_counts=None))

    found = may_hold(
        from_sql("region = 'us' OR dt IS NULL", SCHEMA.arrow), [bare, known, uncounted], PARTITIONS
    )

    assert found.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("partitions", "wanted"),
    [
        ("eu 4", [0, 4]),
        ("eu 10", [4]),
        ("us 4 | eu 30", [0, 1, 4]),
        ("_ 3", [2]),
        ("us _", [3]),
        ("us _ | us 1", [3]),
        ("zz 1", []),
    ],
)
def test_hull_of_partitions_goes_from_the_least_to_the_greatest_value_of_each_column(
    partitions: str, wanted: list[int]
) -> None:
    found = may_hold(hull_of(values(partitions)), [holding(text) for text in HELD], PARTITIONS)

    assert [number for number, may in enumerate(found) if may] == wanted


@pytest.mark.parametrize(
    ("deleted", "wanted"),
    [
        ([2.0], [0, 1, 4]),
        ([2.0, nan], [0, 1, 2, 4]),
        ([nan], [0, 1, 2, 3, 4]),
        ([None, 2.0], [0, 1, 3, 4]),
    ],
)
def test_hull_of_partitions_bounds_nothing_by_a_nan(
    deleted: list[float | None], wanted: list[int]
) -> None:
    schema = create_schema({"p": "DOUBLE", "v": "INT"}, partition_keys=["p"], now_ms=0)
    partitions = Partitions(schema, schema.parsed_options())

    def held(numbers: list[float | None]) -> ManifestFile:
        stats = StatsCollector(partitions.fields, [StatsMode(StatsKind.FULL)])
        stats.update(pa.table({"p": pa.array(numbers, pa.float64())}))
        (plain,) = manifests("5")
        return replace(plain, added_count=len(numbers), partition_stats=stats.finish())

    groups: list[list[float | None]] = [[nan], [1.0], [3.0, 5.0], [None], [3.0, nan]]
    lines = [held(numbers) for numbers in groups]
    hull = hull_of(pa.RecordBatch.from_pydict({"p": pa.array(deleted, pa.float64())}))

    assert np.flatnonzero(may_hold(hull, lines, partitions)).tolist() == wanted
