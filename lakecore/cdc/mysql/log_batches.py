"""Collects the rows of log events by table, and converts them to batches of changes.

A new batch of a table begins when its table map changes, so that a batch has one schema. Among
tables with the same target, the order of changes is kept: a batch of one table ends the open
batches of the others.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.cdc.events import ChangeBatch, Position, SourceSchema, SourceTable
from lakecore.cdc.mysql.binlog import Definition, LogPlace, Rows, Statement, TableMapSeen
from lakecore.cdc.mysql.column import (
    BY_SERVER,
    Code,
    LoggedColumn,
    definitions_of,
    printed_columns,
    source_schema,
)
from lakecore.cdc.mysql.connection import (
    MySqlSettings,
    Server,
    connect,
    has_routines,
    plain_mysql_errors,
    read_columns,
    read_comment,
    read_tables,
)
from lakecore.cdc.mysql.snapshot import fitted
from lakecore.cdc.mysql.statements import changed_table, named_tables
from lakecore.cdc.mysql.table_map import TableMap, decoded, parse_table_map, shown, table_name
from lakecore.cdc.quarantine import concern, of_tables
from lakecore.errors import CorruptTable, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from lakecore.model.types import Json

    Cut = tuple[Callable[[bytes, int], tuple[object, ...]] | None, int, int]


# --- row images ----------------------------------------------------------------------------------
# Unpacks rows of the binary log to columns of raw values.
#
# A row image holds the null bits of its columns and then their values, one after the other. The
# table map states the size of every value except strings. One call of a `struct.Struct` unpacks all
# values between two strings. Which calls a row needs depends only on its null bits, so a plan is
# made once for each pattern of nulls. Unpacked values are numbers and bytes, which `table_map.py`
# converts to Arrow by whole columns.

_NUMBERS = {
    Code.TINY: "bB",
    Code.SHORT: "hH",
    Code.LONG: "iI",
    Code.LONGLONG: "qQ",
    Code.FLOAT: "ff",
    Code.DOUBLE: "dd",
    Code.YEAR: "BB",
}
_UNSIGNED = {1: "B", 2: "H", 4: "I", 8: "Q"}
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_size(precision: int, scale: int) -> int:
    """The bytes of a stored decimal: groups of nine digits take four bytes."""
    whole = precision - scale
    return whole // 9 * 4 + _DIGIT_BYTES[whole % 9] + scale // 9 * 4 + _DIGIT_BYTES[scale % 9]


@dataclass(slots=True)
class RowImages:
    """Unpacks the rows of one table, as one table map describes it."""

    columns: Sequence[LoggedColumn]
    _plans: dict[bytes, tuple[Cut, ...]] = field(default_factory=dict)

    def cut(self, data: bytes, start: int, end: int) -> list[tuple[object, ...]]:
        """The rows between two offsets, each as a tuple of raw values (None for null)."""
        size = (len(self.columns) + 7) // 8
        plans = self._plans
        rows: list[tuple[object, ...]] = []
        at = start
        while at < end:
            nulls = data[at : at + size]
            at += size
            plan = plans.get(nulls)
            if plan is None:
                plan = plans[nulls] = self._plan(nulls)
            row: list[object] = []
            for unpack, fixed, prefix in plan:
                if unpack is not None:
                    row += unpack(data, at)
                    at += fixed
                if prefix == 1:
                    stop = at + 1 + data[at]
                    row.append(data[at + 1 : stop])
                    at = stop
                elif prefix > 0:
                    stop = at + prefix + int.from_bytes(data[at : at + prefix], "little")
                    row.append(data[at + prefix : stop])
                    at = stop
                elif prefix < 0:
                    row += (None,) * -prefix
            rows.append(tuple(row))
        if at != end:
            raise CorruptTable("a row of the binary log ends behind its event", bytes=at - end)
        return rows

    def _plan(self, nulls: bytes) -> tuple[Cut, ...]:
        """The plan for a pattern of nulls.

        Each step reads fixed-size values, then a string or some nulls.

        The third part of a step is the number of length bytes of the string, or minus the number of
        nulls.
        """
        plan: list[Cut] = []
        codes: list[str] = []

        def close(last: int) -> None:
            packed = Struct("<" + "".join(codes))
            plan.append((packed.unpack_from if codes else None, packed.size, last))
            codes.clear()

        for number, column in enumerate(self.columns):
            if nulls[number // 8] >> (number % 8) & 1:
                if plan and not codes and plan[-1][2] < 0:
                    plan[-1] = (*plan[-1][:2], plan[-1][2] - 1)
                else:
                    close(-1)
                continue
            code, prefix = _storage(column)
            if prefix:
                close(prefix)
            else:
                codes.append(code)
        if codes:
            close(0)
        return tuple(plan)


def _storage(column: LoggedColumn) -> tuple[str, int]:
    """The `struct` code of a fixed-size value, or the number of length bytes of a string."""
    match column.code:
        case Code.VARCHAR | Code.VAR_STRING | Code.STRING:
            return "", 2 if column.length_bytes > 255 else 1
        case Code.BLOB | Code.JSON | Code.GEOMETRY:
            return "", column.size
        case Code.INT24 | Code.DATE:
            return "3s", 0
        case Code.TIMESTAMP2:
            return f"{4 + (column.precision + 1) // 2}s", 0
        case Code.DATETIME2:
            return f"{5 + (column.precision + 1) // 2}s", 0
        case Code.TIME2:
            return f"{3 + (column.precision + 1) // 2}s", 0
        case Code.NEWDECIMAL:
            return f"{decimal_size(column.precision, column.scale)}s", 0
        case Code.BIT:
            return f"{column.size}s", 0
        case Code.ENUM | Code.SET:
            return _UNSIGNED.get(column.size, f"{column.size}s"), 0
    return _NUMBERS[column.code][column.unsigned], 0


# --- server texts --------------------------------------------------------------------------------
# Lets the server decode bytes in a character set that Python decodes differently.
#
# Python knows some of these character sets, but maps some bytes to other characters. The server
# decodes the strings of the snapshot, and must therefore also decode the strings of the log.
# Decoded strings are cached.

_ASKED_AT_ONCE, _ASKED_BYTES = 500, 1 << 20
_KNOWN_MAX, _KNOWN_BYTES = 50_000, 16 << 20


class ServerTexts:
    """Decodes bytes by a request to the server, with a bounded cache."""

    def __init__(self, settings: MySqlSettings) -> None:
        self._settings = settings
        self._known: dict[tuple[str, bytes], str] = {}
        self._known_bytes = 0

    def texts(self, charset: str, values: Sequence[object]) -> list[str | None]:
        """The decoded string of each value; None for None.

        Raises InvalidRequest for bytes that are invalid in this character set.
        """
        wanted = {each for each in values if isinstance(each, bytes)}
        missing = [each for each in wanted if (charset, each) not in self._known]
        if missing:
            self._ask(charset, missing)
        found = [self._known[charset, each] if isinstance(each, bytes) else None for each in values]
        if len(self._known) > _KNOWN_MAX or self._known_bytes > _KNOWN_BYTES:
            self._known.clear()
            self._known_bytes = 0
        return found

    def _ask(self, charset: str, values: Sequence[bytes]) -> None:
        connection = connect(self._settings)
        try:
            cursor = connection.cursor()
            with plain_mysql_errors(self._settings, "texts of a character set cannot be read"):
                for some in _groups(values):
                    asked = ", ".join(
                        f"CONVERT(CONVERT(x'{each.hex()}' USING {charset}) USING utf8mb4)"
                        for each in some
                    )
                    cursor.execute(f"SELECT {asked}")
                    row = cursor.fetchone() or ()
                    for value, text in zip(some, row, strict=True):
                        if text is None:
                            raise InvalidRequest(
                                "a value of the source is no text of its character set: "
                                "correct it at the source, or exclude the column",
                                charset=charset,
                                value=value[:100],
                            )
                        self._known[charset, value] = str(text)
                        self._known_bytes += len(value)
        finally:
            connection.close()


def _groups(values: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The values in groups that fit into one statement: the server limits the statement's bytes."""
    group: list[bytes] = []
    size = 0
    for value in values:
        if group and (len(group) >= _ASKED_AT_ONCE or size + len(value) > _ASKED_BYTES):
            yield group
            group, size = [], 0
        group.append(value)
        size += len(value)
    if group:
        yield group


