"""The common part of `write`, `overwrite` and dropping partitions: write rows, commit once.

If the commit certainly failed, the files that were written for it are removed.

A write may change the schema (`Evolution`):

1. The first batch of rows defines the columns of a new table, or the columns that an existing table
   lacks (`model/evolution.py`).
2. All rows are read and checked against that schema.
3. The schema is stored; then the rows are written and committed.

If a row does not fit, nothing is stored. If the commit fails later, the schema stays: a table with
more nullable columns or wider types, or a new table without rows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import CommitConflict, InvalidRequest, LakecoreError, Unsupported, check_flags
from lakecore.frames.incoming import incoming_batches
from lakecore.model.evolution import TypeChanges, evolve, merge_changes
from lakecore.model.manifest import FileKind, ManifestEntry
from lakecore.model.rows import ROW_KIND
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER, CommitResult
from lakecore.model.types import arrow_type, plain_type
from lakecore.options import POSTPONE_BUCKET
from lakecore.plan.partitions import bucket_key_fields
from lakecore.plan.splits import batch_count
from lakecore.table.commits.commit import (
    CommitRequest,
    PartitionFilter,
    commit_compaction,
    log_lost_compaction,
)
from lakecore.table.commits.commit_change import (
    EncodedFiles,
    Seen,
    check_watermark,
    committed,
    delete_files,
    delete_left_out,
)
from lakecore.table.context import TableContext, crosses_partitions, reload_context, with_schema
from lakecore.table.maintenance.after_commit import commit_and_maintain
from lakecore.table.publication import SchemaProposal
from lakecore.table.reads.scan import hides_level_0, key_ranks
from lakecore.table.reads.stored_files import postponed_rows
from lakecore.table.writes.bucket_buffer import batch_limit
from lakecore.table.writes.cross_partition import RealBuckets
from lakecore.table.writes.write import TableWrite
from lakecore.table.writes.write_compaction import WriteCompaction
from lakecore.table.writes.write_start import Unstored, WriteStart, read_base

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.model.files import CommitMessage
    from lakecore.options import TableOptions

# --- overwrite -----------------------------------------------------------------------------------
# The partitions that an overwrite clears, and the level of the files that replace them.


def everything(partitions: Sequence[bytes]) -> Sequence[bool]:
    """A filter that selects every partition: the whole table is cleared."""
    return [True] * len(partitions)


def nothing(partitions: Sequence[bytes]) -> Sequence[bool]:
    """A filter that selects no partition: the messages name the files to remove."""
    return [False] * len(partitions)


def written_by(messages: Sequence[CommitMessage]) -> PartitionFilter:
    """A filter of the partitions that the messages write: `dynamic-partition-overwrite`."""
    written = {message.partition for message in messages}
    return lambda partitions: [partition in written for partition in partitions]


def matching(context: TableContext, specs: Sequence[Mapping[str, object]]) -> PartitionFilter:
    """A filter of the partitions that match any of the specs; a spec may omit partition keys.

    Values have the column's type, or are strings of it; None is null.
    """
    wanted = [spec_values(context, spec) for spec in specs]

    def choose(partitions: Sequence[bytes]) -> Sequence[bool]:
        if not partitions:
            return []
        values = context.partitions.values(partitions)
        chosen = pa.array([False] * len(partitions))
        for spec in wanted:
            match = pa.array([True] * len(partitions))
            for name, value in spec.items():
                match = pc.and_(match, _is(values.column(name), value))
            chosen = pc.or_(chosen, match)
        result: list[bool] = chosen.to_pylist()
        return result

    return choose


def at_last_level(
    context: TableContext, messages: Sequence[CommitMessage]
) -> Sequence[CommitMessage]:
    """The messages; files of a bucket that do not overlap are placed at the last level.

    The bucket will hold only these files. At level 0 they would be invisible in a table whose reads
    skip level 0, and a later compaction would report them as new rows in the changelog.
    """
    if not context.schema.primary_keys or not context.options.overwrite_upgrade:
        return messages
    found: dict[tuple[bytes, int], list[CommitMessage]] = defaultdict(list)
    lifted: list[CommitMessage] = []
    for message in messages:
        if message.bucket == POSTPONE_BUCKET:
            lifted.append(message)
        else:
            found[message.partition, message.bucket].append(message)
    for together in found.values():
        level = context.options.level_count - 1 if _is_one_run(context, together) else None
        lifted += together if level is None else [_at(level, message) for message in together]
    return lifted


def in_one_snapshot(
    context: TableContext, messages: Sequence[CommitMessage]
) -> Sequence[CommitMessage]:
    """The messages; if reads skip level 0, the results of their compactions become new files.

    Otherwise a read between the snapshot of the overwrite and that of the compaction would find no
    rows. The files that the compactions replaced are then left out of the messages.
    """
    if not hides_level_0(context.schema, context.options):
        return messages
    return [_compacted(message) for message in messages]


def _compacted(message: CommitMessage) -> CommitMessage:
    replaced = {file.name for file in message.compact_before}
    if not replaced <= {file.name for file in message.new_files}:
        return message
    assert not message.compact_changelog_files, "the compactions of an overwrite tell no changes"
    kept = (file for file in message.new_files if file.name not in replaced)
    return replace(
        message,
        new_files=(*kept, *message.compact_after),
        new_index_files=(*message.new_index_files, *message.compact_index_files),
        compact_before=(),
        compact_after=(),
        compact_index_files=(),
        vectors_read=None,
        compact_unchanged=None,
        compact_schema_id=None,
    )


def _is_one_run(context: TableContext, messages: Sequence[CommitMessage]) -> bool:
    if any(message.compact_before for message in messages):
        return False
    files = [file for message in messages for file in message.new_files]
    lows, highs = key_ranks(files, context.schema)
    order = np.argsort(lows)
    return bool((lows[order][1:] > highs[order][:-1]).all())


def _at(level: int, message: CommitMessage) -> CommitMessage:
    return replace(
        message, new_files=tuple(replace(file, level=level) for file in message.new_files)
    )


def _is(column: pa.Array, value: pa.Scalar) -> pa.Array:
    """A mask of values equal to `value`: NaN equals NaN, and 0.0 and -0.0 differ."""
    if not value.is_valid:
        return pc.is_null(column)
    if not pa.types.is_floating(column.type):
        return pc.fill_null(pc.equal(column, value), False)
    if math.isnan(value.as_py()):
        return pc.fill_null(pc.is_nan(column), False)
    bits = pa.int32() if pa.types.is_float32(column.type) else pa.int64()
    wanted = pa.array([value], column.type).view(bits)[0]
    return pc.fill_null(pc.equal(column.view(bits), wanted), False)


def spec_values(context: TableContext, spec: Mapping[str, object]) -> Mapping[str, pa.Scalar]:
    """The values of a partition spec, converted to the types of their columns.

    Raises InvalidRequest for a column that is not a partition key, and for a value of a wrong type.
    """
    keys = context.schema.partition_keys
    if not isinstance(spec, Mapping):
        raise InvalidRequest(
            "a partition is a mapping of its keys to their values",
            given=type(spec).__name__,
            partition_keys=keys,
        )
    if not spec:
        raise InvalidRequest("a partition needs at least one value", partition_keys=keys)
    values: dict[str, pa.Scalar] = {}
    for name, value in spec.items():
        if name not in keys:
            raise InvalidRequest(
                "not a partition key", column=name, table=context.identifier, partition_keys=keys
            )
        wanted = arrow_type(context.schema.field(name).type)
        try:
            values[name] = pa.array([value]).cast(wanted)[0]
        except (
            pa.ArrowInvalid,
            pa.ArrowNotImplementedError,
            pa.ArrowTypeError,
            OverflowError,
            UnicodeEncodeError,
        ) as error:
            raise InvalidRequest(
                "the value is not of the partition key's type",
                column=name,
                value=value,
                type=context.schema.field(name).type,
            ) from error
    return values


# --- staged write --------------------------------------------------------------------------------
# A batch write to a table with postponed buckets that puts its rows into real buckets at once.
#
# 1. Rows go to real buckets if the number of buckets of their partition is known: from its files or
#    from an option. Rows of other partitions go to files of the postponed bucket.
# 2. `prepare_commit` decides the number of buckets of these partitions from the rows and bytes of
#    the files, reads the rows back and writes them to real buckets, and deletes the files.
#
# Rows that wait in the postponed bucket of the table are not touched
# (https://paimon.apache.org/docs/master/primary-key-table/data-distribution/#postpone-bucket).


def batch_writer(
    context: TableContext, *, overwrite: bool = False, base: WriteStart | None = None
) -> TableWrite | StagedWrite:
    """The writer for a batch of rows; see `TableWrite`."""
    options = context.options
    if options.bucket == POSTPONE_BUCKET and options.postpone_batch_write_fixed_bucket:
        return StagedWrite(context, overwrite=overwrite, base=base)
    return TableWrite(context, overwrite=overwrite, base=base)


class StagedWrite:
    """Writes one batch to real buckets. A context manager, as `TableWrite`."""

    def __init__(
        self, context: TableContext, *, overwrite: bool = False, base: WriteStart | None = None
    ) -> None:
        self._context = context
        self._overwrite = overwrite
        self._base = read_base(context) if base is None else base
        known = {} if overwrite else self._base.bucket_counts
        default = context.options.postpone_default_bucket_num
        self._writer = TableWrite(
            context,
            overwrite=overwrite,
            base=self._base,
            real_buckets=RealBuckets(known=known, default=default),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def row_count(self) -> int:
        """The number of rows written so far."""
        return self._writer.row_count

    @property
    def seen(self) -> Seen | None:
        """What the last `prepare_commit` has read of the table, for the commit of its messages."""
        return self._writer.seen

    def write(self, data: object) -> int:
        """Add rows and return their number. `Table.write` describes `data`."""
        return self._writer.write(data)

    def prepare_commit(self) -> list[CommitMessage]:
        """Write all rows to real buckets. Returns one message for each changed bucket."""
        messages = self._writer.prepare_commit()
        staged = [message for message in messages if message.bucket == POSTPONE_BUCKET]
        if not staged:
            return messages
        direct = [message for message in messages if message.bucket != POSTPONE_BUCKET]
        try:
            written = self._unstaged(staged)
        except BaseException:
            delete_files(self._context, messages)
            raise
        delete_files(self._context, staged)
        return [*direct, *written]

    def close(self) -> None:
        """Close the writer and drop the rows written since the last `prepare_commit`."""
        self._writer.close()

    def _unstaged(self, staged: Sequence[CommitMessage]) -> list[CommitMessage]:
        rows: dict[bytes, int] = defaultdict(int)
        size_bytes: dict[bytes, int] = defaultdict(int)
        entries: list[ManifestEntry] = []
        for message in staged:
            for file in message.new_files:
                rows[message.partition] += file.row_count
                size_bytes[message.partition] += file.size_bytes
                entries.append(
                    ManifestEntry(
                        kind=FileKind.ADD,
                        partition=message.partition,
                        bucket=message.bucket,
                        total_buckets=message.total_buckets,
                        file=file,
                    )
                )
        options = self._context.options
        counts = {each: batch_count(rows[each], size_bytes[each], options) for each in rows}
        with TableWrite(
            self._context,
            overwrite=self._overwrite,
            base=self._base,
            real_buckets=RealBuckets(known=counts),
        ) as writer:
            for part in postponed_rows(self._context, entries):
                writer.add_stored(part)
            return writer.prepare_commit()


# --- batch write ---------------------------------------------------------------------------------

COMPACTIONS_MAX = 3
"""How often a write retries its compaction before it leaves the work to the next write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """The commit user, the commit identifier and the watermark of a commit."""

    user: str
    identifier: int = BATCH_COMMIT_IDENTIFIER
    watermark: int | None = None


