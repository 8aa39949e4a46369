"""Plans a read: computes the splits of a snapshot in which rows may match a predicate.

1. Fold the manifests of the snapshot to its live files. Prune partitions whose values do not match,
   manifests that hold only such partitions, and files by their row ids.
2. Prune buckets that the predicate rules out.
3. Prune files by the statistics of their keys. A key that matches is in no pruned file, so a merge
   gets all rows of such a key.
4. Group the files of each bucket into splits (`plan/splits.py`).
5. Prune raw files by the statistics of their values, then by file indexes.
   Prune a merged section only if no file can match and the merge keeps rows unchanged.

INVARIANT: a value predicate never removes a single file of a merged section: if the file held the
newest row of a key, an older row would reappear. A value predicate also never removes a section
whose rows are folded (aggregation, partial-update): the folded row may match although no stored row
does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING, overload

import numpy as np
import polars as pl
import pyarrow as pa

from lakecore.format.binary_row import decode_rows
from lakecore.format.entry_columns import COUNTED, HOLDS_DELETIONS
from lakecore.format.layout import POSTPONE_BUCKET, Layout
from lakecore.format.statistics import key_bounds
from lakecore.io.cache import Cache
from lakecore.io.live_files import ENTRY_BYTES, LiveColumns
from lakecore.lsm.levels import sorted_runs
from lakecore.lsm.packing import in_order
from lakecore.merge.keys import order_columns, shared_codes
from lakecore.model.files import DELETION_VECTORS, DataFile, IndexFile, Split, VectorRange
from lakecore.model.manifest import ManifestEntry, ManifestFile, fold
from lakecore.options import MergeEngine, TableOptions
from lakecore.plan.manifests import holding, hull_of, live_count
from lakecore.plan.partitions import Partitions, bucket_key_fields, hash_is_settled
from lakecore.plan.predicate import Predicate, columns_of, condition_on
from lakecore.plan.pruning import matches_exactly, may_match, prune_buckets
from lakecore.plan.row_ids import by_row_ids
from lakecore.plan.splits import (
    FileColumns,
    SplitColumns,
    folds_values,
    pack,
    plan_bucket,
    plan_columns,
)
from lakecore.table.reads.file_selection import (
    IndexedFiles,
    keep_row_ids,
    matching_values,
    on_stored_columns,
    selecting,
    without_references,
)

if TYPE_CHECKING:
    from pyroaring import BitMap

    from lakecore.format.entry_columns import Wanted
    from lakecore.io.history import History
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot


# --- live files ----------------------------------------------------------------------------------
# The live files of a snapshot in partitions that match a condition, from few manifests.
#
# A manifest list states the range of partitions of each manifest. Manifests that cannot hold an
# entry of a matching partition are not read. Entries of other partitions are dropped before the
# fold, because the entries they cancel may be in manifests that were not read.
#
# This module also reads the deletion vectors of a snapshot.


def live_files(
    history: History, partitions: Partitions, snapshot: Snapshot, condition: Predicate | None
) -> tuple[Sequence[ManifestEntry], int]:
    """The live files of partitions that match (None: of all), and the number of all live files."""
    if condition is None:
        live = history.live_entries(snapshot)
        return live, len(live)
    known = history.live_if_known(snapshot)
    if known is None:
        manifests = history.manifests(snapshot)
        chosen = holding(condition, manifests, partitions)
        if not history.is_small(snapshot):
            large = _of_large(history, partitions, chosen, condition)
            return large.entries(), live_count(manifests)
        if len(chosen) < len(manifests):
            entries = in_partitions(history.entries(chosen), partitions, condition)
            return fold(entries), live_count(manifests)
        known = history.live_entries(snapshot)
    return in_partitions(known, partitions, condition), len(known)


def _of_large(
    history: History,
    partitions: Partitions,
    manifests: Sequence[ManifestFile],
    condition: Predicate | None,
    without: frozenset[bytes] = frozenset(),
) -> LiveColumns:
    """The live files of matching partitions after these manifests."""
    if condition is None and not without:
        return history.live_columns(manifests)
    distinct = [each for each in history.partitions(manifests) if each not in without]
    if condition is not None and distinct:
        matches = matches_exactly(condition, partitions.values(distinct))
        distinct = [each for each, match in zip(distinct, matches, strict=True) if match]
    return history.live_columns(manifests, dict.fromkeys(distinct))


def live_in(
    history: History,
    partitions: Partitions,
    snapshot: Snapshot,
    buckets: Iterable[tuple[bytes, int]],
) -> Sequence[ManifestEntry]:
    """The live files of these buckets, each a partition and a number, as their ADD entries."""
    wanted: dict[bytes, set[int]] = defaultdict(set)
    for partition, bucket in buckets:
        wanted[partition].add(bucket)
    return _wanted(history, partitions, snapshot, wanted)


def of_last_level(
    history: History, options: TableOptions, entries: Sequence[ManifestEntry]
) -> list[ManifestEntry]:
    """The entries at the last level of their bucket. All live files of these buckets are given.

    The last level is that of the options. If `num-levels` was larger, it is the deepest level that
    has files, because full compactions write there; if it was smaller, the former last level counts
    until a compaction empties it.
    """
    deepest: dict[tuple[bytes, int], int] = defaultdict(int)
    for entry in entries:
        place = entry.partition, entry.bucket
        deepest[place] = max(deepest[place], entry.file.level)
    last = options.level_count - 1

    @cache
    def was_last(level: int, schema_id: int) -> bool:
        return level >= last or level >= history.schema(schema_id).parsed_options().level_count - 1

    return [
        entry
        for entry in entries
        if entry.file.level == deepest[entry.partition, entry.bucket] > 0
        and was_last(entry.file.level, entry.file.schema_id)
    ]


def live_in_partitions(
    history: History, partitions: Partitions, snapshot: Snapshot, values: Iterable[bytes]
) -> Sequence[ManifestEntry]:
    """The live files of these serialized partitions, as their ADD entries."""
    return _wanted(history, partitions, snapshot, dict.fromkeys(values))


def _wanted(
    history: History, partitions: Partitions, snapshot: Snapshot, wanted: Wanted
) -> Sequence[ManifestEntry]:
    if not wanted:
        return ()
    if history.is_small(snapshot):
        live = history.live_entries(snapshot)
        own = [entry for entry in live if entry.partition in wanted]
        return [e for e in own if (some := wanted[e.partition]) is None or e.bucket in some]
    manifests = manifests_of(history, partitions, snapshot, list(wanted))
    return history.live_columns(manifests, wanted).entries()


def manifests_of(
    history: History, partitions: Partitions, snapshot: Snapshot, values: Sequence[bytes]
) -> Sequence[ManifestFile]:
    """The manifests of a snapshot that may hold entries of these serialized partitions."""
    manifests = history.manifests(snapshot)
    if not partitions.fields:
        return manifests
    return holding(hull_of(partitions.values(values)), manifests, partitions)


def in_partitions(
    entries: Sequence[ManifestEntry], partitions: Partitions, condition: Predicate | None
) -> Sequence[ManifestEntry]:
    """The entries of partitions that match the condition (None: all entries)."""
    if condition is None or not entries:
        return entries
    distinct = list({entry.partition: None for entry in entries})
    matches = matches_exactly(condition, partitions.values(distinct))
    wanted = {value for value, match in zip(distinct, matches, strict=True) if match}
    return [entry for entry in entries if entry.partition in wanted]


class VectorsOfBuckets:
    """The deletion vectors of a snapshot, looked up when a bucket is read."""

    def __init__(self, history: History, snapshot: Snapshot | None) -> None:
        self._files = history.index_files(snapshot)

    def of(self, partition: bytes, bucket: int) -> Mapping[str, tuple[IndexFile, VectorRange]]:
        """The deletion vectors of a bucket, by data file name."""
        return {
            where.data_file: (file, where)
            for file in self._files.get((partition, bucket), ())
            if file.index_type == DELETION_VECTORS
            for where in file.vectors or ()
        }


# --- scan ----------------------------------------------------------------------------------------

Bucket = tuple[bytes, int, int]
"""The partition, the bucket number, and the number of buckets of the partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """How many live files a plan left out, by reason."""

    by_partition: int = 0
    by_bucket: int = 0
    by_statistics: int = 0
    by_index: int = 0
    hidden_level_0: int = 0
    hidden_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """What to read at a snapshot (None: the table is empty), and what was pruned."""

    snapshot: Snapshot | None
    splits: Sequence[Split] = ()
    files_total: int = 0
    skipped: Skipped = Skipped()

    @property
    def files_kept(self) -> int:
        if isinstance(self.splits, LargeSplits):
            return self.splits.files_count
        return sum(len(split.files) for split in self.splits)

    @property
    def size_bytes(self) -> int:
        """The bytes of the files that will be read."""
        if isinstance(self.splits, LargeSplits):
            return self.splits.size_bytes
        return sum(split.size_bytes for split in self.splits)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanContext:
    """The table as a scan sees it; without a `layout`, file indexes are not read."""

    history: History
    schema: TableSchema
    options: TableOptions
    partitions: Partitions
    layout: Layout | None = None

    @property
    def indexes(self) -> IndexedFiles | None:
        """The file indexes of the table; None if they are not read."""
        if self.layout is None or not self.options.file_index_read_enabled:
            return None
        return IndexedFiles(self.history, self.layout, self.schema, self.partitions)


