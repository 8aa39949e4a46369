"""`Table.rescale`: moves the rows of partitions to another number of buckets, in one commit.

1. Read the latest snapshot. Partitions that have the wanted number of buckets are left out.
2. Read the merged rows of the other partitions, level 0 included, and write them to new buckets.
   Each bucket gets one sorted run, at the last level. Old buckets that share no new bucket are
   independent parts, which other processes may write.
3. One OVERWRITE snapshot deletes the old files, with their deletion vectors, and adds the new ones.
4. If all partitions were chosen, the option `bucket` becomes their number, so that writers fit. A
   repeat does this step if a process ended before it; until then, writers refuse the partitions.

INVARIANT: no row is lost. If another commit added files to one of these partitions meanwhile, the
commit raises CommitConflict, and nothing changes. Rows in the postponed bucket stay there.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from math import gcd
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from lakecore.errors import InvalidRequest, LakecoreError, NotFound
from lakecore.format.layout import POSTPONE_BUCKET
from lakecore.model.evolution import evolve
from lakecore.model.files import CommitMessage, DataFile, Split
from lakecore.model.manifest import FileKind, ManifestEntry
from lakecore.model.schema_change import SchemaChange
from lakecore.model.snapshot import CommitResult, Snapshot
from lakecore.plan.row_changes import files_of_first_plan
from lakecore.plan.splits import rescaled_count
from lakecore.table.commits.commit import CommitRequest
from lakecore.table.commits.commit_change import delete_files
from lakecore.table.context import TableContext, reload_context, require_table, with_options
from lakecore.table.publication import SchemaProposal
from lakecore.table.reads.scan import plan_scan
from lakecore.table.reads.source import TableSource
from lakecore.table.reads.told import told_by
from lakecore.table.verbs.compact_choice import chosen_entries
from lakecore.table.verbs.row_writer import require_known_columns, without_defaults
from lakecore.table.writes import batch_write
from lakecore.table.writes.batch_write import author, commit_or_clean
from lakecore.table.writes.write import TableWrite
from lakecore.table.writes.write_start import WriteStart, read_start

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl


# --- rescale part --------------------------------------------------------------------------------
# One part of a rescale: moves the rows of some old buckets to new buckets.
#
# No other part writes these new buckets.


@dataclass(frozen=True, slots=True, kw_only=True)
class RescalePart:
    """Old buckets whose rows go to new buckets that no other part writes. Picklable."""

    snapshot: Snapshot
    splits: tuple[Split, ...]
    count: int

    @property
    def size_bytes(self) -> int:
        """The bytes of the files of the old buckets."""
        return sum(split.size_bytes for split in self.splits)


def target_of(context: TableContext, count: int) -> TableContext:
    """The table with the options to write the new files of a rescale. Stored rows do not change."""
    options = context.options
    texts = {**options.texts, "bucket": str(count)}
    stated = replace(
        options,
        texts=texts,
        bucket=count,
        # Row kinds were applied when the rows were first written.
        rowkind_field=None,
        # Without a compaction, each bucket has one run, which goes to the last level.
        write_only=True,
        overwrite_upgrade=True,
    )
    return with_options(replace(context, schema=without_defaults(context.schema)), stated)


def rescale_part(context: TableContext, part: RescalePart) -> Sequence[CommitMessage]:
    """Read the rows of old buckets and write them to their new ones."""
    target = target_of(context, part.count)
    source = TableSource(
        context=context,
        snapshot=part.snapshot,
        table_schema=context.schema,
        own=part.splits,
        as_stored=True,
    )
    base = WriteStart(snapshot=part.snapshot, bucket_counts={}, sequences={})
    with TableWrite(target, overwrite=True, base=base) as writer:
        for batch in source.batches():
            if batch.num_rows:
                writer.write(pa.Table.from_batches([batch]))
        messages = writer.prepare_commit()
    try:
        return batch_write.at_last_level(target, messages)
    except BaseException:
        delete_files(target, messages)
        raise


def one_by_one(context: TableContext, parts: Sequence[RescalePart]) -> Sequence[CommitMessage]:
    """Rescale the parts one after another in this process. Returns all their messages.

    If a part fails, the files of all parts are removed.
    """
    messages: list[CommitMessage] = []
    try:
        for part in parts:
            messages += rescale_part(context, part)
    except BaseException:
        delete_files(context, messages)
        raise
    return messages


# --- rescale -------------------------------------------------------------------------------------

BUCKETS_MAX = (1 << 31) - 1
_ATTEMPTS = 10

log = logging.getLogger("lakecore.rescale")


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleRequest:
    """The number of buckets (None: the option `bucket`) and the partitions (None: all)."""

    bucket_num: int | None = None
    partitions: Sequence[Mapping[str, object]] | None = None
    where: pl.Expr | str | None = None


class RescaleRunner(Protocol):
    """Writes the new buckets."""

    def __call__(
        self, context: TableContext, parts: Sequence[RescalePart]
    ) -> Sequence[CommitMessage]:
        """The messages of `rescale_part` for all parts. If it raises, it has removed all files."""


def rescale_table(
    context: TableContext, request: RescaleRequest, *, run: RescaleRunner | None = None
) -> CommitResult:
    """Write the rows of partitions to another number of buckets; see `Table.rescale`."""
    count = _count(context, request.bucket_num)
    context.options.require_readable()
    chosen = partial(_chosen, context, request)
    result = _rescale(context, count, chosen, run or one_by_one)
    if context.options.bucket == POSTPONE_BUCKET:
        return result
    whole = request.partitions is None and request.where is None
    option = _fitted(context, count) if whole else reload_context(context).options.bucket
    if option != count:
        log.warning(
            "writers refuse the rescaled partitions as long as the option bucket differs: set it, "
            "and rescale the other partitions table=%s buckets=%s option_bucket=%s",
            context.identifier,
            count,
            option,
        )
    facts = {**result.facts, "buckets": count, "option_bucket": option}
    return replace(result, facts=facts)


def _fitted(context: TableContext, count: int) -> int:
    """The stored option `bucket`, after an attempt to set it.

    The rows are committed, so a failure is only logged.
    """
    stored = context.options.bucket
    changes = (SchemaChange.set_option("bucket", str(count)),)
    for _ in range(_ATTEMPTS):
        newest = reload_context(context)
        stored = int(newest.schema.options.get("bucket", stored))
        if stored == count:
            break
        now_ms, table = newest.ambient.now_ms(), newest.identifier
        try:
            changed = evolve(newest.schema, changes, now_ms=now_ms, has_snapshots=True, table=table)
            proposal = SchemaProposal(schema=changed, changes=changes)
            if newest.publication.publish_schema(newest.store, newest.layout, proposal):
                return count
        except LakecoreError as error:
            reason = told_by(error, context)
            log.warning("the option bucket was not set table=%s error=%s", table, reason)
            break
    return stored


def _rescale(
    context: TableContext,
    count: int,
    choose: Callable[[Sequence[ManifestEntry]], Sequence[ManifestEntry]],
    run: RescaleRunner,
) -> CommitResult:
    snapshot = context.history.latest_snapshot()
    require_table(context)
    by = author(context)
    nothing = CommitResult(commit_user=by.user)
    if snapshot is None:
        return nothing
    require_known_columns(context, snapshot)
    live = [e for e in context.history.live_entries(snapshot) if e.bucket != POSTPONE_BUCKET]
    entries = choose(live)
    # Java may have written a partition with two bucket counts; then all of its files are rewritten.
    others = {entry.partition for entry in entries if entry.total_buckets != count}
    moved = [entry for entry in entries if entry.partition in others]
    if not moved:
        return nothing
    _check_reported(context, moved)
    target = target_of(context, count)
    deletions = _deletions(context, snapshot, moved)
    written = run(context, _parts(context, snapshot, moved, count))
    _check_owners(context, written)
    commit = CommitRequest(
        messages=[*deletions, *written],
        user=by.user,
        overwrite=batch_write.nothing,
        replaces_partitions=True,
        operation="OVERWRITE",
    )
    return commit_or_clean(target, commit)


def rescale_grown(context: TableContext, result: CommitResult) -> None:
    """Rescale partitions with postponed buckets if a batch was too large for their bucket count.

    The batch is committed, so a failure is only logged.
    """
    options = context.options
    if options.bucket != POSTPONE_BUCKET or not options.postpone_batch_write_fixed_bucket:
        return
    if not result.snapshot_ids or result.facts.get("already_committed"):
        return
    try:
        for partition, count in _grown(context, result.snapshot_ids[0]).items():
            _rescale(context, count, partial(_of, partition), one_by_one)
    except (LakecoreError, OSError) as error:
        reason = told_by(error, context)
        log.warning("rescale after a write failed table=%s error=%s", context.identifier, reason)


def _grown(context: TableContext, snapshot_id: int) -> dict[bytes, int]:
    """The partitions that a commit made too large, with the number of buckets that each needs."""
    history = context.history
    snapshot = history.snapshot(snapshot_id)
    before = history.snapshot_if_there(snapshot_id - 1) if snapshot_id > 1 else None
    known = read_start(context, before).bucket_counts
    rows: dict[bytes, int] = defaultdict(int)
    size_bytes: dict[bytes, int] = defaultdict(int)
    for entry in history.entries(history.delta_manifests(snapshot)):
        if entry.kind is FileKind.ADD and entry.partition in known:
            rows[entry.partition] += entry.file.row_count
            size_bytes[entry.partition] += entry.file.size_bytes
    wanted = {
        each: rescaled_count(rows[each], size_bytes[each], known[each], context.options)
        for each in rows
    }
    return {each: count for each, count in wanted.items() if count is not None}


def _of(partition: bytes, live: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    return [entry for entry in live if entry.partition == partition]


def _count(context: TableContext, given: object) -> int:
    options = context.options
    facts = {"table": context.identifier, "bucket": options.bucket}
    if options.bucket == -1:
        raise InvalidRequest(
            "rescale changes a number of buckets, and this table has no fixed number: its option "
            "bucket is -1",
            **facts,
        )
    if given is None:
        if options.bucket == POSTPONE_BUCKET:
            raise InvalidRequest(
                "state bucket_num: a table with postponed buckets has no number of its own", **facts
            )
        return options.bucket
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= BUCKETS_MAX:
        raise InvalidRequest(
            "bucket_num is a whole number, at least 1", bucket_num=given, table=context.identifier
        )
    return given


def _chosen(
    context: TableContext, request: RescaleRequest, live: Sequence[ManifestEntry]
) -> list[ManifestEntry]:
    entries = chosen_entries(
        context, live, partitions=request.partitions, where=request.where, buckets=None
    )
    if request.partitions is not None and not entries:
        raise NotFound(
            "the partition has no data files to rescale",
            table=context.identifier,
            partitions=[dict(each) for each in request.partitions],
        )
    return entries


def _check_reported(context: TableContext, entries: Sequence[ManifestEntry]) -> None:
    """Raise InvalidRequest if a compaction has yet to write the changelog of these files."""
    if len(files_of_first_plan(entries, context.options)) < len(entries):
        raise InvalidRequest(
            "streams would miss rows whose changelog is not written yet: call "
            "compact(full=True) before the rescale",
            changelog_producer=context.options.changelog_producer,
            table=context.identifier,
        )


def _check_owners(context: TableContext, messages: Sequence[CommitMessage]) -> None:
    """Raise an error if two parts wrote the same bucket: it would have two runs."""
    owners = {(message.partition, message.bucket) for message in messages}
    if len(owners) < len(messages):
        delete_files(context, messages)
        raise AssertionError("two parts of a rescale wrote one bucket")


def _deletions(
    context: TableContext, snapshot: Snapshot, entries: Sequence[ManifestEntry]
) -> list[CommitMessage]:
    """A message for each old bucket: its files and its index files are deleted."""
    indexes: dict[tuple[bytes, int], list[str]] = defaultdict(list)
    for each in context.history.index_entries(snapshot):
        indexes[each.partition, each.bucket].append(each.file.name)
    files: dict[tuple[bytes, int, int], list[DataFile]] = defaultdict(list)
    for entry in entries:
        files[entry.partition, entry.bucket, entry.total_buckets].append(entry.file)
    return [
        CommitMessage(
            partition=partition,
            bucket=bucket,
            total_buckets=total,
            deleted_files=tuple(own),
            deleted_index_files=tuple(indexes[partition, bucket]),
            base_snapshot_id=snapshot.id,
            base_snapshot_uuid=snapshot.uuid,
        )
        for (partition, bucket, total), own in sorted(files.items())
    ]


def _parts(
    context: TableContext, snapshot: Snapshot, entries: Sequence[ManifestEntry], count: int
) -> list[RescalePart]:
    """The old buckets, in groups that share no new bucket.

    The bucket of a row is the hash of its key, modulo the number of buckets. Buckets of both
    numbers can therefore share rows only if they are equal modulo the greatest common divisor.
    """
    names = {(entry.partition, entry.file.name) for entry in entries}
    source = TableSource(context=context, snapshot=snapshot, table_schema=context.schema)

    def shown(seen: Sequence[ManifestEntry]) -> list[ManifestEntry]:
        return [entry for entry in seen if (entry.partition, entry.file.name) in names]

    divisors: dict[bytes, int] = defaultdict(lambda: count)
    for entry in entries:
        divisors[entry.partition] = gcd(divisors[entry.partition], entry.total_buckets)
    groups: dict[tuple[bytes, int], list[Split]] = defaultdict(list)
    for split in plan_scan(source.scan_context, snapshot, shown=shown).splits:
        groups[split.partition, split.bucket % divisors[split.partition]].append(split)
    return [
        RescalePart(snapshot=snapshot, splits=tuple(splits), count=count)
        for splits in groups.values()
    ]
