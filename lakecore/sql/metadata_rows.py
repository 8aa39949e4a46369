"""The rows of a table with the metadata columns that a query names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import Unsupported
from lakecore.table.changes.between import changes_of_options
from lakecore.table.reads.metadata_columns import METADATA_COLUMNS, with_metadata
from lakecore.table.reads.time_travel import Travel
from lakecore.table.system.system_columns import SystemTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.sql.native_views import ReadState
    from lakecore.table.handle import Table
    from lakecore.table.reads.metadata_columns import MetadataSource


def metadata_names(table: Table, names: Sequence[str]) -> tuple[str, ...]:
    """The metadata columns among the names: all names that are not columns of the table.

    Raises Unsupported if such a name is not a metadata column, and for a system table.
    """
    own = {name.lower() for name in table.schema.names} if names else ()
    found = tuple(name for name in names if name not in own)
    unknown = [name for name in found if name not in METADATA_COLUMNS]
    if unknown:
        raise Unsupported(
            "no such metadata column", column=unknown[0], known=list(METADATA_COLUMNS)
        )
    read: object = table  # a catalog gives system tables the type of a table
    if found and isinstance(read, SystemTable):
        raise Unsupported(
            "a system table has no metadata columns", table=table.identifier, columns=list(found)
        )
    return found


def rows_with_metadata(table: Table, travel: ReadState, names: Sequence[str]) -> MetadataSource:
    """The rows of a state of a table, with these metadata columns after its own.

    Raises Unsupported if the columns have no meaning for this table.
    """
    if not travel and changes_of_options(table.context) is not None:
        raise Unsupported(
            "rows between two snapshots have no metadata columns", columns=list(names)
        )
    return with_metadata(table.context, Travel(**travel), names)