def plan_scan(
    context: ScanContext,
    snapshot: Snapshot | None,
    predicate: Predicate | None = None,
    *,
    shown: Callable[[Sequence[ManifestEntry]], list[ManifestEntry]] | None = None,
    without: frozenset[bytes] = frozenset(),
) -> ScanPlan:
    """The splits of a snapshot that may hold matching rows, in order of partition and bucket.

    `shown` selects the files to read; by default, `hides_level_0` decides. Partitions in `without`
    are left out.
    """
    if snapshot is None:
        return ScanPlan(snapshot=None)
    on_partitions = condition_on(predicate, context.schema.partition_keys)
    if shown is None and _needs_columns_only(context, snapshot, predicate):
        return _plan_large(context, snapshot, on_partitions, without)
    entries, total = live_files(context.history, context.partitions, snapshot, on_partitions)
    if without:
        entries = [entry for entry in entries if entry.partition not in without]
    by_partition = total - len(entries)
    entries, by_row_id = keep_row_ids(entries, context.schema, predicate)
    predicate = on_stored_columns(context.schema, predicate)
    entries, by_bucket = _keep_buckets(entries, context, predicate)
    settled = shown is None and hides_level_0(context.schema, context.options)
    visible = _visible(entries if shown is None else shown(entries), settled=settled)
    hidden = len(entries) - len(visible)
    kept, by_key = _keep_keys(visible, context, predicate)
    splits, by_value, by_index = _deal(kept, context, snapshot, predicate, settled=settled)
    return ScanPlan(
        snapshot=snapshot,
        splits=tuple(context.partitions.in_scan_order(splits)),
        files_total=total,
        skipped=Skipped(
            by_partition=by_partition,
            by_bucket=by_bucket,
            by_statistics=by_row_id + by_key + by_value,
            by_index=by_index,
            hidden_level_0=hidden,
            hidden_rows=sum(e.file.row_count for e in entries)
            - sum(e.file.row_count for e in visible),
        ),
    )


