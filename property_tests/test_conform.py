"""Rows of a table's own types pass unchanged; by way of a library they keep their values."""

from __future__ import annotations

import datetime as dt
from decimal import Context, Decimal, Inexact
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
from lakecore.model.schema import TableSchema, number_fields
from lakecore.model.types import (
    LENGTH_MAX,
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Multiset,
    Root,
    Row,
    arrow_type,
)
from lakecore.rows.conform import KindRule, conform

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = KindRule(rowkind_field=None, keyed=False, ignore_delete=False, ignore_update_before=False)
LTZ = Root.TIMESTAMP_LTZ
TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
INTEGER_BITS = {Root.TINYINT: 7, Root.SMALLINT: 15, Root.INT: 31, Root.BIGINT: 63}


@st.composite
def decimals(draw: st.DrawFn) -> Atomic:
    precision = draw(st.integers(1, 38))
    return Atomic(root=Root.DECIMAL, precision=precision, scale=draw(st.integers(0, precision)))


SIMPLE = st.sampled_from([*INTEGER_BITS, Root.BOOLEAN, Root.FLOAT, Root.DOUBLE, Root.DATE])
ATOMS = st.one_of(
    SIMPLE.map(lambda root: Atomic(root=root)),
    decimals(),
    st.builds(
        lambda root, length: Atomic(root=root, length=length),
        st.sampled_from([Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY]),
        st.sampled_from([6, LENGTH_MAX]),
    ),
    st.builds(
        lambda root, digits: Atomic(root=root, precision=digits),
        st.sampled_from([Root.TIME, Root.TIMESTAMP, LTZ]),
        st.integers(0, 9),
    ),
)


@st.composite
def rows(draw: st.DrawFn, parts: st.SearchStrategy[DataType]) -> Row:
    types = draw(st.lists(parts, min_size=1, max_size=3))
    return Row(fields=tuple(Field(id=i, name=f"f{i}", type=t) for i, t in enumerate(types)))


TYPES: st.SearchStrategy[DataType] = st.recursive(
    ATOMS,
    lambda parts: st.one_of(
        parts.map(lambda element: Array(element=element)),
        st.builds(lambda key, value: Map(key=key, value=value), ATOMS, parts),
        ATOMS.map(lambda element: Multiset(element=element)),
        rows(parts),
    ),
    max_leaves=4,
)


def numbers_of(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2**bits), 2**bits - 1)


def values_of(data_type: DataType) -> st.SearchStrategy[Any]:
    """Values of the type, as pyarrow takes them; timestamps and times as numbers of their unit."""
    match data_type:
        case Atomic():
            plain = atoms_of(data_type)
        case Array(element=element):
            plain = st.lists(nullable(element), max_size=3)
        case Map(key=key, value=value):
            plain = entries_of(key, nullable(value))
        case Multiset(element=element):
            plain = entries_of(element, numbers_of(31))
        case Row(fields=fields):
            plain = st.fixed_dictionaries({f.name: nullable(f.type) for f in fields})
    return plain


