"""Collects changes of the stream for a step, and tracks the position in the stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import unpack_from
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.cdc.events import ChangeBatch
from lakecore.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.cdc.events import Position, SourceSchema, SourceTable
    from lakecore.cdc.postgres.connection import PostgresColumn
    from lakecore.model.types import Json


# --- text values ---------------------------------------------------------------------------------
# Converts values in PostgreSQL's text format to the Arrow type of the target column.
#
# The session uses ISO format and UTC. Paimon has no infinite dates or times, none before the year
# 1, and no NaN in a DECIMAL: these values are refused.


def parsed(column: PostgresColumn, values: Sequence[str | None], target: pa.DataType) -> pa.Array:
    """The values of one column.

    Raises InvalidRequest, naming the column, if a value does not fit.
    """
    try:
        if pa.types.is_list(target):
            lists = [None if each is None else array_items(each) for each in values]
            flat = [item for each in lists if each is not None for item in each]
            items = _parsed(column.type.removeprefix("_"), flat, target.value_type)
            offsets = [0]
            for each in lists:
                offsets.append(offsets[-1] + (0 if each is None else len(each)))
            mask = pa.array([each is None for each in lists], pa.bool_())
            return pa.ListArray.from_arrays(
                pa.array(offsets, pa.int32()), items, type=target, mask=mask
            )
        return _parsed(column.type, values, target)
    except (pa.ArrowInvalid, ValueError) as error:
        if isinstance(error, InvalidRequest):
            raise
        raise InvalidRequest(
            "a value of the source does not fit its column; `--type_mapping to-string` takes "
            "every value as text",
            column=column.name,
            type=column.type,
            cause=error,
        ) from error


def _parsed(kind: str, values: Sequence[str | None], target: pa.DataType) -> pa.Array:
    texts = pa.array(values, pa.string())
    if kind == "bpchar":
        texts = pc.utf8_rtrim(texts, " ")
    if pa.types.is_string(target):
        return texts
    match kind:
        case "bool":
            return pc.equal(pc.utf8_slice_codeunits(texts, 0, 1), "t")
        case "bytea":
            return pa.array(
                [None if each is None else bytes.fromhex(each[2:]) for each in values], target
            )
        case "bit" | "varbit":
            return _bits(values, target)
        case "timestamptz":
            plain = pc.replace_substring_regex(texts, r"\+00$", "")
            return plain.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")).cast(target)
        case "timestamp":
            return texts.cast(pa.timestamp("us")).cast(target)
        case "time":
            return _times(texts, target)
        case "float4":
            return texts.cast(pa.float64()).cast(target, safe=False)
        case _:
            return texts.cast(target)


def _bits(values: Sequence[str | None], target: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(target):
        return pa.array([None if each is None else each == "1" for each in values], target)
    return pa.array(
        [
            None if each is None else int(each or "0", 2).to_bytes((len(each) + 7) // 8, "big")
            for each in values
        ],
        target,
    )


def _times(texts: pa.Array, target: pa.DataType) -> pa.Array:
    """Times of day. As in Paimon, digits after the milliseconds are cut."""
    since_1970 = pc.binary_join_element_wise("1970-01-01", texts, " ").cast(pa.timestamp("us"))
    millis = pc.divide(since_1970.cast(pa.int64()), 1000)
    return millis.cast(pa.int32()).cast(pa.time32("ms")).cast(target)


def array_items(text: str) -> list[str | None]:
    """The items of a one-dimensional array's text. Raises InvalidRequest for more dimensions."""
    if not text.startswith("{"):
        raise InvalidRequest("an array with bounds of its own is not supported", value=text)
    items: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        if text[at] == "{":
            raise InvalidRequest("an array of several dimensions is not supported", value=text)
        if text[at] == '"':
            item = ""
            at += 1
            while text[at] != '"':
                if text[at] == "\\":
                    at += 1
                item += text[at]
                at += 1
            at += 1
            items.append(item)
        else:
            stop = text.find(",", at, end)
            stop = end if stop < 0 else stop
            item = text[at:stop]
            items.append(None if item == "NULL" else item)
            at = stop
        at += 1
    return items


# --- output --------------------------------------------------------------------------------------
# Parses messages of the plugin pgoutput, version 1.
#
# https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html

_EPOCH_MS = 946_684_800_000
"""PostgreSQL counts times from the year 2000."""
_IGNORED = frozenset(b"OYTM")


@dataclass(frozen=True, slots=True)
class Relation:
    """The definition of a table for the next changes: each column with its type and modifier."""

    id: int
    schema: str
    table: str
    columns: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A changed row of a table: its values before and after the change, as strings.

    An inserted row has no values before (None), and a deleted row none after.
    """

    relation: int
    before: tuple[str | None, ...] | None
    after: tuple[str | None, ...] | None


@dataclass(frozen=True, slots=True)
class Begin:
    """The start of a transaction: its number, and when it was committed."""

    transaction: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class End:
    """The end of a transaction, and the position where the next one begins."""

    lsn: int


def parse(data: bytes) -> Relation | Change | Begin | End | None:
    """The parsed message; None for a message that changes no row."""
    kind = data[0]
    if kind in _IGNORED:
        return None
    match chr(kind):
        case "B":
            _, time, transaction = unpack_from(">QqI", data, 1)
            return Begin(transaction, time // 1000 + _EPOCH_MS)
        case "C":
            _, _, end, _ = unpack_from(">BQQq", data, 1)
            return End(end)
        case "R":
            return _relation(data)
        case "I":
            return Change(_id(data), None, _tuple(data, 6)[0])
        case "D":
            return Change(_id(data), _tuple(data, 6)[0], None)
        case "U":
            before, at = None, 5
            if data[at] in b"KO":
                before, at = _tuple(data, 6)
            after, _ = _tuple(data, at + 1, before)
            return Change(_id(data), before, after)
        case other:
            raise Unsupported("a message of pgoutput that is not known", kind=other)


def _id(data: bytes) -> int:
    return int.from_bytes(data[1:5], "big")


def _relation(data: bytes) -> Relation:
    schema, at = _text(data, 5)
    table, at = _text(data, at)
    count = int.from_bytes(data[at + 1 : at + 3], "big")
    at += 3
    columns = []
    for _ in range(count):
        name, at = _text(data, at + 1)
        oid, modifier = unpack_from(">Ii", data, at)
        at += 8
        columns.append((name, oid, modifier))
    return Relation(_id(data), schema, table, tuple(columns))


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def _tuple(
    data: bytes, at: int, before: Sequence[str | None] | None = None
) -> tuple[tuple[str | None, ...], int]:
    """The values of a row. The server omits unchanged large values: they come from the old row."""
    count = int.from_bytes(data[at : at + 2], "big")
    at += 2
    values: list[str | None] = []
    for number in range(count):
        kind = data[at : at + 1]
        at += 1
        if kind == b"n":
            values.append(None)
        elif kind == b"t":
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            values.append(data[at + 4 : end].decode())
            at = end
        elif kind == b"u" and before is not None:
            values.append(before[number])
        else:
            raise InvalidRequest(
                "a change does not state a large value that stayed the same: set the replica "
                "identity of the table to FULL, and read it again"
            )
    return tuple(values), at


# --- stream rows ---------------------------------------------------------------------------------

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
