"""The rows of each system table, from the metadata of a table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.forks import require_threads
from lakecore.table.context import require_table
from lakecore.table.reads.fallback import fallback_source, falls_back
from lakecore.table.reads.travel import Travel, resolve
from lakecore.table.system.snapshot_rows import ROWS_OF_SNAPSHOT
from lakecore.table.system.system_columns import system_schema
from lakecore.table.system.table_rows import ROWS_OF_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakecore.model.schema import TableSchema
    from lakecore.table.context import TableContext
    from lakecore.table.system.cell_texts import Row

__all__ = ["check_shown", "system_rows", "table_of"]


def check_shown(context: TableContext, name: str) -> None:
    """Raise Unsupported for a system table that would show values of rows hidden from the reader.

    Statistics, key ranges and partitions contain values of rows.
    """
    if name in ROWS_OF_SNAPSHOT:
        context.options.require_all_rows()


def system_rows(context: TableContext, name: str) -> pa.Table:
    """The current rows of a system table, in its Arrow schema."""
    require_threads()
    check_shown(context, name)
    rows: Iterable[Row]
    if name in ROWS_OF_TABLE:
        require_table(context)
        rows = ROWS_OF_TABLE[name](context)
    else:
        snapshot, travelled = resolve(context, Travel())
        then = replace(context, schema=travelled)
        rows = () if snapshot is None else ROWS_OF_SNAPSHOT[name](then, snapshot)
        if name == "partitions" and falls_back(context):
            rows = _with_fallback_partitions(context, rows)
    return table_of(rows, system_schema(name))


def _with_fallback_partitions(context: TableContext, rows: Iterable[Row]) -> Iterable[Row]:
    """The partitions of the table and of its fallback branch, as in Java.

    The other system tables show only one branch.
    """
    rest = fallback_source(context, Travel())
    found = {row[0]: row for row in rows}
    if rest.snapshot is not None:
        for row in ROWS_OF_SNAPSHOT["partitions"](rest.context, rest.snapshot):
            found.setdefault(row[0], row)
    return [found[name] for name in sorted(found, key=str)]


def table_of(rows: Iterable[Row], schema: TableSchema) -> pa.Table:
    """The rows as an Arrow table with these columns."""
    arrow = schema.arrow
    columns = list(zip(*rows, strict=True)) or [()] * len(arrow)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, arrow, strict=True)]
    return pa.Table.from_arrays(arrays, schema=arrow)
