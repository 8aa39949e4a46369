"""A Puffin file of deletion vectors (https://iceberg.apache.org/puffin-spec/).

    magic | blob of each data file | magic | footer (JSON) | int size of the footer | flags | magic

A blob is a deletion vector in Paimon's 64-bit form (`format/index_files.py`), which is Iceberg's.
"""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.format.index_files import encode_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.format.index_files import Positions
    from lakecore.model.files import VectorRange

_MAGIC = b"PFA1"
_POSITION_FIELD_ID = 2_147_483_645
"""The reserved id of the column of row positions."""


def encode_puffin(
    vectors: Mapping[str, Positions], created_by: str
) -> tuple[bytes, tuple[VectorRange, ...]]:
    """The bytes of the file, and the place of each vector in it. Vectors are by path of the file.

    The snapshot and the sequence number of each blob are inherited, which -1 states.
    """
    index_file, stored = encode_vectors(vectors, bitmap64=True)
    # The blobs follow one byte in an index file, and the magic bytes here.
    shift = len(_MAGIC) - 1
    ranges = tuple(replace(each, offset=each.offset + shift) for each in stored)
    blobs = [
        {
            "type": "deletion-vector-v1",
            "fields": [_POSITION_FIELD_ID],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": each.offset,
            "length": each.length,
            "properties": {
                "referenced-data-file": each.data_file,
                "cardinality": str(each.cardinality),
            },
        }
        for each in ranges
    ]
    footer = json.dumps({"blobs": blobs, "properties": {"created-by": created_by}}).encode()
    flags = bytes(4)
    data = b"".join(
        (_MAGIC, index_file[1:], _MAGIC, footer, struct.pack("<i", len(footer)), flags, _MAGIC)
    )
    return data, ranges