def visible_partitions(
    context: ScanContext,
    snapshot: Snapshot | None,
    predicate: Predicate | None = None,
    *,
    shown: Callable[[Sequence[ManifestEntry]], list[ManifestEntry]] | None = None,
) -> frozenset[bytes]:
    """The partitions that match the predicate and have files that a read sees.

    `shown` selects the files, as in `plan_scan`.
    """
    if snapshot is None:
        return frozenset()
    on_partitions = condition_on(predicate, context.schema.partition_keys)
    settled = shown is None and hides_level_0(context.schema, context.options)
    if shown is None and not context.history.is_small(snapshot):
        return _visible_of_large(context, snapshot, on_partitions, settled=settled)
    entries, _ = live_files(context.history, context.partitions, snapshot, on_partitions)
    seen = _visible(entries if shown is None else shown(entries), settled=settled)
    return frozenset(entry.partition for entry in seen)


def _visible_of_large(
    context: ScanContext, snapshot: Snapshot, on_partitions: Predicate | None, *, settled: bool
) -> frozenset[bytes]:
    manifests = context.history.manifests(snapshot)
    if on_partitions is not None:
        manifests = holding(on_partitions, manifests, context.partitions)
    live = context.history.live_columns(manifests)
    partitions, facts = live.partitions(), live.facts()
    hidden = (pl.col("bucket") == POSTPONE_BUCKET) | (pl.lit(settled) & (pl.col("level") == 0))
    seen = [partitions[number] for number in facts.filter(~hidden)["partition"].unique()]
    if on_partitions is None or not seen:
        return frozenset(seen)
    matches = matches_exactly(on_partitions, context.partitions.values(seen))
    return frozenset(each for each, match in zip(seen, matches, strict=True) if match)


