from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lakecore.errors import CorruptTable
from lakecore.format.hash_index import decode_hashes, encode_hashes
from lakecore.format.layout import Layout
from lakecore.format.metadata import decode_index_manifest
from lakecore.model.files import HASH_INDEX

FIXTURES = Path(__file__).parents[1] / "golden" / "fixtures"


def test_golden_indexes_hold_as_many_hashes_as_said() -> None:
    count = 0
    for manifest in FIXTURES.glob("*/table*/manifest/index-manifest-*"):
        layout = Layout(root=str(manifest.parents[1]))
        for entry in decode_index_manifest(manifest.read_bytes(), str(manifest)):
            if entry.file.index_type == HASH_INDEX:
                path = Path(layout.live_index_file("", entry.bucket, entry.file))
                data = path.read_bytes()
                hashes = decode_hashes(data, str(path))

                assert len(hashes) == entry.file.row_count
                assert encode_hashes(hashes) == data
                count += 1
    assert count > 10


def test_hashes_are_big_endian() -> None:
    hashes = np.array([1, -1, 2**31 - 1, -(2**31)], dtype=np.int32)

    data = encode_hashes(hashes)

    assert data.hex() == "00000001ffffffff7fffffff80000000"
    assert decode_hashes(data, "p").tolist() == hashes.tolist()
    assert decode_hashes(data, "p").dtype == np.int32


def test_empty_index_has_no_bytes() -> None:
    assert encode_hashes(np.empty(0, dtype=np.int32)) == b""
    assert decode_hashes(b"", "p").size == 0


def test_part_of_a_hash_is_corrupt() -> None:
    with pytest.raises(CorruptTable, match=r"cut short.*path=index-0.*size_bytes=7"):
        decode_hashes(bytes(7), "index-0")
