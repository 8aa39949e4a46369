from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from lakecore.errors import InvalidRequest
from lakecore.frames.incoming import BYTES_MAX, ROWS_MAX, incoming_batches
from lakecore.model.arrow_arrays import total_bytes
from tests.versions import DUCKDB_1, POLARS_1

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROWS = [{"i": 1, "s": "a"}, {"i": 2, "s": None}, {"i": 3, "s": "ü"}]
TABLE = pa.Table.from_pylist(ROWS)


class ArrayOnly:
    """An object that offers one batch, as other libraries do."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return TABLE.to_batches()[0].__arrow_c_array__(requested_schema)


class StreamOnly:
    """An object that offers a stream, as other libraries do."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return TABLE.__arrow_c_stream__(requested_schema)


SOURCES: dict[str, Callable[[], object]] = {
    "table": lambda: TABLE,
    "batch": lambda: TABLE.to_batches()[0],
    "reader": TABLE.to_reader,
    "dataset": lambda: ds.dataset(TABLE),
    "scanner": lambda: ds.dataset(TABLE).scanner(),
    "polars": lambda: pl.DataFrame(ROWS),
    "polars lazy": lambda: pl.LazyFrame(ROWS),
    "pandas": lambda: pd.DataFrame(ROWS),
    "duckdb": lambda: duckdb.connect().from_arrow(TABLE),
    "duckdb query": lambda: duckdb.connect().sql(
        "FROM (VALUES (1, 'a'), (2, NULL), (3, 'ü')) t(i, s)"
    ),
    "c stream": StreamOnly,
    "c array": ArrayOnly,
    "dicts": lambda: ROWS,
    "generator of dicts": lambda: (row for row in ROWS),
    "list of batches": TABLE.to_batches,
    "tuple of frames": lambda: (pl.DataFrame(ROWS[:1]), pd.DataFrame(ROWS[1:])),
    "generator of lists": lambda: (ROWS[at : at + 2] for at in (0, 2)),
    "dicts and a table": lambda: [ROWS[0], ROWS[1], TABLE.slice(2)],
}


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_source_gives_its_rows_in_order(make: Callable[[], object]) -> None:
    batches = list(incoming_batches(make()))

    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert [row for batch in batches for row in batch.to_pylist()] == ROWS


EMPTY: dict[str, Callable[[], object]] = {
    "table": TABLE.schema.empty_table,
    "reader": lambda: TABLE.schema.empty_table().to_reader(),
    "polars": lambda: pl.DataFrame(ROWS).clear(),
    "polars lazy": lambda: pl.DataFrame(ROWS).clear().lazy(),
    "pandas": lambda: pd.DataFrame(ROWS[:0], columns=["i", "s"]),
    "duckdb": lambda: duckdb.connect().sql("SELECT 1 AS i, 'a' AS s WHERE false"),
}


@pytest.mark.parametrize("make", EMPTY.values(), ids=EMPTY)
def test_source_without_rows_still_gives_its_columns(make: Callable[[], object]) -> None:
    batches = list(incoming_batches(make()))

    assert sum(batch.num_rows for batch in batches) == 0
    assert batches[0].schema.names == ["i", "s"]


@pytest.mark.parametrize(
    "data",
    [
        None,
        5,
        "SELECT 1",
        b"x",
        {1, 2},
        object(),
        pl.Series("i", [1]),
        pd.Series([1]),
        pa.array([1]),
        pa.chunked_array([[1]]),
        [1, 2],
        [TABLE, "x"],
    ],
    ids=lambda data: type(data).__name__,
)
def test_anything_else_is_refused_by_type_with_what_is_taken(data: object) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read") as caught:
        list(incoming_batches(data))

    assert "type" in caught.value.facts
    assert "DuckDB relation" in str(caught.value)