def _visible(entries: Iterable[ManifestEntry], *, settled: bool) -> list[ManifestEntry]:
    """The entries of the files that a read sees. If `settled`, files of level 0 are hidden."""
    return [
        entry
        for entry in entries
        if not (settled and entry.file.level == 0)
        # Rows of the postpone bucket are visible after a compaction assigns them to buckets.
        and entry.bucket != POSTPONE_BUCKET
    ]


def plan_merged(
    context: ScanContext,
    entries: Sequence[ManifestEntry],
    snapshot: Snapshot | None,
    predicate: Predicate | None = None,
) -> list[Split]:
    """The splits of these files of a snapshot. Only these files are merged."""
    kept = keep_entries(context, entries, predicate)
    splits, _, _ = _deal(kept, context, snapshot, predicate, settled=False)
    return splits


def keep_entries(
    context: ScanContext, entries: Sequence[ManifestEntry], predicate: Predicate | None
) -> Sequence[ManifestEntry]:
    """The entries of partitions, buckets and key ranges that may match.

    Keeps either all files of a key or none.
    """
    on_partitions = condition_on(predicate, context.schema.partition_keys)
    entries = in_partitions(entries, context.partitions, on_partitions)
    entries, _ = _keep_buckets(entries, context, predicate)
    entries, _ = _keep_keys(entries, context, predicate)
    return entries


def hides_level_0(schema: TableSchema, options: TableOptions) -> bool:
    """Whether batch reads of the table skip level 0."""
    if not schema.primary_keys:
        return False
    vectors = options.deletion_vectors_enabled and not options.deletion_vectors_merge_on_read
    return vectors or options.merge_engine is MergeEngine.FIRST_ROW


def _keep_buckets(
    entries: Sequence[ManifestEntry], context: ScanContext, predicate: Predicate | None
) -> tuple[Sequence[ManifestEntry], int]:
    fields = bucket_key_fields(context.schema, context.options)
    if predicate is None or not fields:
        return entries, 0
    function = context.options.bucket_function_type
    # If the option `bucket` was changed, a partition may still have its former bucket count.
    wanted = {
        count: prune_buckets(predicate, fields, count, function)
        for count in {entry.total_buckets for entry in entries}
        if count > 0
    }
    if all(buckets is None for buckets in wanted.values()) or not _hash_is_settled(context):
        return entries, 0
    kept = [
        entry
        for entry in entries
        if (buckets := wanted.get(entry.total_buckets)) is None or entry.bucket in buckets
    ]
    return kept, len(entries) - len(kept)


def _hash_is_settled(context: ScanContext) -> bool:
    """Whether equal bucket keys have equal hashes in all schemas of the table.

    The type of a primary key never changes, so its hashes do not change either.
    """
    history, own = context.history, context.schema
    ids = () if own.primary_keys or not own.id else history.schema_ids()
    return hash_is_settled(bucket_key_fields(own, context.options), map(history.schema, ids))


