"""For the driver of a read: chooses snapshot, schema and condition, and plans the splits."""

from __future__ import annotations

from lakecore.catalog.options import is_access_option
from lakecore.frames.source import checked_limit
from lakecore.io.files.data_files import row_group_bounds
from lakecore.rows.evolution import map_fields
from lakecore.table.changes.between import changes_of_options
from lakecore.table.reads.fallback import falls_back
from lakecore.table.reads.row_values import Condition, parse_condition, setting_of
from lakecore.table.reads.scan import hides_level_0
from lakecore.table.reads.source import TableSource
from lakecore.table.reads.travel import Travel, as_of, resolve
from lakecore.table.stored_rows.split_files import check_size
from lakecore.table.system.system_columns import (
    SYSTEM_TABLES,
    UNSUPPORTED_SYSTEM_TABLES,
    SystemTable,
)

__all__ = [
    "SYSTEM_TABLES",
    "UNSUPPORTED_SYSTEM_TABLES",
    "Condition",
    "SystemTable",
    "TableSource",
    "Travel",
    "as_of",
    "changes_of_options",
    "check_size",
    "checked_limit",
    "falls_back",
    "hides_level_0",
    "is_access_option",
    "map_fields",
    "parse_condition",
    "resolve",
    "row_group_bounds",
    "setting_of",
]
