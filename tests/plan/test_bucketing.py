from __future__ import annotations

import json
import math
import struct
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.format.binary_row import decode_rows, serialize_row
from lakecore.model.files import EMPTY_ROW
from lakecore.model.types import Atomic, DataType, Field, Root, arrow_type, parse_type
from lakecore.options import BucketFunction
from lakecore.plan.bucketing import (
    bucket_ids,
    partition_groups,
    split_by_bucket,
    split_by_partition,
)

VECTORS = Path(__file__).parents[1] / "golden" / "vectors"


def read_vectors(name: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (VECTORS / name).read_text().splitlines())
    return [line for line in lines if not any(isinstance(t, dict) for t in line["types"])]


def columns_of(vector: dict[str, Any]) -> tuple[list[pa.Array], list[DataType]]:
    """The key of a vector, taken from its row: what decodes right is tested with the rows."""
    types = [parse_type(text) for text in vector["types"]]
    fields = [Field(id=i, name=f"f{i}", type=t) for i, t in enumerate(types)]
    row = len(types).to_bytes(4, "big") + bytes.fromhex(vector["rowHex"])
    return decode_rows([row] * 3, fields).columns, types


@pytest.mark.parametrize("vector", read_vectors("bucket_hash_default.jsonl"), ids=str)
def test_default_buckets_are_those_of_the_reference(vector: dict[str, Any]) -> None:
    columns, types = columns_of(vector)

    for count, bucket in vector["bucket"].items():
        assert bucket_ids(columns, types, int(count)).tolist() == [bucket] * 3


@pytest.mark.parametrize("vector", read_vectors("bucket_functions_mod_hive.jsonl"), ids=str)
def test_mod_and_hive_buckets_are_those_of_the_reference(vector: dict[str, Any]) -> None:
    columns, types = columns_of(vector)
    function = BucketFunction(vector["function"].lower())

    for count, bucket in vector["bucket"].items():
        assert bucket_ids(columns, types, int(count), function).tolist() == [bucket] * 3


@pytest.mark.parametrize("function", BucketFunction)
def test_one_bucket_takes_every_row(function: BucketFunction) -> None:
    column = pa.array([1, None, -5], pa.int64())

    assert bucket_ids([column], [parse_type("BIGINT")], 1, function).tolist() == [0, 0, 0]


@pytest.mark.parametrize("function", BucketFunction)
def test_no_rows_have_no_buckets(function: BucketFunction) -> None:
    column = pa.array([], pa.int64())

    assert bucket_ids([column], [parse_type("BIGINT")], 4, function).tolist() == []


def test_mod_takes_one_integer_key() -> None:
    with pytest.raises(InvalidRequest, match="mod takes one"):
        bucket_ids([pa.array(["a"])], [parse_type("STRING")], 4, BucketFunction.MOD)


def test_hive_refuses_types_it_does_not_know() -> None:
    column = pa.array([0], pa.timestamp("ms"))

    with pytest.raises(Unsupported, match="hive does not take"):
        bucket_ids([column], [parse_type("TIMESTAMP(3)")], 4, BucketFunction.HIVE)


def java_integer_hash(value: int) -> int:
    magnitude, digits = abs(value), []
    while magnitude:
        digits.append(magnitude & 0xFFFFFFFF)
        magnitude >>= 32
    out = 0
    for digit in reversed(digits):
        out = 31 * out + digit
    return -out if value < 0 else out


def hive_hash(value: object, data_type: DataType) -> int:
    """Hive's hash of one value, as the rules say it."""
    if value is None:
        return 0
    if isinstance(value, str | bytes):
        out = 0
        for byte in value.encode() if isinstance(value, str) else value:
            out = 31 * out + (byte - 256 if byte > 127 else byte)
        return out
    if isinstance(value, Decimal):
        assert isinstance(data_type, Atomic)
        scale = data_type.scale or 0
        unscaled = int(value.scaleb(scale, Context(prec=60)))
        while scale and unscaled % 10 == 0:
            unscaled, scale = unscaled // 10, scale - 1
        return 31 * java_integer_hash(unscaled) + scale
    assert isinstance(value, int)
    bits = value & 0xFFFFFFFFFFFFFFFF
    return (bits >> 32) ^ (bits & 0xFFFFFFFF) if data_type.root is Root.BIGINT else value  # type: ignore[union-attr]


