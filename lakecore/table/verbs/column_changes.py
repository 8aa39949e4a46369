"""DELETE, UPDATE and MERGE of tables with data evolution: only changed columns are written.

https://paimon.apache.org/docs/master/append-table/data-evolution/

A *unit* is the files that hold the columns of the same rows.

- An update writes one new file for each unit with changed rows. The file has the row ids of the
  unit, and holds the changed columns of all its rows; unchanged rows repeat their values. Reads
  take these columns from the new file. New values of a BLOB column are in files of BLOB values,
  where a placeholder stands for each unchanged value.
- A deletion marks rows in the deletion vector of the unit's oldest file. Without
  `deletion-vectors.enabled`, rows cannot be deleted: as in Paimon, files are not rewritten.
- New rows are appended, and the commit gives them ids.

The commit raises CommitConflict if another commit wrote one of these columns for these rows
(`commits/commit_checks.py`).
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import CorruptTable, LakecoreError, Unsupported
from lakecore.io.files.file_format import Checks
from lakecore.memory import Share
from lakecore.model.blob_rules import in_blob_files
from lakecore.model.files import CommitMessage, DataFile, Split
from lakecore.model.rows import SEQUENCE_NUMBER
from lakecore.model.types import is_blob
from lakecore.plan.row_ids import anchor_of, with_tracking_columns
from lakecore.table.commits.commit_change import delete_files
from lakecore.table.reads.row_values import Condition, holds, names_in, values_of
from lakecore.table.run_writer.blobs import StoredBlobs, blob_writers
from lakecore.table.run_writer.file_shape import column_shape, new_place
from lakecore.table.run_writer.rolling_writer import RollingWriter
from lakecore.table.splits.read import scan_at
from lakecore.table.vectors import BucketVectors
from lakecore.table.verbs.merge_plan import FAN, RowParts
from lakecore.table.verbs.row_writer import Changed, VerbWrite, fitted, without_defaults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext
    from lakecore.table.reads.source import TableSource
    from lakecore.table.writes.write_start import WriteStart


# --- column files --------------------------------------------------------------------------------
# Writes new values of some columns of existing rows to files with the row ids of these rows.


class ColumnFiles:
    """Writes some columns of all rows of a unit; a context manager that removes unfinished files.

    A unit is a split whose files hold columns of the same rows.
    """

    def __init__(self, context: TableContext, unit: Split, columns: Sequence[str]) -> None:
        shape = column_shape(context.schema, context.options, columns)
        place = new_place(context, unit.partition_path, unit.bucket)
        self._rows_of = unit.files[0]
        self._columns = list(shape.schema.names)
        self._writer = RollingWriter(place, replace(shape, blobs=())) if self._columns else None
        self._blobs = blob_writers(place, shape)
        self._stored = StoredBlobs(place, context.schema, context.options)
        self._written = 0
        self._is_done = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_done:
            return
        # A file that cannot be removed is an orphan; report the original error instead.
        for writer in (self._writer, self._stored, *self._blobs.values()):
            with suppress(LakecoreError, OSError):
                if writer is not None:
                    writer.abort()

    def write(self, rows: pa.Table, chosen: np.ndarray, new: pa.Table) -> None:
        """Write `rows`; at the positions `chosen`, write the rows `new` instead.

        `rows` needs no BLOB columns.
        """
        new = self._stored.stored(new)
        if self._writer is not None:
            columns = self._columns
            self._writer.write(overlaid(rows.select(columns), chosen, new.select(columns)))
        for name, blobs in self._blobs.items():
            blobs.write_some(new.column(name), chosen, rows.num_rows)
        self._written += rows.num_rows

    def close(self) -> tuple[DataFile, ...]:
        """Close the files. Returns them, with the row ids of their rows."""
        first, count = self._rows_of.first_row_id or 0, self._rows_of.row_count
        if self._written != count:
            raise CorruptTable(
                "a file has other rows than the manifest says",
                file=self._rows_of.name,
                rows=self._written,
                expected=count,
            )
        self._stored.close()
        found = [
            replace(file, first_row_id=first, sequence_min=0, sequence_max=0)
            for file in (self._writer.close() if self._writer is not None else ())
        ]
        for blobs in self._blobs.values():
            blobs.end_file()
            at = first
            for file in blobs.files:
                found.append(replace(file, first_row_id=at))
                at += file.row_count
        self._is_done = True
        return tuple(found)


def overlaid(rows: pa.Table, chosen: np.ndarray, new: pa.Table) -> pa.Table:
    """The rows `rows`, replaced at the positions `chosen` by the rows `new`."""
    if not len(chosen):
        return rows
    places = np.arange(rows.num_rows)
    places[chosen] = rows.num_rows + np.arange(len(chosen))
    return pa.concat_tables([rows, new.cast(rows.schema)]).take(pa.array(places))


# --- file changes --------------------------------------------------------------------------------
# DELETE, UPDATE and MERGE of tables without a key: rows are marked, or files are rewritten.
#
# With `deletion-vectors.enabled`, a changed or deleted row is marked in the deletion vector of its
# file, and rows with new values are appended. Otherwise the file is rewritten (copy-on-write):
#
# 1. Read the condition's columns of each file that may hold matching rows.
# 2. Read each file with matching rows completely, and write its rows, without deleted rows and with
#    new values, to new files.
#
# A file whose rows are all deleted is removed in both cases, with its deletion vector.
#
# One OVERWRITE snapshot removes files, adds files and replaces index files. If a concurrent commit
# has removed one of the changed files or changed its deletion vector, the commit raises
# CommitConflict: the rows may have changed. Rows that are appended concurrently are kept.

BucketKey: TypeAlias = tuple[bytes, int, int]
"""Partition, bucket, total buckets."""


class FileChanges:
    """Changes the data files whose rows a verb changes; a context manager.

    If `marks` is true, old rows are marked and new ones appended; otherwise files are rewritten.
    """

    def __init__(
        self, context: TableContext, source: TableSource, base: WriteStart | None = None
    ) -> None:
        self._tracked = context.options.row_tracking_enabled
        # Files that this verb removes must not be compacted in the same commit.
        context = replace(context, options=replace(context.options, write_only=True))
        self._new_rows = self._write = VerbWrite(context, base)
        if self._tracked:
            # Changed and copied rows keep their ids; the commit gives ids to new rows.
            context = replace(context, schema=with_tracking_columns(context.schema))
            source = replace(source, table_schema=context.schema)
            self._write = VerbWrite(context, base)
        self._context = context
        self._source = source
        self.marks = context.options.deletion_vectors_enabled
        self._removed: dict[BucketKey, list[DataFile]] = defaultdict(list)
        self._marked: dict[BucketKey, dict[str, list[np.ndarray]]] = defaultdict(dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._write.close()
        self._new_rows.close()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that the rows given to `keep` and `update` must have."""
        return self._context.schema.names

    def change(self, condition: Condition | None, values: Mapping[str, object] | None) -> None:
        """Set `values` in the matching rows (no condition: all rows). None: delete the rows."""
        predicate = None if condition is None else condition.predicate
        for split in self._source.plan(predicate).splits:
            for alone in self.units(split):
                names = self._context.schema.names[:1]
                positions, row_count = matching(self.rows, alone, condition, names)
                if not len(positions):
                    continue
                if values is None:
                    self._delete(len(positions))
                everything = len(positions) == row_count
                if everything or not self.marks:
                    self._remove(alone)
                else:
                    self._mark(alone, positions)
                if values is not None or not (everything or self.marks):
                    self._rewrite(alone, condition, values)

    def changed(self) -> Changed:
        """End the changes. Returns what was removed, marked and written, for `commit_changes`."""
        changed: list[BucketVectors] = []
        try:
            messages = [
                bucket_message(
                    self._context,
                    self._source.snapshot,
                    bucket,
                    changed,
                    removed=self._removed[bucket],
                    marked=self._marked[bucket],
                )
                for bucket in dict.fromkeys((*self._removed, *self._marked))
            ]
            done = self._write.changed(self._source.snapshot, messages)
            if not self._tracked:
                return done
            try:
                new = self._new_rows.changed(self._source.snapshot)
            except BaseException:
                delete_files(self._context, done.messages)
                raise
            return replace(done, messages=(*done.messages, *new.messages), inserted=new.inserted)
        except BaseException:
            for vectors in changed:
                vectors.abort()
            raise

    def units(self, split: Split) -> Iterator[Split]:
        """The files of a split, as one split for each."""
        return files_alone(split)

    def take(self, alone: Split) -> None:
        """Begin to change a file. The caller then passes each of its rows to another method."""
        if not self.marks:
            self._remove(alone)

    def replace(self, alone: Split, positions: np.ndarray, rows: pa.Table) -> None:
        """Write new rows that replace the rows of a file at these positions."""
        self._mark(alone, positions)
        self._update(rows)

    def remove(self, alone: Split, positions: np.ndarray) -> None:
        """Delete the rows of a file at these positions."""
        self._mark(alone, positions)
        self._delete(len(positions))

    def _mark(self, alone: Split, positions: np.ndarray) -> None:
        """Mark the rows of a file at these positions: they are deleted, or have new values."""
        if self.marks and len(positions):
            (file,) = alone.files
            self._marked[unit_key(alone)].setdefault(file.name, []).append(positions)

    def keep(self, rows: pa.Table, stays: np.ndarray) -> None:
        """Keep the rows that `stays` flags: write them, if the file is rewritten."""
        if not self.marks:
            self._write.write(rows.select(list(self.names)).filter(pa.array(stays)))

    def _update(self, rows: pa.Table) -> None:
        if self._tracked:
            changed = pa.chunked_array([pa.nulls(rows.num_rows, pa.int64())])
            rows = with_values(rows, {SEQUENCE_NUMBER: changed})
        self._write.write(rows)
        self._write.updated += rows.num_rows

    def _delete(self, count: int) -> None:
        """Count deleted rows, which are not written."""
        self._write.deleted += count

    def insert(self, rows: pa.Table) -> None:
        """Add rows; null and missing columns get their default values."""
        self._new_rows.write(self._new_rows.new_rows(rows))
        self._new_rows.inserted += rows.num_rows

    def _remove(self, alone: Split) -> None:
        self._removed[unit_key(alone)] += alone.files

    def _rewrite(
        self, split: Split, condition: Condition | None, values: Mapping[str, object] | None
    ) -> None:
        schema = self._context.schema
        for _, rows in self.rows(split, schema.names):
            if condition is None:
                chosen = pa.chunked_array([pa.repeat(pa.scalar(True), rows.num_rows)])
            else:
                chosen = holds(rows, condition.expression)
            if not self.marks:
                self._write.write(rows.filter(pc.invert(chosen)))
            if values is not None:
                changed = rows.filter(chosen)
                self._update(with_values(changed, values_of(changed, values, schema.arrow)))

    def rows(self, split: Split, names: Sequence[str]) -> Iterator[tuple[np.ndarray, pa.Table]]:
        """The rows of a file that are not deleted: batches of these columns, each with positions.

        Every call returns the rows in the same order.
        """
        return rows_at(self._context, self._source, split, names, self._new_rows)


