"""Rows of any type survive a data file of each format, however they are cut into pieces."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecore.errors import Unsupported
from lakecore.io.files.data_files import FORMATS, WriteFormat, open_writer, read_positions
from lakecore.io.stores.store import MemoryStore
from lakecore.model.schema import number_fields
from lakecore.model.types import (
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Multiset,
    Root,
    Row,
    arrow_schema,
    arrow_type,
    parse_type,
    with_nullable,
)

# Arrow holds ORC timestamps as nanoseconds, so the years 1677 to 2262 bound them all.
_SECONDS = 9_000_000_000
_UNITS = {"ms": 10**3, "us": 10**6, "ns": 10**9}
_ATOMS = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BYTES"),
    *("DATE", "TIME(3)", "DECIMAL(4,2)", "DECIMAL(18,0)", "DECIMAL(38,10)"),
    *("TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)"),
    *("TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(6)", "TIMESTAMP_LTZ(9)"),
)
_BITS = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.BIGINT: 64}


def types(format_name: str) -> st.SearchStrategy[DataType]:
    names = [name for name in _ATOMS if format_name != "avro" or "(9)" not in name]
    atoms = st.builds(with_nullable, st.sampled_from(names).map(parse_type), nullable=st.booleans())
    keys = st.sampled_from(["STRING", "INT", "DATE"]).map(parse_type)

    def around(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
        parts = st.lists(inner, min_size=1, max_size=3)
        return st.one_of(
            inner.map(lambda element: Array(element=element)),
            st.builds(lambda key, value: Map(key=key, value=value), keys, inner),
            keys.map(lambda element: Multiset(element=element)),
            parts.map(lambda of: Row(fields=named(of))),
        )

    return st.recursive(atoms, around, max_leaves=4)


def named(of: list[DataType]) -> tuple[Field, ...]:
    return tuple(Field(id=i, name=f"f{i}", type=data_type) for i, data_type in enumerate(of))


def values(data_type: DataType) -> st.SearchStrategy[Any]:
    some = _some(data_type)
    return st.none() | some if data_type.nullable else some


def _some(data_type: DataType) -> st.SearchStrategy[Any]:
    match data_type:
        case Array():
            return st.lists(values(data_type.element), max_size=3)
        case Map():
            return st.dictionaries(_some(data_type.key), values(data_type.value), max_size=3).map(
                lambda entries: list(entries.items())
            )
        case Multiset():
            return st.dictionaries(_some(data_type.element), st.integers(1, 9), max_size=3).map(
                lambda entries: list(entries.items())
            )
        case Row():
            return st.fixed_dictionaries({f.name: values(f.type) for f in data_type.fields})
        case Atomic(root=root) if root in _BITS:
            half = 2 ** (_BITS[root] - 1)
            return st.integers(-half, half - 1)
        case Atomic(root=Root.DECIMAL):
            assert data_type.precision is not None
            assert data_type.scale is not None
            limit = 10 ** (data_type.precision - data_type.scale) - 1
            return st.decimals(-limit, limit, places=data_type.scale, allow_nan=False)
        case Atomic(root=Root.TIMESTAMP | Root.TIMESTAMP_LTZ):
            ticks = _UNITS[arrow_type(data_type).unit]
            # Before 1970 whole seconds: with a fraction, ORC refuses them.
            before = st.integers(-_SECONDS, -1).map(lambda seconds: seconds * ticks)
            return before | st.integers(0, _SECONDS * ticks)
        case Atomic(root=root):
            return {
                Root.BOOLEAN: st.booleans(),
                Root.FLOAT: st.floats(width=32, allow_nan=False),
                Root.DOUBLE: st.floats(allow_nan=False),
                Root.VARCHAR: st.text(max_size=8),
                Root.VARBINARY: st.binary(max_size=8),
                Root.DATE: st.dates(),
                Root.TIME: st.integers(0, 86_399_999),
            }[root]


@pytest.mark.parametrize("format_name", FORMATS)
@settings(max_examples=60, deadline=None)
@given(draws=st.data())
def test_rows_come_back_in_order_and_at_their_positions(
    format_name: str, draws: st.DataObject
) -> None:
    fields = number_fields(named(draws.draw(st.lists(types(format_name), min_size=1, max_size=4))))[
        0
    ]
    count = draws.draw(st.integers(0, 12))
    columns = [
        pa.array(
            draws.draw(st.lists(values(field.type), min_size=count, max_size=count)),
            arrow_type(field.type),
        )
        for field in fields
    ]
    schema = arrow_schema(fields)
    table = pa.Table.from_arrays(columns, schema=schema)
    cuts = sorted(draws.draw(st.lists(st.integers(0, count), max_size=3)))
    store, path = MemoryStore(), f"a.{format_name}"
    write_format = WriteFormat(format=format_name, row_group_rows=draws.draw(st.integers(1, 5)))
    writer = open_writer(store, path, fields, write_format)
    try:
        for start, end in zip([0, *cuts], [*cuts, count], strict=True):
            writer.write(table.slice(start, end - start))
    except Unsupported:
        # A null ROW inside a ROW: see `test_orc_refuses_a_null_row_inside_a_row`.
        writer.abort()
        assert format_name == "orc"
        return
    size_bytes, row_count = writer.close()
    found = list(read_positions(store, path, fields=fields, batch_rows=3))
    result = pa.Table.from_batches([batch for _, batch in found], schema=schema)

    result.validate(full=True)
    assert repr(result.to_pylist()) == repr(table.to_pylist())
    assert (size_bytes, row_count) == (store.size(path), count)
    assert [at for at, _ in found] == [
        sum(batch.num_rows for _, batch in found[:i]) for i in range(len(found))
    ]