HIVE_COLUMNS: dict[str, list[object]] = {
    "STRING": ["", None, "abc", "é中文", "x" * 100, "\U0001f600"],
    "BYTES": [b"\xff\x00", b"", None, b"\x80" * 9, b"a", b"b"],
    "BIGINT": [0, None, -1, 2**40, -(2**63), 7],
    "TINYINT": [0, None, -1, 127, -128, 7],
    "DECIMAL(10, 2)": [Decimal(t) for t in ("0.00", "1.20", "-1.20", "100.00", "-0.01")] + [None],
    "DECIMAL(38, 4)": [
        *(Decimal(t) for t in ("0", "-1", "123456789012345678901234567890.1200", "1E+30")),
        Decimal("-9999999999999999999999999999999999.9999"),
        None,
    ],
}


@pytest.mark.parametrize("first", HIVE_COLUMNS)
@pytest.mark.parametrize("second", ["STRING", "DECIMAL(38, 4)"])
def test_hive_buckets_follow_the_rules(first: str, second: str) -> None:
    types = [parse_type(first), parse_type(second)]
    values = [HIVE_COLUMNS[first], HIVE_COLUMNS[second]]
    columns = [pa.array(v * 2, arrow_type(t))[2:9] for v, t in zip(values, types, strict=True)]
    rows = list(zip(*[(v * 2)[2:9] for v in values], strict=True))
    expected = [
        (31 * hive_hash(row[0], types[0]) + hive_hash(row[1], types[1])) & 0x7FFFFFFF
        for row in rows
    ]

    buckets = bucket_ids(columns, types, 97, BucketFunction.HIVE)

    assert buckets.tolist() == [hash_ % 97 for hash_ in expected]


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_hive_takes_both_zeros_for_the_same(zero: float) -> None:
    column = pa.array([zero])

    assert bucket_ids([column], [parse_type("DOUBLE")], 97, BucketFunction.HIVE).tolist() == [0]


def test_rows_of_a_bucket_keep_their_order() -> None:
    ids = np.array([2, 0, 2, 0, 2], dtype=np.int32)

    groups = split_by_bucket(ids, 4)

    assert groups.rows.tolist() == [1, 3, 0, 2, 4]
    assert groups.offsets.tolist() == [0, 2, 2, 5, 5]


def test_a_batch_is_cut_into_the_buckets_that_have_rows() -> None:
    table = pa.table({"a": [10, 11, 12, 13], "b": ["w", None, "y", "z"]})

    parts = split_by_bucket(np.array([3, 1, 3, 1], dtype=np.int32), 5).cut(table)

    assert [(bucket, part.to_pydict()) for bucket, part in parts] == [
        (1, {"a": [11, 13], "b": [None, "z"]}),
        (3, {"a": [10, 12], "b": ["w", "y"]}),
    ]
    # Small parts are copied together.
    assert len({part.column("a").chunk(0).buffers()[1].address for _, part in parts}) == 1


def test_rows_already_in_order_are_cut_without_a_copy() -> None:
    table = pa.table({"a": [10, 11, 12]})

    parts = split_by_bucket(np.array([0, 0, 1], dtype=np.int32), 2).cut(table)

    address = table.column("a").chunk(0).buffers()[1].address
    assert [part.column("a").chunk(0).buffers()[1].address for _, part in parts] == [address] * 2


def test_large_parts_do_not_hold_on_to_the_memory_of_each_other() -> None:
    ids = np.arange(40_000, dtype=np.int32) % 4
    table = pa.table({"a": np.arange(40_000), "b": [f"text {row}" for row in range(40_000)]})

    parts = split_by_bucket(ids, 4).cut(table)

    assert [part.column("a").to_pylist() for _, part in parts] == [
        list(range(bucket, 40_000, 4)) for bucket in range(4)
    ]
    for _, part in parts:
        assert part.get_total_buffer_size() < 1.1 * part.nbytes


