"""How the columns of a Parquet file are encoded."""

from __future__ import annotations

import random

import pyarrow as pa

from lakecore.io.files.file_format import WriteFormat
from lakecore.io.files.parquet_write import encoding_of
from lakecore.model.types import Field, parse_type

BLOB = Field(id=0, name="blob", type=parse_type("BYTES"))


def test_large_values_have_no_dictionary_and_are_compressed_if_they_shrink() -> None:
    noise = random.Random(1).randbytes(2 << 20)
    found = [
        encoding_of(pa.table({"blob": [None, value]}), [BLOB], WriteFormat())
        for value in (noise, bytes(2 << 20))
    ]

    assert [encoding.dictionaries for encoding in found] == [[], []]
    assert [encoding.codecs for encoding in found] == [{}, {"blob": "zstd"}]
