"""Columns of each type, and conditions on them, for tests."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.plan.predicate import Compare, In, Op
from lakecore.scalar.values import LOCAL, Setting, matches, parse_where

if TYPE_CHECKING:
    from lakecore.model.schema import TableSchema
    from lakecore.plan.predicate import Predicate

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("g", pa.float64()),
        ("dec", pa.decimal128(6, 2)),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("q", pa.bool_()),
        ("d", pa.date32()),
        ("ti", pa.time32("ms")),
        ("ms", pa.timestamp("ms")),
        ("us", pa.timestamp("us")),
        ("ns", pa.timestamp("ns")),
        ("tz", pa.timestamp("us", "UTC")),
        ("st", pa.struct([("x", pa.int32())])),
        ("Mixed", pa.int32()),
    ]
)
NOON = dt.datetime(2026, 1, 1, 12)
DAY = dt.date(2026, 1, 1)


def c(column: str, op: str, value: object) -> Compare:
    """A column compared with a value of its type."""
    return Compare(column, Op(op), pa.scalar(value, SCHEMA.field(column).type))


def isin(column: str, *values: object) -> In:
    """A column among values of its type."""
    return In(column, pa.array(values, SCHEMA.field(column).type))


def from_sql(text: str, schema: TableSchema | pa.Schema) -> Predicate:
    """What a SQL condition says for pruning."""
    return parse_where(text, schema)[1]


def kept(text: str, rows: pa.Table, setting: Setting = LOCAL) -> list[int]:
    """The places of the rows for which a SQL condition is true."""
    sql, _ = parse_where(text, rows.schema, setting)
    places: list[int] = np.flatnonzero(matches(sql, rows).to_numpy(zero_copy_only=False)).tolist()
    return places
