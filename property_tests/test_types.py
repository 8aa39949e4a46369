from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakecore.model.schema import number_fields
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
    arrow_schema,
    arrow_type,
    fields_from_arrow,
    from_arrow,
    parse_type,
    type_to_json,
)

LENGTHS = st.one_of(st.integers(1, 300), st.just(LENGTH_MAX))
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=8)


@st.composite
def decimals(draw: st.DrawFn) -> Atomic:
    precision = draw(st.integers(1, 38))
    return Atomic(root=Root.DECIMAL, precision=precision, scale=draw(st.integers(0, precision)))


SIZED = st.builds(
    lambda root, length: Atomic(root=root, length=length),
    st.sampled_from([Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY]),
    LENGTHS,
)
TIMED = st.builds(
    lambda root, precision: Atomic(root=root, precision=precision),
    st.sampled_from([Root.TIME, Root.TIMESTAMP, Root.TIMESTAMP_LTZ]),
    st.integers(0, 9),
)
PLAIN = st.sampled_from(
    [
        Atomic(root=root)
        for root in (
            Root.BOOLEAN, Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT,
            Root.FLOAT, Root.DOUBLE, Root.DATE,
        )
    ]
)  # fmt: skip


@st.composite
def rows(draw: st.DrawFn, parts: st.SearchStrategy[DataType]) -> Row:
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    return Row(fields=tuple(Field(id=i, name=n, type=draw(parts)) for i, n in enumerate(names)))


def nested(parts: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    return with_nullability(
        st.one_of(
            st.builds(lambda element: Array(element=element), parts),
            st.builds(lambda element: Multiset(element=element), parts),
            st.builds(lambda key, value: Map(key=key, value=value), parts, parts),
            rows(parts),
        )
    )


def with_nullability(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    return st.builds(lambda one, nullable: replace(one, nullable=nullable), types, st.booleans())


TYPES = st.recursive(
    with_nullability(st.one_of(SIZED, TIMED, PLAIN, decimals())), nested, max_leaves=6
)


@given(TYPES)
def test_text_of_any_type_comes_back(data_type: DataType) -> None:
    assert parse_type(str(data_type)) == data_type


@given(TYPES)
def test_json_of_any_type_comes_back(data_type: DataType) -> None:
    assert parse_type(type_to_json(data_type)) == data_type


@given(TYPES)
def test_arrow_twin_of_the_arrow_twin_is_the_same(data_type: DataType) -> None:
    arrow = arrow_type(data_type)

    assert arrow_type(from_arrow(arrow)) == arrow


@given(st.lists(TYPES, min_size=1, max_size=4))
def test_arrow_schema_comes_back_as_fields(types: list[DataType]) -> None:
    fields = tuple(Field(id=i, name=f"c{i}", type=one) for i, one in enumerate(types))
    schema = arrow_schema(fields)

    assert arrow_schema(fields_from_arrow(list(schema))) == schema
    assert pa.schema(schema).empty_table().num_rows == 0


@given(st.lists(TYPES, min_size=1, max_size=4), st.integers(0, 50))
def test_ids_are_given_once_depth_first(types: list[DataType], start: int) -> None:
    fields = [Field(id=0, name=f"c{i}", type=one) for i, one in enumerate(types)]

    numbered, next_id = number_fields(fields, start)

    assert list(ids_of(numbered)) == list(range(start, next_id))


def ids_of(fields: tuple[Field, ...]) -> list[int]:
    return [each for field in fields for each in (field.id, *ids_in(field.type))]


def ids_in(data_type: DataType) -> list[int]:
    match data_type:
        case Atomic():
            return []
        case Array() | Multiset():
            return ids_in(data_type.element)
        case Map():
            return ids_in(data_type.key) + ids_in(data_type.value)
        case Row():
            return ids_of(data_type.fields)
