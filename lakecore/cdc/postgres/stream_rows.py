"""Collects changes of the stream for a step, and tracks the position in the stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.cdc.events import ChangeBatch
from lakecore.cdc.postgres.text_values import parsed

if TYPE_CHECKING:
    from lakecore.cdc.events import Position, SourceSchema, SourceTable
    from lakecore.cdc.postgres.connection import PostgresColumn
    from lakecore.cdc.postgres.output import Change
    from lakecore.model.types import Json

__all__ = ["StreamPlace", "StreamRows", "StreamTable", "batch_of"]

_INSERT, _DELETE = 0, 3


@dataclass(slots=True)
class StreamTable:
    """A table with its columns, and collected rows that are not a batch yet."""

    table: SourceTable
    schema: SourceSchema
    columns: tuple[PostgresColumn, ...]
    rows: list[tuple[str | None, ...]] = field(default_factory=list)
    kinds: bytearray = field(default_factory=bytearray)
    times: list[int] = field(default_factory=list)


@dataclass(slots=True)
class StreamPlace:
    """A position in the stream: after a transaction, or after some changes of the next one."""

    lsn: int
    time_ms: int = 0
    transaction: int | None = None
    changes: int = 0

    def to_json(self) -> dict[str, Json]:
        """The position of a step, as stored."""
        found: dict[str, Json] = {"lsn": self.lsn}
        if self.time_ms:
            found["time_ms"] = self.time_ms
        if self.transaction is not None:
            found |= {"transaction": self.transaction, "changes": self.changes}
        return found

    @staticmethod
    def from_json(given: Position) -> StreamPlace:
        """The position in the stream that a stored position names."""
        transaction = given.get("transaction")
        return StreamPlace(
            int(str(given["lsn"])),
            int(str(given.get("time_ms", 0))),
            None if transaction is None else int(str(transaction)),
            int(str(given.get("changes", 0))),
        )


class StreamRows:
    """Changes of tables that are not in a step yet, in order.

    Several tables may share a target. To keep their order, a batch of one table ends that of
    another.
    """

    def __init__(self, *, takes_metadata: bool) -> None:
        self._takes_metadata = takes_metadata
        self.relations: dict[int, StreamTable | None] = {}
        self.count = 0
        self.size = 0
        self._sealed: list[ChangeBatch] = []
        self._current: StreamTable | None = None

    def add(self, change: Change, time_ms: int, size: int) -> None:
        """Collect the rows of a change of `size` bytes, if its table is followed."""
        table = self.relations[change.relation]
        if table is None:
            return
        if self._current is not None and self._current is not table:
            self._sealed.append(batch_of(self._current, takes_metadata=self._takes_metadata))
        self._current = table
        self.size += size
        for values, kind in ((change.before, _DELETE), (change.after, _INSERT)):
            if values is not None:
                table.rows.append(values)
                table.kinds.append(kind)
                table.times.append(time_ms)
                self.count += 1

    def take(self) -> tuple[ChangeBatch, ...]:
        """The batches of everything collected so far."""
        if self._current is not None:
            self._sealed.append(batch_of(self._current, takes_metadata=self._takes_metadata))
        batches = tuple(self._sealed)
        self._sealed, self._current, self.count, self.size = [], None, 0, 0
        return batches


def batch_of(table: StreamTable, *, takes_metadata: bool) -> ChangeBatch:
    """The collected rows of a table as a batch. The collection is then empty."""
    arrow = table.schema.arrow
    arrays = [
        parsed(column, values, target.type)
        for column, values, target in zip(
            table.columns, zip(*table.rows, strict=True), arrow, strict=True
        )
    ]
    times = pa.array(table.times, pa.int64())
    batch = ChangeBatch(
        table=table.table,
        schema=table.schema,
        rows=pa.Table.from_arrays(arrays, names=arrow.names),
        kinds=pa.array(np.frombuffer(bytes(table.kinds), np.int8)),
        metadata=_metadata(table.table, times) if takes_metadata else None,
    )
    table.rows, table.kinds, table.times = [], bytearray(), []
    return batch


def _metadata(table: SourceTable, times_ms: pa.Array) -> pa.Table:
    count = len(times_ms)
    schema, _, name = table.name.partition(".")
    return pa.table(
        {
            "database_name": pa.repeat(pa.scalar(table.database), count),
            "schema_name": pa.repeat(pa.scalar(schema), count),
            "table_name": pa.repeat(pa.scalar(name), count),
            "op_ts": times_ms.cast(pa.timestamp("ms", "UTC")),
        }
    )
