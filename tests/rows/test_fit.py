"""Arrays of other Arrow types in the type of a column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakecore.model.types import parse_type
from lakecore.rows import fit as fitting
from lakecore.rows.fit import Place, fit

PLACE = Place(column="c")


@pytest.mark.parametrize(("kind", "word"), [("STRING", "abc"), ("BYTES", b"abc")])
def test_rows_at_the_end_of_a_large_array_fit(kind: str, word: str | bytes) -> None:
    start = 1 << 31
    data = np.zeros(start + 3, np.uint8)
    data[start:] = list(b"abc")
    large = pa.large_string() if kind == "STRING" else pa.large_binary()
    offsets = pa.py_buffer(np.array([0, start, start + 3, start + 3]))
    whole = pa.Array.from_buffers(large, 3, [None, offsets, pa.py_buffer(data)])

    fitted = fit(whole.slice(1), parse_type(kind), PLACE)
    fitted.validate(full=True)
    assert fitted.to_pylist() == [word, word[:0]]
    assert fitted.type == (pa.string() if kind == "STRING" else pa.binary())


@pytest.mark.parametrize(
    ("kind", "values"), [("STRING", ["a", None, "bcd"]), ("BYTES", [b"\xff", None, b"bcd"])]
)
@pytest.mark.parametrize("bytes_max", [11, 12, 1 << 31])
def test_values_of_a_dictionary_are_repeated_within_large_offsets(
    kind: str, values: list[object], bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "_INT32_MAX", bytes_max)
    plain = pa.string() if kind == "STRING" else pa.binary()
    coded = pa.DictionaryArray.from_arrays([2, 0, 1, 2], pa.array(values, plain))
    expected = pa.array([values[2], values[0], None, values[2]], plain)
    assert fit(coded, parse_type(kind), PLACE).equals(expected)
    monkeypatch.setattr(fitting, "_compact", lambda array, _: array)
    large = pa.large_string() if kind == "STRING" else pa.large_binary()
    assert fit(coded, parse_type(kind), PLACE).type == (large if bytes_max < 12 else plain)
