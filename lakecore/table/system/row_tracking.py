"""`$row_tracking`: the rows of a table with their ids.

https://paimon.apache.org/docs/master/append-table/row-tracking/

It has the columns of the table, then `_ROW_ID` and `_SEQUENCE_NUMBER`: the id of the row, and the
snapshot that wrote its newest values.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.rows import TRACKING_FIELDS
from lakecore.table.reads.fallback import falls_back
from lakecore.table.reads.guarded import guarded
from lakecore.table.reads.source import TableSource
from lakecore.table.reads.travel import as_of, resolve, schema_read
from lakecore.table.system.system_table import SystemTable

if TYPE_CHECKING:
    from lakecore.model.schema import TableSchema
    from lakecore.table.context import TableContext
    from lakecore.table.reads.guarded import GuardedSource
    from lakecore.table.reads.travel import Travel

ROW_TRACKING = "row_tracking"


class RowTracking(SystemTable):
    """The system table `$row_tracking` of a table, which can be read at any state of the table."""

    def __init__(self, context: TableContext) -> None:
        self.identifier = f"{context.identifier}${ROW_TRACKING}"
        self._of = context
        if not context.options.row_tracking_enabled:
            raise InvalidRequest(
                "rows have no ids; a table is created with row-tracking.enabled=true for that",
                table=context.identifier,
            )

    @property
    def schema(self) -> TableSchema:
        """The columns, as a schema."""
        return _tracked(schema_read(self._of))

    def _rows(self, at: Travel) -> TableSource | GuardedSource:
        self._of.options.require_readable(filters_rows=True)
        if falls_back(self._of):
            raise Unsupported(
                "row ids are not read with a fallback branch; take the option away",
                option="scan.fallback-branch",
                table=self.identifier,
            )
        snapshot, schema = resolve(self._of, at)
        context = as_of(self._of, schema)
        rows = TableSource(context=context, snapshot=snapshot, table_schema=_tracked(schema))
        return guarded(rows, self._of)


def _tracked(schema: TableSchema) -> TableSchema:
    return replace(schema, fields=(*schema.fields, *TRACKING_FIELDS))
