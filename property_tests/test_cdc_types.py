"""Laws of the type maps of change data capture: text of a type converts to exactly its value."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakecore.cdc.postgres.connection import postgres_type
from lakecore.cdc.target_rules import Conversion, conversion
from lakecore.cdc.types.mapping import DEFAULT_MAPPING, TypeMapping, TypeOption
from lakecore.cdc.types.mysql import mysql_type
from lakecore.cdc.types.texts import from_text
from lakecore.errors import InvalidRequest
from lakecore.model.casts import may_cast
from lakecore.model.types import Atomic, arrow_type, parse_type, with_nullable

BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
ATOMICS = (
    *("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN", "DATE"),
    *("CHAR(3)", "VARCHAR(5)", "STRING", "BINARY(2)", "VARBINARY(9)", "BYTES", "TIME(3)"),
    *("DECIMAL(10, 2)", "DECIMAL(12, 2)", "DECIMAL(12, 4)", "DECIMAL(10, 4)", "DECIMAL(38, 18)"),
    *("TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
)
MAPPINGS = st.sets(st.sampled_from(TypeOption)).map(lambda chosen: TypeMapping(frozenset(chosen)))


def read(text: str, definition: str) -> object:
    data_type = mysql_type(definition)
    values = from_text(pa.array([text]), data_type, "c")
    assert values.type == arrow_type(data_type)
    return values[0].as_py()


@given(st.data(), st.sampled_from(sorted(BITS)))
def test_every_integer_of_mysql_fits_its_type(data: st.DataObject, name: str) -> None:
    unsigned = data.draw(st.booleans())
    half = 1 << (BITS[name] - 1)
    low, high = (0, 2 * half - 1) if unsigned else (-half, half - 1)
    number = data.draw(st.integers(low, high) | st.sampled_from([low, high]))

    assert read(str(number), f"{name} unsigned" if unsigned else name) == number


@given(st.data(), st.integers(1, 38))
def test_every_decimal_of_mysql_fits_its_type(data: st.DataObject, precision: int) -> None:
    scale = data.draw(st.integers(0, min(precision, 30)))
    unscaled = data.draw(st.integers(1 - 10**precision, 10**precision - 1))
    number = Decimal(unscaled).scaleb(-scale)

    assert read(f"{number:f}", f"decimal({precision},{scale})") == number


@given(st.datetimes(dt.datetime(1000, 1, 1), dt.datetime(9999, 12, 31)), st.integers(0, 6))
def test_every_datetime_of_mysql_fits_its_type(moment: dt.datetime, digits: int) -> None:
    step = 10 ** (6 - digits)
    moment = moment.replace(microsecond=moment.microsecond // step * step)
    text = moment.isoformat(sep=" ", timespec="microseconds")
    text = text[: 20 + digits] if digits else text[:19]

    assert read(text, f"datetime({digits})") == moment


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_keeps_its_value(number: float) -> None:
    assert read(repr(number), "double") == number


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_every_float_keeps_its_value(number: float) -> None:
    shortest = pa.array([number], pa.float32()).cast(pa.string())[0].as_py()

    assert read(shortest, "float") == number


@given(st.integers(1, 40), st.integers(-5, 40), MAPPINGS)
def test_a_numeric_of_postgres_is_a_decimal_of_its_size_or_text(
    precision: int, scale: int, mapping: TypeMapping
) -> None:
    found = postgres_type("numeric", precision, scale, mapping)

    assert isinstance(found, Atomic)
    if (found.precision, found.scale) != (precision, scale):
        assert str(found) == "STRING"


@given(st.sampled_from(ATOMICS), st.sampled_from(ATOMICS), MAPPINGS)
def test_two_types_never_both_replace_each_other(
    first: str, second: str, mapping: TypeMapping
) -> None:
    there = conversion(parse_type(first), parse_type(second), mapping)
    back = conversion(parse_type(second), parse_type(first), mapping)

    if there is Conversion.CHANGE and first != second:
        assert back is not Conversion.CHANGE or {first, second} & {"STRING", "CHAR(3)"}
        assert may_cast(parse_type(first), parse_type(second), explicit=True)


@given(
    st.sampled_from(["DECIMAL(10, 2)", "DECIMAL(12, 2)", "DECIMAL(12, 4)", "DECIMAL(10, 4)"]),
    st.sampled_from(["DECIMAL(10, 2)", "DECIMAL(12, 2)", "DECIMAL(12, 4)", "DECIMAL(10, 4)"]),
    st.data(),
)
def test_a_decimal_that_changes_keeps_every_value(old: str, new: str, data: st.DataObject) -> None:
    before, after = parse_type(old), parse_type(new)
    assert isinstance(before, Atomic)
    if conversion(before, after, DEFAULT_MAPPING) is not Conversion.CHANGE:
        return
    limit = 10 ** (before.precision or 0)
    number = Decimal(data.draw(st.integers(1 - limit, limit - 1))).scaleb(-(before.scale or 0))

    assert from_text(pa.array([f"{number:f}"]), after, "c")[0].as_py() == number


@given(st.text(), st.sampled_from(ATOMICS))
def test_text_of_any_kind_is_read_or_refused_by_name(text: str, kind: str) -> None:
    data_type = with_nullable(parse_type(kind), nullable=True)
    try:
        values = from_text(pa.array([text], pa.string()), data_type, "c")
    except InvalidRequest as error:
        assert error.facts["column"] == "c"  # noqa: PT017  both outcomes are right
    else:
        assert values.type == arrow_type(data_type)
        assert len(values) == 1
