"""Reads the rows of a table, chunk by chunk, each chunk at a known place of the log.

Each chunk is read in a separate transaction, which sees one state of the table. MariaDB states the
place of that state in the log. For MySQL, the place is read just before the transaction begins. The
few changes between place and state are in the chunk, and are applied again from the log; with a
primary key, the result is the same.

- A table whose key is one integer is cut into ranges of the key, which several connections read in
  parallel. A committed range is not read again after a crash.
- Any other table is read as a stream in one transaction. After a crash, the table is read again
  from the beginning, but the place of the first attempt is kept: a row that was deleted between the
  attempts must be deleted by the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakecore.cdc.mysql.binlog import LogPlace
from lakecore.cdc.mysql.column import Definition, source_schema
from lakecore.cdc.mysql.connection import (
    Connection,
    Cursor,
    MySqlSettings,
    Server,
    StartupMode,
    log_position,
    plain_mysql_errors,
    read_columns,
    streaming_cursor,
)
from lakecore.cdc.resync import range_condition
from lakecore.cdc.types.mysql import MySqlType, parse_mysql_type
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.arrow_arrays import rows_within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakecore.cdc.events import SourceSchema, SourceTable
    from lakecore.model.types import Field


# --- natural -------------------------------------------------------------------------------------
# Converts natural values of a MySQL column to the Arrow type of its target column.
#
# - A zero or impossible date (`0000-00-00`) is null, and 1970-01-01 in a NOT NULL column. In a
#   column of a key, such a date is an error, because several rows could become one.
# - A TIMESTAMP is a point in time; the target stores its local time in the server's time zone, or
#   the point in time itself if its type has a zone.
# - A negative TIME, or one of 24 hours or more, has no value in Paimon and is an error. Digits
#   after the milliseconds are cut, as in Paimon.
# - In a STRING column, a value becomes its text in MySQL's text protocol. If a local time occurs
#   twice, the offset from UTC follows the second one.

_AS_STRING = (
    "to take it as a string, state `--column-type TABLE.COLUMN=STRING`, drop the target, and use "
    "`lakecore cdc resync`"
)
_DAY_MICROS = 86_400_000_000


def fitted(
    decode: Callable[[], pa.Array],
    show: Callable[[], pa.Array],
    field: Field,
    target: pa.DataType,
    *,
    zone: str,
    exact: bool,
) -> pa.Array:
    """The decoded values as the target type.

    - `show`: returns the values as strings, including dates that are not in the calendar;
    - `zone`: the server's time zone;
    - `exact`: whether different values must stay different, as in a key.

    Raises InvalidRequest, naming the column, for a value that the type cannot hold.
    """
    try:
        values = decode()
        is_date = pa.types.is_date(values.type) or pa.types.is_timestamp(values.type)
        if is_date and values.null_count:
            texts = pc.replace_substring_regex(show(), r"\.0*$", "")
            if texts.null_count < values.null_count:
                return _outside_calendar(values, texts, field, target, zone, exact=exact)
        return _fitted(values, field, target, zone)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise InvalidRequest(
            f"a value of the source does not fit its column; {_AS_STRING}",
            column=field.name,
            type=field.type,
            cause=error,
        ) from error


def _outside_calendar(
    values: pa.Array,
    texts: pa.Array,
    field: Field,
    target: pa.DataType,
    zone: str,
    *,
    exact: bool,
) -> pa.Array:
    """The values as the target type, where some are null because the calendar lacks the date."""
    outside = pc.and_(values.is_null(), texts.is_valid())
    if pa.types.is_string(target):
        return pc.if_else(outside, texts, _fitted(values, field, target, zone))
    if exact:
        raise InvalidRequest(
            "a key has a date that is not in the calendar; `--type_mapping key-dates-to-string` "
            "stores the dates of keys as text",
            column=field.name,
            value=texts[pc.index(outside, pa.scalar(True)).as_py()].as_py(),
        )
    if not field.nullable:
        width = pa.int64() if pa.types.is_timestamp(values.type) else pa.int32()
        values = values.fill_null(pa.scalar(0, width).cast(values.type))
    return _fitted(values, field, target, zone)


def _fitted(values: pa.Array, field: Field, target: pa.DataType, zone: str) -> pa.Array:
    kind = values.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        if pa.types.is_timestamp(target) and target.tz is not None:
            return values.cast(target)
        if pa.types.is_string(target):
            return _local_texts(values, zone)
        values = pc.local_timestamp(values.cast(pa.timestamp("us", zone)))
        kind = values.type
    if kind == target:
        return values
    if pa.types.is_boolean(target):
        if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
            return pc.not_equal(values.cast(pa.binary()), b"\0")
        return pc.not_equal(values, 0)
    if pa.types.is_time(target):
        return _times(values, field, target)
    if pa.types.is_string(target) and not pa.types.is_string(kind):
        return _texts(values)
    if pa.types.is_decimal(target) and kind == pa.uint64():
        return values.cast(pa.decimal128(20, 0)).cast(target)
    return values.cast(target)


def _local_texts(values: pa.Array, zone: str) -> pa.Array:
    """The local times of points in time, with the offset from UTC at the second of two."""
    local = pc.local_timestamp(values.cast(pa.timestamp("us", zone)))
    texts = _texts(local)
    if "/" not in zone:
        return texts  # an offset, or UTC: no local time occurs twice
    first = pc.assume_timezone(local, zone, ambiguous="earliest").cast(pa.int64())
    later = pc.not_equal(first, values.cast(pa.int64()))
    if not pc.any(later).as_py():
        return texts
    offsets = pc.divide(pc.subtract(local.cast(pa.int64()), values.cast(pa.int64())), 60_000_000)
    marked = [
        None if text is None else f"{text}{minutes // 60:+03}:{minutes % 60:02}"
        for text, minutes in zip(texts.to_pylist(), offsets.to_pylist(), strict=True)
    ]
    return pc.if_else(later, pa.array(marked, pa.string()), texts)


def _times(values: pa.Array, field: Field, target: pa.DataType) -> pa.Array:
    values = values.cast(pa.int64())
    outside = pc.or_(pc.less(values, 0), pc.greater_equal(values, _DAY_MICROS))
    if pc.any(outside).as_py():
        at = pc.index(outside, pa.scalar(True)).as_py()
        raise InvalidRequest(
            f"a TIME of Paimon is within one day; {_AS_STRING}",
            column=field.name,
            value=_clock(values[at].as_py()),
        )
    return pc.divide(values, 1000).cast(pa.int32()).cast(pa.time32("ms")).cast(target)


def _texts(values: pa.Array) -> pa.Array:
    """The values as strings, as in MySQL's text protocol.

    Only the number of fraction digits may differ.
    """
    kind = values.type
    if pa.types.is_duration(kind):
        numbers = values.cast(pa.int64()).to_pylist()
        clocks = pa.array([None if each is None else _clock(each) for each in numbers], pa.string())
        return pc.replace_substring_regex(clocks, r"\.0+$", "")
    if pa.types.is_list(kind):
        return pc.binary_join(values, ",")
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.array(
            [None if each is None else each.hex().upper() for each in values.to_pylist()],
            pa.string(),
        )
    if pa.types.is_timestamp(kind):
        return pc.replace_substring_regex(values.cast(pa.string()), r"\.0+$", "")
    return values.cast(pa.string())


def _clock(micros: int) -> str:
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    seconds, micros = divmod(micros, 1_000_000)
    return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"


# --- text values ---------------------------------------------------------------------------------
# Converts columns of a SELECT from MySQL's text protocol to the same natural types as the log.
#
# The session uses utf8mb4 and UTC. FLOAT columns are selected as DOUBLE, because the text of a
# FLOAT has only six digits.

_INTS = {
    "TINYINT": (pa.int8(), pa.uint8()),
    "SMALLINT": (pa.int16(), pa.uint16()),
    "MEDIUMINT": (pa.int32(), pa.uint32()),
    "INT": (pa.int32(), pa.uint32()),
    "INTEGER": (pa.int32(), pa.uint32()),
    "BIGINT": (pa.int64(), pa.uint64()),
}
_BYTES = frozenset(
    {"BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "BIT", "GEOMETRY"}
)
_NO_DATE = r"^0000|-00"
_TIME = r"^(?P<sign>-?)(?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+)(?P<fraction>\.\d+)?$"
_LONG_DECIMAL = 38


def selected(name: str, kind: MySqlType) -> str:
    """The expression that selects a column."""
    quoted = "`" + name.replace("`", "``") + "`"
    return f"{quoted} + 0e0" if kind.name == "FLOAT" else quoted


def parsed(  # noqa: C901 - a case for each type
    kind: MySqlType, values: Sequence[bytes | None]
) -> pa.Array:
    """The values of one column, parsed from the text protocol."""
    array = pa.array(values, pa.binary())
    if kind.name in _BYTES or kind.is_geometry:
        return array
    texts = array.cast(pa.string())
    match kind.name:
        case "YEAR":
            return texts.cast(pa.int32())
        case "FLOAT":
            return texts.cast(pa.float64()).cast(pa.float32(), safe=False)
        case "DOUBLE" | "REAL" | "DOUBLE PRECISION":
            return texts.cast(pa.float64())
        case "DECIMAL" | "NUMERIC" | "FIXED" | "DEC":
            precision = kind.length or 0
            if precision > _LONG_DECIMAL:
                return texts
            return texts.cast(pa.decimal128(precision, kind.scale or 0))
        case "DATE":
            return _dated(texts, pa.date32())
        case "DATETIME":
            return _dated(texts, pa.timestamp("us"))
        case "TIMESTAMP":
            return _dated(texts, pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
        case "TIME":
            return _text_times(texts)
        case "SET":
            members = pc.split_pattern(texts, ",")
            empty = pc.equal(texts, "")
            return pc.if_else(empty, pa.scalar([], pa.list_(pa.string())), members)
        case name if name in _INTS:
            return texts.cast(_INTS[name][kind.unsigned])
        case _:
            return texts


def printed(values: Sequence[bytes | None]) -> pa.Array:
    """The values of one column of dates or times, as the server prints them."""
    return pa.array(values, pa.binary()).cast(pa.string())


def _dated(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Dates or timestamps; null for an impossible date."""
    none = pc.match_substring_regex(texts, _NO_DATE)
    if pc.any(none).as_py():
        texts = pc.if_else(none, pa.scalar(None, pa.string()), texts)
    try:
        return texts.cast(data_type)
    except pa.ArrowInvalid:
        # The server accepts 31 February if ALLOW_INVALID_DATES is set.
        return pa.concat_arrays([_date_or_null(each, data_type) for each in texts])


