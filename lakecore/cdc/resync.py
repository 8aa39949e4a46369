"""Reads tables again in ranges of the key, so that the other tables are followed in between.

1. The ranges are cut by the first column of the key, if it is an integer. Any other table is one
   range. The end of a range is looked up when the range is read, so that it has about `RANGE_ROWS`
   rows.
2. The first range gives the table its mark in the position: changes before the mark are left out,
   later changes are followed, also in ranges that are not read yet.
3. A later range is read in a newer state of the source than the position. The log then repeats the
   changes in between. Each change names its whole row, or deletes it by key, so that the target has
   the state of the range when the log has reached it.
4. The next range of each table is stored with the position.

INVARIANT: all ranges of a table have the same columns. Otherwise, a change of the log with older
columns would replace a newer row. If the columns have changed, reading starts again.

INVARIANT: a request is done only by ranges that were all read after it was stored.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lakecore.cdc.events import SourceTable
from lakecore.model.data_types import INTEGERS, Atomic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.cdc.events import SourceSchema
    from lakecore.model.types import Json


# --- ranges --------------------------------------------------------------------------------------

RANGE_ROWS = 500_000


class Asks(Protocol):
    """A cursor of a database."""

    def execute(self, query: str) -> object: ...

    def fetchone(self) -> Sequence[object] | None: ...


def range_column(schema: SourceSchema) -> str | None:
    """The column by which a table is read in ranges; None for a table that is one range."""
    kinds = {each.name: each.type for each in schema.fields}
    first = kinds.get(schema.primary_key[0]) if schema.primary_key else None
    return schema.primary_key[0] if isinstance(first, Atomic) and first.root in INTEGERS else None


def range_stop(cursor: Asks, table: str, column: str, start: int | None) -> int | None:
    """The first value after the range that begins at `start`; None if the range is the last one.

    `table`, `column`: quoted names. All rows with one value of the column are in one range.
    """
    cursor.execute(
        f"SELECT {column} FROM {table}{range_condition(column, start, None)} "
        f"ORDER BY {column} LIMIT 1 OFFSET {RANGE_ROWS}"
    )
    row = cursor.fetchone()
    if row is not None and _whole(row[0]) == start:
        cursor.execute(f"SELECT MIN({column}) FROM {table} WHERE {column} > {start}")
        row = cursor.fetchone()
    return None if row is None or row[0] is None else _whole(row[0])


def _whole(value: object) -> int:
    return int(str(value))


def range_condition(column: str, start: int | None, stop: int | None) -> str:
    """The WHERE clause of a range, after a blank; empty for the whole table."""
    conditions = [] if start is None else [f"{column} >= {start}"]
    conditions += [] if stop is None else [f"{column} < {stop}"]
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


# --- progress ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PartlyRead:
    """A table of which the ranges before `start` are read.

    - `columns`: the digest of its columns;
    - `requests`: the names of the requests that its last range completes.
    """

    table: SourceTable
    start: int
    columns: str
    requests: frozenset[str]

    def to_json(self) -> dict[str, Json]:
        return {
            "database": self.table.database,
            "table": self.table.name,
            "start": self.start,
            "columns": self.columns,
            "requests": [*sorted(self.requests)],
        }

    @staticmethod
    def from_json(value: Mapping[str, Json]) -> PartlyRead:
        """The progress from a JSON value that `to_json` returned.

        Raises KeyError, TypeError or ValueError for any other value.
        """
        requests = value["requests"]
        if not isinstance(requests, list):
            raise TypeError("requests are a list")
        return PartlyRead(
            table=SourceTable(str(value["database"]), str(value["table"])),
            start=_whole(value["start"]),
            columns=str(value["columns"]),
            requests=frozenset(map(str, requests)),
        )


def columns_digest(schema: SourceSchema) -> str:
    """A digest of the names and types of the columns, and of the key."""
    listed = [f"{each.name} {each.type}" for each in schema.fields]
    return hashlib.sha256(repr((listed, schema.primary_key)).encode()).hexdigest()[:16]
