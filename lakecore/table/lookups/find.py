"""Keys and a state of a table -> the rows of the keys, by a read.

The keys become a condition, which leaves out partitions, buckets, files (by statistics and file
indexes) and row groups. The rows of what is left are joined with the keys. A look-up therefore
returns what a read returns, whatever the merge engine is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from lakecore.frames.polars_source import to_frame
from lakecore.table.lookups.keys import rows_in_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.table.lookups.keys import Keys
    from lakecore.table.reads.fallback import FallbackSource
    from lakecore.table.reads.source import TableSource


def find_rows(
    source: TableSource | FallbackSource, keys: Keys, columns: Sequence[str]
) -> pl.DataFrame:
    """These columns of the rows that the keys find, in the order of the keys."""
    wanted = to_frame(keys.rows).drop_nulls().unique()
    names = list(dict.fromkeys((*columns, *keys.names)))
    parts = [to_frame(source.schema.empty_table().select(names))]
    if wanted.height:
        parts += [
            frame.join(wanted, on=keys.names, how="semi")
            for frame in source.frames(names, keys.predicate())
        ]
    return rows_in_order(keys, pl.concat(parts, how="vertical"), columns)