def bucket_message(
    context: TableContext,
    base: Snapshot | None,
    key: BucketKey,
    changed: list[BucketVectors],
    *,
    removed: Sequence[DataFile] = (),
    marked: Mapping[str, Sequence[np.ndarray]],
) -> CommitMessage:
    """Write the index files of a bucket with removed files and marked rows; return its message.

    `marked` are the positions of rows, by the name of the file. Adds the vectors to `changed`.
    """
    partition, bucket, total_buckets = key
    gone = [file.name for file in removed]
    vectors = BucketVectors.of(context, base, partition, bucket)
    changed.append(vectors)
    vectors.drop(gone)
    for name, parts in marked.items():
        vectors.mark(name, np.concatenate(parts))
    files = vectors.write()
    return CommitMessage(
        partition=partition,
        bucket=bucket,
        total_buckets=total_buckets,
        deleted_files=tuple(removed),
        new_index_files=files.added,
        deleted_index_files=files.deleted,
        vectors_read=vectors.index_of([*gone, *marked]),
    )


def unit_key(split: Split) -> BucketKey:
    """The partition, bucket and bucket count of a split."""
    return split.partition, split.bucket, split.total_buckets


def files_alone(split: Split) -> Iterator[Split]:
    """The files of a raw split, as one split for each."""
    for file in split.files:
        vectors = {file.name: split.vectors[file.name]} if file.name in split.vectors else {}
        # An index may exclude rows that do not match, but these must be copied or counted, too.
        yield replace(split, runs=((file,),), vectors=vectors, selected={})