def author(
    context: TableContext,
    commit_user: str | None = None,
    identifier: int = BATCH_COMMIT_IDENTIFIER,
    watermark: int | None = None,
) -> Author:
    """The author of a commit: the given user, or a new random one.

    Raises InvalidRequest for an invalid user, identifier or watermark, and for an identifier
    without a user: the caller could not find the commit again without the random user.
    """
    check_author(commit_user, identifier)
    check_watermark(watermark)
    if commit_user is None and identifier != BATCH_COMMIT_IDENTIFIER:
        raise InvalidRequest(
            "an identifier is found again by its commit user: give both", identifier=identifier
        )
    if commit_user is None:
        prefix = context.options.commit_user_prefix
        drawn = context.ambient.new_uuid()
        commit_user = f"{prefix}_{drawn}" if prefix else drawn
    return Author(user=commit_user, identifier=identifier, watermark=watermark)


def check_author(commit_user: object, identifier: object) -> None:
    """Raise InvalidRequest for a user or identifier that a snapshot file cannot hold."""
    if not isinstance(identifier, int) or isinstance(identifier, bool):
        raise InvalidRequest("the identifier of a commit is a whole number", identifier=identifier)
    if not -BATCH_COMMIT_IDENTIFIER - 1 <= identifier <= BATCH_COMMIT_IDENTIFIER:
        raise InvalidRequest("the identifier of a commit has 64 bits", identifier=identifier)
    if commit_user is not None and not (isinstance(commit_user, str) and commit_user):
        raise InvalidRequest("a commit user is a text, and not empty", commit_user=commit_user)


