"""How the columns of a Parquet file are encoded."""

from __future__ import annotations

import random

import pyarrow as pa

from lakecore.io.files.file_format import WriteFormat
from lakecore.io.files.parquet_write import encoding_of
from lakecore.model.types import Field, arrow_schema, parse_type

BLOB = Field(id=0, name="blob", type=parse_type("BYTES"))


def test_large_values_have_no_dictionary_and_are_compressed_if_they_shrink() -> None:
    noise = random.Random(1).randbytes(2 << 20)
    found = [
        encoding_of(pa.table({"blob": [None, value]}), [BLOB], WriteFormat())
        for value in (noise, bytes(2 << 20))
    ]

    assert [encoding.dictionaries for encoding in found] == [[], []]
    assert [encoding.codecs for encoding in found] == [{}, {"blob": "zstd"}]


def test_bare_milliseconds_have_neither_bounds_nor_a_dictionary() -> None:
    types = {
        "ms": "TIMESTAMP(3)",
        "day": "TIME(0)",
        "us": "TIMESTAMP(6)",
        "r": "ROW<z TIMESTAMP_LTZ(0), n INT>",
    }
    fields = [
        Field(id=place, name=name, type=parse_type(text))
        for place, (name, text) in enumerate(types.items())
    ]
    rows = pa.table({node.name: pa.nulls(5000, node.type) for node in arrow_schema(fields)})
    usual, bare = (
        encoding_of(rows, fields, WriteFormat(bare_milliseconds=each)) for each in (False, True)
    )

    assert usual.dictionaries == usual.bounded == ["ms", "day", "us", "r.z", "r.n"]
    assert bare.dictionaries == bare.bounded == ["us", "r.n"]
