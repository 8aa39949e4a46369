from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from lakecore.model.arrow_arrays import cut, is_shared, row_bytes, rows_within, total_bytes

TEXTS = ["a", None, "bbbb", "", "c" * 40]
SIZES = [1, 0, 4, 0, 40]
_VIEWS = pa.array(TEXTS, pa.string_view())
_CODES = pa.array(TEXTS).dictionary_encode()
_RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3, 4, 5], pa.int32()), pa.array(TEXTS))
ARRAYS: dict[str, pa.Array] = {
    "string": pa.array(TEXTS),
    "large string": pa.array(TEXTS, pa.large_string()),
    "view": _VIEWS,
    "dictionary": _CODES,
    "dictionary of views": pa.DictionaryArray.from_arrays(
        pa.array([0, None, 1, 2, 3]), pa.array(["a", "bbbb", "", "c" * 40], pa.string_view())
    ),
    "run ends": _RUNS,
    "struct": pa.StructArray.from_arrays([_VIEWS], names=["a"]),
    "list": pa.ListArray.from_arrays([0, 1, 2, 3, 4, 5], _VIEWS),
    "large list": pa.LargeListArray.from_arrays([0, 1, 2, 3, 4, 5], _CODES),
    "fixed list": pa.FixedSizeListArray.from_arrays(_RUNS, 1),
    "list view": pa.ListViewArray.from_arrays([0, 1, 2, 3, 4], [1, 1, 1, 1, 1], _VIEWS),
    "map": pa.MapArray.from_arrays([0, 1, 2, 3, 4, 5], pa.array([""] * 5), _VIEWS),
    "extension": pa.ExtensionArray.from_storage(
        pa.json_(), pa.array(["a", None, "bbbb", "", "c" * 40])
    ),
}


@pytest.mark.parametrize(
    ("rows_max", "bytes_max", "sizes"),
    [
        (100, 80, [10]),
        (10, 79, [5, 5]),
        (4, 80, [4, 4, 2]),
        (9, 24, [3, 3, 3, 1]),
        (9, 1, [1] * 10),
    ],
)
def test_batch_is_cut_evenly(rows_max: int, bytes_max: int, sizes: list[int]) -> None:
    batch = pa.record_batch({"a": pa.array(range(10), pa.int64())})

    assert [piece.num_rows for piece in cut(batch, rows_max, bytes_max)] == sizes


@pytest.mark.parametrize(
    ("bytes_max", "sizes"), [(40, [10]), (39, [9, 1]), (8, [2] * 5), (7, [1] * 10), (0, [1] * 10)]
)
def test_batch_of_shared_values_is_cut_by_their_bytes(bytes_max: int, sizes: list[int]) -> None:
    batch = pa.record_batch({"a": pa.array(["abcd"] * 10, pa.string_view())})

    assert [piece.num_rows for piece in cut(batch, 100, bytes_max)] == sizes


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize(("start", "count"), [(0, 5), (1, 4), (2, 1), (3, 0)])
def test_each_row_counts_what_its_own_copy_takes(name: str, start: int, count: int) -> None:
    array = ARRAYS[name].slice(start, count)

    each = np.broadcast_to(np.asarray(row_bytes(array)), count)
    assert each.tolist() == SIZES[start : start + count]
    assert total_bytes(array) == sum(SIZES[start : start + count])