def test_rows_that_have_no_common_type_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="common type") as caught:
        list(incoming_batches([{"a": 1, "b": 1}, {"a": 1, "b": "x"}]))
    assert (caught.value.facts["column"], caught.value.facts["value"]) == ("b", "x")
    with pytest.raises(InvalidRequest, match="common type") as caught:
        list(incoming_batches(pd.DataFrame({"a": [1, "x"]})))
    assert (caught.value.facts["column"], caught.value.facts["value"]) == ("a", "x")


@pytest.mark.parametrize("value", [2**64, "\ud800", Decimal("NaN"), object()])
@pytest.mark.parametrize("place", [0, 1, 700, 999])
def test_value_that_arrow_does_not_take_is_named(value: object, place: int) -> None:
    values: list[object] = [None] * 1000
    values[place] = value
    with pytest.raises(InvalidRequest, match="no Arrow type") as caught:
        list(incoming_batches([{"a": each} for each in values]))

    assert (caught.value.facts["column"], caught.value.facts["value"]) == ("a", value)
    assert str(caught.value).encode()


def test_dicts_may_name_different_columns() -> None:
    (batch,) = incoming_batches([{"a": 1}, {"b": "x"}, {"a": 2, "c": dt.date(2024, 5, 6)}])

    assert batch.to_pylist() == [
        {"a": 1, "b": None, "c": None},
        {"a": None, "b": "x", "c": None},
        {"a": 2, "b": None, "c": dt.date(2024, 5, 6)},
    ]


def test_named_index_of_pandas_is_a_column_and_an_unnamed_one_is_not() -> None:
    frame = pd.DataFrame({"v": [1, 2]}, index=pd.Index([7, 8], name="k"))
    half = frame.set_index("v", append=True).rename_axis([None, "v"])

    assert next(incoming_batches(frame)).to_pylist() == [{"k": 7, "v": 1}, {"k": 8, "v": 2}]
    assert next(incoming_batches(frame.rename_axis(None))).schema.names == ["v"]
    assert next(incoming_batches(half)).schema.names == ["v"]
    with pytest.raises(InvalidRequest, match="name of a column"):
        list(incoming_batches(frame.rename_axis("v")))


def test_missing_values_of_pandas_are_null() -> None:
    frame = pd.DataFrame({"f": [1.0, np.nan], "n": pd.array([1, None], dtype="Int64")})

    assert next(incoming_batches(frame)).to_pylist() == [{"f": 1.0, "n": 1}, {"f": None, "n": None}]


def test_giant_batches_are_cut_without_a_copy_and_small_ones_left_alone() -> None:
    numbers = pa.array(np.arange(2 * ROWS_MAX + 5))
    giant = pa.RecordBatch.from_arrays([numbers], names=["i"])
    wide = pa.RecordBatch.from_arrays(
        [pa.array([b"x" * 1000]).take(pa.array([0] * 1000))], names=["b"]
    )

    cut = list(incoming_batches(giant))

    assert [batch.num_rows for batch in cut] == [699_053, 699_053, 699_051]
    assert {batch.column(0).buffers()[1].address for batch in cut} == {numbers.buffers()[1].address}
    assert pa.Table.from_batches(cut).column(0).to_pylist()[-1] == 2 * ROWS_MAX + 4
    assert [b.num_rows for b in incoming_batches([wide, wide.slice(0, 1)])] == [1000, 1]


def test_batch_of_many_bytes_is_cut() -> None:
    row = pa.array([b"x" * (1 << 20)])
    batch = pa.RecordBatch.from_arrays([pa.concat_arrays([row] * 300)], names=["b"])

    cut = list(incoming_batches(batch))

    assert [one.num_rows for one in cut] == [150, 150]
    assert all(one.nbytes <= BYTES_MAX for one in cut)


def test_polars_frame_comes_without_a_copy() -> None:
    frame = pl.DataFrame({"i": range(100)})

    (batch,) = incoming_batches(frame)

    address = frame["i"].to_arrow().buffers()[1].address
    assert batch.column(0).buffers()[1].address == address


