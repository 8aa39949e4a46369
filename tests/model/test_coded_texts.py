"""Tests of `lakecore/model/arrow_arrays.py`."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakecore.model.arrow_arrays import (
    CODED,
    as_codes,
    fits,
    one_dictionary,
    text_bytes,
    with_texts,
)


def column(*chunks: tuple[list[int | None], list[str]]) -> pa.ChunkedArray:
    arrays = [
        pa.DictionaryArray.from_arrays(
            pa.array(codes, pa.int32()), pa.array(texts, pa.string()), safe=False
        )
        for codes, texts in chunks
    ]
    return pa.chunked_array(arrays, CODED)


@pytest.mark.parametrize("texts", [["a", None, "a"], [], [None]])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_texts_become_codes(texts: list[str | None], kind: pa.DataType) -> None:
    found = as_codes(pa.array(texts, kind))

    assert found.type == CODED
    assert found.to_pylist() == texts
    assert as_codes(found) is found


def test_chunks_have_one_dictionary_of_the_texts_that_rows_have() -> None:
    chunks = column(([1, None, 1], ["b", "a"]), ([0, 2], ["c", "d", "a"]))
    found = one_dictionary(chunks)

    assert found.texts.to_pylist() == ["a", None, "a", "c", "a"]
    assert sorted(found.texts.dictionary.to_pylist()) == ["a", "c"]
    assert (found.low, found.high) == ("a", "c")


def test_slice_has_no_texts_of_other_rows() -> None:
    found = one_dictionary(column(([0, 1, 2, 1], ["a", "b", "c"])).slice(1, 1))

    assert found.texts.dictionary.to_pylist() == ["b"]
    assert (found.low, found.high) == ("b", "b")


@pytest.mark.parametrize("chunks", [[], [([], [])], [([None, None], [])], [([None], ["a"])]])
def test_without_a_text_there_are_no_bounds(
    chunks: list[tuple[list[int | None], list[str]]],
) -> None:
    found = one_dictionary(column(*chunks))

    assert (found.low, found.high) == (None, None)
    assert found.texts.null_count == len(found.texts)


def test_bounds_are_those_of_bytes() -> None:
    """UTF-16 would have them the other way round."""
    found = one_dictionary(column(([0, 1], ["\uffff", "\U0001f600"])))

    assert (found.low, found.high) == ("\uffff", "\U0001f600")


@pytest.mark.parametrize(
    ("chunks", "fit"),
    [
        ([([0, 1, None], ["a", "b"])], True),
        ([([None], [])], True),
        ([([], [])], True),
        ([([0, 2], ["a", "b"])], False),
        ([([0], ["a"]), ([1], ["a"])], False),
        ([([-1], ["a"])], False),
        ([([0], [])], False),
    ],
)
def test_code_outside_of_its_dictionary_does_not_fit(
    chunks: list[tuple[list[int | None], list[str]]], *, fit: bool
) -> None:
    assert fits(column(*chunks)) is fit


def test_texts_change_and_codes_stay() -> None:
    found = with_texts(
        as_codes(pa.array(["a", None, "b"])), lambda texts: pa.array(["x"] * len(texts))
    )

    assert found.to_pylist() == ["x", None, "x"]


def test_texts_take_what_they_would_take_in_place_of_codes() -> None:
    rows = pa.table({"k": [1, 2, 3, 4], "t": column(([0, 1, 0, 1], ["a" * 100, "b" * 300]))})

    assert 4 * 200 <= text_bytes(rows) <= 4 * 210
    assert text_bytes(rows.select(["k"])) == 0


@pytest.mark.parametrize(
    ("codes", "size_bytes"), [([], 0), ([None, None], 0), ([0, 1, None, 1], 7), ([1, 1], 6)]
)
def test_bytes_of_texts_are_those_after_decoding(codes: list[int | None], size_bytes: int) -> None:
    rows = pa.table({"a": column((codes, ["x", "abc"])), "n": pa.nulls(len(codes), pa.int64())})

    assert text_bytes(rows) == size_bytes