def rows_at(
    context: TableContext,
    source: TableSource,
    split: Split,
    names: Sequence[str],
    write: VerbWrite,
) -> Iterator[tuple[np.ndarray, pa.Table]]:
    """The rows of a split that are not deleted: batches of these columns, each with positions."""
    plan = replace(source.read_plan([split], names), checks=Checks.ALWAYS)
    with closing(scan_at(split, plan, context.store, context.budget)) as batches:
        for positions, batch in batches:
            write.saw(batch.num_rows)
            yield np.asarray(positions, np.int64), pa.Table.from_batches([batch])


def matching(
    rows_of: Callable[[Split, Sequence[str]], Iterator[tuple[np.ndarray, pa.Table]]],
    split: Split,
    condition: Condition | None,
    small: Sequence[str],
) -> tuple[np.ndarray, int]:
    """The positions of the matching rows of a split, and how many rows it has.

    If the condition names no column, the columns `small` are read to count the rows.
    """
    names: Sequence[str] = small
    if condition is not None and condition.columns:
        names = tuple(condition.columns)
    found: list[np.ndarray] = []
    row_count = 0
    for positions, rows in rows_of(split, names):
        row_count += rows.num_rows
        if condition is not None:
            positions = positions[_flags(holds(rows, condition.expression))]  # noqa: PLW2901
        found.append(positions)
    return np.concatenate(found) if found else np.zeros(0, np.int64), row_count