def test_sources_are_read_as_they_are_asked_for() -> None:
    asked: list[int] = []

    def endless() -> Iterator[pl.DataFrame]:
        while True:
            asked.append(len(asked))
            yield pl.DataFrame({"i": [len(asked)]})

    batches = incoming_batches(endless())
    assert asked == []
    next(batches)
    next(batches)
    assert asked == [0, 1]


def test_streams_come_in_pieces() -> None:
    query = "SELECT i FROM range(500_000) t(i)"
    lazy = pl.LazyFrame({"i": range(500_000)}).with_columns(j=pl.col("i") * 2)

    assert max(b.num_rows for b in incoming_batches(duckdb.connect().sql(query))) < 200_000
    assert sum(b.num_rows for b in incoming_batches(lazy)) == 500_000


def test_error_of_a_source_reaches_the_caller() -> None:
    def broken() -> Iterator[pa.Table]:
        yield TABLE
        raise ZeroDivisionError

    batches = incoming_batches(broken())
    next(batches)

    with pytest.raises(ZeroDivisionError):
        next(batches)


@pytest.mark.parametrize(
    "row", [{"id": 1 << 63}, {"v": "\ud800"}, {"at": Decimal("1E+99")}, {1: 1}, {"id": [1, "x"]}]
)
def test_dicts_that_arrow_cannot_hold_are_refused(row: dict[object, object]) -> None:
    with pytest.raises(InvalidRequest):
        list(incoming_batches([row]))


@pytest.mark.parametrize(
    "value",
    [
        "DATE 'infinity'",
        "[TIMESTAMP '-infinity']",
        *([] if DUCKDB_1 else ["'infinity'::TIMESTAMPTZ_NS"]),
    ],
)
def test_infinite_times_of_duckdb_are_refused(value: str) -> None:
    # Their numbers of days and microseconds would be stored as dates.
    with pytest.raises(InvalidRequest, match="cannot be infinite"):
        list(incoming_batches(duckdb.connect().sql(f'SELECT {value} AS "a""b"')))


@pytest.mark.parametrize("value", ["t", "[t]", "{'a': t}"])
def test_times_of_day_with_a_zone_of_duckdb_are_refused(value: str) -> None:
    query = f"SELECT {value} AS opening FROM (SELECT '10:00:00+02'::TIMETZ AS t)"
    with pytest.raises(InvalidRequest, match=r"a time of day has no zone.* column=opening"):
        list(incoming_batches(duckdb.connect().sql(query)))


def test_periods_of_pandas_are_refused() -> None:
    # Arrow has no type for them: it would give how many there are since 1970.
    frame = pd.DataFrame({"k": [1], "month": pd.PeriodIndex(["2024-01"], freq="M")})
    with pytest.raises(InvalidRequest, match=r"a period has no type.* column=month type=period\[M"):
        list(incoming_batches(frame))


TWICE = pa.table(
    [pa.array([1]), pa.array(["-D"]), pa.array(["+I"])], ["id", "_row_kind", "_row_kind"]
)
COLUMNS_TWICE: dict[str, Callable[[], object]] = {
    "table": lambda: TWICE,
    "batch": lambda: TWICE.to_batches()[0],
    "reader": TWICE.to_reader,
    "empty reader": TWICE.schema.empty_table().to_reader,
    "dataset": lambda: ds.dataset(TWICE),
    "c stream": lambda: _Stream(TWICE),
    "c array": lambda: _Array(TWICE),
    "pandas": lambda: pd.DataFrame([[1, "-D", "+I"]], columns=TWICE.schema.names),
    "index of pandas": lambda: pd.DataFrame({"_row_kind": ["-D"]}, pd.Index([1], name="_row_kind")),
    "duckdb": lambda: duckdb.connect().sql("SELECT 1 id, '-D' _row_kind, '+I' _row_kind"),
    "list of tables": lambda: [TABLE, TWICE],
}