def _keep_keys(
    entries: Sequence[ManifestEntry], context: ScanContext, predicate: Predicate | None
) -> tuple[Sequence[ManifestEntry], int]:
    fields = context.schema.key_fields
    part = condition_on(predicate, [field.name for field in fields])
    if part is None or not entries:
        return entries, 0
    files = [entry.file for entry in entries]
    low, high = key_bounds(files, fields)
    rows = np.array([file.row_count for file in files], np.int64)
    nulls = pa.RecordBatch.from_arrays(
        [pa.array(np.zeros(len(files), np.int64)) for _ in fields], [f.name for f in fields]
    )
    mask = may_match(part, low, high, nulls, rows)
    kept = [entry for entry, keep in zip(entries, mask, strict=True) if keep]
    return kept, len(entries) - len(kept)


def _deal(
    entries: Sequence[ManifestEntry],
    context: ScanContext,
    snapshot: Snapshot | None,
    predicate: Predicate | None,
    *,
    settled: bool,
) -> tuple[list[Split], int, int]:
    """The splits of all buckets, and how many files value statistics and indexes pruned."""
    buckets: dict[Bucket, list[int]] = defaultdict(list)
    for index, entry in enumerate(entries):
        buckets[entry.partition, entry.bucket, entry.total_buckets].append(index)
    files = [entry.file for entry in entries]
    predicate = without_references(predicate, context.schema, context.options)
    matching = matching_values(files, context.history, context.schema, predicate)
    selected: Mapping[str, BitMap] = {}
    indexed = matching
    if (indexes := context.indexes) is not None and predicate is not None:
        indexed, selected = indexes.selected(entries, matching, predicate)
    lows, highs = key_ranks(files, context.schema)
    vectors = VectorsOfBuckets(context.history, snapshot)
    target = context.options.source_split_target_size_bytes
    open_cost = context.options.source_split_open_file_cost_bytes
    folds = folds_values(context.options)
    splits: list[Split] = []
    dropped = by_index = 0
    for bucket, inside in sorted(buckets.items()):
        own = [files[index] for index in inside]
        match = {files[index].name: bool(indexed[index]) for index in inside}
        by_statistics = {files[index].name for index in inside if not matching[index]}
        if context.schema.primary_keys:
            at = np.array(inside)
            plan = plan_bucket(own, lows[at], highs[at], settled=settled)
            raw, merged = plan.raw, plan.merged
        elif context.options.data_evolution_enabled:
            same_rows = by_row_ids(own)
            raw = tuple(group[0] for group in same_rows if len(group) == 1)
            merged = tuple(tuple((f,) for f in group) for group in same_rows if len(group) > 1)
        else:
            raw, merged = in_order(own), ()
        raw_kept = [file for file in raw if match[file.name]]
        out = [file.name for file in raw if not match[file.name]]
        own_vectors = vectors.of(*bucket[:2])
        groups: list[tuple[tuple[tuple[DataFile, ...], ...], bool]]
        groups = [((tuple(group),), True) for group in pack(raw_kept, target, open_cost)]
        for runs in merged:
            section = [file for run in runs for file in run]
            if folds or any(match[file.name] for file in section):
                groups.append((runs, False))
            else:
                out += [file.name for file in section]
        dropped += len(by_statistics.intersection(out))
        by_index += len(set(out) - by_statistics)
        order = commit_order(own) if merged else {}
        for runs, is_raw in groups:
            split = split_of(bucket, runs, is_raw, order, own_vectors, context)
            splits.append(selecting(split, selected) if is_raw and selected else split)
    return splits, dropped, by_index


def commit_order(files: Sequence[DataFile]) -> Mapping[str, int]:
    """Numbers that order the files of a bucket: larger is newer. `files` are in commit order.

    Two writers that start from one snapshot assign the same sequence numbers. The commit order
    breaks the tie, so that the winner depends neither on pruning nor on compactions of other files.
    """
    oldest_first = sorted(files, key=lambda file: -file.level)
    return {file.name: number for number, file in enumerate(oldest_first)}


