"""The pandas face: which dtype each type has, and that values stay what they were."""

from __future__ import annotations

import datetime as dt
import math
import sys
from decimal import Decimal
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.frames.arrow_frames import to_pandas
from tests.versions import PANDAS_TEXT

if TYPE_CHECKING:
    from pathlib import Path

NOON = dt.datetime(2026, 1, 1, 12, 0, 0, 1000)
ZONED = NOON.replace(tzinfo=dt.UTC)

ROW = "struct<x: int32, y: date32[day]>"
# Paimon's type, values, dtype without nulls, dtype with nulls if it is another
TYPES: list[tuple[str, list[object], str, str]] = [
    ("BOOLEAN", [True, False], "bool", "boolean"),
    ("TINYINT", [-128, 127], "int8", "Int8"),
    ("SMALLINT", [-(2**15), 1], "int16", "Int16"),
    ("INT", [-(2**31), 2**31 - 1], "int32", "Int32"),
    ("BIGINT", [2**60 + 1, -(2**63)], "int64", "Int64"),
    ("FLOAT", [1.5, math.inf], "float32", "float32"),
    ("DOUBLE", [0.1, -math.inf], "float64", "float64"),
    ("DECIMAL(10, 2)", [Decimal("1.50"), Decimal("-9.99")], "decimal128(10, 2)[pyarrow]", ""),
    ("DECIMAL(38, 18)", [Decimal("0.000000000000000001")], "decimal128(38, 18)[pyarrow]", ""),
    ("STRING", ["", "é\U0001f600"], PANDAS_TEXT, ""),
    ("VARCHAR(5)", ["a"], PANDAS_TEXT, ""),
    ("BYTES", [b"", b"\x00\xff"], "binary[pyarrow]", ""),
    ("DATE", [dt.date(1, 1, 1), dt.date(9999, 12, 31)], "date32[day][pyarrow]", ""),
    ("TIME(3)", [dt.time(23, 59, 59, 999000)], "time32[ms][pyarrow]", ""),
    ("TIMESTAMP(0)", [NOON.replace(microsecond=0)], "datetime64[ms]", ""),
    ("TIMESTAMP(3)", [NOON, dt.datetime(9999, 12, 31)], "datetime64[ms]", ""),
    ("TIMESTAMP(6)", [NOON.replace(microsecond=1), dt.datetime(1, 1, 1)], "datetime64[us]", ""),
    ("TIMESTAMP(9)", [NOON], "datetime64[ns]", ""),
    ("TIMESTAMP(3) WITH LOCAL TIME ZONE", [ZONED], "datetime64[ms, UTC]", ""),
    ("TIMESTAMP(6) WITH LOCAL TIME ZONE", [ZONED], "datetime64[us, UTC]", ""),
    ("ARRAY<INT>", [[1, None, 2**31 - 1], []], "list<element: int32>[pyarrow]", ""),
    ("MAP<STRING, BIGINT>", [[("a", 2**60 + 1), ("b", None)]], "map<string, int64>[pyarrow]", ""),
    ("ROW<x INT, y DATE>", [{"x": None, "y": NOON.date()}], f"{ROW}[pyarrow]", ""),
]  # fmt: skip


@pytest.mark.parametrize("nulls", [False, True], ids=["full", "nulls"])
@pytest.mark.parametrize("case", TYPES, ids=lambda case: case[0])
def test_every_type_comes_back_as_it_was(
    case: tuple[str, list[object], str, str], tmp_path: Path, *, nulls: bool
) -> None:
    kind, values, plain, nullable = case
    table = lc.open_table(tmp_path / "t", create=True, schema={"id": "INT", "v": kind})
    held = [*values, None] if nulls else values
    schema = table.schema.arrow
    rows = pa.table([list(range(len(held))), held], schema=schema)
    table.write(rows)
    frame = table.to_pandas()

    wanted = nullable if nulls and nullable else plain
    assert str(frame["v"].dtype) == wanted
    assert pa.Table.from_pandas(frame, schema).equals(rows)
    assert frame["v"].isna().tolist() == [value is None for value in held]


def test_values_are_what_they_were_by_python_too(tmp_path: Path) -> None:
    table = lc.open_table(tmp_path / "t", create=True, schema={"a": "BIGINT", "d": "DATE"})
    table.write([{"a": 2**60 + 1, "d": NOON.date()}, {"a": None, "d": None}])
    frame = table.to_pandas()

    assert frame["a"].tolist() == [2**60 + 1, pd.NA]
    assert frame["d"].tolist() == [NOON.date(), pd.NA]
    assert frame["a"].sum() == 2**60 + 1


def test_nan_and_null_stay_apart_and_can_be_written_back() -> None:
    rows = pa.table({"f": [1.0, None, math.nan], "g": [1.0, None, 2.0], "h": [1.0, math.nan, 2.0]})
    frame = to_pandas(rows)

    assert [str(each) for each in frame.dtypes] == ["double[pyarrow]", "float64", "double[pyarrow]"]
    assert pa.array(frame["f"]).null_count == 1
    back = pa.Table.from_pandas(frame)
    assert [column.null_count for column in back.columns] == [1, 1, 0]
    assert frame["g"].isna().tolist() == [False, True, False]


def test_the_least_timestamp_is_not_nat() -> None:
    rows = pa.table({"t": pa.array([-(1 << 63), None, 0], pa.timestamp("ns"))})
    frame = to_pandas(rows)

    assert frame["t"].isna().tolist() == [False, True, False]
    assert pa.Table.from_pandas(frame).cast(rows.schema).equals(rows)


def test_columns_stay_in_order_and_names_may_be_alike() -> None:
    rows = pa.table([[1, None], ["a", None], [None, 2], [3, 4]], names=["b", "a", "b", "c"])
    frame = to_pandas(rows)

    assert list(frame.columns) == ["b", "a", "b", "c"]
    assert [str(each) for each in frame.dtypes] == ["Int64", PANDAS_TEXT, "Int64", "int64"]
    assert frame.iloc[:, 2].tolist() == [pd.NA, 2]


@pytest.mark.parametrize("columns", [["i"], ["s"], ["i", "s"]])
def test_frame_without_rows_has_its_columns(columns: list[str]) -> None:
    rows = pa.schema([("i", pa.int64()), ("s", pa.string())]).empty_table().select(columns)
    frame = to_pandas(rows)

    assert (list(frame.columns), len(frame)) == (columns, 0)


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"a": [1]})
    monkeypatch.setitem(sys.modules, "pandas", None)

    with pytest.raises(lc.Unsupported, match="pip install pandas"):
        to_pandas(rows)
