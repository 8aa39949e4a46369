"""Timestamps in INT96: those that nanoseconds count are read, others are refused."""

from __future__ import annotations

import io
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecore.errors import Unsupported
from lakecore.io.files.data_files import BatchSize, read_file
from lakecore.io.files.parquet_read import read_parquet
from lakecore.io.stores.store import MemoryStore
from lakecore.model.types import Field, arrow_schema, parse_type
from tests.io.files.test_data_files import write

if TYPE_CHECKING:
    from collections.abc import Callable

PATH = "f/a.parquet"
LAST_NS = np.iinfo(np.int64).max
TIMES = ["1677-09-21T00:12:43.145225", "1969-12-31T23:59:59.999999", "2262-04-11T23:47:16.854775"]
FAR = ["0001-01-01T00:00:00", "1677-09-21T00:12:43.145223", "2262-04-11T23:47:16.854776"]


def stored(table: pa.Table) -> MemoryStore:
    """The rows in a file as Spark, or old Arrow, writes times."""
    data = io.BytesIO()
    pq.write_table(table, data, use_deprecated_int96_timestamps=True, row_group_size=2)
    store = MemoryStore()
    store.put(PATH, data.getvalue())
    return store


def field(kind: str, name: str = "t") -> Field:
    return Field(id=0, name=name, type=parse_type(kind))


def times(texts: list[str | None]) -> pa.Array:
    moments = [None if text is None else datetime.fromisoformat(text) for text in texts]
    return pa.array(moments, pa.timestamp("us"))


def test_times_that_nanoseconds_count_are_read() -> None:
    table = pa.table({"t": times([*TIMES, None])})
    read = pa.Table.from_batches(read_file(stored(table), PATH, fields=[field("TIMESTAMP(9)")]))

    assert read["t"].cast(pa.timestamp("us")) == table["t"]


def test_first_and_last_time_that_nanoseconds_count_are_read() -> None:
    table = pa.table({"t": pa.array([LAST_NS, -LAST_NS - 1, None], pa.timestamp("ns"))})
    read = pa.Table.from_batches(read_file(stored(table), PATH, fields=[field("TIMESTAMP(9)")]))

    assert read["t"].cast(pa.int64()).to_pylist() == [LAST_NS, -LAST_NS - 1, None]


@pytest.mark.parametrize("text", [*FAR, "9999-12-31T23:59:59"])
def test_times_that_they_do_not_count_are_refused(text: str) -> None:
    store = stored(pa.table({"id": range(4), "t": times([TIMES[0], None, None, text])}))

    with pytest.raises(Unsupported, match=f"1677 to 2262.*column=t.*path={PATH}"):
        list(read_file(store, PATH, fields=[field("TIMESTAMP(9)")]))
    assert sum(b.num_rows for b in read_file(store, PATH, fields=[field("BIGINT", "id")])) == 4


def test_only_row_groups_that_are_read_are_looked_at() -> None:
    store = stored(pa.table({"t": times([TIMES[0], TIMES[1], FAR[0], None])}))
    read = read_parquet(store, PATH, [field("TIMESTAMP(9)")], BatchSize(10), [0])

    assert [rows.num_rows for _, rows in read] == [2]


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("ARRAY<TIMESTAMP(9)>", lambda far: pa.array([[], [None, far]], pa.list_(far.type))),
        (
            "ROW<a INT, b TIMESTAMP(9)>",
            lambda far: pa.array(
                [None, {"a": 1, "b": far}], pa.struct([("a", pa.int32()), ("b", far.type)])
            ),
        ),
        (
            "MAP<STRING, TIMESTAMP(9)>",
            lambda far: pa.array([[], [("k", far)]], pa.map_(pa.string(), far.type)),
        ),
    ],
)
def test_times_inside_of_values_are_looked_at(kind: str, make: object) -> None:
    assert callable(make)
    wanted = [field(kind)]
    near, far = (times([text])[0] for text in (TIMES[0], FAR[0]))
    read = pa.Table.from_batches(
        read_file(stored(pa.table({"t": make(near)})), PATH, fields=wanted)
    )

    assert read.num_rows == 2
    with pytest.raises(Unsupported, match="1677 to 2262"):
        list(read_file(stored(pa.table({"t": make(far)})), PATH, fields=wanted))


@pytest.mark.parametrize("kind", ["ROW<a INT, b TIMESTAMP(9) NOT NULL>", "TIMESTAMP(9)"])
@pytest.mark.parametrize("outer", ["{}", "ARRAY<{}>", "ROW<c ARRAY<ROW<d {}>>>"])
def test_what_a_null_value_holds_in_the_place_of_a_time_is_not_looked_at(
    kind: str, outer: str
) -> None:
    near = times([TIMES[0]])[0].as_py()
    wrapped: dict[str, Callable[[object], object]] = {
        "{}": lambda value: value,
        "ARRAY<{}>": lambda value: [value, value],
        "ROW<c ARRAY<ROW<d {}>>>": lambda value: {"c": [{"d": value}, None]},
    }
    wanted = [field(outer.format(kind))]
    values = [None, near if kind == "TIMESTAMP(9)" else {"a": 1, "b": near}, None]
    column = pa.array([None, *map(wrapped[outer], values)], arrow_schema(wanted).field("t").type)
    rows = pa.table([column], pa.schema([pa.field("t", column.type)]))

    read = pa.Table.from_batches(read_file(stored(rows), PATH, fields=wanted))

    assert read["t"].to_pylist() == rows["t"].to_pylist()


def test_files_of_lakecore_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [field("TIMESTAMP(9)")]
    rows = pa.table({"t": pa.array([LAST_NS, -LAST_NS], pa.timestamp("ns"))})
    store = MemoryStore()
    write(store, PATH, wanted, rows.cast(arrow_schema(wanted)))
    monkeypatch.setattr("lakecore.io.files.parquet_read.check_times", None)

    assert pa.Table.from_batches(read_file(store, PATH, fields=wanted)) == rows


def test_nulls_alone_are_not_far() -> None:
    store = stored(pa.table({"t": times([None] * 4)}))
    read = pa.Table.from_batches(read_file(store, PATH, fields=[field("TIMESTAMP(9)")]))

    assert read["t"].null_count == 4
