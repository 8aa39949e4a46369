"""Cuts times to the fraction digits of a column, as Flink and Spark do when they store a value.

A cast of DuckDB would round, and DuckDB has no type for every number of digits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.model.data_types import TIMESTAMPS, Atomic, Root
from lakecore.scalar.engine import quoted

if TYPE_CHECKING:
    import duckdb

    from lakecore.model.data_types import DataType
    from lakecore.scalar.syntax import Sql

__all__ = ["cut_to_precision", "cut_value", "storable_times"]

_MICROS, _NANOS = 6, 9
_TIME_MS = Atomic(root=Root.TIME, nullable=True, precision=3)
_OF_DAY = frozenset({"TIME", "TIME WITH TIME ZONE"})
_WITH_FRACTION = frozenset(
    {
        *_OF_DAY,
        *("TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_MS", "TIMESTAMP_NS", "VARCHAR"),
    }
)
_IN_DUCKDB = {
    Root.TIME: "TIME",
    Root.TIMESTAMP: "TIMESTAMP",
    Root.TIMESTAMP_LTZ: "TIMESTAMP WITH TIME ZONE",
}


def cut_to_precision(value: str, given: str, kind: DataType) -> str:
    """SQL of a value of DuckDB's type `given`, without digits that a column of `kind` lacks."""
    if not isinstance(kind, Atomic) or kind.root not in _IN_DUCKDB or kind.precision is None:
        return value
    digits = kind.precision
    if given == "TIMESTAMP_NS" and kind.root in TIMESTAMPS and digits < _NANOS:
        cut = (
            f"make_timestamp_ns(epoch_ns({value}) - {_rest(f'epoch_ns({value})', _NANOS - digits)})"
        )
        return f"CASE WHEN isfinite({value}) THEN {cut} ELSE {value} END"
    is_coarse = given == "TIMESTAMP_MS" and digits >= 3
    if given not in _WITH_FRACTION or digits >= _MICROS or is_coarse:
        return value
    if given == "TIMESTAMP WITH TIME ZONE" and kind.root is Root.TIME:
        value = f"CAST({value} AS TIMESTAMP)"  # DuckDB casts only this one to TIME
    value = f"CAST({value} AS {_IN_DUCKDB[kind.root]})"
    # The epoch of an infinite time is null; the write refuses this time later.
    rest = f"coalesce({_rest(f'epoch_us({value})', _MICROS - digits)}, 0)"
    return f"{value} - to_microseconds({rest})"


def cut_value(sql: Sql, kind: DataType) -> Sql:
    """The bound expression, without digits that a column of `kind` lacks."""
    return replace(sql, sql=cut_to_precision(f"({sql.sql}\n)", _in_duckdb(sql.type), kind))


def storable_times(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The rows with times of day in milliseconds, the finest that Paimon stores."""
    kinds = list(map(str, relation.types))
    if not _OF_DAY & set(kinds):
        return relation
    parts = (
        cut_to_precision(f"#{place}", kind, _TIME_MS) if kind in _OF_DAY else f"#{place}"
        for place, kind in enumerate(kinds, 1)
    )
    named = zip(parts, relation.columns, strict=True)
    return relation.project(", ".join(f"{part} AS {quoted(name)}" for part, name in named))


def _in_duckdb(kind: pa.DataType) -> str:
    """DuckDB's name of a type of times or texts; "" for another type."""
    if not pa.types.is_timestamp(kind):
        return "TIME" if pa.types.is_time(kind) else "VARCHAR" if pa.types.is_string(kind) else ""
    if kind.tz is not None:
        return "TIMESTAMP WITH TIME ZONE"
    return {"us": "TIMESTAMP", "ms": "TIMESTAMP_MS", "ns": "TIMESTAMP_NS"}.get(kind.unit, "")


def _rest(number: str, digits: int) -> str:
    """SQL of what the last digits of a whole number say, also before 1970 counted upwards."""
    unit = 10**digits
    return f"(({number} % {unit} + {unit}) % {unit})"
