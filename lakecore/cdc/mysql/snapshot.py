"""Reads the rows of a table, chunk by chunk, each chunk at a known place of the log.

Each chunk is read in a separate transaction, which sees one state of the table. MariaDB states the
place in the log that belongs to this state. For MySQL, the place is read just before the
transaction begins. The few changes between the two are in the chunk, and are applied again from the
log; with a primary key, the result is the same.

- A table whose key is one integer is cut into ranges of the key, which several connections read in
  parallel. A committed range is not read again after a crash.
- Any other table is read as a stream in one transaction. After a crash it is read again from its
  beginning, but the place of the first attempt is kept: a row that was deleted between the attempts
  must be deleted by the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.cdc.mysql.binlog import LogPlace
from lakecore.cdc.mysql.column import Definition, source_schema
from lakecore.cdc.mysql.connection import (
    log_position,
    plain_mysql_errors,
    read_columns,
    streaming_cursor,
)
from lakecore.cdc.mysql.natural import fitted
from lakecore.cdc.mysql.settings import StartupMode
from lakecore.cdc.mysql.text_values import parsed, printed, selected
from lakecore.cdc.types.mysql import parse_mysql_type
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.arrow_sizes import rows_within

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.cdc.events import SourceSchema, SourceTable
    from lakecore.cdc.mysql.connection import Connection, Server
    from lakecore.cdc.mysql.settings import MySqlSettings

__all__ = ["Chunk", "boundaries", "integer_key", "read_chunk"]

_FETCH_ROWS_FIRST, _FETCH_ROWS_MAX = 100, 10_000
_FETCH_BYTES = 4 << 20
_PART_BYTES = 64 << 20
_INTEGERS = frozenset({"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "INTEGER", "BIGINT"})
_DENSE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows of a table at a place in the log: the key range with this `number`.

    `last` says that the table has no more rows.
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
    name, column = _quoted_table(table), _quoted(key)
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


def check_exact(
    settings: MySqlSettings, server: Server, table: SourceTable, primary_key: Sequence[str]
) -> None:
    """Raise Unsupported if repeated changes would duplicate rows of a table.

    MySQL does not state the log place of a snapshot. A place just before the snapshot is used, and
    the changes between the two are applied twice. With a primary key, this has no effect.
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
) -> Iterator[Chunk]:
    """The rows of a range of the key, or of the whole table in parts of `part_rows`.

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
        definitions = list(columns.values())
        schema = source_schema(definitions, primary_key, None, settings.mapping)
        kinds = [parse_mysql_type(each.type) for each in definitions]
        listed = ", ".join(
            selected(each.name, kind) for each, kind in zip(definitions, kinds, strict=True)
        )
        query = f"SELECT {listed} FROM {_quoted_table(table)}"
        conditions = []
        if key is not None and start is not None:
            conditions.append(f"{_quoted(key)} >= {start}")
        if key is not None and stop is not None:
            conditions.append(f"{_quoted(key)} < {stop}")
        if conditions:
            query += " WHERE " + " AND ".join(conditions)
        stream = streaming_cursor(connection)
        stream.execute(query)
        arrow = schema.arrow
        parts: list[pa.Table] = []
        count, fetches = 0, _FETCH_ROWS_FIRST
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
        stream.close()
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


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _quoted_table(table: SourceTable) -> str:
    return f"{_quoted(table.database)}.{_quoted(table.name)}"


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _number(value: object) -> str:
    return _text(value)