def split_of(
    bucket: Bucket,
    runs: tuple[tuple[DataFile, ...], ...],
    raw: bool,  # noqa: FBT001  one of two kinds of split, named at the call by its tuple
    order: Mapping[str, int],
    vectors: Mapping[str, tuple[IndexFile, VectorRange]],
    context: ScanContext,
) -> Split:
    """A split of these runs, with the deletion vectors of its files."""
    partition, number, total = bucket
    names = [file.name for run in runs for file in run]
    return Split(
        partition=partition,
        partition_path=context.partitions.path(partition),
        bucket=number,
        total_buckets=total,
        runs=runs,
        raw=raw,
        commit_order={} if raw else {name: order[name] for name in names},
        vectors={name: vectors[name] for name in names if name in vectors} if vectors else {},
    )


def key_ranks(files: Sequence[DataFile], schema: TableSchema) -> tuple[np.ndarray, np.ndarray]:
    """Ranks of the first and the last keys of the files; zeros for an append table."""
    if not schema.key_fields or not files:
        zeros = np.zeros(len(files), np.int64)
        return zeros, zeros
    return _ranks([file.key_min for file in files], [file.key_max for file in files], schema)


def _ranks(
    keys_min: Sequence[bytes], keys_max: Sequence[bytes], schema: TableSchema
) -> tuple[np.ndarray, np.ndarray]:
    low, high = (decode_rows(keys, schema.key_fields) for keys in (keys_min, keys_max))
    lows, highs = shared_codes([order_columns(low.columns), order_columns(high.columns)])
    return lows, highs


# --- large tables --------------------------------------------------------------------------------
# A large table is planned from columns alone, if the condition is on partitions only. The objects
# of the splits are made on demand, for some thousand files at once.

_FILES_AT_ONCE = 8_192


def _needs_columns_only(
    context: ScanContext, snapshot: Snapshot, predicate: Predicate | None
) -> bool:
    """Whether the live files are held as columns, and no wanted file or bucket is pruned."""
    history, schema = context.history, context.schema
    if history.live_if_known(snapshot) is not None or history.is_small(snapshot):
        return False
    names = set() if predicate is None else set(columns_of(predicate))
    hashed = {field.name for field in bucket_key_fields(schema, context.options)}
    is_pruned = not names <= set(schema.partition_keys) - hashed
    return not (is_pruned or context.options.data_evolution_enabled)