def records_nothing(context: TableContext, identifier: int) -> bool:
    """Whether a commit without changes still makes a snapshot.

    The option `snapshot.ignore-empty-commit` decides. If it is not set, a commit with its own
    identifier makes a snapshot, because a job that numbers its commits looks for the number after a
    restart.
    """
    ignores = context.options.snapshot_ignore_empty_commit
    return identifier != BATCH_COMMIT_IDENTIFIER if ignores is None else not ignores


def write_rows(
    context: TableContext, data: object, by: Author, *, unstored: Unstored | None = None
) -> CommitResult:
    """Add rows in one commit.

    If `unstored` is given, its schema is stored once all rows are known to fit it.
    """
    with batch_writer(context, base=None if unstored is None else unstored.base) as writer:
        writer.write(data)
        if unstored is not None:
            unstored.publish()
        messages = writer.prepare_commit()
    request = CommitRequest(
        messages=messages,
        user=by.user,
        identifier=by.identifier,
        watermark=by.watermark,
        force=records_nothing(context, by.identifier),
        seen=writer.seen,
    )
    return compact_again(context, request, commit_or_clean(context, request))


def overwrite_rows(
    context: TableContext,
    data: object,
    partition: Mapping[str, object],
    by: Author,
    *,
    dynamic: bool,
    unstored: Unstored | None = None,
) -> CommitResult:
    """Replace the rows of some partitions in one commit; see `Table.overwrite`."""
    if crosses_partitions(context) and (partition or dynamic):
        raise Unsupported(
            "an overwrite of single partitions is not supported if the primary key lacks partition "
            "keys: keys of the new rows may be in other partitions",
            table=context.identifier,
            way_out="overwrite the whole table: dynamic=False, without a partition",
        )
    # Report a wrong partition before rows are written.
    given: object = partition
    if not isinstance(given, Mapping) or given:
        matching(context, [partition])
    with batch_writer(
        context, overwrite=True, base=None if unstored is None else unstored.base
    ) as writer:
        writer.write(data)
        if unstored is not None:
            unstored.publish()
        messages = writer.prepare_commit()
    return commit_overwrite(context, messages, partition, by, dynamic=dynamic)


