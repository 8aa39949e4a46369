from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pyroaring import BitMap

from lakecore.errors import CorruptTable
from lakecore.format.index_files import (
    decode_vector,
    decode_vectors,
    distinct,
    encode_vectors,
    vector_span,
)
from lakecore.format.layout import Layout
from lakecore.format.metadata import decode_index_manifest
from lakecore.model.files import DELETION_VECTORS, VectorRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.model.files import IndexFile

FIXTURES = Path(__file__).parents[1] / "golden" / "fixtures"


def golden_index_files() -> Iterator[tuple[Path, IndexFile]]:
    for manifest in sorted(FIXTURES.glob("*/table*/manifest/index-manifest-*")):
        layout = Layout(root=str(manifest.parents[1]))
        for entry in decode_index_manifest(manifest.read_bytes(), str(manifest)):
            if entry.file.index_type == DELETION_VECTORS:
                yield Path(layout.live_index_file("", entry.bucket, entry.file)), entry.file


def one(*positions: int, bitmap64: bool = False) -> tuple[bytes, VectorRange]:
    data, (vector,) = encode_vectors({"f": np.array(positions)}, bitmap64=bitmap64)
    return data, vector


def test_every_golden_vector_decodes() -> None:
    seen: set[int] = set()
    for path, file in golden_index_files():
        assert file.vectors is not None
        data = path.read_bytes()

        vectors = decode_vectors(data, file.vectors, str(path))

        assert len(vectors) == file.row_count
        assert len(data) == file.size_bytes
        for vector in file.vectors:
            positions = vectors[vector.data_file]
            assert positions.dtype == np.int64
            assert (np.diff(positions) > 0).all()
            seen.add(vector.length)
    assert {24, 44} <= seen  # both kinds


def test_encoding_gives_the_bytes_that_java_wrote() -> None:
    count = 0
    for path, file in golden_index_files():
        assert file.vectors is not None
        data = path.read_bytes()
        vectors = decode_vectors(data, file.vectors, str(path))

        again, ranges = encode_vectors(vectors, bitmap64="bitmap64" in path.parts[-4])

        assert again == data
        # 0.9 did not store the cardinality.
        assert file.vectors in (ranges, tuple(replace(r, cardinality=None) for r in ranges))
        count += 1
    assert count > 20


@pytest.mark.parametrize("given", [[], [3], [5, 1, 5, 0, 1, 1], [2, 1]])
def test_positions_need_no_order_and_may_repeat(given: list[int]) -> None:
    assert distinct(np.array(given, np.int64)).tolist() == sorted(set(given))
    data, ranges = encode_vectors({"a": np.array(given, np.int64)})

    assert decode_vectors(data, ranges, "p")["a"].tolist() == sorted(set(given))
    assert ranges[0].cardinality == len(set(given))


def test_file_without_vectors_is_its_version() -> None:
    assert encode_vectors({}) == (b"\x01", ())
    assert decode_vectors(b"\x01", (), "p") == {}


@pytest.mark.parametrize("bitmap64", [False, True])
def test_vectors_of_several_files_lie_one_after_another(bitmap64: bool) -> None:  # noqa: FBT001
    given = {
        "a": np.array([3, 1, 1]),
        "b": np.array([], dtype=np.int64),
        "c": np.arange(200_000),
        "d": np.array([0, 65_535, 65_536, 2**31 - 1]),
    }

    data, ranges = encode_vectors(given, bitmap64=bitmap64)
    found = decode_vectors(data, ranges, "p")

    assert [vector.cardinality for vector in ranges] == [2, 0, 200_000, 4]
    assert list(found) == list(given)
    for name, positions in given.items():
        assert found[name].tolist() == np.unique(positions).tolist()
    assert len(data) < 500  # a run is stored as its ends


def test_range_lengths_follow_the_two_conventions() -> None:
    data32, vector32 = one(1, 5)
    data64, vector64 = one(1, 5, bitmap64=True)

    assert (vector32.offset, vector32.length) == (1, len(data32) - 1 - 8)
    assert (vector64.offset, vector64.length) == (1, len(data64) - 1)
    assert vector32.length == 24
    assert vector64.length == 44


def test_one_vector_is_read_by_its_span() -> None:
    data, ranges = encode_vectors({"a": np.array([1]), "b": np.array([7, 9])})
    start, length = vector_span(ranges[1])

    found = decode_vector(data[start : start + length], ranges[1], "p")

    assert found.tolist() == [7, 9]


def test_positions_beyond_32_bits_need_the_64_bit_form() -> None:
    data, vector = one(1, 2**32, 2**40 + 5, bitmap64=True)

    assert decode_vectors(data, [vector], "p")["f"].tolist() == [1, 2**32, 2**40 + 5]


def test_empty_bitmaps_that_java_fills_gaps_with_are_read() -> None:
    bitmaps = struct.pack("<qi", 2, 0) + BitMap().serialize()
    bitmaps += struct.pack("<i", 1) + BitMap([5]).serialize()
    body = bytes.fromhex("d1d33964") + bitmaps
    span = struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    vector = VectorRange(data_file="f", offset=1, length=len(span))

    assert decode_vector(span, vector, "p").tolist() == [2**32 + 5]


@pytest.mark.parametrize("bitmap64", [False, True])
def test_damage_is_corrupt_wherever_it_is(bitmap64: bool) -> None:  # noqa: FBT001
    data, vector = one(1, 5, 70_000, bitmap64=bitmap64)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        with pytest.raises(CorruptTable, match="path=index-0"):
            decode_vectors(bytes(damaged), [vector], "index-0")
    for end in range(len(data)):
        with pytest.raises(CorruptTable, match="path=index-0"):
            decode_vectors(data[:end], [vector], "index-0")


def test_range_that_contradicts_the_vector_is_corrupt() -> None:
    data, vector = one(1, 5)

    with pytest.raises(CorruptTable, match=r"another length.*data_file=f"):
        decode_vectors(data, [replace(vector, length=32)], "p")
    with pytest.raises(CorruptTable, match=r"another cardinality.*range_cardinality=3"):
        decode_vectors(data, [replace(vector, cardinality=3)], "p")
    assert decode_vectors(data, [replace(vector, cardinality=None)], "p")["f"].tolist() == [1, 5]


@pytest.mark.parametrize("bitmap64", [False, True])
def test_vector_of_more_positions_than_rows_is_refused_before_it_takes_memory(
    bitmap64: bool,  # noqa: FBT001
) -> None:
    data, (where,) = encode_vectors({"f": np.arange(1_000_000)}, bitmap64=bitmap64)

    assert len(data) < 1_000
    assert len(decode_vectors(data, [where], "p", 1_000_000)["f"]) == 1_000_000
    with pytest.raises(CorruptTable, match=r"more positions than .* rows=999999"):
        decode_vectors(data, [where], "p", 999_999)
