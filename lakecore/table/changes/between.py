"""Reads the changes between two points of a table's history.

Works like Paimon's `incremental-between`
(https://paimon.apache.org/docs/master/flink/sql-query/#batch-incremental): the start is exclusive,
the end inclusive. A point is a snapshot id, a tag or a time; a time means the newest snapshot at
that time. A string is a tag if one has that name, else a snapshot id if it has only digits, else a
time: tags are often named after a day or hour.

- By default, the changelog of each snapshot is read; for a table without a changelog, the added
  rows. `incremental-between-scan-mode` overrides the choice.
- With data evolution, the rows of all these snapshots are read together: a row has the newest
  values that one of the snapshots wrote, and null for columns that none wrote.
- Between two tags, and with the mode `diff`, the two states are compared. The snapshots between the
  two may have expired. With `incremental-between-tag-to-snapshot`, a tag is treated like the id of
  its snapshot: the snapshots between are read.

Paimon clips a range that begins before the earliest remaining snapshot. lakecore raises NotFound,
because changes would be missing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from lakecore.errors import InvalidRequest, NotFound, Unsupported
from lakecore.frames.source import reading
from lakecore.lsm.levels import sections, sorted_runs
from lakecore.merge.changelog import AFTER, BEFORE, DIFFERENCE
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import Slice
from lakecore.model.files import DataFile, IndexFile, Split, VectorRange
from lakecore.model.option_rules import validate_scan
from lakecore.model.rows import VALUE_KIND, RowKind
from lakecore.model.times import Time, is_time_text, to_milliseconds, whole_number
from lakecore.options import POSTPONE_BUCKET, IncrementalScanMode, ScanMode
from lakecore.plan.row_changes import Taken, mode_between, taken_between
from lakecore.plan.row_ids import overlapping
from lakecore.table.changes.changes import Change, ChangesSource, StoredRows
from lakecore.table.changes.starts import RetainedChanges, retained_changes
from lakecore.table.file_reader.blob_resolution import followed
from lakecore.table.reads.scan import (
    VectorsOfBuckets,
    commit_order,
    hides_level_0,
    keep_entries,
    key_ranks,
)
from lakecore.table.reads.stored_files import plan_stored
from lakecore.table.sections.merge_runs import Merging, merge_runs
from lakecore.table.sections.windows import merge_slices

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakecore.model.manifest import EntryIdentity, ManifestEntry
    from lakecore.model.snapshot import Snapshot, Tag
    from lakecore.table.changes.wanted import Wanted
    from lakecore.table.context import TableContext
    from lakecore.table.file_reader.read_plan import ReadPlan


# --- difference ----------------------------------------------------------------------------------
# The difference of two states of a table.
#
# With a primary key: the files of both states are grouped into sections together. A section with
# the same files in both states is not read. For any other section, both sides are merged as in a
# batch read and compared by key, window by window (`merge/changelog.py`). Every merge engine needs
# this comparison: new files alone do not show which earlier rows they replace or change.
#
# Without a primary key: the rows of files that only the later state has. Rows that a compaction
# rewrote cannot be distinguished from new rows: such a difference raises Unsupported.

_Bucket = tuple[bytes, int]
_Version = tuple["EntryIdentity", "tuple[IndexFile, VectorRange] | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One of the two states: its files, and the table with the level options of its snapshot."""

    number: int
    context: TableContext
    files: Mapping[_Bucket, Sequence[ManifestEntry]]
    vectors: VectorsOfBuckets

    def versions(self, bucket: _Bucket) -> Mapping[_Version, ManifestEntry]:
        """The files of a bucket, each with its deletion vector in this state."""
        own = self.vectors.of(*bucket)
        found = self.files.get(bucket, ())
        return {(entry.identity, own.get(entry.file.name)): entry for entry in found}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The changes from one state of a table (None: empty) to another."""

    before: Snapshot | None
    after: Snapshot

    @property
    def snapshots_read(self) -> tuple[Snapshot, ...]:
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
        return _Side(
            number=number,
            context=context,
            files=files,
            vectors=VectorsOfBuckets(context.history, None),
        )
    context = wanted.as_of(snapshot).context
    hidden = hides_level_0(context.schema, context.options)
    live = context.history.live_entries(snapshot)
    for entry in keep_entries(wanted.scan, live, wanted.predicate):
        if not (hidden and entry.file.level == 0) and entry.bucket != POSTPONE_BUCKET:
            files[entry.partition, entry.bucket].append(entry)
    vectors = VectorsOfBuckets(context.history, snapshot)
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
    own = sides[AFTER].vectors.of(*bucket)
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
    """Whether new files hold columns of rows that already exist in the earlier state."""
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
    own = side.vectors.of(place.partition, place.bucket)
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


# --- between -------------------------------------------------------------------------------------

Point: TypeAlias = Time | None
"""A point of the history: a snapshot id, a tag (or an id as text), or a time.

