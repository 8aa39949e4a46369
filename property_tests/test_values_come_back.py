"""Whatever gives out the values of a table, a write takes them back as they were.

What a library itself changes is left out: DuckDB's frames hold DECIMALs as floats, and integers
with nulls; Python values of Polars and DuckDB end at microseconds, and times at the years that
Python knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.errors import InvalidRequest
from lakecore.frames.incoming import incoming_batches
from lakecore.model.types import (
    TIMESTAMPS,
    Array,
    Atomic,
    DataType,
    Map,
    Multiset,
    Root,
    Row,
    arrow_type,
    inner_types,
    leaves,
    parse_type,
)
from lakecore.rows.conform import KindRule, conform
from property_tests.test_conform import TYPES, nullable, table_of

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = KindRule(rowkind_field=None, keyed=False, ignore_delete=False, ignore_update_before=False)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What a library keeps: timestamps to so many nanoseconds, integers up to a number."""

    step: int = 1
    integer_max: int = (1 << 63) - 1


_MICROS = 6
IN_PANDAS = Kept(integer_max=(1 << 53) - 1)
"""Integers that share a column with nulls are floats there."""


def in_years(value: Any, data_type: DataType, kept: Kept) -> Any:
    """The value with its timestamps in years that Python knows, and within what is kept."""
    if value is None:
        return None
    match data_type:
        case Atomic(root=Root.TIMESTAMP | Root.TIMESTAMP_LTZ, precision=digits):
            years = {"ms": 10**13, "us": 10**16, "ns": 1 << 62}[arrow_type(data_type).unit]
            each = max(kept.step if (digits or 0) > 6 else 1, 10 ** (-(digits or 0) % 3))
            return value % (years if value > 0 else -years) // each * each
        case Atomic(root=Root.BIGINT):
            return max(-kept.integer_max, min(value, kept.integer_max))
        case Atomic():
            return value
        case Array(element=element):
            return [in_years(each, element, kept) for each in value]
        case Map() | Multiset():
            kinds = inner_types(data_type)
            return [
                tuple(in_years(part, kind, kept) for part, kind in zip(entry, kinds, strict=True))
                for entry in value
            ]
        case Row(fields=fields):
            return {f.name: in_years(value[f.name], f.type, kept) for f in fields}


@st.composite
def columns(
    draw: st.DrawFn, types: st.SearchStrategy[DataType], kept: Kept
) -> tuple[DataType, pa.Array]:
    data_type = draw(types)
    values = draw(st.lists(nullable(data_type), min_size=1, max_size=6))
    return data_type, pa.array(
        [in_years(value, data_type, kept) for value in values], arrow_type(data_type)
    )


def written(data: object, data_type: DataType) -> pa.Array:
    """The column `c` of what was handed in, as a write takes it."""
    table = table_of(data_type)
    batches = [
        conform(batch, table, first_row=0, kinds=KINDS).rows
        for batch in incoming_batches(data, table.fields)
    ]
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, table.arrow).column(0).combine_chunks()


def _polars(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _duckdb_rows(table: pa.Table) -> object:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return [{"c": value} for (value,) in connection.from_arrow(table).fetchall()]


def _duckdb_frame(table: pa.Table) -> object:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.from_arrow(table).df()


def _duckdb_arrow(table: pa.Table) -> object:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.from_arrow(table).to_arrow_table()


def _arrow_dtype(kind: pa.DataType) -> pd.ArrowDtype:
    return pd.ArrowDtype(kind)


WAYS: dict[str, Callable[[pa.Table], object]] = {
    "to_arrow": lambda table: table,
    "to_arrow().to_pylist()": pa.Table.to_pylist,
    "to_arrow().to_pydict()": pa.Table.to_pydict,
    "to_polars": _polars,
    "to_pandas, Arrow types": lambda table: table.to_pandas(types_mapper=_arrow_dtype),
    "to_duckdb().arrow()": _duckdb_arrow,
}
PANDAS_WAYS: dict[str, Callable[[pa.Table], object]] = {
    "to_pandas": pa.Table.to_pandas,
    "to_pandas, maps as dicts": lambda table: table.to_pandas(maps_as_pydicts="strict"),
}
PYTHON_WAYS: dict[str, Callable[[pa.Table], object]] = {
    "to_polars().to_dicts()": lambda table: _polars(table).to_dicts(),
    "to_polars().to_dict()": lambda table: _polars(table).to_dict(as_series=False),
    "to_duckdb().fetchall()": _duckdb_rows,
}


@pytest.mark.parametrize("way", WAYS)
@given(drawn=columns(TYPES, Kept()))
def test_values_that_a_library_holds_come_back(way: str, drawn: tuple[DataType, pa.Array]) -> None:
    data_type, array = drawn

    assert written(WAYS[way](pa.table({"c": array})), data_type).equals(array)


@pytest.mark.parametrize("way", PYTHON_WAYS)
@given(drawn=columns(TYPES, Kept(step=1000)))
def test_values_that_python_holds_come_back(way: str, drawn: tuple[DataType, pa.Array]) -> None:
    data_type, array = drawn

    assert written(PYTHON_WAYS[way](pa.table({"c": array})), data_type).equals(array)


@pytest.mark.parametrize("way", PANDAS_WAYS)
@given(drawn=columns(TYPES, IN_PANDAS))
def test_values_that_pandas_holds_come_back(way: str, drawn: tuple[DataType, pa.Array]) -> None:
    data_type, array = drawn

    assert written(PANDAS_WAYS[way](pa.table({"c": array})), data_type).equals(array)


WITHOUT_DECIMALS = TYPES.filter(lambda t: all(each.root is not Root.DECIMAL for each in leaves(t)))


def _kept_by_duckdb(data_type: DataType) -> bool:
    """Whether DuckDB's frame keeps the values: within nested ones it rounds to microseconds."""
    nested = not isinstance(data_type, Atomic)
    return not (nested and any((each.precision or 0) > _MICROS for each in _times(data_type)))


def _times(data_type: DataType) -> list[Atomic]:
    return [each for each in leaves(data_type) if each.root in TIMESTAMPS]


@given(drawn=columns(WITHOUT_DECIMALS.filter(_kept_by_duckdb), IN_PANDAS))
def test_values_of_a_frame_of_duckdb_come_back(drawn: tuple[DataType, pa.Array]) -> None:
    data_type, array = drawn

    assert written(_duckdb_frame(pa.table({"c": array})), data_type).equals(array)


@pytest.mark.parametrize("kind", ["BIGINT", "ARRAY<BIGINT>", "MAP<STRING, BIGINT>"])
def test_large_integers_that_pandas_rounded_are_refused(kind: str) -> None:
    data_type = parse_type(kind)
    values: dict[str, list[Any]] = {
        "BIGINT": [2**60 + 1, None],
        "ARRAY<BIGINT>": [[2**60 + 1, None]],
        "MAP<STRING, BIGINT>": [[("a", 2**60 + 1), ("b", None)]],
    }
    frame = pa.table({"c": pa.array(values[kind], arrow_type(data_type))}).to_pandas()

    with pytest.raises(InvalidRequest, match="may have lost digits"):
        written(frame, data_type)