def commit_overwrite(  # noqa: PLR0913  what a commit of others' files states
    context: TableContext,
    messages: Sequence[CommitMessage],
    partition: Mapping[str, object],
    by: Author,
    *,
    encoded: Sequence[EncodedFiles] = (),
    dynamic: bool,
    cleans: bool = True,
) -> CommitResult:
    """Replace the rows of some partitions by the rows of the messages, in one commit.

    The `encoded` files are the only ones of their buckets, and at their level (`at_last_level`).
    For `cleans`, see `commit_or_clean`.
    """
    chosen = matching(context, [partition]) if partition else everything
    of_all = [*messages, *(part for each in encoded for part in each.partitions())]
    if partition:
        outside = _outside(chosen, of_all)
        if outside:
            delete_files(context, messages, encoded)
            raise InvalidRequest(
                "the data has rows outside the partition to overwrite",
                table=context.identifier,
                partitions=[dict(context.partitions.texts(each)) for each in outside[:3]],
            )
    elif dynamic and context.schema.partition_keys:
        if not of_all:
            # No partition is replaced; record the identifier as for a write without rows.
            force = records_nothing(context, by.identifier)
            return commit_and_maintain(
                context,
                CommitRequest(
                    messages=(),
                    user=by.user,
                    identifier=by.identifier,
                    watermark=by.watermark,
                    force=force,
                ),
            )
        chosen = written_by(of_all)
    messages = at_last_level(context, messages)
    at_once = in_one_snapshot(context, messages)
    delete_left_out(context, messages, at_once)
    request = CommitRequest(
        messages=at_once,
        user=by.user,
        identifier=by.identifier,
        watermark=by.watermark,
        overwrite=chosen,
        encoded=encoded,
    )
    return commit_or_clean(context, request, cleans=cleans)


