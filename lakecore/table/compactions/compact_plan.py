"""Plans the compaction of each bucket from the list of its files.

`lsm/universal.py` picks the runs, and decides which of their files are merged and which only change
their level. Pure except for the clock: `compact_bucket.py` executes the plan.

The files are the live files of a snapshot and, within a write, the files it has just written, which
are last in commit order.

INVARIANT: tombstones are dropped only if the unit says that no older row is left to hide.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from lakecore.lsm.levels import SortedRun, level_runs
from lakecore.lsm.universal import (
    CompactionPolicy,
    CompactionUnit,
    Moment,
    Reason,
    Rewrite,
    Step,
    Upgrade,
    last_full_ms,
    pick,
    pick_full,
    unit_steps,
)
from lakecore.options import ChangelogProducer
from lakecore.table.file_reader.read_plan import RecordExpiry, record_expiry
from lakecore.table.reads.scan import VectorsOfBuckets, commit_order, key_ranks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lakecore.model.files import CommitMessage, DataFile, Vectors
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.options import TableOptions
    from lakecore.plan.predicate import Predicate
    from lakecore.table.context import TableContext


# --- idle picks ----------------------------------------------------------------------------------
# How often a long-running job found nothing to compact in a bucket.
#
# With `lookup-compact` = `gentle`, level 0 is compacted only if the number of runs requires it, or
# after `lookup-compact.max-interval` picks that found nothing. A job counts such picks over its
# rounds, even for a bucket without new files, so that the bucket's rows become visible eventually.
# In Java Paimon, a round is a checkpoint.

Bucket = tuple[bytes, int]
"""Partition and bucket."""


class IdlePicks:
    """The counts of one job, by bucket."""

    def __init__(self) -> None:
        self._counts: dict[Bucket, int] = {}
        self._counted: set[Bucket] = set()

    def begin_round(self) -> None:
        """Start a round. A bucket counts once in a round, however often it is planned."""
        self._counted = set()

    def count(self, bucket: Bucket) -> int:
        """The picks that found nothing since level 0 was last compacted, without this round."""
        return self._counts.get(bucket, 0) - (bucket in self._counted)

    def found_nothing(self, bucket: Bucket) -> None:
        """Count that a plan found nothing to compact in the bucket; at most once per round."""
        if bucket not in self._counted:
            self._counts[bucket] = self._counts.get(bucket, 0) + 1
            self._counted.add(bucket)

    def took_level_0(self, bucket: Bucket) -> None:
        """Restart the count, because level 0 is compacted."""
        self._counts.pop(bucket, None)
        self._counted.discard(bucket)


# --- compact plan --------------------------------------------------------------------------------

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketFiles:
    """The files of a bucket, in commit order; they are live in snapshot `base_snapshot_id`."""

    partition: bytes
    bucket: int
    total_buckets: int
    base_snapshot_id: int | None
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketCompaction:
    """The work planned for a bucket of a snapshot, and its output level.

    `order` numbers the files of the bucket in commit order; `others` are the unchanged files;
    `vectors` has the deletion vectors of the bucket. `expiry` says which rows are left out.
    Without `keeps_changelog`, no changelog is written, as after an overwrite. `keys`: the keys of a
    part of the work (`part`); None: all.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    base_snapshot_id: int | None
    level: int
    reason: Reason
    keep_deletions: bool
    steps: tuple[Step, ...]
    others: tuple[DataFile, ...]
    order: Mapping[str, int]
    vectors: Vectors
    expiry: RecordExpiry | None = None
    keeps_changelog: bool = True
    keys: Predicate | None = None

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files that will be replaced, or change their level."""
        return tuple(chain.from_iterable(_files_of(step) for step in self.steps))

    @property
    def row_count(self) -> int:
        """The rows of these files, as stored."""
        return sum(file.row_count for file in self.files)

    @property
    def runs(self) -> tuple[tuple[DataFile, ...], ...]:
        """The runs of all sections that are rewritten."""
        rewrites = [step for step in self.steps if isinstance(step, Rewrite)]
        return tuple(run.files for step in rewrites for section in step.sections for run in section)

    def can_be_cut(self, options: TableOptions) -> bool:
        """Whether parts of the work, between keys, make together what the whole makes.

        Other rows must not be looked up or marked, and no changelog written, because a part also
        reads some keys outside of its range.
        """
        producers = (ChangelogProducer.LOOKUP, ChangelogProducer.FULL_COMPACTION)
        tells = self.keeps_changelog and options.changelog_producer in producers
        beside = options.needs_lookup or options.deletion_vectors_enabled or bool(self.vectors)
        deeper = any(file.level > self.level for file in self.others)
        return not (tells or beside or deeper) and all(
            isinstance(step, Rewrite) for step in self.steps
        )

    def part(self, keys: Predicate, names: Collection[str]) -> BucketCompaction:
        """The part of the work for these keys, which only the named files may have."""
        found: list[Step] = []
        for step in self.steps:
            assert isinstance(step, Rewrite), "a file that changes its level cannot be cut"
            sections = [
                tuple(
                    SortedRun(files=inside)
                    for run in section
                    if (inside := tuple(file for file in run.files if file.name in names))
                )
                for section in step.sections
            ]
            kept = tuple(section for section in sections if section)
            found += [Rewrite(sections=kept)] if kept else []
        return replace(self, steps=tuple(found), keys=keys)

    def joined(self, messages: Sequence[CommitMessage]) -> CommitMessage:
        """The message of the whole, from those of its parts in the order of their keys."""
        after = tuple(file for message in messages for file in message.compact_after)
        return replace(messages[0], compact_before=self.files, compact_after=after)


def plan_buckets(
    context: TableContext,
    snapshot: Snapshot,
    entries: Iterable[ManifestEntry],
    *,
    full: bool,
    idle: IdlePicks | None = None,
) -> list[BucketCompaction]:
    """The plans for the buckets of these live files. Buckets without work are left out.

    With `full`, everything is merged into the last level; otherwise universal compaction picks the
    files. `idle` counts how often a long-running job found nothing to do in each bucket. Raises
    CorruptTable for a bucket whose files of a level above 0 overlap.
    """
    vectors = VectorsOfBuckets(context.history, snapshot)
    idle = IdlePicks() if idle is None else idle
    planned: list[BucketCompaction] = []
    for bucket in files_by_bucket(entries, snapshot.id):
        key = (bucket.partition, bucket.bucket)
        own = vectors.of(*key)
        plan = plan_bucket(context, bucket, own, full=full, idle_picks=idle.count(key))
        if plan is None:
            idle.found_nothing(key)
            continue
        if plan.reason is Reason.LEVEL_0:
            idle.took_level_0(key)
        planned.append(plan)
    return planned


def files_by_bucket(entries: Iterable[ManifestEntry], snapshot_id: int | None) -> list[BucketFiles]:
    """The live files of each bucket."""
    found: dict[tuple[bytes, int, int], list[DataFile]] = defaultdict(list)
    for entry in entries:
        found[entry.partition, entry.bucket, entry.total_buckets].append(entry.file)
    return [
        BucketFiles(
            partition=partition,
            bucket=number,
            total_buckets=total,
            base_snapshot_id=snapshot_id,
            files=tuple(files),
        )
        for (partition, number, total), files in sorted(found.items())
    ]


def plan_bucket(
    context: TableContext, bucket: BucketFiles, vectors: Vectors, *, full: bool, idle_picks: int = 0
) -> BucketCompaction | None:
    """The plan for a bucket with these deletion vectors; None if there is nothing to do.

    If `full`, every file with a vector is rewritten. A file of the last level is rewritten if its
    statistics show that a row has expired, and the unit takes that level.

    Raises CorruptTable if files of a level above 0 overlap.
    """
    policy = CompactionPolicy.of(context.options)
    files = bucket.files
    lows, highs = key_ranks(files, context.schema)
    runs = level_runs(files, lows, highs)
    last = policy.level_max(runs)
    expiry, expired = None, frozenset[str]()
    if context.options.record_level_expire_time_ms is not None:
        expiry = record_expiry(context.options, context.ambient.now_ms())
        schemas = {file.schema_id: context.history.schema(file.schema_id) for file in files}
        expired = expiry.expired_files(files, context.schema, schemas)
    if full:
        unit = _full_unit(runs, policy, expired | vectors.keys())
    else:
        unit = pick(runs, policy, _moment(context, runs, policy, idle_picks))
    if unit is None:
        return None
    places = {file.name: place for place, file in enumerate(files)}
    at = np.array([places[file.name] for file in unit.files])
    stale = {file.name for file in unit.files if full and file.name in vectors}
    stale |= expired if unit.level_output == last else set()
    steps = unit_steps(unit, lows[at], highs[at], policy, stale)
    if not steps:
        return None
    taken = {file.name for step in steps for file in _files_of(step)}
    return BucketCompaction(
        partition=bucket.partition,
        bucket=bucket.bucket,
        total_buckets=bucket.total_buckets,
        base_snapshot_id=bucket.base_snapshot_id,
        level=unit.level_output,
        reason=unit.reason,
        keep_deletions=not unit.drops_deletions,
        steps=steps,
        others=tuple(file for file in files if file.name not in taken),
        order=commit_order(files),
        vectors=vectors,
        expiry=expiry if unit.level_output == last else None,
    )


def with_older_runs(context: TableContext, compaction: BucketCompaction) -> BucketCompaction:
    """The same plan, but for all runs of the bucket: its rows then meet all older ones."""
    files = (*compaction.files, *compaction.others)
    bucket = BucketFiles(
        partition=compaction.partition,
        bucket=compaction.bucket,
        total_buckets=compaction.total_buckets,
        base_snapshot_id=compaction.base_snapshot_id,
        files=tuple(sorted(files, key=lambda file: compaction.order[file.name])),
    )
    wider = plan_bucket(context, bucket, compaction.vectors, full=True)
    assert wider is not None, "several runs can always be compacted in full"
    return replace(wider, keeps_changelog=compaction.keeps_changelog)


def _files_of(step: Step) -> tuple[DataFile, ...]:
    return (step.file,) if isinstance(step, Upgrade) else step.files


def _full_unit(
    runs: Sequence[SortedRun], policy: CompactionPolicy, stale_names: Collection[str]
) -> CompactionUnit | None:
    # In the last level a tombstone hides nothing more, so its file is rewritten without it.
    stale = {
        file.name
        for run in runs
        for file in run.files
        if file.delete_row_count != 0 or file.name in stale_names
    }
    return pick_full(runs, policy, stale)


def _moment(
    context: TableContext, runs: Sequence[SortedRun], policy: CompactionPolicy, idle_picks: int
) -> Moment:
    now_ms = context.ambient.local_wall_clock_ms()
    return Moment(
        now_ms=now_ms,
        hour=now_ms // _HOUR_MS % 24,
        last_full_ms=last_full_ms(runs, policy),
        idle_picks=idle_picks,
    )
