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
(`commits/row_range_checks.py`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import Unsupported
from lakecore.model.blob_rules import in_blob_files
from lakecore.model.files import CommitMessage
from lakecore.model.types import is_blob
from lakecore.plan.row_ids import anchor_of
from lakecore.table.commits.message_files import delete_files
from lakecore.table.reads.row_values import names_in, values_of
from lakecore.table.verbs.column_files import ColumnFiles
from lakecore.table.verbs.file_changes import (
    FileChanges,
    bucket_message,
    files_alone,
    matching,
    rows_at,
    unit_key,
)
from lakecore.table.verbs.row_parts import FAN, RowParts
from lakecore.table.verbs.verb_write import VerbWrite, fitted, without_defaults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from lakecore.model.files import Split
    from lakecore.model.schema import TableSchema
    from lakecore.table.context import TableContext
    from lakecore.table.reads.row_values import Condition
    from lakecore.table.reads.source import TableSource
    from lakecore.table.vectors.bucket_vectors import BucketVectors
    from lakecore.table.verbs.file_changes import BucketKey
    from lakecore.table.verbs.verb_write import Changed
    from lakecore.table.writes.write_start import WriteStart

_UNIT = "_lakecore_unit"
_POSITION = "_lakecore_position"
_SHARE = 8
"""The changed rows of the units that are written together take the budget divided by this."""
_WAITING_SHARE = 64
"""Changed rows wait in memory until they take the budget divided by this."""


def changes_of(
    context: TableContext,
    source: TableSource,
    columns: Sequence[str],
    base: WriteStart | None = None,
) -> FileChanges | ColumnChanges:
    """How a verb changes a table without a key: by rewritten files, or by files of changed columns.

    `columns` are those that the verb may set.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        return rows_at(self._context, self._source, unit, names)

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
        if self._waiting_bytes >= self._context.budget.size_bytes // _WAITING_SHARE:
            self._spill()

    def _spill(self) -> None:
        """Move the waiting rows to disk."""
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
        limit = max(1, self._context.budget.size_bytes // _SHARE)
        count = min(FAN, 1 + self._changes_bytes // limit)
        for number in range(count):
            parts = list(self._changes.part(number, count))
            if not parts:
                continue
            rows = pa.concat_tables(parts).sort_by([(_UNIT, "ascending"), (_POSITION, "ascending")])
            numbers, positions = (rows.column(each).to_numpy() for each in (_UNIT, _POSITION))
            begins = np.flatnonzero(np.diff(numbers, prepend=-1))
            for begin, end in zip(begins, [*begins[1:], len(numbers)], strict=True):
                own = rows.slice(begin, end - begin).select(list(self._written))
                self._write_rows(units[int(numbers[begin])], positions[begin:end], own)

    def _write_rows(self, unit: Split, positions: np.ndarray, new: pa.Table) -> None:
        """Write these new rows of a unit."""
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