def _date_or_null(text: pa.Scalar, data_type: pa.DataType) -> pa.Array:
    try:
        return pa.array([text.as_py()], pa.string()).cast(data_type)
    except pa.ArrowInvalid:
        return pa.nulls(1, data_type)


def _text_times(texts: pa.Array) -> pa.Array:
    """Durations since midnight in microseconds; hours go from -838 to 838."""
    parts = pc.extract_regex(texts, _TIME)
    hours, minutes, seconds = (
        pc.struct_field(parts, name).cast(pa.int64()) for name in ("hours", "minutes", "seconds")
    )
    fraction = pc.struct_field(parts, "fraction")
    digits = pc.utf8_rpad(pc.utf8_slice_codeunits(fraction, 1), 6, "0")
    micros = pc.if_else(pc.equal(fraction, ""), "0", digits).cast(pa.int64())
    total = pc.add(pc.add(pc.multiply(hours, 3600), pc.multiply(minutes, 60)), seconds)
    found = pc.add(pc.multiply(total, 1_000_000), micros)
    negative = pc.equal(pc.struct_field(parts, "sign"), "-")
    return pc.if_else(negative, pc.negate(found), found).cast(pa.duration("us"))


# --- snapshot ------------------------------------------------------------------------------------

_FETCH_ROWS_FIRST, _FETCH_ROWS_MAX = 100, 10_000
_FETCH_BYTES = 4 << 20
_PART_BYTES = 64 << 20
_INTEGERS = frozenset({"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "INTEGER", "BIGINT"})
_DENSE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows of a table at a place in the log: the key range with this `number`.

    `last`: whether the table has no more rows.
    """

    schema: SourceSchema
    rows: pa.Table
    place: LogPlace
    last: bool = True
    number: int = 0


def integer_key(columns: dict[str, Definition], key: Sequence[str]) -> str | None:
    """The integer key by which a table is split into ranges; None if it has no such key."""
    if len(key) != 1:
        return None
    kind = parse_mysql_type(columns[key[0]].type).name
    return key[0] if kind in _INTEGERS else None


def boundaries(
    connection: Connection,
    settings: MySqlSettings,
    table: SourceTable,
    key: str,
    *,
    rows: int,
    size: int,
) -> list[int]:
    """The first key of each range, except the first range.

    A range has at most `size` rows. `rows` is the server's row estimate.
    """
    name, column = quoted_table(table), quoted(key)
    cursor = connection.cursor()
    with plain_mysql_errors(settings, "the key of a table cannot be read"):
        cursor.execute(f"SELECT MIN({column}), MAX({column}) FROM {name}")
        row = cursor.fetchone()
        if row is None or row[0] is None:
            return []
        least, greatest = int(_number(row[0])), int(_number(row[1]))
        if greatest - least < _DENSE * max(rows, size):
            return list(range(least + size, greatest + 1, size))
        found: list[int] = []
        at = least
        while True:
            cursor.execute(
                f"SELECT {column} FROM {name} WHERE {column} >= %s ORDER BY {column} "
                f"LIMIT 1 OFFSET {size}",
                (at,),
            )
            row = cursor.fetchone()
            if row is None:
                break
            at = int(_number(row[0]))
            found.append(at)
    cursor.close()
    return found


def has_odd_dates(cursor: Cursor, table: SourceTable, column: str) -> bool:
    """Whether a column has a date that is not in the calendar, such as 0000-00-00."""
    at = quoted(column)
    cursor.execute(
        f"SELECT 1 FROM {quoted_table(table)} WHERE YEAR({at}) = 0 OR MONTH({at}) = 0 OR "
        f"DAYOFMONTH({at}) = 0 OR DAYOFMONTH({at}) > DAYOFMONTH(LAST_DAY({at})) LIMIT 1"
    )
    return cursor.fetchone() is not None


def check_exact(
    settings: MySqlSettings, server: Server, table: SourceTable, primary_key: Sequence[str]
) -> None:
    """Raise Unsupported if repeated changes would duplicate rows of a table.

    MySQL does not state the log place of a snapshot. A place just before the snapshot is used, and
    the changes in between are applied twice, without effect if there is a primary key.
    """
    follows = settings.mode is not StartupMode.SNAPSHOT
    if follows and not primary_key and not server.snapshot_states_position:
        raise Unsupported(
            "a table without a primary key is mirrored from MariaDB only; "
            "scan.startup.mode=snapshot copies it once",
            table=table,
        )


def read_chunk(  # noqa: PLR0913 - what a chunk is
    connection: Connection,
    server: Server,
    settings: MySqlSettings,
    table: SourceTable,
    *,
    key: str | None = None,
    start: int | None = None,
    stop: int | None = None,
    part_rows: int | None = None,
    keys_only: bool = False,
) -> Iterator[Chunk]:
    """The rows of a range of the key, or of the whole table in parts of `part_rows`.

    With `keys_only`, the rows have only the columns of the primary key.

    If the table is altered meanwhile, its newest columns are read. Raises InvalidRequest if the
    table does not exist any more.
    """
    cursor = connection.cursor()
    with plain_mysql_errors(settings, f"the table {table} cannot be read"):
        before = log_position(cursor) if not server.snapshot_states_position else ("", 0)
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        place = _place(cursor, before, server)
        columns, primary, unique = read_columns(cursor, table.database, table.name)
        primary_key = settings.key(primary, unique)
        if not columns:
            raise InvalidRequest("the table of the source is gone", table=table)
        check_exact(settings, server, table, primary_key)
        definitions = [
            each for each in columns.values() if not keys_only or each.name in primary_key
        ]
        schema = source_schema(table, definitions, primary_key, None, settings.mapping)
        definitions = [each for each in definitions if each.name in schema.names]
        kinds = [parse_mysql_type(each.type) for each in definitions]
        listed = ", ".join(
            selected(each.name, kind) for each, kind in zip(definitions, kinds, strict=True)
        )
        within = "" if key is None else range_condition(quoted(key), start, stop)
        arrow = schema.arrow
        parts: list[pa.Table] = []
        count, fetches = 0, _FETCH_ROWS_FIRST
        with streaming_cursor(connection) as stream:
            stream.execute(f"SELECT {listed} FROM {quoted_table(table)}{within}")
            while rows := stream.fetchmany(fetches):
                arrays = [
                    fitted(
                        partial(parsed, kind, values),
                        partial(printed, values),
                        field,
                        column.type,
                        zone=server.zone,
                        exact=field.name in schema.exact,
                    )
                    for kind, values, field, column in zip(
                        kinds, zip(*rows, strict=True), schema.fields, arrow, strict=True
                    )
                ]
                parts.append(pa.Table.from_arrays(arrays, names=arrow.names))
                count += len(rows)
                # Large rows must fit in memory.
                fetches = rows_within(parts[-1], _FETCH_ROWS_MAX, _FETCH_BYTES)
                if part_rows is not None and (
                    count >= part_rows or sum(each.nbytes for each in parts) >= _PART_BYTES
                ):
                    found = pa.concat_tables(parts)
                    parts, count = [], 0
                    yield Chunk(schema=schema, rows=found, place=place, last=False)
        cursor.execute("COMMIT")
        cursor.close()
    empty = pa.Table.from_arrays([pa.array([], each.type) for each in arrow], names=arrow.names)
    yield Chunk(schema=schema, rows=pa.concat_tables(parts) if parts else empty, place=place)


def _place(cursor: object, before: tuple[str, int], server: Server) -> LogPlace:
    if not server.snapshot_states_position:
        return LogPlace.of(*before)
    cursor.execute("SHOW STATUS LIKE 'Binlog_snapshot_%'")  # type: ignore[attr-defined]
    found = {_text(name).lower(): _text(value) for name, value in cursor.fetchall()}  # type: ignore[attr-defined]
    return LogPlace.of(found["binlog_snapshot_file"], int(found["binlog_snapshot_position"]))


def quoted(name: str) -> str:
    """The name as a quoted SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def quoted_table(table: SourceTable) -> str:
    """The name of a table as two quoted SQL identifiers."""
    return f"{quoted(table.database)}.{quoted(table.name)}"


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _number(value: object) -> str:
    return _text(value)
