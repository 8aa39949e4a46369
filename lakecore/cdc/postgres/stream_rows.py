"""Collects changes of the stream for a step, and tracks the position in the stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import unpack_from
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.cdc.events import ChangeBatch, Position, SourceSchema, SourceTable
from lakecore.cdc.quarantine import START_AGAIN, of_tables
from lakecore.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.cdc.postgres.connection import PostgresColumn
    from lakecore.model.types import Json


# --- text values ---------------------------------------------------------------------------------
# Converts values in PostgreSQL's text format to the Arrow type of the target column.
#
# The session uses ISO format and UTC. Paimon has no infinite dates or times, none before the year
# 1, and no NaN in a DECIMAL: such values are errors.


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
        found = _parsed(column.type, values, target)
        return found if found.type == target else found.cast(target)
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
_IGNORED = frozenset(b"OYM")


UNSENT = "\0"
"""The placeholder of an unchanged large value, if the log has no old row.

PostgreSQL's strings never contain this character.
"""


@dataclass(frozen=True, slots=True)
class Relation:
    """The definition of a table for the next changes: each column with its type and modifier.

    `identity`: the replica identity of the table, as in `pg_class.relreplident`.
    """

    id: int
    schema: str
    table: str
    identity: str
    columns: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A changed row of a table: its values before and after the change, as strings.

    An inserted row has no values before (None), and a deleted row none after. A value that the
    server omitted is `UNSENT`.
    """

    relation: int
    before: tuple[str | None, ...] | None
    after: tuple[str | None, ...] | None


@dataclass(frozen=True, slots=True)
class Truncation:
    """A statement that removed all rows of tables."""

    relations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """The start of a transaction: its number, and when it was committed."""

    transaction: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class End:
    """The end of a transaction, and the position where the next one begins."""

    lsn: int


def parse(data: bytes) -> Relation | Change | Truncation | Begin | End | None:
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
            before, old, at = None, data[5], 5
            if old in b"KO":
                before, at = _tuple(data, 6)
            after, _ = _tuple(data, at + 1, before, has_key_only=old in b"K")
            return Change(_id(data), before, after)
        case "T":
            count = int.from_bytes(data[1:5], "big")
            return Truncation(unpack_from(f">{count}I", data, 6))
        case other:
            raise Unsupported("a message of pgoutput that is not known", kind=other)


def _id(data: bytes) -> int:
    return int.from_bytes(data[1:5], "big")


def _relation(data: bytes) -> Relation:
    schema, at = _text(data, 5)
    table, at = _text(data, at)
    identity, count = chr(data[at]), int.from_bytes(data[at + 1 : at + 3], "big")
    at += 3
    columns = []
    for _ in range(count):
        name, at = _text(data, at + 1)
        oid, modifier = unpack_from(">Ii", data, at)
        at += 8
        columns.append((name, oid, modifier))
    return Relation(_id(data), schema, table, identity, tuple(columns))


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def _tuple(
    data: bytes,
    at: int,
    before: Sequence[str | None] | None = None,
    *,
    has_key_only: bool = False,
) -> tuple[tuple[str | None, ...], int]:
    """The values of a row; unchanged large values, which the server omits, are the old row's.

    `has_key_only`: whether the old row has nulls outside of the key.
    """
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
        else:
            old = None if before is None else before[number]
            is_known = before is not None and (old is not None or not has_key_only)
            values.append(old if is_known else UNSENT)
    return tuple(values), at


# --- stream rows ---------------------------------------------------------------------------------

_INSERT, _DELETE = 0, 3


@dataclass(slots=True)
class StreamTable:
    """A table with its columns, and collected rows that are not a batch yet.

    `kept`: the indexes, among the columns of the stream, of the columns that are mirrored.
    """

    table: SourceTable
    schema: SourceSchema
    columns: tuple[PostgresColumn, ...]
    kept: Sequence[int]
    rows: list[tuple[str | None, ...]] = field(default_factory=list)
    kinds: bytearray = field(default_factory=bytearray)
    times: list[int] = field(default_factory=list)