def test_numbers_count_by_their_width() -> None:
    assert row_bytes(pa.array([1, None])) == 8
    assert row_bytes(pa.array([1, None]).dictionary_encode()) == 8
    assert row_bytes(pa.array([b"abc"], pa.binary(3))) == 3
    assert total_bytes(pa.array([[1, 2], None, [3]])) == 24
    assert total_bytes(pa.nulls(3)) == 3
    assert row_bytes(pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([1, 2], pa.int16()))) == 2
    nothing = pa.array([], pa.string())
    assert row_bytes(pa.DictionaryArray.from_arrays(pa.nulls(3, pa.int8()), nothing)) == 0


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("string", 1),
        ("view", 1),
        ("dictionary", 1),
        ("run ends", 1),
        ("extension", 1),
        ("struct", 2),
        ("list", 2),
        ("large list", 2),
        ("fixed list", 2),
        ("list view", 2),
        ("map", 3),
    ],
)
def test_each_value_counts_an_amount_for_itself(name: str, extra: int) -> None:
    array = ARRAYS[name]
    alone, more = (np.broadcast_to(np.asarray(row_bytes(array, each)), 5) for each in (0, 100))

    assert (more - alone)[[0, 2, 4]].tolist() == [100 * extra] * 3
    assert row_bytes(pa.nulls(3), 100) == 101


def test_list_view_counts_what_its_lists_share_once_a_list() -> None:
    lists = pa.ListViewArray.from_arrays([0, 0, 1], [2, 2, 0], pa.array(["aa", "b", "x" * 100]))

    assert np.asarray(row_bytes(lists)).tolist() == [3, 3, 0]


def test_shared_layouts_are_found_at_any_depth() -> None:
    assert is_shared(pa.list_(pa.struct([("a", pa.map_(pa.string(), pa.string_view()))])))
    assert is_shared(pa.list_(pa.json_(pa.string_view())))
    assert not is_shared(pa.list_(pa.json_(pa.string())))
    assert not is_shared(pa.list_(pa.struct([("a", pa.map_(pa.string(), pa.large_string()))])))


@pytest.mark.parametrize("texts", ["polars", "dictionary", "run ends", "nested"])
def test_batch_is_cut_by_what_its_rows_take_apart(texts: str) -> None:
    text = "x" * 1000
    codes = pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int8()), pa.array([text]))
    views = pl.select(
        pl.lit(text).repeat_by(1).explode(empty_as_null=False).gather([0] * 100)
    ).to_series()
    column = {
        "polars": pa.RecordBatchReader.from_stream(views.to_frame("a")).read_all()["a"].chunk(0),
        "dictionary": codes,
        "run ends": pa.RunEndEncodedArray.from_arrays(
            pa.array([100], pa.int32()), pa.array([text])
        ),
        "nested": pa.ListArray.from_arrays(pa.array(range(101), pa.int32()), codes),
    }[texts]
    batch = pa.record_batch({"id": range(100), "a": column})
    assert batch.nbytes < 10_000

    pieces = list(cut(batch, 1000, 10_200))

    assert [piece.num_rows for piece in pieces] == [10] * 10
    assert next(cut(batch, 1000, 10_070)).num_rows == 9  # the number of a row counts, too
    assert pa.Table.from_batches(pieces).to_pylist() == batch.to_pylist()


def test_batch_of_small_and_large_rows_is_cut_between_them() -> None:
    texts = pa.array(["a"] * 5 + ["x" * 100] * 3 + ["b"] * 5, pa.string_view())
    batch = pa.record_batch({"a": texts})

    assert [piece.num_rows for piece in cut(batch, 100, 100)] == [5, 1, 1, 1, 5]
    assert [piece.num_rows for piece in cut(batch, 4, 10_000)] == [4, 4, 4, 1]
    assert list(cut(batch, 100, 10_000)) == [batch]
    assert [piece.num_rows for piece in cut(batch.slice(0, 0), 100, 100)] == [0]


@pytest.mark.parametrize(
    ("count", "rows_max", "bytes_max", "expected"),
    [(10, 1000, 800, 100), (10, 50, 800, 50), (10, 1000, 7, 1), (0, 50, 800, 50)],
)
def test_rows_within_limits(count: int, rows_max: int, bytes_max: int, expected: int) -> None:
    rows = pa.table({"a": pa.array([1] * count, pa.int64())})
    assert rows_within(rows, rows_max, bytes_max) == expected
