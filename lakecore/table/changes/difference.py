"""The difference of two states of a table.

With a primary key: the files of both states are grouped into sections together. A section with the
same files in both states is not read. For any other section, both sides are merged as in a batch
read and compared by key, window by window (`merge/difference.py`). No merge engine can do without
this: new files alone do not show which earlier rows they replace or change.

Without a primary key: the rows of files that only the later state has. Rows that a compaction
rewrote cannot be distinguished from new rows; this raises Unsupported.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecore.errors import Unsupported
from lakecore.frames.source import reading
from lakecore.lsm.levels import sections, sorted_runs
from lakecore.merge.difference import AFTER, BEFORE, DIFFERENCE
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import Slice
from lakecore.model.files import Split
from lakecore.model.rows import VALUE_KIND, RowKind
from lakecore.options import POSTPONE_BUCKET
from lakecore.plan.row_ids import overlapping
from lakecore.table.reads.live_files import vectors_of
from lakecore.table.reads.scan import (
    commit_order,
    hides_level_0,
    keep_entries,
    key_ranks,
)
from lakecore.table.reads.stored_files import plan_stored
from lakecore.table.sections.merge_runs import Merging, merge_runs
from lakecore.table.sections.windows import merge_slices
from lakecore.table.stored_rows.followed import followed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakecore.model.files import DataFile, IndexFile, VectorRange
    from lakecore.model.manifest import EntryIdentity, ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.changes.wanted import Wanted
    from lakecore.table.context import TableContext
    from lakecore.table.stored_rows.read_plan import ReadPlan

_Bucket = tuple[bytes, int]
_Version = tuple["EntryIdentity", "tuple[IndexFile, VectorRange] | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One of the two states: its files, and the table with the level options of its snapshot."""

    number: int
    context: TableContext
    files: Mapping[_Bucket, Sequence[ManifestEntry]]
    vectors: Mapping[_Bucket, Mapping[str, tuple[IndexFile, VectorRange]]]

    def versions(self, bucket: _Bucket) -> Mapping[_Version, ManifestEntry]:
        """The files of a bucket, each with its deletion vector in this state."""
        own = self.vectors.get(bucket, {})
        found = self.files.get(bucket, ())
        return {(entry.identity, own.get(entry.file.name)): entry for entry in found}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The changes from one state of a table (None: empty) to another."""

    before: Snapshot | None
    after: Snapshot

    @property
    def snapshots_read(self) -> tuple[Snapshot, ...]:
        """The snapshots whose files are read."""
        return (self.after,) if self.before is None else (self.before, self.after)

    def streams(self, wanted: Wanted) -> Iterator[Iterator[pa.RecordBatch]]:
        """The changes, by bucket and section."""
        sides = (_side(wanted, self.before, BEFORE), _side(wanted, self.after, AFTER))
        buckets = sorted({bucket for side in sides for bucket in side.files})
        if not wanted.context.schema.primary_keys:
            for bucket in buckets:
                yield from _new_rows(wanted, sides, bucket)
            return
        _check_bucket_counts(wanted, sides)
        for bucket in buckets:
            for section in _sections(wanted, sides, bucket):
                yield _compared(wanted, sides, section)


def _side(wanted: Wanted, snapshot: Snapshot | None, number: int) -> _Side:
    files: dict[_Bucket, list[ManifestEntry]] = defaultdict(list)
    context = wanted.context
    if snapshot is None:
        return _Side(number=number, context=context, files=files, vectors={})
    context = wanted.as_of(snapshot).context
    hidden = hides_level_0(context.schema, context.options)
    live = context.history.live_entries(snapshot)
    for entry in keep_entries(wanted.scan, live, wanted.predicate):
        if not (hidden and entry.file.level == 0) and entry.bucket != POSTPONE_BUCKET:
            files[entry.partition, entry.bucket].append(entry)
    vectors = vectors_of(context.history, snapshot)
    return _Side(number=number, context=context, files=files, vectors=vectors)


def _check_bucket_counts(wanted: Wanted, sides: Sequence[_Side]) -> None:
    """Raise Unsupported if a key may have moved to another bucket."""
    counts: list[dict[bytes, int]] = []
    for side in sides:
        entries = [entry for files in side.files.values() for entry in files]
        counts.append({entry.partition: entry.total_buckets for entry in entries})
    for partition in counts[0].keys() & counts[1].keys():
        before, after = counts[0][partition], counts[1][partition]
        if before != after:
            raise Unsupported(
                "the difference between states with different numbers of buckets is not supported",
                partition=wanted.context.partitions.path(partition),
                before=before,
                after=after,
                table=wanted.context.identifier,
            )


def _new_rows(
    wanted: Wanted, sides: Sequence[_Side], bucket: _Bucket
) -> Iterator[Iterator[pa.RecordBatch]]:
    """The rows of the files that are in the later state but not in the earlier one."""
    before, after = (side.versions(bucket) for side in sides)
    new = [entry for version, entry in after.items() if version not in before]
    if not before.keys() <= after.keys() or _changes_rows(wanted, before.values(), new):
        raise Unsupported(
            "files of a table without a primary key were rewritten between the two states; read"
            " the snapshots between them: incremental-between-scan-mode=delta, and for tags "
            "incremental-between-tag-to-snapshot=true",
            table=wanted.context.identifier,
        )
    own = sides[AFTER].vectors.get(bucket, {})
    splits = [
        replace(
            split, vectors={file.name: own[file.name] for file in split.files if file.name in own}
        )
        for split in plan_stored(wanted.scan, new, wanted.predicate)
    ]
    yield from wanted.merged(splits, RowKind.INSERT)


def _changes_rows(
    wanted: Wanted, old: Iterable[ManifestEntry], new: Sequence[ManifestEntry]
) -> bool:
    """Whether new files hold columns of rows that the earlier state has."""
    if not wanted.context.options.data_evolution_enabled:
        return False
    there = {entry.file.name for entry in old}
    groups = overlapping(entry.file for entry in (*old, *new))
    return any(0 < sum(file.name in there for file in group) < len(group) for group in groups)


def _sections(
    wanted: Wanted, sides: Sequence[_Side], bucket: _Bucket
) -> Iterator[tuple[Split | None, Split | None]]:
    """The files before and after, for each section of a bucket that differs between the states.

    None: the state has no files in that section.
    """
    versions = [side.versions(bucket) for side in sides]
    orders = [commit_order([entry.file for entry in each.values()]) for each in versions]
    every = {**versions[BEFORE], **versions[AFTER]}
    names, entries = list(every), list(every.values())
    lows, highs = key_ranks([entry.file for entry in entries], wanted.context.schema)
    for section in sections(lows, highs):
        inside = [names[index] for index in section]
        if all(name in versions[BEFORE] and name in versions[AFTER] for name in inside):
            continue
        found: list[Split | None] = []
        for side, own, order in zip(sides, versions, orders, strict=True):
            at = [index for index in section if names[index] in own]
            files = [entries[index].file for index in at]
            runs = sorted_runs(files, lows[at].tolist(), highs[at].tolist())
            tuples = tuple(run.files for run in runs)
            found.append(_split(wanted, entries[at[0]], tuples, order, side) if files else None)
        yield found[BEFORE], found[AFTER]


def _split(
    wanted: Wanted,
    place: ManifestEntry,
    runs: tuple[tuple[DataFile, ...], ...],
    order: Mapping[str, int],
    side: _Side,
) -> Split:
    own = side.vectors.get((place.partition, place.bucket), {})
    names = {file.name for run in runs for file in run}
    return Split(
        partition=place.partition,
        partition_path=wanted.context.partitions.path(place.partition),
        bucket=place.bucket,
        total_buckets=place.total_buckets,
        runs=runs,
        raw=False,
        commit_order={name: order[name] for name in names},
        vectors={name: own[name] for name in names if name in own},
    )


def _compared(
    wanted: Wanted, sides: Sequence[_Side], section: tuple[Split | None, Split | None]
) -> Iterator[pa.RecordBatch]:
    """The rows of a section that differ between the states, with their kinds."""
    plan = wanted.read_plan(
        [side for side in section if side is not None], wanted.context.schema.names
    )
    plan = replace(plan, merge=replace(plan.merge, in_key_order=True))
    merging = Merging(compared=tuple(split for split in section if split is not None))
    slices = [
        _slices(side, split, plan, merging)
        for side, split in zip(sides, section, strict=True)
        if split is not None
    ]
    columns = [*wanted.columns, VALUE_KIND]
    context, shown = wanted.context, replace(plan, columns=wanted.columns)
    with reading(merge_slices(slices, DIFFERENCE, plan.merge)) as windows:
        different = (batch for rows in windows for batch in rows.select(columns).to_batches())
        yield from followed(different, shown, context.store, context.budget)


def _slices(side: _Side, split: Split, plan: ReadPlan, merging: Merging) -> Iterator[Slice]:
    context, number = side.context, side.number
    plan = replace(plan, merge=replace(plan.merge, complete_levels=context.options.needs_lookup))
    names = list(plan.columns)
    merged = merge_runs(split, plan, context.store, context.budget, merging=merging)
    with reading(merged) as windows:
        for rows in windows:
            keys = order_columns([rows.column(name) for name in plan.merge.key])
            yield Slice(
                rows=rows.select(names),
                keys=keys,
                sequence_min=number,
                sequence_max=number,
                commit_order=number,
            )
