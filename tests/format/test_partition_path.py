"""Partition directories are those that Java makes (golden: tests/golden/partition_paths.json)."""

from __future__ import annotations

import json
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakecore.errors import Unsupported
from lakecore.format.layout import float_text, partition_path, partition_texts, value_text
from lakecore.model.types import Atomic, Field, Root, arrow_schema, parse_type

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "partition_paths.json").read_text("utf-8")
)
DEFAULT = "__DEFAULT_PARTITION__"


def fields_of(*types: str) -> tuple[Field, ...]:
    return tuple(
        Field(id=index, name=f"p{index}", type=parse_type(text)) for index, text in enumerate(types)
    )


def golden_fields() -> tuple[Field, ...]:
    return tuple(
        Field(id=index, name=item["name"], type=parse_type(item["type"]))
        for index, item in enumerate(GOLDEN["fields"])
    )


def from_json(value: Any, field: Field) -> Any:
    assert isinstance(field.type, Atomic)
    match field.type.root:
        case _ if value is None:
            return None
        case Root.DECIMAL:
            return Decimal(value)
        case Root.DATE:
            return date.fromisoformat(value)
        case Root.TIME:
            return time.fromisoformat(value)
        case _:
            return value


def row(values: list[Any], fields: tuple[Field, ...]) -> pa.RecordBatch:
    arrays = []
    for value, field in zip(values, fields, strict=True):
        kind = arrow_schema([field])[0].type
        if pa.types.is_timestamp(kind) and value is not None:
            count = np.datetime64(value.removesuffix("Z"), kind.unit).astype("int64")
            arrays.append(pa.array([int(count)], kind))
        else:
            arrays.append(pa.array([from_json(value, field)], kind))
    return pa.record_batch(arrays, schema=arrow_schema(fields))


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("number", range(len(GOLDEN["rows"])))
def test_directories_are_those_of_java(number: int, legacy: bool) -> None:  # noqa: FBT001
    golden = GOLDEN["rows"][number]
    fields = golden_fields()

    path = partition_path(row(golden["values"], fields), fields, DEFAULT, legacy_name=legacy)

    assert path == golden["legacy" if legacy else "plain"]


def test_binary_values_print_as_text() -> None:
    fields = (Field(id=0, name="b", type=parse_type(GOLDEN["binary"]["type"])),)

    for hex_text, path in GOLDEN["binary"]["plain"].items():
        batch = row([bytes.fromhex(hex_text)], fields)
        assert partition_path(batch, fields, DEFAULT, legacy_name=False) == path


def test_legacy_binary_partition_is_refused() -> None:
    fields = fields_of("BINARY(3)")

    with pytest.raises(Unsupported, match=r"partition\.legacy-name=false"):
        partition_path(row([b"abc"], fields), fields, DEFAULT, legacy_name=True)


def test_nested_partition_is_refused() -> None:
    fields = fields_of("ARRAY<INT>")

    with pytest.raises(Unsupported, match="cannot be a partition key"):
        partition_path(row_of_list(), fields, DEFAULT, legacy_name=True)


def row_of_list() -> pa.RecordBatch:
    return pa.record_batch([pa.array([[1]], arrow_schema(fields_of("ARRAY<INT>"))[0].type)], ["p0"])


def test_unpartitioned_path_is_empty() -> None:
    empty = pa.RecordBatch.from_pylist([{}], schema=pa.schema([]))

    assert partition_path(empty, (), DEFAULT, legacy_name=True) == ""


def test_names_are_escaped_and_default_name_is_free() -> None:
    fields = (Field(id=0, name="a=b", type=parse_type("STRING")),)

    assert partition_path(row(["x"], fields), fields, "none", legacy_name=True) == "a%3Db=x"
    assert partition_texts(row([" "], fields), fields, "none", legacy_name=True) == {"a=b": "none"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (-12345678.25, "-1.234567825E7"),
        (4.9e-324, "4.9E-324"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_double_prints_as_in_java(value: float, text: str) -> None:
    assert float_text(np.float64(value)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "0.1"), (1e10, "1.0E10"), (1.4e-45, "1.4E-45"), (3.4028235e38, "3.4028235E38")],
)
def test_float_prints_as_in_java(value: float, text: str) -> None:
    assert float_text(np.float32(value)) == text


def test_years_beyond_four_digits_take_a_plus() -> None:
    fields = fields_of("TIMESTAMP(0)")
    batch = pa.record_batch([pa.array([253402300800000], pa.timestamp("ms"))], ["p0"])

    assert partition_path(batch, fields, DEFAULT, legacy_name=True) == "p0=+10000-01-01T00%3A00"


@pytest.mark.parametrize(
    ("milliseconds", "precision", "text"),
    [
        (0, 0, "00:00:00"),
        (86_399_999, 3, "23:59:59.999"),
        (45_296_120, 3, "12:34:56.12"),
        (45_296_120, 1, "12:34:56.1"),
        (45_296_000, 3, "12:34:56.0"),
        (-1, 3, "23:59:59.999"),
    ],
)
def test_time_of_a_partition_is_one_of_a_day(milliseconds: int, precision: int, text: str) -> None:
    field = fields_of(f"TIME({precision})")[0]
    value = pa.array([milliseconds], pa.int32()).view(pa.time32("ms"))[0]

    assert value_text(value, field, legacy=False) == text
    assert value_text(value, field, legacy=True) == str(milliseconds)