class _Stream:
    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class _Array(_Stream):
    __arrow_c_stream__ = property()

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._table.to_batches()[0].__arrow_c_array__(requested_schema)


@pytest.mark.parametrize("make", COLUMNS_TWICE.values(), ids=COLUMNS_TWICE)
def test_column_that_is_there_twice_is_refused_by_name(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequest, match="two columns have the same name") as caught:
        list(incoming_batches(make()))

    assert caught.value.facts["column"] == "_row_kind"


WITHOUT_COLUMNS: dict[str, Callable[[], object]] = {
    "table": lambda: TABLE.select([]),
    "reader": lambda: TABLE.select([]).to_reader(),
    "pandas": lambda: pd.DataFrame(index=range(3)),
    "dicts": lambda: [{}, {}, {}],
    "generator of dicts": lambda: ({} for _ in range(3)),
    **({} if POLARS_1 else {"polars": lambda: pl.DataFrame(height=3)}),
}


@pytest.mark.parametrize("make", WITHOUT_COLUMNS.values(), ids=WITHOUT_COLUMNS)
def test_rows_without_columns_are_counted(make: Callable[[], object]) -> None:
    assert sum(batch.num_rows for batch in incoming_batches(make())) == 3


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (pl.DataFrame, "this is a class.*polars.dataframe.frame.DataFrame"),
        (pd.DataFrame, "this is a class"),
        (dict, "this is a class"),
        ([pl.DataFrame], "this is a class"),
        ([()], "a tuple does not name its columns"),
        ([(1, "a")], "a tuple does not name its columns"),
        (((n, "a") for n in range(3)), "a tuple does not name its columns"),
        (Path("rows.parquet"), "cannot be read.*Path"),
        (bytearray(b"x"), "cannot be read"),
        (np.array([[1, 2]]), "cannot be read.*ndarray"),
        ({}, "at least one column"),
        ({"id": 1}, "one row is a list of one dict"),
        ({"id": "abc"}, "one row is a list of one dict"),
        ({"id": [1, 2], "v": [1]}, r"different numbers of values.*'id': 2, 'v': 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_rows_is_refused_with_the_reason(data: object, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        list(incoming_batches(data))


def _columns() -> dict[str, Sequence[object]]:
    return dict(TABLE.to_pydict())


DICTS_OF_COLUMNS: dict[str, Callable[[], object]] = {
    "lists": _columns,
    "tuples": lambda: {name: tuple(column) for name, column in _columns().items()},
    "arrow": lambda: dict(zip(TABLE.schema.names, TABLE.columns, strict=True)),
    "polars": lambda: pl.DataFrame(ROWS).to_dict(),
    "polars lists": lambda: pl.DataFrame(ROWS).to_dict(as_series=False),
    "pandas": lambda: dict(pd.DataFrame(ROWS).items()),
    "arrow lists": TABLE.to_pydict,
    "mixed": lambda: {"i": np.array([1, 2, 3]), "s": ["a", pd.NA, "ü"]},
    "range": lambda: {**_columns(), "i": range(1, 4)},
    "structured": lambda: np.array(
        [(1, "a"), (2, None), (3, "ü")], dtype=[("i", "i8"), ("s", object)]
    ),
}


@pytest.mark.parametrize("make", DICTS_OF_COLUMNS.values(), ids=DICTS_OF_COLUMNS)
def test_dict_of_columns_gives_its_rows(make: Callable[[], object]) -> None:
    assert [row for batch in incoming_batches(make()) for row in batch.to_pylist()] == ROWS


def test_column_of_a_dict_is_read_in_pieces() -> None:
    batches = list(incoming_batches({"i": list(range(150_000)), "j": np.arange(150_000)}))

    assert [batch.num_rows for batch in batches] == [65_536, 65_536, 18_928]
    assert pa.Table.from_batches(batches)["j"].to_pylist() == list(range(150_000))


@pytest.mark.parametrize("missing", [None, pd.NA, pd.NaT, np.datetime64("NaT", "ns")], ids=str)
def test_what_is_missing_is_null_at_any_depth(missing: object) -> None:
    day = dt.date(2026, 1, 1)
    rows = [{"a": missing, "b": [day, missing], "c": {"x": missing}}, {"a": day}]

    (batch,) = incoming_batches(rows)

    assert batch.to_pylist() == [
        {"a": None, "b": [day, None], "c": {"x": None}},
        {"a": day, "b": None, "c": None},
    ]


def test_nan_is_a_number_in_dicts_and_null_in_pandas() -> None:
    values = [1.5, float("nan")]

    (numbers,) = incoming_batches([{"a": value, "b": [value]} for value in values])
    (nulls,) = incoming_batches(pd.DataFrame({"a": values, "b": [[1.5], float("nan")]}))

    assert str(numbers.to_pylist()) == "[{'a': 1.5, 'b': [1.5]}, {'a': nan, 'b': [nan]}]"
    assert nulls.to_pylist() == [{"a": 1.5, "b": [1.5]}, {"a": None, "b": None}]


def test_nanoseconds_of_pandas_are_kept_at_any_depth() -> None:
    at = pd.Timestamp("2026-01-01 00:00:00.123456789")
    rows = [{"a": at, "b": [at, NAIVE], "z": at.tz_localize("Asia/Tokyo")}]

    batch = pa.Table.from_batches(list(incoming_batches(rows))).to_batches()[0]

    assert batch.column("a").cast(pa.int64()).to_pylist() == [at.value]
    assert batch.column("b").flatten().cast(pa.int64()).to_pylist() == [
        at.value,
        pd.Timestamp(NAIVE).as_unit("ns").value,
    ]
    assert batch.column("z").to_pylist() == [at.tz_localize("Asia/Tokyo")]


@pytest.mark.parametrize("what", ["day and time", "zone and none", "time of a zone"])
def test_times_of_several_kinds_are_refused_inside_of_lists(what: str) -> None:
    with pytest.raises(InvalidRequest, match=TIMES[what][1].replace("=t", "=t.element")):
        list(incoming_batches([{"t": TIMES[what][0]}]))


@pytest.mark.parametrize(
    "kind", [pl.Int128(), pl.List(pl.UInt128()), pl.Struct({"a": pl.Int128()})]
)
def test_column_of_wide_integers_is_refused_by_name(kind: pl.DataType) -> None:
    frame = pl.DataFrame(schema={"id": pl.Int64(), "w": kind})

    for data in (frame, frame.lazy()):
        with pytest.raises(InvalidRequest, match=r"128-bit integers .*column=w type="):
            list(incoming_batches(data))


def test_column_whose_name_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="not valid Unicode"):
        list(incoming_batches([{"id": 1, "\ud800": 2}]))