def clear_partitions(
    context: TableContext, chosen: PartitionFilter, operation: str
) -> CommitResult:
    """Remove the rows of some partitions, in one commit."""
    schema = context.schema
    context.options.require_writable(
        primary_keys=schema.primary_keys, partition_keys=schema.partition_keys
    )
    request = CommitRequest(
        messages=(), user=author(context).user, overwrite=chosen, operation=operation
    )
    return commit_and_maintain(context, request)


def commit_or_clean(
    context: TableContext, request: CommitRequest, *, cleans: bool = True
) -> CommitResult:
    """Commit the messages.

    The files of the messages are removed if the commit certainly failed, or was already made
    before; not with `cleans=False`, if another process may commit the same files.
    """
    if not cleans:
        return commit_and_maintain(context, request)

    def clean() -> None:
        delete_files(context, request.messages, request.encoded)

    result = commit_and_maintain(context, request, on_failure=clean)
    if result.facts.get("already_committed"):
        clean()
    return result


def compact_again(
    context: TableContext, request: CommitRequest, result: CommitResult
) -> CommitResult:
    """The result of a commit; if its compaction was lost, compacts and commits again.

    The rows are committed already, so a failure of the compaction raises no error.
    """
    lost = [message for message in request.messages if message.compact_before]
    for _ in range(COMPACTIONS_MAX - 1):
        if "compaction_lost" not in result.facts:
            break
        try:
            messages = WriteCompaction(context, overwrite=False).compact_again(lost)
        except (LakecoreError, OSError) as error:
            log_lost_compaction(context, error)
            break
        if not messages:
            break
        # NOTE: keep the identifier of the commit. With the identifier of batch commits, Java would
        # regard every later checkpoint of this user as committed.
        again = CommitRequest(messages=messages, user=request.user, identifier=request.identifier)
        done = commit_compaction(context, again)
        result = replace(
            result,
            snapshot_ids=(*result.snapshot_ids, *done.snapshot_ids),
            attempts=result.attempts + done.attempts,
            files_added=result.files_added + done.files_added,
            files_deleted=result.files_deleted + done.files_deleted,
            bytes_added=result.bytes_added + done.bytes_added,
            bytes_deleted=result.bytes_deleted + done.bytes_deleted,
            facts={**_of_housekeeping(result), **done.facts},
        )
    return result


def _of_housekeeping(result: CommitResult) -> Mapping[str, int]:
    return {name: count for name, count in result.facts.items() if name == "housekeeping_failed"}


def _outside(chosen: PartitionFilter, messages: Sequence[CommitMessage]) -> list[bytes]:
    partitions = list({message.partition: None for message in messages})
    inside = chosen(partitions) if partitions else ()
    return [each for each, is_inside in zip(partitions, inside, strict=True) if not is_inside]


def commit_append(
    context: TableContext,
    messages: Sequence[CommitMessage],
    by: Author,
    *,
    encoded: Sequence[EncodedFiles] = (),
    skip_empty: bool = False,
    cleans: bool = True,
) -> CommitResult:
    """Add the files of the messages, and the encoded ones, in one commit.

    If it certainly failed, removes them (`commit_or_clean`). With `skip_empty`, a commit without
    files makes no snapshot, whatever its identifier.
    """
    force = not skip_empty and records_nothing(context, by.identifier)
    request = replace(_request(messages, by, force=force), encoded=encoded)
    return commit_or_clean(context, request, cleans=cleans)


def committed_before(context: TableContext, by: Author) -> CommitResult | None:
    """The earlier commit with this user and identifier; None if there is none, or no identifier."""
    if by.identifier == BATCH_COMMIT_IDENTIFIER:
        return None
    return committed(context, _request((), by), context.history.latest_snapshot())


