"""A table of every type, with nulls."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

NOON = dt.datetime(2026, 1, 1, 12, 0, 0, 1000)


@pytest.fixture(scope="session")
def all_types() -> pa.Table:
    columns: dict[str, tuple[pa.DataType, list[object]]] = {
        "q": (pa.bool_(), [True, False]),
        "i8": (pa.int8(), [-128, 127]),
        "i16": (pa.int16(), [-1, 2**15 - 1]),
        "i32": (pa.int32(), [-1, 2**31 - 1]),
        "i64": (pa.int64(), [-1, 2**63 - 1]),
        "f32": (pa.float32(), [1.5, float("inf")]),
        "f64": (pa.float64(), [1.1, -0.0]),
        "dec": (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-99999999.99")]),
        "dec38": (pa.decimal128(38, 10), [Decimal("1e-10"), Decimal("9" * 28)]),
        "s": (pa.string(), ["", "é\U0001f600"]),
        "b": (pa.binary(), [b"", b"\x00\xff"]),
        "d": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
        "ti": (pa.time32("ms"), [dt.time(0), dt.time(23, 59, 59, 999000)]),
        "ms": (pa.timestamp("ms"), [NOON, dt.datetime(1, 1, 1)]),
        "us": (pa.timestamp("us"), [NOON, dt.datetime(9999, 12, 31)]),
        "ns": (pa.timestamp("ns"), [NOON, 1]),
        "tz_ms": (pa.timestamp("ms", "UTC"), [NOON.replace(tzinfo=dt.UTC), 0]),
        "tz": (pa.timestamp("us", "UTC"), [NOON.replace(tzinfo=dt.UTC), 0]),
        "list": (pa.list_(pa.field("element", pa.int32())), [[1, None], []]),
        "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], []]),
        "row": (pa.struct([("x", pa.int32()), ("y", pa.string())]), [{"x": 1, "y": "a"}, {}]),
    }
    arrays = [pa.array([*values, None], kind) for kind, values in columns.values()]
    fields = [("id", pa.int64()), *((name, kind) for name, (kind, _) in columns.items())]
    return pa.Table.from_arrays([pa.array([0, 1, 2]), *arrays], schema=pa.schema(fields))