def _plan_large(
    context: ScanContext,
    snapshot: Snapshot,
    on_partitions: Predicate | None,
    without: frozenset[bytes],
) -> ScanPlan:
    history, schema, options = context.history, context.schema, context.options
    manifests = chosen = history.manifests(snapshot)
    if on_partitions is not None:
        chosen = holding(on_partitions, manifests, context.partitions)
    live = _of_large(history, context.partitions, chosen, on_partitions, without)
    total = len(live) if chosen is manifests and not without else live_count(manifests)
    settled = hides_level_0(schema, options)
    partitions = context.partitions.scan_order(live.partitions())
    buckets, levels = live.column("buckets"), live.column("levels")
    shown = np.flatnonzero((buckets != POSTPONE_BUCKET) & ~(settled & (levels == 0)))
    rows, sizes, deletions = map(live.column, ("row_counts", "sizes_bytes", "deletions"))
    files = FileColumns(
        partitions=live.places(partitions)[shown],
        buckets=buckets[shown],
        total_buckets=live.column("total_buckets")[shown],
        levels=levels[shown],
        sizes_bytes=sizes[shown],
        sequences_min=live.column("sequences_min")[shown],
        holds_deletions=(deletions[shown] & HOLDS_DELETIONS) != 0,
        may_hold_deletions=(deletions[shown] & COUNTED) == 0,
    )

    def ranks(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _ranks(*live.keys_at(shown[places]), schema)

    planned = plan_columns(
        files,
        ranks if schema.primary_keys else None,
        settled=settled,
        target_bytes=options.source_split_target_size_bytes,
        open_cost_bytes=options.source_split_open_file_cost_bytes,
    )
    planned = replace(planned, files=shown[planned.files])
    return ScanPlan(
        snapshot=snapshot,
        splits=LargeSplits(context, VectorsOfBuckets(history, snapshot), live, planned),
        files_total=total,
        skipped=Skipped(
            by_partition=total - len(live),
            hidden_level_0=len(live) - len(shown),
            hidden_rows=int(rows.sum() - rows[shown].sum()),
        ),
    )


class LargeSplits(Sequence["Split"]):
    """The splits of a large table, made when they are read. Thread-safe."""

    def __init__(
        self,
        context: ScanContext,
        vectors: VectorsOfBuckets,
        live: LiveColumns,
        planned: SplitColumns,
    ) -> None:
        self._context, self._vectors, self._live, self._planned = context, vectors, live, planned
        self._made: Cache[int, tuple[Split, ...]] = Cache(ENTRY_BYTES)

    def __len__(self) -> int:
        return len(self._planned.raw)

    @overload
    def __getitem__(self, index: int) -> Split: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Split, ...]: ...

    def __getitem__(self, index: int | slice) -> Split | tuple[Split, ...]:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(len(self))))
        place = range(len(self))[index]
        page = int(self._planned.starts[place]) // _FILES_AT_ONCE
        return self._page(page)[place - self._first(page)]

    def __iter__(self) -> Iterator[Split]:
        pages = np.unique(self._planned.starts[:-1] // _FILES_AT_ONCE).tolist()
        return chain.from_iterable(map(self._page, pages))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # a sequence of many values

    @property
    def files_count(self) -> int:
        return len(self._planned.files)

    @property
    def size_bytes(self) -> int:
        """The size of the files."""
        return int(self._live.column("sizes_bytes")[self._planned.files].sum())

    def _first(self, page: int) -> int:
        return int(np.searchsorted(self._planned.starts[:-1], page * _FILES_AT_ONCE))

    def _page(self, page: int) -> tuple[Split, ...]:
        made = self._made.get(page)
        if made is None:
            first, end = self._first(page), self._first(page + 1)
            starts = self._planned.starts[first : end + 1]
            entries = self._live.entries_at(self._planned.files[starts[0] : starts[-1]])
            bounds = (starts - starts[0]).tolist()
            raw = self._planned.raw[first:end].tolist()
            known: dict[Bucket, Mapping[str, tuple[IndexFile, VectorRange]]] = {}
            made = tuple(
                self._split(entries[low:high], is_raw, int(start), known)
                for (low, high), is_raw, start in zip(pairwise(bounds), raw, starts, strict=False)
            )
            self._made.put(page, made, len(entries))
        return made

    def _split(
        self,
        entries: Sequence[ManifestEntry],
        is_raw: bool,  # noqa: FBT001  as in `split_of`
        start: int,
        known: dict[Bucket, Mapping[str, tuple[IndexFile, VectorRange]]],
    ) -> Split:
        bucket = entries[0].partition, entries[0].bucket, entries[0].total_buckets
        if bucket not in known:
            known[bucket] = self._vectors.of(*bucket[:2])
        files = tuple(entry.file for entry in entries)
        if is_raw:
            return split_of(bucket, (files,), True, {}, known[bucket], self._context)
        lows, highs = key_ranks(files, self._context.schema)
        runs = tuple(run.files for run in sorted_runs(files, lows.tolist(), highs.tolist()))
        order = self._commit_order(start, files)
        return split_of(bucket, runs, False, order, known[bucket], self._context)

    def _commit_order(self, start: int, files: Sequence[DataFile]) -> Mapping[str, int]:
        """The `commit_order` of `files`, among all files of the bucket of the split at `start`."""
        bounds = np.append(self._planned.bucket_starts, self.files_count)
        number = int(np.searchsorted(bounds, start, "right"))
        own = np.sort(self._planned.files[bounds[number - 1] : bounds[number]])
        newest_last = own[np.argsort(-self._live.column("levels")[own], kind="stable")]
        places = {place: rank for rank, place in enumerate(newest_last.tolist())}
        here = self._planned.files[start : start + len(files)].tolist()
        return {file.name: places[place] for file, place in zip(files, here, strict=True)}