None as the start: before the first snapshot. None as the end: the latest snapshot.
"""


def changes_between(context: TableContext, start: Point, end: Point) -> ChangesSource:
    """The changes after the start up to the end; see the module.

    If neither point is given, options may name both. Raises NotFound if a point, or a snapshot
    between the two, does not exist.
    """
    _check_no_fallback(context)
    points = _points_of_options(context) if start is None and end is None else None
    return ChangesSource(context=context, changes=_changes(context, *(points or (start, end))))


def changes_of_options(context: TableContext) -> ChangesSource | None:
    """The changes that the options `incremental-between...` name; None if they are not set.

    As in Paimon, only +I and +U rows are read, without their kinds.
    """
    points = _points_of_options(context)
    if points is None:
        return None
    _check_no_fallback(context)
    return ChangesSource(context=context, changes=_changes(context, *points), kinds=False)


def _check_no_fallback(context: TableContext) -> None:
    """Raise Unsupported for a table with a fallback branch: which changes to read is undefined."""
    if context.falls_back:
        raise Unsupported(
            "changes between two points cannot be read with a fallback branch; use "
            'table.copy({"scan.fallback-branch": ""})',
            option="scan.fallback-branch",
            table=context.identifier,
        )


def _points_of_options(context: TableContext) -> tuple[_Stated, _Stated] | None:
    options = context.options
    if options.incremental_between is not None:
        first, last = _pair("incremental-between", options.incremental_between, context)
        return _Text(first), _Text(last)
    if options.incremental_between_timestamp is not None:
        key, text = "incremental-between-timestamp", options.incremental_between_timestamp
        first, last = _pair(key, text, context)
        return _time(first), _time(last)
    if options.scan_mode is ScanMode.INCREMENTAL:
        validate_scan(options)
    return None


@dataclass(frozen=True, slots=True)
class _Time:
    """A point in time, in milliseconds since the epoch, and as it was given."""

    time_ms: int
    given: object


@dataclass(frozen=True, slots=True)
class _Text:
    """A tag or a snapshot id, never a time: a point that `incremental-between` names."""

    given: str


_Stated: TypeAlias = _Text | _Time


@dataclass(frozen=True, slots=True)
class _Found:
    """The snapshot that a point means. `tag` is set if the point is a tag."""

    id: int
    tag: Tag | None = None


def _changes(
    context: TableContext, start: Point | _Stated, end: Point | _Stated
) -> tuple[Change, ...]:
    retained = retained_changes(context)
    since, until = _named(context, start), _named(context, end)
    if retained is None:
        if isinstance(until, int) or (isinstance(since, int) and since != 0):
            raise NotFound(
                "the table has no snapshot yet",
                start=_given(start),
                end=_given(end),
                table=context.identifier,
            )
        return ()
    mode = mode_between(context.options)
    last = _found(retained, until, at_start=False)
    if start is None and mode is IncrementalScanMode.DIFF:
        first = _Found(0)  # comparing with the empty state needs no older snapshots
    else:
        first = _found(retained, since, at_start=True)
    if first.id > last.id:
        raise InvalidRequest(
            "the start is after the end",
            start=_given(start),
            end=_given(end),
            start_snapshot=first.id,
            end_snapshot=last.id,
            table=context.identifier,
        )
    if first.id == last.id:
        return ()
    tags = first.tag is not None and last.tag is not None
    if tags and not context.options.incremental_between_tag_to_snapshot:
        mode = IncrementalScanMode.DIFF
    if mode is IncrementalScanMode.DIFF:
        before = _state(context, first) if first.id > 0 else None
        return (Difference(before=before, after=_state(context, last)),)
    taken = [
        (each, taken_between(each, mode)) for each in retained.snapshots(first.id + 1, last.id)
    ]
    found = [
        StoredRows(snapshot=snapshot, changelog=what is Taken.CHANGELOG)
        for snapshot, what in taken
        if what is not None
    ]
    if context.options.data_evolution_enabled and found:
        # As in Paimon: files of all these snapshots that hold columns of the same rows are joined.
        earlier = tuple(each.snapshot for each in found[:-1])
        return (replace(found[-1], earlier=earlier),)
    return tuple(found)


_Named: TypeAlias = "int | Tag | _Time | None"


def _named(context: TableContext, point: Point | _Stated) -> _Named:
    """The tag, id or time that a point names. Raises NotFound for an unknown tag."""
    number = whole_number(point)
    if number is not None:
        return number
    if point is None or isinstance(point, _Time):
        return point
    if isinstance(point, _Text):
        return _named_by_text(context, point.given, may_be_time=False)
    if isinstance(point, str):
        return _named_by_text(context, point, may_be_time=True)
    try:
        return _time(point)
    except InvalidRequest as error:
        raise InvalidRequest(
            "a point must be a snapshot id, a tag or a time", given=point, why=error
        ) from error


def _named_by_text(context: TableContext, text: str, *, may_be_time: bool) -> _Named:
    tags = context.history.tag_names()
    if text not in tags:
        if text.isascii() and text.isdigit():
            return int(text)
        if may_be_time and is_time_text(text):
            return _time(text)
        if may_be_time:
            raise NotFound(
                "no such tag, and neither a snapshot id nor a time such as 2026-01-31",
                given=text,
                tags=tags,
            )
    return context.history.tag(text)


def _found(retained: RetainedChanges, point: _Named, *, at_start: bool) -> _Found:
    match point:
        case None:
            return _Found(_before_all(retained, "the beginning") if at_start else retained.latest)
        case int():
            return _Found(_known(retained, point, at_start=at_start))
        case _Time():
            return _at_time(retained, point, at_start=at_start)
        case tag:
            return _Found(tag.snapshot.id, tag)


def _known(retained: RetainedChanges, snapshot_id: int, *, at_start: bool) -> int:
    """Return `snapshot_id`. Raises NotFound if its changes have expired or are not committed yet.

    With `at_start`, the id before the earliest one is valid too, because a start is exclusive.
    """
    earliest = retained.earliest - 1 if at_start else retained.earliest
    if at_start and snapshot_id == 0:
        return _before_all(retained, "snapshot 0")
    if not earliest <= snapshot_id <= retained.latest:
        raise retained.gone(snapshot_id + 1 if at_start and snapshot_id < earliest else snapshot_id)
    return snapshot_id


def _at_time(retained: RetainedChanges, point: _Time, *, at_start: bool) -> _Found:
    newest = retained.newest_at(point.time_ms)
    if newest is not None:
        return _Found(newest)
    # A range that ends before the first snapshot is empty.
    return _Found(_before_all(retained, str(point.given)) if at_start else retained.earliest - 1)


def _before_all(retained: RetainedChanges, start: str) -> int:
    """The id before the first snapshot. Raises NotFound if the first snapshot has expired."""
    if retained.earliest > 1:
        raise NotFound(
            "changes since then have expired; begin at the earliest existing snapshot or later",
            start=start,
            earliest=retained.earliest,
            earliest_ms=retained.snapshot(retained.earliest).time_ms,
            table=retained.context.identifier,
        )
    return 0


def _state(context: TableContext, point: _Found) -> Snapshot:
    """The snapshot whose state a point names. Raises NotFound if it has expired."""
    return context.history.snapshot(point.id) if point.tag is None else point.tag.snapshot


def _pair(key: str, text: str, context: TableContext) -> tuple[str, str]:
    first, comma, last = (part.strip() for part in text.partition(","))
    if not comma or not first or not last or "," in last:
        raise InvalidRequest(
            "the option must name two points, separated by a comma",
            option=key,
            value=text,
            table=context.identifier,
        )
    return first, last


def _time(given: Time) -> _Time:
    return _Time(to_milliseconds(given), given)


def _given(point: Point | _Stated) -> object:
    return point.given if isinstance(point, _Stated) else point
