"""Finds tables whose columns have changed, so that a target may have values of the former columns.

The catalog of the server has the columns of now, and the stream those of its rows, which are older.
A change is found by comparing, in this order, the columns of the last look at the catalog, those
that the stream has announced since then, and those of the catalog now.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from lakecore.cdc.events import Altered, SourceTable
from lakecore.cdc.postgres.connection import postgres_type, read_columns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lakecore.cdc.postgres.connection import Cursor, PostgresColumn, PostgresSettings
    from lakecore.cdc.postgres.stream_rows import Relation, StreamPlace, StreamTable
    from lakecore.model.types import Json


_TABLE = ""
"""The name, among those of columns, of the table itself: a copy with its name is another table."""


@dataclass(frozen=True, slots=True)
class Announced:
    """The columns that the stream announced for a table; `identities`: as in `read_identities`."""

    table: SourceTable
    columns: Sequence[PostgresColumn]
    identities: dict[str, Json]


def altered_tables(
    cursor: Cursor,
    settings: PostgresSettings,
    place: StreamPlace,
    tables: Sequence[StreamTable],
    seen: Sequence[Announced],
) -> list[Altered]:
    """The tables whose columns, or their types, have changed since the last look.

    `tables`: tables to look at from now on. `seen`: what the stream has announced since the last
    look. A table with a renewed column is returned until it is read again, which updates
    `place.columns`. Dropped columns stay there: another column may get the name.
    """
    known = dict(place.columns)
    names = {*known, *(each.table.name for each in tables), *(each.table.name for each in seen)}
    found = []
    looks = [(each.table, each.columns, each.identities) for each in seen]
    for name, now in read_identities(cursor, names).items():
        looks.append((SourceTable(settings.database, name), (), now))
    for table, given, now in looks:
        before = known.get(table.name, now)
        if not isinstance(before, dict):
            continue
        both = [(each, before[each], now[each]) for each in now if each in before]
        is_renewed = any(_first(old) != _first(new) for _, old, new in both)
        retyped = [column for column, old, new in both if old != new]
        if retyped:
            columns = given or read_columns(cursor, *table.name.split(".", 1))[0]
            types = {
                each.name.lower(): postgres_type(each.type, *each.precision_scale, settings.mapping)
                for each in columns
                if each.name in retyped
            }
            found.append(Altered(table=table, is_renewed=is_renewed, types=types))
        if not is_renewed:
            known[table.name] = before | now
    if known != place.columns:
        place.columns = known
    return found


def announced(
    cursor: Cursor, place: StreamPlace, relation: Relation, table: StreamTable | None
) -> Iterator[Announced]:
    """The columns of the following rows, unless the last look saw the same ones."""
    if table is None or place.has_read(table.table):
        return
    assert place.transaction is not None, "the stream states a table within a transaction"
    names = [each[0] for each in relation.columns]
    numbers = _logged_numbers(cursor, relation.id, names, place.transaction)
    logged: dict[str, Json] = {
        name: [number, *kind]
        for (name, *kind), number in zip(relation.columns, numbers, strict=True)
    }
    logged[_TABLE] = [relation.id]
    known = place.columns.get(table.table.name)
    if not isinstance(known, dict) or not logged.items() <= known.items():
        yield Announced(table.table, table.columns, logged)


def read_identities(cursor: Cursor, names: Collection[str]) -> dict[str, dict[str, Json]]:
    """By table and column, as JSON values: the number, which is never reused, and the type.

    A type is given by its number and its modifier. `""` stands for the table, by its number.
    """
    cursor.execute(
        "SELECT n.nspname || '.' || c.relname, c.oid::int8, a.attname, a.attnum, "
        "a.atttypid::int8, a.atttypmod "
        "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
        "WHERE n.nspname || '.' || c.relname = ANY(%s)",
        (list(names),),
    )
    found: dict[str, dict[str, Json]] = {}
    for table, number, column, *stated in cursor.fetchall():
        columns = found.setdefault(str(table), {_TABLE: [int(str(number))]})
        columns[str(column)] = [int(str(each)) for each in stated]
    return found


def _logged_numbers(cursor: Cursor, oid: int, names: Sequence[str], transaction: int) -> list[int]:
    """The number of each column that the stream announced for a table in a transaction.

    `names`: all columns, in the order of their numbers. A later column of the same name has another
    number: the columns of that time are those that are there or were dropped later.
    """
    cursor.execute(
        "SELECT attnum, attname, attisdropped, age(xmin) BETWEEN 0 AND age(%s::text::xid) - 1 "
        "FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND attgenerated = '' "
        "ORDER BY attnum",
        (transaction, oid),
    )
    rows = cursor.fetchall()
    there = [int(str(row[0])) for row in rows if not row[2] or row[3]]
    unchanged = {str(row[1]): int(str(row[0])) for row in rows if not row[2] and not row[3]}
    listed = zip_longest(names, there[: len(names)], fillvalue=0)
    return [unchanged.get(str(name), int(number)) for name, number in listed]


def _first(given: Json) -> Json:
    return given[0] if isinstance(given, list) else None
