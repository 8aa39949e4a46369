"""Arrays without offsets, as Arrow for Java before 19 writes them below what is empty; search."""

from __future__ import annotations

from itertools import product

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakecore.frames.incoming import incoming_batches
from lakecore.model.arrow_arrays import (
    fixed_width,
    retype,
    search_sorted,
    size_of,
    struct_array,
    with_offsets,
)

LISTS = pa.list_(pa.list_(pa.string()))
MAPS = pa.map_(pa.string(), pa.list_(pa.binary()))
PARTS = pa.struct([("t", pa.string()), ("d", pa.decimal128(38)), ("at", pa.timestamp("ms"))])
STRUCT = pa.struct([("a", pa.list_(LISTS)), pa.field("n", pa.int32(), nullable=False)])
CASES = {
    "texts": pa.array([[], None], pa.list_(pa.string())),
    "lists": pa.array([[], None, []], LISTS),
    "lower": pa.array([[[]], [None, []]], pa.list_(LISTS)),
    "large": pa.array([[], None], pa.large_list(pa.large_list(pa.large_string()))),
    "pairs": pa.array([[[], []], None], pa.list_(LISTS, 2)),
    "map": pa.array([[], None], MAPS),
    "values": pa.array([[("k", [])], None], MAPS),
    "struct": pa.array([{"a": [], "n": 1}, None, {"a": None, "n": 2}], STRUCT),
    "in_list": pa.array([[{"a": [], "n": 1}], []], pa.list_(STRUCT)),
    "sliced": pa.array([[{"a": [], "n": 1}], [], [None]], pa.list_(STRUCT)).slice(1),
    "parts": pa.array([[], None], pa.list_(PARTS)),
    "no_text": pa.array([], pa.large_string()),
    "no_rows": pa.array([], pa.list_(STRUCT)),
}


def as_java_writes(array: pa.Array) -> pa.Array:
    """The array without the offsets of parts that have no rows; something else lies there."""
    kind = array.type
    own = array.buffers()[: kind.num_buffers]
    if len(array) == 0 and len(own) > 1:
        own[1] = pa.py_buffer(b"\x33\x33\x33\x03" * 64).slice(128, 0)
    parts = []
    if pa.types.is_struct(kind):
        parts = [as_java_writes(array.field(at)) for at in range(kind.num_fields)]
    elif pa.types.is_nested(kind):
        parts = [as_java_writes(array.values)]
    count = array.null_count
    return pa.Array.from_buffers(kind, len(array), own, count, array.offset, children=parts)


@pytest.mark.parametrize("name", CASES)
def test_parts_without_rows_get_their_offset(name: str) -> None:
    expected = CASES[name]
    given = pa.record_batch({"x": as_java_writes(expected), "n": pa.nulls(len(expected))})
    (batch,) = incoming_batches(given)

    batch.validate(full=True)
    assert batch.schema == given.schema
    assert batch.nbytes <= 300, "which walks all offsets"
    assert batch["x"].equals(expected)
    assert pa.concat_batches([batch, batch]).num_rows == 2 * len(expected)
    assert len(pl.Series(batch["x"])) == len(expected)


def test_batch_that_lacks_nothing_comes_back_as_it_is() -> None:
    batch = pa.record_batch({"x": pa.array([[["a"]], [None]], LISTS), "s": pa.array(["a", None])})

    assert with_offsets(batch) is batch


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    ("values", "asked", "left", "right"),
    [
        (pa.array([1, 3, 5]), pa.array([0, 1, None, 4, 9]), [0, 0, None, 2, 3], [0, 1, None, 2, 3]),
        (pa.array(["a", "é"]), pa.array(["A", "a", "b", "zz"]), [0, 0, 1, 1], [0, 1, 1, 1]),
        (pa.array([b"\x00", b"\xff"]), pa.array([b"", b"\x01"]), [0, 1], [0, 1]),
        (pa.array([False, True]), pa.array([True, False, None]), [1, 0, None], [2, 1, None]),
        (pa.array([0.5], pa.float32()), pa.array([0.4], pa.float32()), [0], [0]),
        (pa.array([7], pa.date32()), pa.array([7, 8], pa.date32()), [0, 1], [1, 1]),
        (pa.array([7], pa.time32("ms")), pa.array([7], pa.time32("ms")), [0], [1]),
        (
            pa.array([7], pa.timestamp("us", "UTC")),
            pa.array([6, 7], pa.timestamp("us", "UTC")),
            [0, 0],
            [0, 1],
        ),
    ],
)
def test_values_are_found_by_every_version_of_arrow(
    values: pa.Array,
    asked: pa.Array,
    left: list[int | None],
    right: list[int | None],
    monkeypatch: pytest.MonkeyPatch,
    *,
    native: bool,
) -> None:
    if not native:
        monkeypatch.delattr(pc, "search_sorted", raising=False)

    assert search_sorted(values, asked, "left").to_pylist() == left
    assert search_sorted(values, asked, "right").to_pylist() == right


@pytest.mark.parametrize("target", [pa.int32(), pa.list_(pa.int32()), MAPS, STRUCT])
def test_nulls_without_a_type_are_nulls_of_any_type(target: pa.DataType) -> None:
    assert retype(pa.nulls(2), target).equals(pa.nulls(2, target))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        *product([pa.array([1])], [pa.list_(pa.int32()), MAPS, STRUCT]),
        *product([pa.array([[1]])], [pa.int32(), MAPS, STRUCT]),
        *product([pa.array([{"b": 1}])], [pa.int32(), pa.list_(pa.int32()), MAPS, STRUCT]),
    ],
)
def test_other_nesting_is_an_error_of_arrow(source: pa.Array, target: pa.DataType) -> None:
    with pytest.raises(pa.ArrowException):
        retype(source, target)


def test_values_of_a_dictionary_take_another_type() -> None:
    coded = pa.array([[1, None], [1]], pa.list_(pa.dictionary(pa.int8(), pa.int32())))

    retyped = retype(coded, pa.list_(pa.int64()))
    assert retyped.equals(pa.array([[1, None], [1]], pa.list_(pa.int64())))


def test_struct_without_parts_has_the_nulls_of_the_other() -> None:
    like = pa.array([{"a": 1}, None])

    assert struct_array(like, [], []).equals(pa.array([{}, None], pa.struct([])))
    assert struct_array(like.slice(0, 1), [], []).to_pylist() == [{}]


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("count", [1, 60, 80])
def test_size_of_many_columns_is_that_of_few(count: int, others: int) -> None:
    columns = {f"n{at}": pa.array([at] * 16, pa.int32()) for at in range(count)}
    columns |= {f"b{at}": pa.array([True] * 16) for at in range(10)}
    columns |= {f"s{at}": pa.array(["abc"] * 16) for at in range(others)}
    rows = pa.table(columns)

    assert size_of(rows) == rows.nbytes


def test_an_array_without_rows_may_have_no_buffer() -> None:
    values = fixed_width(pa.Array.from_buffers(pa.int32(), 0, [None, None]), "i4")

    assert (len(values), values.dtype) == (0, np.dtype("i4"))