def entries_of(key: DataType, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Entries of a map, each key once; NaN equals NaN."""
    entries = st.tuples(values_of(key), values)
    return st.lists(
        entries, max_size=3, unique_by=lambda entry: "NaN" if entry[0] != entry[0] else entry[0]
    )


def nullable(data_type: DataType) -> st.SearchStrategy[Any]:
    return st.none() | values_of(data_type)


def atoms_of(data_type: Atomic) -> st.SearchStrategy[Any]:
    match data_type.root:
        case Root.BOOLEAN:
            return st.booleans()
        case Root.FLOAT:
            return st.floats(width=32, allow_nan=False)
        case Root.DOUBLE:
            return st.floats(allow_nan=False)
        case Root.DECIMAL:
            bound = 10 ** (data_type.precision or 1) - 1
            exact = Context(prec=60)
            return st.integers(-bound, bound).map(
                lambda n: Decimal(n).scaleb(-(data_type.scale or 0), exact)
            )
        case Root.CHAR | Root.VARCHAR:
            return TEXT
        case Root.BINARY | Root.VARBINARY:
            return st.binary(max_size=6)
        case Root.DATE:
            return st.dates()
        case Root.TIME:
            step = 10 ** (3 - min(data_type.precision or 0, 3))
            return st.integers(0, (86_400_000 - 1) // step).map(lambda n: n * step)
        case Root.TIMESTAMP | Root.TIMESTAMP_LTZ:
            unit = {"ms": 3, "us": 6, "ns": 9}[arrow_type(data_type).unit]
            step = 10 ** (unit - (data_type.precision or 0))
            return numbers_of(60).map(lambda n: n // step * step)
        case root:
            return numbers_of(INTEGER_BITS[root])


def table_of(data_type: DataType) -> TableSchema:
    fields, free = number_fields([Field(id=0, name="c", type=data_type)])
    return TableSchema(id=0, fields=fields, highest_field_id=free - 1)


def conformed(data: object, data_type: DataType) -> pa.Array:
    """The column `c` of what was handed in, as the table takes it."""
    table = table_of(data_type)
    batches = [
        conform(batch, table, first_row=0, kinds=KINDS).rows for batch in incoming_batches(data)
    ]
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, table.arrow).column(0).combine_chunks()


@st.composite
def columns(draw: st.DrawFn, types: st.SearchStrategy[DataType]) -> tuple[DataType, pa.Array]:
    data_type = draw(types)
    values = draw(st.lists(nullable(data_type), min_size=1, max_size=6))
    return data_type, pa.array(values, arrow_type(data_type))


@given(columns(TYPES), st.integers(0, 3))
def test_rows_of_the_own_types_pass_unchanged(drawn: tuple[DataType, pa.Array], start: int) -> None:
    data_type, array = drawn
    table = table_of(data_type)
    batch = pa.RecordBatch.from_arrays([array], schema=table.arrow).slice(start)

    out = conform(batch, table, first_row=0, kinds=KINDS).rows

    out.validate(full=True)
    assert out.equals(batch)
    before, after = batch.column(0).buffers(), out.column(0).buffers()
    assert [b and b.address for b in after] == [b and b.address for b in before]


def _by_polars(table: pa.Table) -> object:
    return pl.from_arrow(table)


def _by_polars_lazy(table: pa.Table) -> object:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame.lazy()


def _by_large_layouts(table: pa.Table) -> object:
    return table.cast(pa.schema([pa.field("c", _large(table.schema.field(0).type))]))


def _large(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_string(arrow):
        return pa.large_string()
    if pa.types.is_binary(arrow):
        return pa.large_binary()
    if pa.types.is_list(arrow):
        return pa.large_list(_large(arrow.value_type))
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(f.name, _large(f.type)) for f in arrow])
    return arrow


@pytest.mark.parametrize("way", [_by_polars, _by_polars_lazy, _by_large_layouts])
@given(drawn=columns(TYPES))
def test_rows_by_way_of_another_layout_keep_their_values(
    way: Callable[[pa.Table], object], drawn: tuple[DataType, pa.Array]
) -> None:
    data_type, array = drawn

    out = conformed(way(pa.table({"c": array})), data_type)

    assert out.equals(array)


# DuckDB's timestamps count microseconds here, and its dates and times end where Python's do not.
IN_DUCKDB = ATOMS.filter(
    lambda t: t.root not in {Root.TIME, Root.TIMESTAMP, LTZ} or (t.precision or 0) in (3, 6)
).filter(lambda t: t.root is not Root.TIME)


@given(columns(IN_DUCKDB))
def test_rows_by_way_of_duckdb_keep_their_values(drawn: tuple[DataType, pa.Array]) -> None:
    data_type, array = drawn
    if pa.types.is_timestamp(array.type):
        array = pa.array([n and n % 10**15 for n in array.cast(pa.int64()).to_pylist()]).cast(
            array.type
        )
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        given_rows = connection.from_arrow(pa.table({"c": array}))

        assert conformed(given_rows, data_type).equals(array)


IN_PANDAS = ATOMS.filter(lambda t: t.root not in {Root.TIMESTAMP, LTZ, Root.TIME})


@given(columns(IN_PANDAS))
def test_rows_by_way_of_pandas_keep_their_values(drawn: tuple[DataType, pa.Array]) -> None:
    data_type, array = drawn
    # Integers with nulls become floats in pandas, so large ones are asked for as pandas integers.
    values = array.to_pylist()
    integers = pa.types.is_integer(array.type)
    series = pd.Series(values, dtype="Int64" if integers else object)

    assert conformed(pd.DataFrame({"c": series}), data_type).equals(array)


NUMBERS = st.one_of(
    st.sampled_from([Atomic(root=root) for root in INTEGER_BITS]),
    decimals(),
)


def exact(value: Decimal, target: Atomic) -> Decimal | None:
    """The number as the type holds it; None if it does not."""
    if target.root is Root.DECIMAL:
        precision, scale = target.precision or 0, target.scale or 0
        context = Context(prec=200, traps=[Inexact])
        try:
            unscaled = int(value.scaleb(scale, context).to_integral_exact(context=context))
        except Inexact:
            return None
        return value if abs(unscaled) < 10**precision else None
    bits = INTEGER_BITS[target.root]
    return value if value == int(value) and -(2**bits) <= value < 2**bits else None


@given(
    st.one_of(
        columns(decimals()),
        columns(st.sampled_from([Atomic(root=root) for root in INTEGER_BITS])),
    ),
    NUMBERS,
)
def test_number_of_another_type_arrives_exactly_or_not_at_all(
    drawn: tuple[DataType, pa.Array], target: Atomic
) -> None:
    _, array = drawn
    values = [None if v is None else Decimal(v) for v in array.to_pylist()]
    wanted = [None if v is None else exact(v, target) for v in values]
    bad = [i for i, v in enumerate(values) if v is not None and wanted[i] is None]

    if bad:
        with pytest.raises(InvalidRequest) as caught:
            conformed(pa.table({"c": array}), target)
        assert caught.value.facts["row"] == bad[0]
    else:
        out = conformed(pa.table({"c": array}), target).to_pylist()
        assert [None if v is None else Decimal(v) for v in out] == values


@given(columns(decimals()))
def test_decimal_becomes_the_nearest_double(drawn: tuple[DataType, pa.Array]) -> None:
    _, array = drawn

    out = conformed(pa.table({"c": array}), Atomic(root=Root.DOUBLE))

    assert out.to_pylist() == [None if v is None else float(v) for v in array.to_pylist()]


@given(st.lists(st.none() | st.datetimes(timezones=st.just(dt.UTC)), min_size=1, max_size=5))
def test_instant_is_kept_in_any_zone(values: list[dt.datetime | None]) -> None:
    array = pa.array(values, pa.timestamp("us", "UTC"))

    moved = conformed(
        pa.table({"c": array.cast(pa.timestamp("us", "Asia/Kathmandu"))}),
        Atomic(root=LTZ, precision=6),
    )

    assert moved.equals(array)
