"""SQL conditions for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakecore.scalar.values import LOCAL, Setting, matches, parse_where

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecore.model.schema import TableSchema
    from lakecore.plan.predicate import Predicate


def from_sql(text: str, schema: TableSchema | pa.Schema) -> Predicate:
    """What a SQL condition says for pruning."""
    return parse_where(text, schema)[1]


def kept(text: str, rows: pa.Table, setting: Setting = LOCAL) -> list[int]:
    """The places of the rows for which a SQL condition is true."""
    sql, _ = parse_where(text, rows.schema, setting)
    places: list[int] = np.flatnonzero(matches(sql, rows).to_numpy(zero_copy_only=False)).tolist()
    return places
