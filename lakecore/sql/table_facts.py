"""Facts about tables that a statement needs: their size, and the columns that allow pruning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.table.changes.between import changes_of_options
from lakecore.table.reads.fallback import falls_back
from lakecore.table.reads.told import told_snapshot
from lakecore.table.reads.travel import Travel, resolve
from lakecore.table.system.system_table import SystemTable

if TYPE_CHECKING:
    from lakecore.sql.explain_query import ReadState
    from lakecore.table.handle import Table

__all__ = ["pruning_columns", "stored_rows"]


def stored_rows(table: Table, travel: ReadState) -> int | None:
    """An upper bound of the rows of a state: the stored rows, before merging; None if unknown."""
    read: object = table  # a catalog gives system tables the type of a table
    if isinstance(read, SystemTable) or falls_back(table.context):
        return None
    if not travel and changes_of_options(table.context) is not None:
        return None
    snapshot, _ = resolve(table.context, Travel(**travel))
    return None if snapshot is None else told_snapshot(snapshot, table.context).total_record_count


def pruning_columns(table: Table) -> frozenset[str]:
    """The columns, in lower case, whose filters let a read skip files or row groups.

    They always include the partition keys. The files of a table with a primary key are sorted by
    it, so only its first column is added. In a table without a key, any column may help.
    """
    schema = table.schema
    names = [*schema.primary_keys[:1], *schema.partition_keys]
    return frozenset(name.lower() for name in (names if schema.primary_keys else schema.names))
