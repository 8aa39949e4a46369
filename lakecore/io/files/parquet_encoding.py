"""How the columns of a Parquet file are encoded, decided by a sample of its first row group.

A column is dictionary-encoded if the sample has repeated values. For distinct values, building a
dictionary costs more than the rest of the encoding. Numbers that compress poorly in the sample are
not compressed, because reading them would take four times as long. Values of megabytes that
compress poorly are not compressed either, and are never dictionary-encoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from lakecore.io.files.parquet_types import leaf_paths
from lakecore.model.coded_texts import CODED
from lakecore.model.types import Atomic, Field, Root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.io.files.file_format import WriteFormat

_SAMPLE_ROWS = 16_384
_SAMPLE_ROWS_MIN = 2_048
_DICTIONARY_SHARE_MAX = 0.5
_COMPRESSED_SHARE_MAX = 7 / 8
_NUMBER_BITS = (32, 64)
_LONG_DIGITS = 18
_LARGE_VALUE_BYTES = 1 << 20
_LARGE_SAMPLE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How the columns of a file are encoded, by their paths.

    `codecs` has every column that is compressed, `bounded` those with statistics.
    """

    dictionaries: list[str]
    codecs: dict[str, str]
    bounded: list[str]


def encoding_of(table: pa.Table, fields: Sequence[Field], write_format: WriteFormat) -> Encoding:
    """The encoding of these columns, chosen by a sample of their rows."""
    start = max(0, (table.num_rows - _SAMPLE_ROWS) // 2)
    sample = table.slice(start, _SAMPLE_ROWS)
    dictionaries = _dictionary_columns(sample, fields)
    large = {field.name for field in fields if _is_large(sample.column(field.name))}
    # No bounds of large values: they are never stored, and computing them takes six copies of each.
    bounded = [path for path, _ in leaf_paths(fields) if path not in large]
    codec = write_format.codec
    if codec == "none":
        return Encoding(dictionaries=dictionaries, codecs={}, bounded=bounded)
    level = write_format.zstd_level if codec == "zstd" else None
    trial = pa.Codec(codec, compression_level=level)
    plain = {
        field.name
        for field in fields
        if field.name not in dictionaries
        and sample.num_rows >= _SAMPLE_ROWS_MIN
        and _hardly_shrinks(sample.column(field.name), trial)
    }
    plain |= {name for name in large if _large_hardly_shrinks(sample.column(name), trial)}
    codecs = {path: codec for path, _ in leaf_paths(fields) if path not in plain}
    return Encoding(dictionaries=dictionaries, codecs=codecs, bounded=bounded)


def _hardly_shrinks(column: pa.ChunkedArray, codec: pa.Codec) -> bool:
    """Whether a column has numbers, dates or times that the codec hardly compresses."""
    if not pa.types.is_primitive(column.type) or column.type.bit_width not in _NUMBER_BITS:
        return False
    width = column.type.bit_width // 8
    chunks = [chunk for chunk in column.drop_null().chunks if len(chunk)]
    data = b"".join(
        chunk.buffers()[1].slice(chunk.offset * width, len(chunk) * width) for chunk in chunks
    )
    size_bytes: int = codec.compress(data).size
    return size_bytes > _COMPRESSED_SHARE_MAX * len(data)


def _is_large(column: pa.ChunkedArray) -> bool:
    """Whether a column has strings or binaries that are large on average."""
    kind = column.type
    large: bool = (
        pa.types.is_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_string(kind)
    ) and column.nbytes >= _LARGE_VALUE_BYTES * max(1, len(column))
    return large


def _large_hardly_shrinks(column: pa.ChunkedArray, codec: pa.Codec) -> bool:
    """Whether the codec hardly compresses the first value. Skipping compression saves a copy."""
    chunk = next(chunk for chunk in column.chunks if len(chunk) > chunk.null_count)
    value = chunk.drop_null()[0].as_buffer()
    data = value.slice(0, min(value.size, _LARGE_SAMPLE_BYTES))
    shrunk: bool = codec.compress(data).size <= _COMPRESSED_SHARE_MAX * data.size
    return not shrunk


def _dictionary_columns(sample: pa.Table, fields: Sequence[Field]) -> list[str]:
    """The paths of the columns to encode with a dictionary: those with repeated values.

    NOTE: decimals of 19 digits and more are excluded. Java 1.4.2 searches the dictionary with fewer
    bytes than the column's values have, finds nothing, and skips the row group.
    """
    chosen: list[str] = []
    for field in fields:
        if _is_wide_decimal(field) or _is_large(sample.column(field.name)):
            continue
        if sample.column(field.name).type == CODED:
            chosen.append(field.name)
        elif isinstance(field.type, Atomic) and sample.num_rows >= _SAMPLE_ROWS_MIN:
            distinct = pl.Series(sample.column(field.name)).n_unique()
            if distinct <= _DICTIONARY_SHARE_MAX * sample.num_rows:
                chosen.append(field.name)
        else:
            chosen.extend(path for path, _ in leaf_paths([field]))
    return chosen


def _is_wide_decimal(field: Field) -> bool:
    return (
        isinstance(field.type, Atomic)
        and field.type.root is Root.DECIMAL
        and (field.type.precision or 0) > _LONG_DIGITS
    )