def _request(
    messages: Sequence[CommitMessage], by: Author, *, force: bool = False
) -> CommitRequest:
    return CommitRequest(messages=messages, user=by.user, identifier=by.identifier, force=force)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolved:
    """The rows of a write, and a table that has all of their columns.

    `unstored` is the schema of that table, if it is not stored yet.
    """

    context: TableContext
    rows: Iterator[pa.RecordBatch]
    unstored: Unstored | None = None


# --- evolution -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """A new schema that the columns of a write require. Picklable.

    `base` has the facts about the table under the old schema.
    """

    proposal: SchemaProposal
    base: WriteStart

    def publish(self, context: TableContext) -> None:
        """Store the schema. Raises CommitConflict if another schema already has its id."""
        if not context.publication.publish_schema(context.store, context.layout, self.proposal):
            raise CommitConflict(
                "another process changed the schema at the same time: write again",
                table=context.identifier,
                schema=self.proposal.schema.id,
            )


def type_changes_of(options: TableOptions, *, evolve_schema: bool | None) -> TypeChanges | None:
    """The changes of types that a write may make; None if it must not change the schema.

    `evolve_schema`: the argument of the verb; with None, the options decide.
    """
    if evolve_schema is not None:
        check_flags(evolve_schema=evolve_schema)
    wanted = options.write_merge_schema if evolve_schema is None else evolve_schema
    if not wanted:
        return None
    if not (evolve_schema or options.write_merge_schema_type_widening):
        return TypeChanges.NONE
    casts = options.write_merge_schema_explicit_cast
    return TypeChanges.CASTS if casts else TypeChanges.WIDENING


def evolution_for(
    newest: TableContext, given: pa.Schema, types: TypeChanges
) -> tuple[TableContext, Evolution] | None:
    """The table with the given columns, and the schema to store; None if the table has the columns.

    Raises InvalidRequest for a column that cannot be added.
    """
    fixed = {
        *newest.schema.primary_keys,
        *newest.schema.partition_keys,
        *(field.name for field in bucket_key_fields(newest.schema, newest.options)),
        *newest.options.sequence_field,
    }
    changes = merge_changes(newest.schema.fields, given, types=types, fixed=fixed)
    if not changes:
        return None
    base = read_base(newest)
    changed = evolve(
        newest.schema,
        changes,
        now_ms=newest.ambient.now_ms(),
        has_snapshots=base.snapshot is not None,
        table=newest.identifier,
    )
    proposal = SchemaProposal(schema=changed, changes=changes)
    return with_schema(newest, changed), Evolution(proposal=proposal, base=base)


def evolve_for(context: TableContext, data: object, types: TypeChanges) -> Evolved:
    """The table with its newest schema and the columns that the first batch of data adds.

    Raises InvalidRequest for a column that cannot be added. `Unstored.publish` of the result raises
    CommitConflict if the schema was changed concurrently.
    """
    newest = reload_context(context)
    limit = batch_limit(context.budget.size_bytes)
    batches = incoming_batches(data, newest.schema.fields, bytes_max=limit, settles=True)
    first = next(batches, None)
    if first is None:
        return Evolved(context=newest, rows=iter(()))
    rows = chain((first,), batches)
    found = evolution_for(newest, first.schema, types)
    if found is None:
        return Evolved(context=newest, rows=rows)
    evolved, evolution = found
    unstored = Unstored(publish=partial(evolution.publish, newest), base=evolution.base)
    return Evolved(context=evolved, rows=rows, unstored=unstored)


def columns_of_rows(data: object) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns of a new table for these rows, and the rows themselves.

    The columns are those of the first batch, without `_row_kind`. Raises InvalidRequest if there
    are no columns, or if the type of a column is not known.
    """
    batches = incoming_batches(data)
    first = next(batches, None)
    given = pa.schema([]) if first is None else first.schema
    fields = [field.with_type(plain_type(field.type)) for field in given if field.name != ROW_KIND]
    if not fields:
        raise InvalidRequest("the data has no columns to make a table of: give a schema")
    for field in fields:
        if pa.types.is_null(field.type):
            raise InvalidRequest(
                "a column has only nulls, and no type is known: cast it, or give a schema",
                column=field.name,
            )
    return pa.schema(fields), iter(()) if first is None else chain((first,), batches)