def test_column_of_python_objects_is_refused() -> None:
    frame = pl.DataFrame({"i": [1, 2], "o": [object(), object()]})
    for given in (frame, frame.lazy(), [frame], frame.clear().lazy()):
        with pytest.raises(InvalidRequest, match=r"Python objects .* column=o"):
            list(incoming_batches(given))


ZONED = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
NAIVE, DAY = ZONED.replace(tzinfo=None), ZONED.date()
TIMES: dict[str, tuple[list[object], str]] = {
    "day and time": ([DAY, NAIVE], "common type.*column=t"),
    "zone and none": ([ZONED, None, NAIVE], "common type.*column=t"),
    "none and zone": ([NAIVE, ZONED], "common type.*column=t"),
    "time of a zone": ([dt.time(12, tzinfo=dt.UTC)], "time of day has no zone.*column=t"),
}


@pytest.mark.parametrize("what", TIMES)
@pytest.mark.parametrize("pandas", [False, True])
def test_times_of_several_kinds_are_refused(what: str, *, pandas: bool) -> None:
    values, message = TIMES[what]
    rows = [{"t": each} for each in values]
    data = pd.DataFrame({"t": pd.Series(values, dtype=object)}) if pandas else rows

    with pytest.raises(InvalidRequest, match=message):
        list(incoming_batches(data))