def _flags(chosen: pa.ChunkedArray) -> np.ndarray:
    """The result of a condition as booleans; null counts as false."""
    flags: np.ndarray = pc.fill_null(chosen, False).to_numpy()
    return flags


def with_values(rows: pa.Table, values: Mapping[str, pa.ChunkedArray]) -> pa.Table:
    """The rows with some columns replaced."""
    for name, column in values.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows


# --- column changes ------------------------------------------------------------------------------

_UNIT = "_lakecore_unit"
_POSITION = "_lakecore_position"


def changes_of(
    context: TableContext,
    source: TableSource,
    columns: Sequence[str],
    base: WriteStart | None = None,
) -> FileChanges | ColumnChanges:
    """How a verb changes a table without a key: by rewritten files, or by files of changed columns.

    `columns`: the columns that the verb may set.
    """
    if context.options.data_evolution_enabled:
        return ColumnChanges(context, source, columns, base)
    return FileChanges(context, source, base)


def require_deletion(context: TableContext) -> None:
    """Raise Unsupported if the table has data evolution, and none of its rows can be deleted."""
    options = context.options
    if options.data_evolution_enabled and not options.deletion_vectors_enabled:
        raise Unsupported(
            "rows of a table with data evolution are deleted only with deletion vectors",
            option="deletion-vectors.enabled",
            table=context.identifier,
        )


