"""The bytes are those of Java's Roaring64Bitmap, as Paimon 1.4.2 writes them."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pyroaring import BitMap, BitMap64

from lakecore.merge.aggregators import sketches

if TYPE_CHECKING:
    from collections.abc import Iterable

GOLDEN = Path(__file__).parents[2] / "golden" / "roaring64"


@pytest.mark.parametrize(
    ("java", "values"),
    [
        (
            (
                "0101000000000000000400000000000000000000000000000000000100"
                "0000fe010000000102020000000100020001000000000000000000000000000000"
            ),
            [1, 2],
        ),
        (
            (
                "010200000000000000000200050000000000000001000400000000000000000000000000000000000400"
                "0000000000000001010000000000000001000000fe0200000001000000010001000000ffff0100701100"
                "00010000006f1102000000000000000000000001000000"
            ),
            range(70_000),
        ),
    ],
)
def test_bytes_of_java_are_read_and_written(java: str, values: Iterable[int]) -> None:
    data = bytes.fromhex(java)

    assert sketches.decode(data) == BitMap64(values)
    assert sketches.encode(BitMap64(values)) == data


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("10_keys", range(0, 10 << 16, 1 << 16)),
        ("30_keys", range(0, 60 << 16, 2 << 16)),
        ("200_keys", range(0, 200 << 16, 1 << 16)),
        ("bits", range(0, 70_000, 2)),
    ],
)
def test_nodes_and_containers_of_every_kind_are_read_and_written(
    name: str, values: Iterable[int]
) -> None:
    data = (GOLDEN / f"{name}.bin").read_bytes()
    bitmap = sketches.decode(data)
    nodes = data[9 : _slots_begin(data)]

    assert bitmap == BitMap64(values)
    assert sketches.encode(bitmap)[9 : 9 + len(nodes)] == nodes


@pytest.mark.parametrize(
    ("children", "kind"),
    [(1, 0), (4, 0), (5, 1), (16, 1), (17, 2), (48, 2), (49, 3), (256, 3)],
)
def test_number_of_children_decides_the_kind_of_a_node(children: int, kind: int) -> None:
    found, body = sketches._branch(bytes(range(children)))  # noqa: SLF001

    assert (found, len(body)) == (kind, [4, 16, 256, 32][kind])


def test_values_of_all_64_bits_survive() -> None:
    draw = random.Random(7)
    values = [draw.getrandbits(64) for _ in range(500)]
    values += [draw.getrandbits(20) << 32 | draw.getrandbits(9) for _ in range(500)]
    bitmap = BitMap64([*values, 2**64 - 1, *range(2**33, 2**33 + 9000, 2)])

    assert sketches.decode(sketches.encode(bitmap)) == bitmap


def test_no_value_is_one_byte() -> None:
    assert sketches.encode(BitMap64()) == b"\0"
    assert sketches.decode(b"\0") == BitMap64()


def test_container_may_be_of_another_kind_than_its_cardinality_wants() -> None:
    bits = np.zeros(1 << 16, np.uint8)
    bits[[3, 70]] = 1
    few = _lone(1, 2, np.packbits(bits, bitorder="little").tobytes())
    many = _lone(2, 5000, np.arange(0, 10_000, 2).astype("<u2").tobytes())
    runs = _lone(0, 5, struct.pack("<5H", 2, 3, 1, 9, 2))

    assert sketches.decode(few) == BitMap64([3, 70])
    assert sketches.decode(many) == BitMap64(range(0, 10_000, 2))
    assert sketches.decode(runs) == BitMap64([3, 4, 9, 10, 11])


@pytest.mark.parametrize("containers", [1, 3, 4, 9])
@pytest.mark.parametrize("has_runs", [False, True])
def test_portable_form_is_that_of_the_library(containers: int, *, has_runs: bool) -> None:
    values = [key << 16 | low for key in range(containers) for low in (1, 5, 70 + key)]
    values += range(3 << 16, (3 << 16) + 20_000, 2)
    if has_runs:
        values += range(200, 9_000)
    whole, high = BitMap(values), BitMap64(values)
    whole.run_optimize()
    high.run_optimize()
    parts = [*sketches._from_portable(high.serialize())]  # noqa: SLF001

    assert sketches._to_portable(parts) == whole.serialize()  # noqa: SLF001


@pytest.mark.parametrize("data", [b"", b"\1", b"garbage garbage", b"\1" * 40])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((ValueError, IndexError, struct.error)):
        sketches.decode(data)


def _lone(kind: int, cardinality: int, content: bytes) -> bytes:
    """A bitmap of one container."""
    leaf = struct.pack("<BhB6sQ", 4, 0, 0, bytes(6), 0)
    slot = struct.pack("<ibiBBi", 1, -2, 1, 1, kind, cardinality) + content
    return struct.pack("<BQ", 1, 1) + leaf + slot + struct.pack("<qii", 1, 0, 0)


def _slots_begin(data: bytes) -> int:
    """Where the first `1` of the slots and the byte -2 after it stand."""
    return data.rindex(struct.pack("<ib", 1, -2))