def test_times_of_one_kind_are_taken_whatever_their_zones() -> None:
    values = [ZONED, None, ZONED.astimezone(dt.timezone(dt.timedelta(hours=5)))]
    frame = pd.DataFrame({"t": pd.Series([*values, pd.NaT], dtype=object)})

    (batch,) = incoming_batches([{"t": each} for each in values])
    (other,) = incoming_batches(frame)
    assert batch.to_pydict() == {"t": [ZONED, None, ZONED]}
    assert other.slice(0, 3).to_pydict() == {"t": [ZONED, None, ZONED]}


def test_a_row_that_is_null_is_no_row() -> None:
    rows = pa.chunked_array([pa.array([{"a": 1}, None])])

    with pytest.raises(InvalidRequest, match="does not contain rows"):
        list(incoming_batches(rows))


TEXT = "x" * 10_000
SHARED: dict[str, Callable[[], object]] = {
    "polars": lambda: pl.DataFrame({"id": range(2000)}).with_columns(v=pl.lit(TEXT)),
    "polars lazy": lambda: pl.LazyFrame({"id": range(2000)}).with_columns(v=pl.lit(TEXT)),
    "polars lists": lambda: pl.DataFrame({"id": range(2000)}).select(
        "id", v=pl.concat_list(pl.lit(TEXT), pl.lit("a"))
    ),
    "dictionary": lambda: pa.table(
        {"id": range(2000), "v": pa.array([TEXT] * 2000).dictionary_encode()}
    ),
    "run ends": lambda: pa.table(
        {
            "id": range(2000),
            "v": pa.RunEndEncodedArray.from_arrays(pa.array([2000], pa.int32()), pa.array([TEXT])),
        }
    ),
    "dicts": lambda: [{"id": n, "v": TEXT} for n in range(2000)],
    "dicts of lists": lambda: [{"id": n, "v": [TEXT]} for n in range(2000)],
    "dicts of maps": lambda: [{"id": n, "v": {"a": TEXT}} for n in range(2000)],
    "columns": lambda: {"id": range(2000), "v": [TEXT] * 2000},
    "pandas": lambda: pd.DataFrame(
        {"id": range(2000), "v": pd.Series([TEXT] * 2000, dtype=object)}
    ),
    "pandas with nulls": lambda: pd.DataFrame(
        {"id": range(2000), "v": pd.Series([None, float("nan"), TEXT, TEXT] * 500, dtype=object)}
    ),
    "categories": lambda: pd.DataFrame({"id": range(2000), "v": pd.Categorical([TEXT] * 2000)}),
}


@pytest.mark.parametrize("name", SHARED)
def test_rows_that_share_a_text_come_in_batches_of_so_many_bytes(name: str) -> None:
    batches = list(incoming_batches(SHARED[name](), bytes_max=1 << 20))

    assert sum(batch.num_rows for batch in batches) == 2000
    for batch in batches:
        assert sum(map(total_bytes, batch.columns)) <= 1 << 20
    # They are not cut smaller than they need be.
    assert len(batches) <= 70


def test_sparse_columns_of_pandas_are_taken() -> None:
    frame = pd.DataFrame({"a": pd.arrays.SparseArray([0, 1, 0])})

    assert [row for batch in incoming_batches(frame) for row in batch.to_pylist()] == [
        {"a": 0},
        {"a": 1},
        {"a": 0},
    ]


def test_values_that_hold_themselves_are_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(InvalidRequest, match="nested too deep, or hold themselves"):
        list(incoming_batches([{"a": value}]))