_HALF = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The snapshot in which a table was read while the stream was followed.

    `least`, `next`, `running`: the numbers of `pg_current_snapshot()`. `lsn`: the place in the
    stream after all changes that the snapshot shows.
    """

    least: int
    next: int
    running: tuple[int, ...]
    lsn: int

    def shows(self, transaction: int) -> bool:
        """Whether the snapshot shows the changes of a transaction.

        The stream states the low 32 bits of a transaction's number.
        """
        near = self.least + (transaction - self.least + _HALF) % (2 * _HALF) - _HALF
        return near < self.next and near not in self.running

    def to_json(self) -> dict[str, Json]:
        return {
            "least": self.least, "next": self.next, "running": [*self.running], "lsn": self.lsn
        }  # fmt: skip

    @staticmethod
    def from_json(given: Json) -> Mark:
        assert isinstance(given, dict), "a mark is an object"
        running = given["running"]
        assert isinstance(running, list), "transactions are a list"
        least, following, lsn = (int(str(given[name])) for name in ("least", "next", "lsn"))
        transactions = tuple(int(str(each)) for each in running)
        return Mark(least=least, next=following, running=transactions, lsn=lsn)


@dataclass(slots=True)
class StreamPlace:
    """A position in the stream: after a transaction, or after some changes of the next one.

    - `transaction`: the transaction that is read, or of which a part is written;
    - `changes`: how many of its changes are written;
    - `is_open`: whether its start was read;
    - `marks`: by name, the tables that were read later than this position;
    - `columns`: by name, the last `read_identities` of the tables. The mapping is part of stored
      positions: replace it, never change it in place.
    """

    lsn: int
    time_ms: int = 0
    transaction: int | None = None
    changes: int = 0
    marks: dict[str, Mark] = field(default_factory=dict)
    columns: dict[str, Json] = field(default_factory=dict)
    is_open: bool = False
    _seen: int = 0

    def begin(self, begin: Begin) -> None:
        """Begin a transaction. Raises InvalidRequest if another one is half written."""
        if self.transaction not in {None, begin.transaction}:
            raise self._lost()
        self.transaction, self.time_ms = begin.transaction, begin.time_ms
        self.is_open, self._seen = True, 0

    def counts(self) -> bool:
        """Count a change; False if already written. Otherwise a call of `take` follows."""
        self._seen += 1
        return self._seen > self.changes

    def take(self) -> None:
        """Make the counted changes part of the next step."""
        self.changes = self._seen

    def end(self, end: End) -> None:
        """End the transaction. Raises InvalidRequest if it has fewer changes than were written."""
        if self._seen < self.changes:
            raise self._lost()
        self.is_open = False
        self.reach(end.lsn)

    def _lost(self) -> InvalidRequest:
        return InvalidRequest(
            "the slot no longer has the transaction of which the pipeline has written a part: "
            f"drop the slot, {START_AGAIN}",
            transaction=self.transaction,
        )

    def reach(self, lsn: int) -> None:
        """Note that no transaction is open, and that the stream has passed this place."""
        self.lsn, self.transaction, self.changes = max(self.lsn, lsn), None, 0
        if self.marks:
            self.marks = {name: each for name, each in self.marks.items() if each.lsn > self.lsn}

    def has_read(self, table: SourceTable) -> bool:
        """Whether the target of a table already has the changes of the current transaction."""
        mark = self.marks.get(table.name)
        return mark is not None and self.transaction is not None and mark.shows(self.transaction)

    def to_json(self) -> dict[str, Json]:
        found: dict[str, Json] = {"lsn": self.lsn}
        if self.time_ms:
            found["time_ms"] = self.time_ms
        if self.transaction is not None:
            found |= {"transaction": self.transaction, "changes": self.changes}
        if self.marks:
            found["marks"] = {name: each.to_json() for name, each in self.marks.items()}
        return found | {"columns": self.columns}

    @staticmethod
    def from_json(given: Position) -> StreamPlace:
        """The position in the stream that a stored position names.

        Raises InvalidRequest for a position of another source, and for a damaged one.
        """
        try:
            return StreamPlace._from_json(given)
        except (AssertionError, AttributeError, LookupError, TypeError, ValueError):
            about = str(dict(given))
            raise InvalidRequest("not a position of this source", position=about) from None

    @staticmethod
    def _from_json(given: Position) -> StreamPlace:
        transaction, marks = given.get("transaction"), given.get("marks")
        columns = given.get("columns")
        return StreamPlace(
            int(str(given["lsn"])),
            int(str(given.get("time_ms", 0))),
            None if transaction is None else int(str(transaction)),
            int(str(given.get("changes", 0))),
            {name: Mark.from_json(each) for name, each in marks.items()}
            if isinstance(marks, dict)
            else {},
            columns if isinstance(columns, dict) else {},
        )


class StreamRows:
    """Changes of tables that are not in a step yet, in order.

    `fill`: replaces the `UNSENT` values of collected rows, or removes such rows.

    Tables may share a target. To keep the order of their changes, a batch of one table ends the
    batch of another.
    """

    def __init__(self, fill: Callable[[StreamTable], None], *, takes_metadata: bool) -> None:
        self._fill = fill
        self._takes_metadata = takes_metadata
        self.relations: dict[int, StreamTable | None] = {}
        self.count = 0
        self.size = 0
        self._sealed: list[ChangeBatch] = []
        self._current: StreamTable | None = None

    def add(self, table: StreamTable, change: Change, time_ms: int, size: int) -> None:
        """Collect the rows of a change of `size` bytes of a table."""
        if self._current is not table:
            self._seal()
        self._current = table
        self.size += size
        for values, kind in ((change.before, _DELETE), (change.after, _INSERT)):
            if values is not None:
                table.rows.append(tuple(values[each] for each in table.kept))
                table.kinds.append(kind)
                table.times.append(time_ms)
                self.count += 1

    def take(self) -> tuple[ChangeBatch, ...]:
        """The batches of everything collected so far."""
        self._seal()
        batches = tuple(self._sealed)
        self._sealed, self._current, self.count, self.size = [], None, 0, 0
        return batches

    def _seal(self) -> None:
        if self._current is not None:
            with of_tables(self._current.table):
                self._fill(self._current)
                batch = batch_of(self._current, takes_metadata=self._takes_metadata)
                self._sealed.append(batch)


def batch_of(table: StreamTable, *, takes_metadata: bool) -> ChangeBatch:
    """The collected rows of a table as a batch; the collection is emptied."""
    arrow = table.schema.arrow
    listed = zip(*table.rows, strict=True) if table.rows else ((),) * len(table.columns)
    arrays = [
        parsed(column, values, target.type)
        for column, values, target in zip(table.columns, listed, arrow, strict=True)
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
