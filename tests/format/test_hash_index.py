from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lakecore.errors import CorruptTable
from lakecore.format.index_files import decode_hashes, encode_hashes
from lakecore.format.layout import Layout
from lakecore.format.metadata import decode_index_manifest
from lakecore.model.files import HASH_INDEX, IndexFile

FIXTURES = Path(__file__).parents[1] / "golden" / "fixtures"


def test_golden_indexes_hold_as_many_hashes_as_said() -> None:
    count = 0
    for manifest in FIXTURES.glob("*/table*/manifest/index-manifest-*"):
        layout = Layout(root=str(manifest.parents[1]))
        for entry in decode_index_manifest(manifest.read_bytes(), str(manifest)):
            if entry.file.index_type == HASH_INDEX:
                path = Path(layout.live_index_file("", entry.bucket, entry.file))
                data = path.read_bytes()
                hashes = decode_hashes(data, entry.file, str(path))

                assert len(hashes) == entry.file.row_count
                assert encode_hashes(hashes, "w")[0] == data
                count += 1
    assert count > 10


def test_hashes_are_big_endian() -> None:
    hashes = np.array([1, -1, 2**31 - 1, -(2**31)], dtype=np.int32)

    data, file = encode_hashes(hashes, "w")

    assert data.hex() == "00000001ffffffff7fffffff80000000"
    assert file == IndexFile(
        index_type=HASH_INDEX, name="index-w-0-crc32-91b8b837", size_bytes=16, row_count=4
    )
    assert decode_hashes(data, file, "p").tolist() == hashes.tolist()
    assert decode_hashes(data, file, "p").dtype == np.int32


def test_empty_index_has_no_bytes() -> None:
    data, file = encode_hashes(np.empty(0, dtype=np.int32), "w")

    assert data == b""
    assert decode_hashes(b"", file, "p").size == 0


@pytest.mark.parametrize("size", [0, 4, 11, 13, 16])
def test_index_of_another_size_is_corrupt(size: int) -> None:
    _, file = encode_hashes(np.array([1, 2, 3], dtype=np.int32), "w")

    with pytest.raises(CorruptTable, match=rf"another size.*path=index-0 size_bytes={size}"):
        decode_hashes(bytes(size), file, "index-0")
    with pytest.raises(CorruptTable, match=r"another size.*manifest_hashes=2"):
        decode_hashes(bytes(12), replace(file, row_count=2), "index-0")


def test_every_flipped_bit_of_an_index_is_corrupt() -> None:
    data, file = encode_hashes(np.array([1, -2, 3], dtype=np.int32), "w")
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptTable, match=r"fails its checksum.*path=index-0"):
            decode_hashes(bytes(changed), file, "index-0")


def test_index_of_another_program_has_no_checksum() -> None:
    _, file = encode_hashes(np.array([1], dtype=np.int32), "w")

    assert decode_hashes(b"\0\0\0\2", replace(file, name="index-w-0"), "p").tolist() == [2]