# --- marks ---------------------------------------------------------------------------------------
# The progress of a snapshot: which chunks are done, and the log place of each chunk.
#
# The rows of a chunk include every change before its log place. The log reader skips such changes,
# and applies later changes. Each change is thus applied once, although the chunks of a snapshot
# were read at different times.


@dataclass(slots=True)
class Marks:
    """The snapshot of one table.

    - `key`: the integer key by which the table is cut into ranges; None for one stream;
    - `bounds`: the first key of each range, except the first range;
    - `places`: the log place of each range that is done, in order; for a stream, one place, which
      is known as soon as its first rows are read;
    - `done`: whether all rows are read.
    """

    key: str | None = None
    bounds: tuple[int, ...] = ()
    places: list[LogPlace] = field(default_factory=list)
    done: bool = False

    def range(self, number: int) -> tuple[int | None, int | None]:
        """The first key of a range, and the first key after it; None if there is no bound."""
        start = self.bounds[number - 1] if number else None
        return start, self.bounds[number] if number < len(self.bounds) else None

    def follows(self, keys: Sequence[object], place: LogPlace) -> npt.NDArray[np.bool_]:
        """A mask of the changes to apply: those that the snapshot does not include yet.

        `keys`: the keys of the changes; `place`: their place in the log.
        """
        if place > max(self.places):
            return np.ones(len(keys), np.bool_)
        if self.key is None or not self.bounds:
            return np.zeros(len(keys), np.bool_)
        after = np.array([place > each for each in self.places])
        ranges = np.searchsorted(np.array(self.bounds, object), np.array(keys, object), "right")
        return after[ranges]


