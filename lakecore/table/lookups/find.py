"""Finds the rows of keys in a state of a table by an ordinary read.

The keys become a condition, which prunes partitions, buckets, files (by statistics and indexes) and
row groups. The remaining rows are joined with the keys. A look-up therefore returns what a read
returns, with any merge engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from lakecore.frames.arrow_frames import to_frame
from lakecore.frames.polars_source import frames_of
from lakecore.table.lookups.keys import rows_in_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.frames.source import RowSource
    from lakecore.table.lookups.keys import Keys


def find_rows(source: RowSource, keys: Keys, columns: Sequence[str]) -> pl.DataFrame:
    """These columns of the rows that match the keys, in the order of the keys."""
    wanted = to_frame(keys.rows).drop_nulls().unique()
    names = list(dict.fromkeys((*columns, *keys.names)))
    parts = [to_frame(source.schema.empty_table().select(names))]
    if wanted.height:
        parts += [
            frame.join(wanted, on=keys.names, how="semi")
            for frame in frames_of(source, names, keys.predicate())
        ]
    return rows_in_order(keys, pl.concat(parts, how="vertical"), columns)