def test_more_buckets_than_16_bits_split_too() -> None:
    # In 16 bits, the larger number would be the smaller one.
    ids = np.array([65_540, 5, 65_540], dtype=np.int32)

    groups = split_by_bucket(ids, 65_541)

    assert groups.rows.tolist() == [1, 0, 2]


P, D = (
    Field(id=0, name="p", type=parse_type("STRING")),
    Field(id=1, name="d", type=parse_type("DATE")),
)


def row(*values: object) -> bytes:
    fields = (P, D)[: len(values)]
    columns = [pa.array([v], arrow_type(f.type)) for v, f in zip(values, fields, strict=True)]
    return serialize_row(columns, [field.type for field in fields])


def test_partitions_come_in_order_of_appearance_with_their_rows() -> None:
    table = pa.table({"p": ["b", "a", None, "b", "", None], "v": range(6)})

    groups = partition_groups(table, [P])

    assert [(partition, rows.tolist()) for partition, rows in groups] == [
        (row("b"), [0, 3]),
        (row("a"), [1]),
        (row(None), [2, 5]),
        (row(""), [4]),
    ]


def test_null_and_empty_text_are_different_partitions() -> None:
    assert row(None) != row("")


def test_several_partition_keys_make_one_partition() -> None:
    dates = pa.array([1, 1, 2, None, 1], pa.int32()).cast(pa.date32())
    table = pa.table({"d": dates, "p": ["x", "y", "x", "x", "x"]})

    groups = partition_groups(table, [P, D])

    assert [(partition, rows.tolist()) for partition, rows in groups] == [
        (row("x", 1), [0, 4]),
        (row("y", 1), [1]),
        (row("x", 2), [2]),
        (row("x", None), [3]),
    ]


def test_unpartitioned_rows_are_one_partition() -> None:
    table = pa.table({"v": [1, 2, 3]})

    ((partition, rows),) = partition_groups(table, [])
    ((same, part),) = split_by_partition(table, [])

    assert (partition, rows.tolist()) == (EMPTY_ROW, [0, 1, 2])
    assert (same, part) == (EMPTY_ROW, table)


@pytest.mark.parametrize("fields", [[], [P], [P, D]])
def test_no_rows_have_no_partitions(fields: list[Field]) -> None:
    table = pa.table({"p": pa.array([], pa.string()), "d": pa.array([], pa.date32())})

    assert partition_groups(table, fields) == []
    assert split_by_partition(table, fields) == []


@pytest.mark.parametrize(
    "form",
    [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_partitions_do_not_depend_on_the_arrow_form(form: pa.DataType) -> None:
    chunks = [pa.array(["b", "a"]).cast(form), pa.array(["b", None]).cast(form)]
    table = pa.table({"p": pa.chunked_array(chunks)}).slice(1)

    groups = partition_groups(table, [P])

    assert [(partition, rows.tolist()) for partition, rows in groups] == [
        (row("a"), [0]),
        (row("b"), [1]),
        (row(None), [2]),
    ]


def test_a_batch_is_cut_into_its_partitions() -> None:
    table = pa.table({"p": ["b", "a", "b"], "v": [1, 2, 3]})

    parts = split_by_partition(table, [P])

    assert [(partition, part.column("v").to_pylist()) for partition, part in parts] == [
        (row("b"), [1, 3]),
        (row("a"), [2]),
    ]


@pytest.mark.parametrize(("kind", "code"), [("FLOAT", "f"), ("DOUBLE", "d")])
def test_hive_hashes_the_bits_of_floats(kind: str, code: str) -> None:
    values = [1.5, -2.25, 0.0, 1e30, math.nan]
    bits = [int.from_bytes(struct.pack(f">{code}", value)) for value in values]
    hashes = [(each >> 32 ^ each) & 0x7FFFFFFF for each in bits]
    other_nan = -np.array([math.nan], code)
    data_type = parse_type(kind)
    column = pa.concat_arrays([pa.array(values, arrow_type(data_type)), pa.array(other_nan)])

    buckets = bucket_ids([column], [data_type], 97, BucketFunction.HIVE)
    assert buckets.tolist() == [each % 97 for each in [*hashes, hashes[-1]]]