def marks_to_json(marks: Mapping[SourceTable, Marks]) -> list[Json]:
    """The progress as a JSON value. Equal places of adjacent ranges are stored once."""
    found: list[Json] = []
    for table, each in marks.items():
        runs: list[list[Json]] = []
        for place in each.places:
            if runs and runs[-1][:2] == place.to_json():
                runs[-1][2] = int(str(runs[-1][2])) + 1
            else:
                runs.append([*place.to_json(), 1])
        found.append(
            {
                "database": table.database,
                "table": table.name,
                "key": each.key,
                "bounds": list(each.bounds),
                "places": runs,
                "done": each.done,
            }
        )
    return found


def marks_from_json(value: Json) -> dict[SourceTable, Marks]:
    """The progress from a JSON value that `marks_to_json` returned."""
    marks: dict[SourceTable, Marks] = {}
    for each in value if isinstance(value, list) else []:
        match each:
            case {
                "database": str(database),
                "table": str(name),
                "key": (str() | None) as key,
                "bounds": list(bounds),
                "places": list(runs),
                "done": bool(done),
            }:
                places = [
                    LogPlace.of(str(file), int(str(offset)))
                    for file, offset, count in map(tuple, runs)
                    for _ in range(int(str(count)))
                ]
                cuts = tuple(int(str(bound)) for bound in bounds)
                marks[SourceTable(database, name)] = Marks(key, cuts, places, done)
            case _:
                raise InvalidRequest("not a position of this source", position=str(each))
    return marks


# --- log batches ---------------------------------------------------------------------------------

log = logging.getLogger("lakecore.cdc")

