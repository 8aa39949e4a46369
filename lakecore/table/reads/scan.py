"""Plans a read: computes the splits of a snapshot in which rows may match a predicate.

1. Fold the manifests of the snapshot to its live files. Prune partitions whose values do not match,
   manifests that hold only such partitions, and files by their row ids.
2. Prune buckets that the predicate rules out.
3. Prune files by the statistics of their keys. A key that matches is in no pruned file, so a merge
   gets all rows of such a key.
4. Group the files of each bucket into splits (`plan/splits.py`).
5. Prune raw files by the statistics of their values, then by file indexes.
   Prune a merged section only if no file can match and the merge keeps rows unchanged.

INVARIANT: a value predicate never removes a single file of a merged section. That could remove the
newest row of a key, and an older row would reappear. It also never removes a section whose rows are
folded (aggregation, partial-update): the folded row may match although no stored row does.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from lakecore.format.binary_row import decode_rows
from lakecore.format.layout import POSTPONE_BUCKET
from lakecore.format.statistics import key_bounds
from lakecore.lsm.packing import in_order
from lakecore.merge.keys import order_columns, shared_codes
from lakecore.model.files import DELETION_VECTORS, Split
from lakecore.model.manifest import fold
from lakecore.options import MergeEngine
from lakecore.plan.manifests import holding, hull_of, live_count
from lakecore.plan.partitions import bucket_key_fields, hash_is_settled
from lakecore.plan.predicate import condition_on
from lakecore.plan.pruning import matches_exactly, may_match, prune_buckets
from lakecore.plan.row_ids import by_row_ids
from lakecore.plan.splits import folds_values, pack, plan_bucket
from lakecore.table.reads.file_selection import (
    IndexedFiles,
    keep_row_ids,
    matching_values,
    on_stored_columns,
    selecting,
    without_references,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyroaring import BitMap

    from lakecore.format.entry_columns import Wanted
    from lakecore.format.layout import Layout
    from lakecore.io.history import History
    from lakecore.model.files import DataFile, IndexFile, VectorRange
    from lakecore.model.manifest import ManifestEntry, ManifestFile
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot
    from lakecore.options import TableOptions
    from lakecore.plan.partitions import Partitions
    from lakecore.plan.predicate import Predicate


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
            return _of_large(history, partitions, chosen, condition), live_count(manifests)
        if len(chosen) < len(manifests):
            entries = in_partitions(history.entries(chosen), partitions, condition)
            return fold(entries), live_count(manifests)
        known = history.live_entries(snapshot)
    return in_partitions(known, partitions, condition), len(known)


def _of_large(
    history: History,
    partitions: Partitions,
    manifests: Sequence[ManifestFile],
    condition: Predicate,
) -> Sequence[ManifestEntry]:
    """The live files of matching partitions after these manifests."""
    distinct = history.partitions(manifests)
    if not distinct:
        return ()
    matches = matches_exactly(condition, partitions.values(distinct))
    wanted = {each: None for each, match in zip(distinct, matches, strict=True) if match}
    return history.live_columns(manifests, wanted).entries()


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


def vectors_of(
    history: History, snapshot: Snapshot | None
) -> Mapping[tuple[bytes, int], Mapping[str, tuple[IndexFile, VectorRange]]]:
    """The deletion vectors of a snapshot, by bucket and data file name."""
    found: dict[tuple[bytes, int], dict[str, tuple[IndexFile, VectorRange]]] = defaultdict(dict)
    for entry in history.index_entries(snapshot):
        if entry.file.index_type == DELETION_VECTORS:
            for where in entry.file.vectors or ():
                found[entry.partition, entry.bucket][where.data_file] = (entry.file, where)
    return found


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
    splits: tuple[Split, ...] = ()
    files_total: int = 0
    skipped: Skipped = Skipped()

    @property
    def files_kept(self) -> int:
        """The number of files that will be read."""
        return sum(len(split.files) for split in self.splits)

    @property
    def size_bytes(self) -> int:
        """The bytes of the files that will be read."""
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
    vectors = vectors_of(context.history, snapshot)
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
        own_vectors = vectors.get(bucket[:2], {})
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

    Two writers that start from one snapshot assign the same sequence numbers. These numbers break
    the tie, so that the winner depends neither on pruning nor on compactions of other files.
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
    fields = schema.key_fields
    if not fields or not files:
        zeros = np.zeros(len(files), np.int64)
        return zeros, zeros
    low = decode_rows([file.key_min for file in files], fields)
    high = decode_rows([file.key_max for file in files], fields)
    lows, highs = shared_codes([order_columns(low.columns), order_columns(high.columns)])
    return lows, highs
