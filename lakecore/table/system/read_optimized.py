"""`$ro`: the rows of a table that need no merge.

https://paimon.apache.org/docs/master/concepts/system-tables/#read-optimized-table

In a table with a primary key, only the files of the last level are read, which full compaction has
written; newer rows are not included. For a table without a primary key, all rows are read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.table.reads.fallback import FallbackSource, falls_back, with_fallback
from lakecore.table.reads.guarded import guarded
from lakecore.table.reads.source import TableSource
from lakecore.table.reads.travel import as_of, resolve, schema_read
from lakecore.table.system.system_table import SystemTable

if TYPE_CHECKING:
    from lakecore.model.schema import TableSchema
    from lakecore.table.context import TableContext
    from lakecore.table.reads.guarded import GuardedSource
    from lakecore.table.reads.travel import Travel

RO = "ro"


class ReadOptimized(SystemTable):
    """The system table `$ro` of a table, which can be read at any state of the table."""

    def __init__(self, context: TableContext) -> None:
        self.identifier = f"{context.identifier}${RO}"
        self._of = context

    @property
    def schema(self) -> TableSchema:
        """The columns, as a schema."""
        return schema_read(self._of)

    def _rows(self, at: Travel) -> TableSource | FallbackSource | GuardedSource:
        self._of.options.require_readable(filters_rows=True)
        snapshot, schema = resolve(self._of, at)
        context = as_of(self._of, schema)
        own = _last_level(TableSource(context=context, snapshot=snapshot, table_schema=schema))
        if not falls_back(self._of):
            return guarded(own, self._of)
        found = with_fallback(own, self._of, at)
        return guarded(replace(found, rest=_last_level(found.rest)), self._of)


def _last_level(source: TableSource) -> TableSource:
    """The source. For a table with a primary key, it reads only the files of the last level."""
    keyed = source.table_schema.primary_keys
    only = source.context.options.level_count - 1 if keyed else None
    return replace(source, only_level=only)