_TEXTS = frozenset({Code.BLOB, Code.VARCHAR, Code.VAR_STRING, Code.STRING})
_STEP_ROWS, _STEP_BYTES = 20_000, 16 << 20
_TRANSACTION_ROWS, _TRANSACTION_BYTES = 200_000, 64 << 20
_KEPT = 1000
"""The number of DDL statements after which a table without changes is forgotten."""
_INSERT, _UPDATE, _DELETE = b"\x00", b"\x03\x00", b"\x03"


@dataclass(slots=True)
class _Image:
    """A table as one table map describes it. `schema` is None if its rows are ignored."""

    table: SourceTable
    group: str = ""
    schema: SourceSchema | None = None
    map: TableMap | None = None
    images: RowImages = field(default_factory=lambda: RowImages(()))
    table_id: bytes = b""
    statements: int = 0
    seen: int = 0


@dataclass(slots=True)
class _Open:
    """Rows of one table that are collected, but not yet a batch."""

    image: _Image
    rows: list[tuple[object, ...]] = field(default_factory=list)
    kinds: bytearray = field(default_factory=bytearray)
    times: list[tuple[int, int]] = field(default_factory=list)  # number of rows, seconds since 1970


class LogBatches:
    """Collects the rows of events; `take` returns them as batches.

    `rows`: the number of collected rows; `size`: their size in the log, in bytes.
    """

    def __init__(
        self,
        settings: MySqlSettings,
        server: Server,
        accepts: Callable[[SourceTable], bool],
        group: Callable[[SourceTable], str],
        marks: dict[SourceTable, Marks],
    ) -> None:
        self._settings = settings
        self._server = server
        self._accepts = accepts
        self._group = group
        self._marks = marks
        self._texts = ServerTexts(settings)
        self._statements = 0
        self._known: dict[bytes, _Image] = {}
        self._current: dict[bytes, _Image] = {}
        self._columns: dict[SourceTable, frozenset[str]] = {}
        self._renamed: list[tuple[SourceTable, frozenset[str], frozenset[str]]] = []
        self._open: dict[SourceTable, _Open] = {}
        self._last_of_group: dict[str, SourceTable] = {}
        self._closed: list[_Open] = []
        self.rows = 0
        self.size = 0

    @property
    def large(self) -> bool:
        """Whether the rows are enough for a step, once their transaction has ended."""
        return self.rows >= _STEP_ROWS or self.size >= _STEP_BYTES

    @property
    def must_be_cut(self) -> bool:
        """Whether the rows become a step within their transaction."""
        return self.rows >= _TRANSACTION_ROWS or self.size >= _TRANSACTION_BYTES

    def see_map(self, event: TableMapSeen, here: LogPlace) -> None:
        """Remember which table a table number means in the following row events.

        `here`: where the event ends. Tables that were read later are ignored: they may have had a
        definition that cannot be followed.

        DDL gives the changed table a new number. Therefore, after DDL, a table with an unchanged
        number is not read again.
        """
        if self._marks and self.includes(
            table := SourceTable(*table_name(event.packet[20:])), here
        ):
            self._current[event.table_id] = _Image(table)
            return
        body = event.packet[26:]
        image = self._known.get(body)
        is_old = image is not None and image.statements != self._statements
        if image is None or (is_old and image.table_id != event.table_id):
            table = SourceTable(*table_name(event.packet[20:]))
            with of_tables(table):
                image = self._known[body] = self._image(table, event.packet)
            image.statements = self._statements
        image.table_id = event.table_id
        image.seen = self._statements
        self._current[event.table_id] = image

    def includes(self, table: SourceTable, here: LogPlace) -> bool:
        """Whether all rows of a table were read after an event that ends here."""
        marks = self._marks.get(table)
        return marks is not None and marks.done and here <= min(marks.places)

    def see_statement(self, found: Definition | Statement, here: LogPlace) -> None:
        """Remember that a statement may have changed a table definition.

        Tables without changes during many such statements are forgotten, because some tables no
        longer exist. Raises InvalidRequest for a statement that may change mirrored rows.
        """
        if isinstance(found, Statement):
            self._check_statement(found, here)
            return
        self._statements += 1
        if self._statements % _KEPT == 0:
            oldest = self._statements - _KEPT
            self._known = {body: each for body, each in self._known.items() if each.seen > oldest}
            self._current.clear()

    def add(self, event: Rows, place: LogPlace) -> None:
        """Collect the rows of an event that ends at a place."""
        image = self._current[event.table_id]
        if image.schema is None:
            return
        rows = image.images.cut(event.data, event.start, event.stop)
        if event.before and event.after:
            kinds = _UPDATE * (len(rows) // 2)
        else:
            kinds = (_DELETE if event.before else _INSERT) * len(rows)
        marks = self._marks.get(image.table)
        if marks is not None and not place > max(marks.places):
            rows, kinds = self._after_snapshot(image, marks, rows, kinds, place)
        if not rows:
            return
        found = self._open.get(image.table)
        last = self._last_of_group.get(image.group, image.table)
        if found is None or found.image is not image or last != image.table:
            self._close(image.table)
            found = self._open[image.table] = _Open(image)
            self._last_of_group[image.group] = image.table
        found.rows += rows
        found.kinds += kinds
        if self._settings.takes_metadata:
            found.times.append((len(rows), event.timestamp))
        self.rows += len(rows)
        self.size += event.stop - event.start

    def columns(self) -> list[tuple[SourceTable, frozenset[str], frozenset[str]]]:
        """Tables whose columns have changed, each with the lost names and the new names.

        Not every change is a statement on the table: another table may get its name.
        """
        found, self._renamed = self._renamed, []
        return found

    def take(self) -> tuple[ChangeBatch, ...]:
        """The batches of everything collected so far."""
        for table in list(self._open):
            self._close(table)
        batches = tuple(self._batch(each) for each in self._closed)
        self._closed = []
        self._last_of_group.clear()
        self.rows = self.size = 0
        return batches

    # --- tables -----------------------------------------------------------------------------------

    def _image(self, table: SourceTable, packet: bytes) -> _Image:
        if not self._settings.takes(table.database, table.name) or not self._accepts(table):
            return _Image(table)
        found = parse_table_map(packet, mariadb=self._server.is_mariadb, texts=self._texts.texts)
        connection = connect(self._settings)
        try:
            cursor = connection.cursor()
            defined, _, unique = read_columns(cursor, table.database, table.name)
            comment = read_comment(cursor, table.database, table.name)
        finally:
            connection.close()
        definitions = definitions_of(found.columns, defined)
        stands_in = set(found.primary_key) == set(unique)
        primary_key = self._settings.key((), unique) if stands_in else found.primary_key
        schema = source_schema(table, definitions, primary_key, comment, self._settings.mapping)
        found = replace(found, columns=printed_columns(found.columns, definitions))
        names = frozenset(each.lower() for each in schema.names)
        before = self._columns.get(table, names)
        self._columns[table] = names
        if before != names:
            self._renamed.append((table, before - names, names - before))
        return _Image(table, self._group(table), schema, found, RowImages(found.columns))

    def _check_statement(self, found: Statement, here: LogPlace) -> None:
        """Raise InvalidRequest for a statement that may change rows of mirrored tables.

        If the changed table is uncertain, the check covers all tables of the session's database,
        and all tables that the statement names with a database.
        """
        settings = self._settings
        connection = connect(settings)
        try:
            cursor = connection.cursor()
            with plain_mysql_errors(settings, "the tables of a statement cannot be looked up"):
                existing = {SourceTable(*each) for each in read_tables(cursor)}
                one = changed_table(found.text, found.database)
                surely = one in existing and not has_routines(cursor, one, found.text)
        finally:
            connection.close()
        named = named_tables(found.text)
        changed = sorted(
            each
            for each in existing
            if settings.takes(each.database, each.name)
            and self._accepts(each)
            and not self.includes(each, here)
            and (each == one if surely else each in named or each.database == found.database)
        )
        if not changed:
            log.info(
                "skipped a logged statement that changes no mirrored table. database=%s place=%s",
                found.database,
                found.place,
            )
            return
        error = InvalidRequest(
            "the binary log has a statement in place of rows: set binlog_format to ROW in every "
            "session that changes mirrored tables",
            place=found.place,
            database=found.database,
            tables=[*map(str, changed)],
        )
        concern(error, changed)
        raise error

    def _after_snapshot(
        self,
        image: _Image,
        marks: Marks,
        rows: list[tuple[object, ...]],
        kinds: bytes,
        place: LogPlace,
    ) -> tuple[list[tuple[object, ...]], bytes]:
        """The rows that the table's snapshot does not include yet, and their kinds."""
        keys: list[object] = [0] * len(rows)
        if marks.key is not None and image.map is not None:
            at = [each.name for each in image.map.columns].index(marks.key)
            column = image.map.columns[at]
            keys = decoded(column, [row[at] for row in rows]).to_pylist()
        kept = marks.follows(keys, place)
        chosen = np.frombuffer(kinds, np.int8)[kept].tobytes()
        return [row for row, keeps in zip(rows, kept, strict=True) if keeps], chosen

    # --- batches ----------------------------------------------------------------------------------

    def _close(self, table: SourceTable) -> None:
        found = self._open.pop(table, None)
        if found is not None:
            self._closed.append(found)

    def _batch(self, found: _Open) -> ChangeBatch:
        schema, described = found.image.schema, found.image.map
        assert schema is not None
        assert described is not None
        arrow = schema.arrow
        kept = [
            (column, values)
            for column, values in zip(described.columns, zip(*found.rows, strict=True), strict=True)
            if column.name in arrow.names
        ]
        with of_tables(found.image.table):
            arrays = [
                fitted(
                    partial(decoded, column, self._read(column, values)),
                    partial(shown, column, values),
                    field_,
                    target.type,
                    zone=self._server.zone,
                    exact=field_.name in schema.exact,
                )
                for (column, values), field_, target in zip(kept, schema.fields, arrow, strict=True)
            ]
        return ChangeBatch(
            table=found.image.table,
            schema=schema,
            rows=pa.Table.from_arrays(arrays, names=arrow.names),
            kinds=pa.array(np.frombuffer(bytes(found.kinds), np.int8)),
            metadata=self._metadata(found) if self._settings.takes_metadata else None,
        )

    def _read(self, column: LoggedColumn, values: Sequence[object]) -> Sequence[object]:
        """The raw values of a column; strings that only the server can decode are decoded."""
        in_server_set = column.code in _TEXTS and column.encoding == BY_SERVER
        return self._texts.texts(column.charset, values) if in_server_set else values

    @staticmethod
    def _metadata(found: _Open) -> pa.Table:
        counts, seconds = zip(*found.times, strict=True)
        times = np.repeat(np.array(seconds, np.int64) * 1000, counts)
        return metadata_of(found.image.table, pa.array(times))


def metadata_of(table: SourceTable, times_ms: pa.Array) -> pa.Table:
    """The metadata columns of rows: their database and table, and the time of the change."""
    count = len(times_ms)
    return pa.table(
        {
            "database_name": pa.repeat(pa.scalar(table.database), count),
            "table_name": pa.repeat(pa.scalar(table.name), count),
            "op_ts": times_ms.cast(pa.timestamp("ms", "UTC")),
        }
    )


# --- place ----------------------------------------------------------------------------------------
# The position of the source: within the snapshot, or at a place in the log.

WHOLE = "*"


@dataclass(slots=True)
class Place:
    """The position of the source: within the snapshot, or at a place in the log.

    - `gtid`: of MariaDB, the last GTID of each domain, joined by commas;
    - `server`: the server to which the place belongs;
    - `gone`: by table, names in lower case of columns that no longer exist; the target keeps them.
      `*` stands for a table that was dropped or renamed;
    - `renewed`: tables in which another column got the name of a gone column;
    - `texts`: columns of keys, as `database.table.column`, whose dates are mirrored as strings.
    """

    marks: dict[SourceTable, Marks] = field(default_factory=dict)
    log: LogPlace | None = None
    gtid: str | None = None
    server: str | None = None
    events_done: int = 0
    time_ms: int | None = None
    gone: dict[SourceTable, frozenset[str]] = field(default_factory=dict)
    renewed: set[SourceTable] = field(default_factory=set)
    texts: tuple[str, ...] = ()

    def rename(self, table: SourceTable, gone: Iterable[str], come: Iterable[str]) -> bool:
        """Note lost and new names of columns. Returns whether a new name was lost before."""
        names = self.gone.get(table, frozenset()).union(gone)
        if names:
            self.gone[table] = names
        if names.isdisjoint(come):
            return False
        self.renewed.add(table)
        return True

    def replace(self, table: SourceTable, *, comes: bool) -> bool:
        """Note that a table lost or got its name. Returns whether another table had it before."""
        names = self.gone.get(table, frozenset())
        is_replaced = comes and WHOLE in names
        names = names - {WHOLE} if comes else names | {WHOLE}
        self.gone.pop(table, None)
        if names:
            self.gone[table] = names
        return is_replaced

    def to_json(self) -> dict[str, Json]:
        found: dict[str, Json] = {}
        if self.log is not None:
            found["place"] = self.log.to_json()
        if self.gtid is not None:
            found["gtid"] = self.gtid
        if self.server is not None:
            found["server"] = self.server
        if self.events_done:
            found["events"] = self.events_done
        if self.time_ms is not None:
            found["time_ms"] = self.time_ms
        if self.texts:
            found["texts"] = [*self.texts]
        if self.gone:
            found["gone"] = [
                [each.database, each.name, sorted(names), each in self.renewed]
                for each, names in self.gone.items()
            ]
        if self.marks:
            found["snapshot"] = marks_to_json(self.marks)
        return found

    @staticmethod
    def from_json(given: Position) -> Place:
        """The place of a position. Raises InvalidRequest for a position of another source."""
        if not given.keys() & {"place", "snapshot", "gtid"}:
            raise InvalidRequest("not a position of this source", position=str(dict(given)))
        gone: dict[SourceTable, frozenset[str]] = {}
        renewed: set[SourceTable] = set()
        listed = given.get("gone")
        for each in listed if isinstance(listed, list) else ():
            match each:
                case [str(database), str(name), list(names), bool(is_renewed)]:
                    table = SourceTable(database, name)
                    gone[table] = frozenset(map(str, names))
                    renewed |= {table} if is_renewed else set()
                case _:
                    raise InvalidRequest("not a position of this source", position=str(each))
        gtid, events, time_ms = given.get("gtid"), given.get("events"), given.get("time_ms")
        server = given.get("server")
        return Place(
            marks=marks_from_json(given.get("snapshot")),
            log=LogPlace.from_json(given["place"]) if "place" in given else None,
            gtid=str(gtid) if gtid is not None else None,
            server=str(server) if server is not None else None,
            events_done=int(str(events)) if events is not None else 0,
            time_ms=int(str(time_ms)) if time_ms is not None else None,
            gone=gone,
            renewed=renewed,
            texts=texts_of(given),
        )


def texts_of(position: Position) -> tuple[str, ...]:
    """The columns of keys whose dates are mirrored as strings."""
    listed = position.get("texts")
    return tuple(map(str, listed)) if isinstance(listed, list) else ()


def with_gtid(known: str | None, last: str | None) -> str | None:
    """The last GTIDs of MariaDB's domains after another transaction; for MySQL, only the last."""
    if last is None or ":" in last or not known:
        return last or known
    domain = f"{last.partition('-')[0]}-"
    others = [each for each in known.split(",") if not each.startswith(domain)]
    return ",".join(sorted([*others, last]))
