"""Dictionary-encoded string columns: read, moved and written without decoding.

A dictionary index (*code*) has four bytes. Each chunk of a column may have its own dictionary,
which may contain strings that no row has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

CODED = pa.dictionary(pa.int32(), pa.string())


class CodedColumn(NamedTuple):
    """A dictionary-encoded column, and the bounds of its strings (None: all null).

    The dictionary has exactly the strings that occur.
    """

    texts: pa.DictionaryArray
    low: str | None
    high: str | None


def as_codes(texts: pa.Array) -> pa.DictionaryArray:
    """The strings, dictionary-encoded."""
    return texts if texts.type == CODED else texts.cast(pa.string()).dictionary_encode()


def with_texts(column: pa.DictionaryArray, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """The column, with `change` applied to the strings of its dictionary."""
    return pa.DictionaryArray.from_arrays(column.indices, change(column.dictionary))


def fits(column: pa.ChunkedArray) -> bool:
    """Whether all dictionary indexes are valid. Others would be read out of bounds."""
    for chunk in column.chunks:
        bounds = pc.min_max(chunk.indices)
        least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
        if least is not None and not 0 <= least <= greatest < len(chunk.dictionary):
            return False
    return True


def one_dictionary(column: pa.ChunkedArray) -> CodedColumn:
    """The column as one chunk with one dictionary, which has only strings that occur."""
    whole = column.combine_chunks()
    codes, texts = whole.indices, whole.dictionary
    used = np.zeros(len(texts), bool)
    used[codes.drop_null().to_numpy()] = True
    if not used.all():
        places = np.cumsum(used, dtype=np.int32) - 1
        codes = pa.array(places).take(codes) if len(texts) else codes
        texts = texts.filter(pa.array(used))
    bounds = pc.min_max(texts)
    return CodedColumn(
        pa.DictionaryArray.from_arrays(codes, texts), bounds["min"].as_py(), bounds["max"].as_py()
    )


def text_bytes(rows: pa.Table) -> int:
    """The bytes of the strings in the encoded columns after decoding, without offsets."""
    return sum(
        _text_bytes(chunk)
        for column in rows.columns
        if column.type == CODED
        for chunk in column.chunks
    )


def _text_bytes(column: pa.DictionaryArray) -> int:
    lengths = pc.binary_length(column.dictionary).fill_null(0).to_numpy()
    codes = column.indices.drop_null().to_numpy()
    if not len(codes):
        return 0
    longest = int(lengths.max())
    return longest * len(codes) if lengths.min() == longest else int(lengths[codes].sum())