class ColumnChanges:
    """Changes the columns that a verb sets, and marks deleted rows; a context manager.

    `columns` are all columns that the verb may set.
    """

    def __init__(
        self,
        context: TableContext,
        source: TableSource,
        columns: Sequence[str],
        base: WriteStart | None = None,
    ) -> None:
        schema = context.schema
        self._context = context
        self._source = source
        self._names = tuple(name for name in schema.names if name in columns)
        self._placing = tuple(name for name in self._names if name in schema.partition_keys)
        self._written = tuple(name for name in self._names if name not in self._placing)
        self._kept = tuple(
            name
            for name in self._written
            if not in_blob_files(schema.field(name), schema, context.options)
        )
        parts = tuple(field for field in schema.fields if field.name in self._names)
        self._schema = without_defaults(replace(schema, fields=parts, partition_keys=()))
        options = replace(context.options, write_only=True)
        self._new_rows = VerbWrite(replace(context, options=options), base)
        self._marked: dict[BucketKey, dict[str, list[np.ndarray]]] = defaultdict(dict)
        self._units: dict[str, tuple[int, Split]] = {}
        self._changes = RowParts([_UNIT])
        self._changes_bytes = 0
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._messages: list[CommitMessage] = []
        self._updated = self._deleted = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._new_rows.close()
        self._changes.close()
        if error is not None:
            delete_files(self._context, self._messages)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that the rows given to `replace` must have."""
        return self._names

    def units(self, split: Split) -> Iterator[Split]:
        """The units of a split, as splits."""
        if not split.raw:
            yield split
            return
        yield from files_alone(split)

    def change(self, condition: Condition | None, values: Mapping[str, object] | None) -> None:
        """Set `values` in the matching rows (no condition: all rows). None: delete the rows."""
        if values is None:
            require_deletion(self._context)
        elif self._placing:
            raise self._moves(self._placing[0])
        predicate = None if condition is None else condition.predicate
        for split in self._source.plan(predicate).splits:
            for unit in self.units(split):
                names = _small(self._context.schema)
                positions, _ = matching(self.rows, unit, condition, names)
                if not len(positions):
                    continue
                if values is None:
                    self.remove(unit, positions)
                else:
                    self._update(unit, positions, values)

    def rows(self, unit: Split, names: Sequence[str]) -> Iterator[tuple[np.ndarray, pa.Table]]:
        """The undeleted rows of a unit, in batches of these columns, each with positions."""
        return rows_at(self._context, self._source, unit, names, self._new_rows)

    def take(self, unit: Split) -> None:
        """Begin to change a unit. Does nothing, because the unit's files stay."""

    def keep(self, rows: pa.Table, stays: np.ndarray) -> None:
        """Keep unchanged rows. Does nothing, because their files stay."""

    def replace(self, unit: Split, positions: np.ndarray, rows: pa.Table) -> None:
        """Set the columns `names` of the rows of a unit at these positions."""
        number, _ = self._units.setdefault(unit.files[0].name, (len(self._units), unit))
        rows = fitted(rows.select(list(self._names)), self._schema)
        self._check_partition(unit, rows)
        rows = rows.select(list(self._written))
        self._changes_bytes += rows.nbytes
        self._updated += rows.num_rows
        rows = rows.append_column(_UNIT, pa.repeat(number, rows.num_rows))
        self._waiting.append(rows.append_column(_POSITION, pa.array(positions)))
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= Share.WAITING.of(self._context.budget.size_bytes):
            self._spill()

    def _spill(self) -> None:
        if self._waiting:
            waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
            self._changes.add(pa.concat_tables(waiting).combine_chunks())

    def remove(self, unit: Split, positions: np.ndarray) -> None:
        """Delete the rows of a unit at these positions."""
        if len(positions):
            anchor = anchor_of(unit.files)
            self._marked[unit_key(unit)].setdefault(anchor.name, []).append(positions)
            self._deleted += len(positions)

    def insert(self, rows: pa.Table) -> None:
        """Add rows; null and missing columns get their default values."""
        self._new_rows.write(self._new_rows.new_rows(rows))
        self._new_rows.inserted += rows.num_rows

    def changed(self) -> Changed:
        """End the changes. Returns what was written and marked, for `commit_changes`."""
        self._write_replaced()
        changed: list[BucketVectors] = []
        try:
            for key, marked in self._marked.items():
                base = self._source.snapshot
                self._messages.append(
                    bucket_message(self._context, base, key, changed, marked=marked)
                )
            done = self._new_rows.changed(self._source.snapshot, self._messages)
        except BaseException:
            for vectors in changed:
                vectors.abort()
            raise
        return replace(done, updated=self._updated, deleted=self._deleted)

    def _update(self, unit: Split, positions: np.ndarray, values: Mapping[str, object]) -> None:
        """Write new values for the rows of a unit at these positions, which ascend."""
        schema = self._context.schema
        roots = (name for value in values.values() for name in names_in(value))
        names = tuple(dict.fromkeys((*self._kept, *roots))) or _small(schema)

        def computed(rows: pa.Table, at: np.ndarray) -> pa.Table:
            chosen = rows.take(pa.array(at))
            new = pa.table(values_of(chosen, values, schema.arrow))
            return fitted(new.select(list(self._names)), self._schema)

        self._write(unit, names, positions, computed)
        self._updated += len(positions)

    def _check_partition(self, unit: Split, rows: pa.Table) -> None:
        """Raise Unsupported if a new row of a unit would move to another partition."""
        own = self._context.partitions.values([unit.partition])
        for name in self._placing:
            value, column = own.column(name)[0], rows.column(name)
            stays = pc.equal(column, value) if value.is_valid else column.is_null()
            if pc.index(pc.fill_null(stays, False), pa.scalar(False)).as_py() >= 0:
                raise self._moves(name)

    def _moves(self, column: str) -> Unsupported:
        return Unsupported(
            "a row of a table with data evolution stays in its partition",
            column=column,
            option="data-evolution.enabled",
            table=self._context.identifier,
        )

    def _write_replaced(self) -> None:
        """Write the rows that `replace` was given, unit by unit."""
        if not self._units:
            return
        self._spill()
        units = dict(self._units.values())
        limit = max(1, Share.CHANGED.of(self._context.budget.size_bytes))
        count = min(FAN, 1 + self._changes_bytes // limit)
        for number in range(count):
            parts = list(self._changes.part(number, count))
            if not parts:
                continue
            rows = pa.concat_tables(parts).sort_by([(_UNIT, "ascending"), (_POSITION, "ascending")])
            numbers, positions = (rows.column(each).to_numpy() for each in (_UNIT, _POSITION))
            begins = np.flatnonzero(np.diff(numbers, prepend=-1))
            for begin, end in zip(begins, [*begins[1:], len(numbers)], strict=True):
                own = rows[begin:end].select(list(self._written))
                self._write_rows(units[int(numbers[begin])], positions[begin:end], own)

    def _write_rows(self, unit: Split, positions: np.ndarray, new: pa.Table) -> None:
        taken = 0

        def following(_: pa.Table, at: np.ndarray) -> pa.Table:
            nonlocal taken
            taken += len(at)
            return new.slice(taken - len(at), len(at))

        names = self._kept or _small(self._context.schema)
        self._write(unit, names, positions, following)

    def _write(
        self,
        unit: Split,
        names: Sequence[str],
        positions: np.ndarray,
        new: Callable[[pa.Table, np.ndarray], pa.Table],
    ) -> None:
        """Write the columns of all rows of a unit, with new rows at some positions.

        `new` computes the new rows from a batch of old rows with the columns `names` and the
        positions of the changed rows in the batch.
        """
        if not self._written:
            return
        # Deleted rows keep their positions in the new file.
        whole = replace(unit, vectors={})
        with ColumnFiles(self._context, unit, self._written) as files:
            for at, rows in self.rows(whole, names):
                if not len(at):
                    continue
                low, high = np.searchsorted(positions, (at[0], at[-1] + 1))
                chosen = positions[low:high] - at[0]
                files.write(rows.select(list(self._kept)), chosen, new(rows, chosen))
            written = files.close()
        self._messages.append(
            CommitMessage(
                partition=unit.partition,
                bucket=unit.bucket,
                total_buckets=unit.total_buckets,
                new_files=written,
            )
        )


def _small(schema: TableSchema) -> tuple[str, ...]:
    """A small column, for counting rows when no column is needed."""
    return tuple(field.name for field in schema.fields if not is_blob(field.type))[:1]
