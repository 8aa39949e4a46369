"""The simulation of a table agrees with real tables, and keeps the laws of what it simulates."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, log2
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.simulate_scale import calibrated, counted, drawn
from lakecore.lsm.universal import CompactionPolicy
from lakecore.model.manifest import FileKind
from lakecore.model.snapshot import CommitKind
from lakecore.options import parse_options
from lakecore.plan.simulation import PRICES, UNITS, Bucket, Load, Metadata, SimulatedTable
from property_tests.profile import sized

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.lsm.universal import CompactionUnit
    from lakecore.options import TableOptions
    from lakecore.plan.simulation import Outcome

KEYS, ROWS, RETAINED = 12_000, 240, 7
WARM = RETAINED + 2
"""The first commits read files that later ones have in their cache."""


def options_of(**options: str) -> TableOptions:
    named = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    return parse_options(named, creating=True)


@dataclass
class Replay:
    """The same commits in a real table, and in simulations with its true and with modelled sizes.

    `differences` lists the commits after which they differ; `written` and `manifest_bytes` are
    bytes by simulation and table.
    """

    differences: list[str] = field(default_factory=list)
    written: Counter[str] = field(default_factory=Counter)
    manifest_bytes: Counter[str] = field(default_factory=Counter)


def replayed(commits: int, buckets: int, **options: str) -> Replay:
    retained = dict.fromkeys(("snapshot__num_retained__min", "snapshot__num_retained__max"), "7")
    table, store = counted(buckets, **retained, **options)
    units, row_bytes = calibrated()
    keys = KEYS / buckets
    distinct = keys * (1 - (1 - 1 / KEYS) ** ROWS)
    loads = [Load(commit_bytes=distinct * row_bytes, key_bytes=keys * row_bytes)] * buckets
    parsed = options_of(bucket=str(buckets), **retained, **options)
    sizes: dict[tuple[int, bool], int] = {}

    def size_in(bucket: int, unit: CompactionUnit | None) -> int:
        return sizes[bucket, unit is None]

    sizes_of = [partial(size_in, number) for number in range(buckets)]
    told = SimulatedTable(loads, parsed, units=units, sizes_of=sizes_of)
    modelled = SimulatedTable(loads, parsed, units=units)
    history, found = table.context.history, Replay()
    live: list[dict[str, tuple[int, int]]] = [{} for _ in range(buckets)]
    rng = np.random.default_rng(5)
    for number in range(commits):
        before, simulated = Counter(store.requests), Counter(told.requests)
        result = table.write(drawn(ROWS, KEYS, rng))
        spent = Counter(store.requests) - before
        sizes.clear()
        for snapshot in map(history.snapshot, result.snapshot_ids):
            is_flush = snapshot.commit_kind is CommitKind.APPEND
            for entry in history.entries(history.delta_manifests(snapshot)):
                name, file = entry.file.name, entry.file
                if entry.kind is FileKind.DELETE:
                    del live[entry.bucket][name]
                else:
                    live[entry.bucket][name] = file.level, file.size_bytes
                    sizes[entry.bucket, is_flush] = file.size_bytes
                    found.written["table"] += file.size_bytes
        told.commit()
        modelled.commit()
        manifests = history.manifests(snapshot)
        facts = {
            "files": (
                [sorted(files.values()) for files in live],
                [sorted((run.level, run.size_bytes) for run in b.runs) for b in told.buckets],
            ),
            "manifests": (len(manifests), len(told.metadata.manifests)),
            "requests": (spent, told.requests - simulated) if number >= WARM else (0, 0),
        }
        found.differences += [
            f"{what} of commit {number}: {real} {other}"
            for what, (real, other) in facts.items()
            if real != other
        ]
        found.manifest_bytes.update(
            table=sum(each.size_bytes for each in manifests),
            told=sum(each.size_bytes for each, _ in told.metadata.manifests),
        )
    found.written["modelled"] = round(modelled.written_bytes)
    return found


FULL_MERGES = {"manifest__full_compaction_threshold_size": "36 kb"}


@pytest.mark.parametrize(
    ("commits", "buckets", "trigger", "others"),
    [
        (100, 4, "5", {}),
        (40, 2, "10", FULL_MERGES),
        *sized([(200, 4, "10", {}), (500, 16, "5", {}), (500, 16, "10", {})], quick=[]),
    ],
)
def test_files_manifests_and_requests_are_those_of_a_real_table(
    commits: int, buckets: int, trigger: str, others: Mapping[str, str]
) -> None:
    found = replayed(commits, buckets, num_sorted_run__compaction_trigger=trigger, **others)

    assert found.differences == []
    assert found.manifest_bytes["told"] == pytest.approx(found.manifest_bytes["table"], rel=0.1)
    # Within 5 % after enough commits; a few compactions may begin earlier or later.
    within = 0.05 if commits >= 100 else 0.1
    assert found.written["modelled"] == pytest.approx(found.written["table"], rel=within)


def test_requests_of_each_step_are_those_that_are_measured() -> None:
    units, _ = calibrated()
    sizes = ("file_bytes", "entry_bytes", "manifest_bytes")

    assert replace(units, **{name: getattr(UNITS, name) for name in sizes}) == UNITS


def test_quiet_hours_come_again_every_day() -> None:
    quiet = {
        "compaction.offpeak.start.hour": "0",
        "compaction.offpeak.end.hour": "1",
        "compaction.offpeak-ratio": "20",
        "num-sorted-run.compaction-trigger": "3",
    }
    sizes = iter([900, 121, 100, 221])
    bucket = Bucket(
        CompactionPolicy.of(parse_options(quiet)),
        Load(commit_bytes=0),
        size_of=lambda _: next(sizes),
    )
    for _ in range(3):
        bucket.flush()

    compacts = [bucket.compact(hour * 3_600_000) is not None for hour in (23, 25, 24)]
    assert compacts == [False, False, True]


def test_lone_run_of_level_0_is_compacted_after_so_many_idle_picks() -> None:
    lookups = {
        "changelog-producer": "lookup",
        "lookup-compact": "gentle",
        "lookup-compact.max-interval": "3",
        "num-sorted-run.compaction-trigger": "3",
    }
    bucket = Bucket(CompactionPolicy.of(parse_options(lookups)), Load(commit_bytes=100))
    compacts = []
    for number in range(6):
        if number % 3 == 0:
            bucket.flush()
        compacts.append(bucket.compact() is not None)

    assert compacts == [False, False, True] * 2


# --- laws ----------------------------------------------------------------------------------------

FEW_SNAPSHOTS = {"snapshot__num_retained__max": "10"}


def outcome(load: Load, commits: int, every: int = 1, **options: str) -> Outcome:
    parsed = options_of(**FEW_SNAPSHOTS, **options)
    return SimulatedTable([load], parsed, compact_every=every).run(commits)


@pytest.mark.parametrize(
    ("load", "commits", "every", "options", "requests", "others"),
    [
        (
            Load(commit_bytes=1e6, key_bytes=2e7, buckets=3), 90, 1, {},
            {"DELETE": 10.25, "GET": 29.15, "LIST": 6.0, "PUT": 12.2},
            (3.169_013, 5, 9, 88_885_494, 46_582_125, 15, 50_853),
        ),
        (
            Load(commit_bytes=3e6), 60, 20, {"manifest__merge_min_count": "4"},
            {"DELETE": 5.575, "GET": 11.275, "LIST": 0.3, "PUT": 6.7},
            (2.499_275, 20, 2, 180_003_000, 60_030_000, 3, 17_682),
        ),
        (
            Load(commit_bytes=5e7, key_bytes=4e8, buckets=2), 60, 1,
            {**FULL_MERGES, "manifest__target_file_size": "16 kb"},
            {"DELETE": 8.725, "GET": 27.675, "LIST": 6.0, "PUT": 10.75},
            (2.469_693, 5, 10, 1_231_063_688, 2_182_647_188, 7, 18_146),
        ),
    ],
)  # fmt: skip
def test_figures_of_a_table_stay_as_they_were_compared_with_real_ones(
    load: Load,
    commits: int,
    every: int,
    options: dict[str, str],
    requests: dict[str, float],
    others: tuple[float, ...],
) -> None:
    units = replace(UNITS, keep_gets=1, keep_lists=2)
    parsed = options_of(**FEW_SNAPSHOTS, **options)
    found = SimulatedTable([load], parsed, compact_every=every, units=units).run(commits)

    assert found.requests == pytest.approx(requests)
    assert (
        round(found.write_amplification, 6), found.runs_max, found.files,
        round(found.live_bytes), round(found.kept_bytes), found.manifests, found.manifest_bytes,
    ) == others  # fmt: skip


def test_rows_are_written_once_until_the_first_compaction() -> None:
    assert outcome(Load(commit_bytes=1e6), 4).write_amplification == 1
    assert outcome(Load(commit_bytes=1e6), 400, every=0).write_amplification == 1


@given(st.integers(3, 9))
@settings(max_examples=4, deadline=None)
def test_trigger_by_the_rule_writes_less_than_the_logarithm(power: int) -> None:
    ratio = 2**power
    load = Load(commit_bytes=1e6, key_bytes=1e6 * ratio)
    trigger = str(ceil(log2(2 * ratio)))
    found = outcome(load, 4 * ratio, num_sorted_run__compaction_trigger=trigger)

    assert found.write_amplification < max(2, log2(ratio))
    assert found.runs_max <= int(trigger)


@given(st.sampled_from(["3", "5", "10"]), st.sampled_from([0, 1, 20]))
@settings(max_examples=4, deadline=None)
def test_more_buckets_never_send_fewer_puts(trigger: str, every: int) -> None:
    puts = [
        outcome(
            Load(commit_bytes=64e6 / buckets, key_bytes=6e9 / buckets, buckets=buckets),
            200,
            every,
            num_sorted_run__compaction_trigger=trigger,
        ).requests["PUT"]
        for buckets in (1, 4, 16, 64)
    ]

    assert puts == sorted(puts)


def test_sizes_are_within_a_factor_of_three_of_published_ones() -> None:
    """Iceberg with 20 M files: 400 manifests, planned in 90 s by 4 cores (apache/iceberg#8123)."""
    files = 20_000_000

    assert 1 / 3 < files * UNITS.entry_bytes / (8 << 20) / 400 < 3
    assert 1 / 3 < files * UNITS.plan_us / 1e6 / (90 * 4) < 3


def test_price_of_a_month() -> None:
    requests = {"PUT": 10, "GET": 25, "LIST": 2, "DELETE": 5}

    assert PRICES["s3"].month(requests, 10) == pytest.approx(0.259_2 * (5 * 12 + 0.4 * 25))
    assert PRICES["s3"].stored(2e12) == 46
    assert PRICES["local"].month(requests, 10) == 0


def test_large_manifests_that_lose_no_file_stay_in_a_full_merge() -> None:
    options = {
        "manifest__target_file_size": "2000 b",
        "manifest__merge_min_count": "99",
        "manifest__full_compaction_threshold_size": "1 kb",
    }
    metadata = Metadata(options_of(**options))
    for added in ({1: 10}, {2: 1, 3: 1}, {4: 10}, {5: 10}):
        metadata.commit(added, [])
    metadata.commit({6: 1}, [2])
    before = metadata.manifests
    assert [entries for _, entries in before] == [(1,), (2, 3), (4,), (5,), (-2, 6)]
    metadata.commit({7: 1}, [])

    after = metadata.manifests
    assert [entries for _, entries in after] == [(1,), (3,), (4,), (5,), (6,), (7,)]
    assert [after[0], *after[2:4]] == [before[0], *before[2:4]]
