"""Arrays without offsets, as Arrow for Java before 19 writes them below what is empty."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest

from lakecore.frames.incoming import incoming_batches
from lakecore.model.arrow_arrays import with_offsets

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
