"""Unions of sets stored as bytes: roaring bitmaps, HLL sketches and theta sketches.

The bytes are those of the Java libraries; Paimon itself does not specify them.

NOTE: this is the only place that calls Python for each group. Only the libraries can read these
bytes, and none of them unites arrays of sets. The call is made only for groups with several sets;
other values are returned unchanged.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap, BitMap64

from lakecore.errors import InvalidRequest, optional
from lakecore.merge.aggregators.fold import Aggregate, Fold
from lakecore.merge.keys import Groups, is_valid, pick, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType


# --- roaring64 -----------------------------------------------------------------------------------
# Converts 64-bit bitmaps to the bytes of Java's Roaring64Bitmap, as in `rbm64` columns, and back.
#
# Bitmap libraries share one portable format, but Java's class writes another format. The numbers of
# Java's format are little-endian, except the keys of leaves, which are big-endian:
#
#     0                                            an empty bitmap, or else
#     1 | long number of leaves | nodes            a radix tree over the high 48 bits, parents first
#       | int 1 | byte -2 | int slots | slots      the containers of the leaves
#       | long containers | int 0 | int last slot
#
#     node   byte kind | short children | byte n | n bytes of prefix | body
#     body   kind 0: 4 bytes, 1: 16 bytes, 2: 256 bytes, 3: 32 bytes (which byte leads to which
#     child)
#            kind 4, a leaf: 6 bytes of key, long slot
#     slot   0, or 1 | byte kind | int cardinality | container    kind 0: runs, 1: bits, 2: array
#
# Containers have the bytes of the portable format; only the structure around them differs. The
# output equals Java's bytes, except for the order of slots, which in Java depends on how the bitmap
# was built.

_RUNS, _BITS, _ARRAY = 0, 1, 2
_BODY_BYTES = {0: 4, 1: 16, 2: 256, 3: 32}
_LEAF = 4
_KEY_BYTES = 6
_NOT_TRIMMED = -2
_ARRAY_MAX = 4096
_BITS_BYTES = 8192
_COOKIE_RUNS = 12347
_COOKIE_PLAIN = 12346
_NO_OFFSETS_BELOW = 4


@dataclass(frozen=True, slots=True)
class _Container:
    """The values of a bitmap that have the same high 48 bits, which are `key`."""

    key: int
    kind: int
    cardinality: int
    data: bytes


def decode(data: bytes) -> BitMap64:
    """The bitmap. Raises ValueError, struct.error or IndexError for other bytes."""
    containers = _from_tree(data) if data[0] else []
    parts = [struct.pack("<Q", len({container.key >> 16 for container in containers}))]
    for high, bucket in groupby(containers, key=lambda container: container.key >> 16):
        parts += [struct.pack("<I", high), _to_portable(tuple(bucket))]
    return BitMap64.deserialize(b"".join(parts))


def encode(bitmap: BitMap64) -> bytes:
    """The bitmap in Java's format."""
    bitmap.run_optimize()
    containers = list(_from_portable(bitmap.serialize()))
    if not containers:
        return b"\0"
    parts = [struct.pack("<BQ", 1, len(containers))]
    keys = [container.key.to_bytes(_KEY_BYTES, "big") for container in containers]
    _write_node(keys, 0, 0, parts)
    parts.append(struct.pack("<ibi", 1, _NOT_TRIMMED, len(containers)))
    for container in containers:
        parts.append(struct.pack("<BBi", 1, container.kind, container.cardinality))
        parts.append(container.data)
    parts.append(struct.pack("<qii", len(containers), 0, len(containers) - 1))
    return b"".join(parts)


# --- Java's form ----------------------------------------------------------------------------------


def _from_tree(data: bytes) -> list[_Container]:
    """The containers in order of key. Leaves hold whole keys, so inner nodes are skipped."""
    (leaves,) = struct.unpack_from("<Q", data, 1)
    at = 9
    slot_keys: dict[int, int] = {}
    while len(slot_keys) < leaves:
        kind, _, prefix = struct.unpack_from("<BhB", data, at)
        at += 4 + prefix
        if kind == _LEAF:
            slot = struct.unpack_from("<Q", data, at + _KEY_BYTES)[0]
            slot_keys[slot] = int.from_bytes(data[at : at + _KEY_BYTES], "big")
            at += _KEY_BYTES + 8
        elif kind in _BODY_BYTES:
            at += _BODY_BYTES[kind]
        else:
            raise ValueError(f"unknown kind of node: {kind}")
    (levels,) = struct.unpack_from("<i", data, at)
    at += 4
    containers = []
    for level in range(levels):
        _, slots = struct.unpack_from("<bi", data, at)
        at += 5
        for slot in range(slots):
            filled = data[at]
            at += 1
            if filled:
                container, at = _slot(data, at, slot_keys[level << 32 | slot])
                containers.append(container)
    return sorted(containers, key=lambda container: container.key)


def _slot(data: bytes, at: int, key: int) -> tuple[_Container, int]:
    """The container at an offset, and the offset of its end."""
    kind, cardinality = struct.unpack_from("<Bi", data, at)
    at += 5
    if kind == _RUNS:
        size = 2 + 4 * struct.unpack_from("<H", data, at)[0]
    elif kind == _BITS:
        size = _BITS_BYTES
    elif kind == _ARRAY:
        size = 2 * cardinality
    else:
        raise ValueError(f"unknown kind of container: {kind}")
    content = data[at : at + size]
    if len(content) < size:
        raise ValueError("a container is truncated")
    return _Container(key, kind, cardinality, content), at + size


def _write_node(keys: Sequence[bytes], depth: int, first: int, parts: list[bytes]) -> None:
    """Append the tree over these sorted keys, whose first `depth` bytes are already written.

    `first` is the number of the first key's slot; slots are numbered in key order.
    """
    if len(keys) == 1:
        parts.append(struct.pack("<BhB6sQ", _LEAF, 0, 0, keys[0], first))
        return
    until = depth
    while keys[0][until] == keys[-1][until]:
        until += 1
    ends: dict[int, int] = {}
    for place, key in enumerate(keys):
        ends[key[until]] = place + 1
    kind, body = _branch(bytes(ends))
    parts.append(struct.pack("<BhB", kind, len(ends), until - depth))
    parts += [keys[0][depth:until], body]
    start = 0
    for end in ends.values():
        _write_node(keys[start:end], until + 1, first + start, parts)
        start = end


def _branch(children: bytes) -> tuple[int, bytes]:
    """The kind and the body of a node whose children are under these sorted bytes."""
    count = len(children)
    # Java stores each row of bytes as a number, first byte highest, in little-endian order.
    if count <= 4:
        return 0, children.ljust(4, b"\0")[::-1]
    if count <= 16:
        row = children.ljust(16, b"\0")
        return 1, row[7::-1] + row[:7:-1]
    if count <= 48:
        places = np.full(256, 0xFF, np.uint8)
        places[np.frombuffer(children, np.uint8)] = np.arange(count)
        return 2, places.reshape(-1, 8)[:, ::-1].tobytes()
    bits = np.zeros(256, np.uint8)
    bits[np.frombuffer(children, np.uint8)] = 1
    return 3, np.packbits(bits, bitorder="little").tobytes()


# --- the portable form ----------------------------------------------------------------------------


def _to_portable(bucket: Sequence[_Container]) -> bytes:
    """One 32-bit bitmap in the portable format, from containers with the same high 32 bits."""
    bucket = [_by_cardinality(container) for container in bucket]
    count = len(bucket)
    has_runs = any(container.kind == _RUNS for container in bucket)
    if has_runs:
        flags = np.packbits(
            [container.kind == _RUNS for container in bucket], bitorder="little"
        ).tobytes()
        head = struct.pack("<HH", _COOKIE_RUNS, count - 1) + flags
    else:
        head = struct.pack("<II", _COOKIE_PLAIN, count)
    head += b"".join(
        struct.pack("<HH", container.key & 0xFFFF, container.cardinality - 1)
        for container in bucket
    )
    if not has_runs or count >= _NO_OFFSETS_BELOW:
        sizes = [len(container.data) for container in bucket]
        begins = len(head) + 4 * count + np.cumsum([0, *sizes[:-1]])
        head += begins.astype("<u4").tobytes()
    return head + b"".join(container.data for container in bucket)


def _by_cardinality(container: _Container) -> _Container:
    """The container as an array or as bits: its cardinality decides this in the portable format.

    Java may write bits for few values, or an array for many.
    """
    wanted = _ARRAY if container.cardinality <= _ARRAY_MAX else _BITS
    if container.kind in (_RUNS, wanted):
        return container
    if wanted == _ARRAY:
        bits = np.unpackbits(np.frombuffer(container.data, np.uint8), bitorder="little")
        content = np.flatnonzero(bits).astype("<u2").tobytes()
    else:
        bits = np.zeros(_BITS_BYTES * 8, np.uint8)
        bits[np.frombuffer(container.data, "<u2")] = 1
        content = np.packbits(bits, bitorder="little").tobytes()
    return _Container(container.key, wanted, container.cardinality, content)


def _from_portable(data: bytes) -> Iterator[_Container]:
    """The containers of a 64-bit bitmap, in order of key."""
    (buckets,) = struct.unpack_from("<Q", data, 0)
    at = 8
    for _ in range(buckets):
        (high,) = struct.unpack_from("<I", data, at)
        at += 4
        cookie, count = struct.unpack_from("<HH", data, at)
        flags = np.zeros(0, np.uint8)
        has_runs = cookie == _COOKIE_RUNS
        at += 4
        if has_runs:
            count += 1
            width = (count + 7) // 8
            flags = np.unpackbits(np.frombuffer(data, np.uint8, width, at), bitorder="little")
            at += width
        else:
            (count,) = struct.unpack_from("<I", data, at)
            at += 4
        heads = np.frombuffer(data, "<u2", 2 * count, at).reshape(count, 2).astype(int).tolist()
        at += 4 * count
        if not has_runs or count >= _NO_OFFSETS_BELOW:
            at += 4 * count
        for place, (low, less_one) in enumerate(heads):
            cardinality = less_one + 1
            if has_runs and flags[place]:
                kind, size = _RUNS, 2 + 4 * struct.unpack_from("<H", data, at)[0]
            elif cardinality > _ARRAY_MAX:
                kind, size = _BITS, _BITS_BYTES
            else:
                kind, size = _ARRAY, 2 * cardinality
            yield _Container(high << 16 | low, kind, cardinality, data[at : at + size])
            at += size


# --- sketches ------------------------------------------------------------------------------------

# Exceptions of the libraries for bytes that they cannot read.
_UNREADABLE = (ValueError, RuntimeError, IndexError, KeyError, struct.error, MemoryError)

# The header of a theta sketch: its size in longs, and its flags.
_LONGS = 0x3F
_FLAGS_AT = 5
_IS_EMPTY = 0x04
_IS_SINGLE = 0x20


def rbm32(aggregate: Aggregate) -> Fold:
    """The union of 32-bit roaring bitmaps in the portable format."""

    def union(sets: Sequence[bytes]) -> bytes:
        merged = BitMap.union(*map(BitMap.deserialize, sets))
        merged.run_optimize()
        merged_bytes: bytes = merged.serialize()
        return merged_bytes

    return _union_of(aggregate, union)


def rbm64(aggregate: Aggregate) -> Fold:
    """The union of 64-bit roaring bitmaps in the format of Java's Roaring64Bitmap."""

    def union(sets: Sequence[bytes]) -> bytes:
        return encode(BitMap64.union(*map(decode, sets)))

    return _union_of(aggregate, union)


def hll_sketch(aggregate: Aggregate) -> Fold:
    """The union of HLL sketches of Apache DataSketches, as a compact sketch of type HLL_4.

    At each step, the next sketch determines the size of the union.
    """
    library = _datasketches(aggregate)

    def union(sets: Sequence[bytes]) -> bytes:
        sketches = map(library.hll_sketch.deserialize, sets)
        merged = next(sketches)
        for sketch in sketches:
            step = library.hll_union(sketch.lg_config_k)
            step.update(sketch)
            step.update(merged)
            merged = step.get_result(library.tgt_hll_type.HLL_4)
        merged_bytes: bytes = merged.serialize_compact()
        return merged_bytes

    return _union_of(aggregate, union)


def theta_sketch(aggregate: Aggregate) -> Fold:
    """The union of compact theta sketches of Apache DataSketches, with 4096 nominal entries."""
    library = _datasketches(aggregate)

    def union(sets: Sequence[bytes]) -> bytes:
        merged = library.compact_theta_sketch.deserialize(sets[0])
        for data in sets[1:]:
            step = library.theta_union()
            step.update(merged)
            step.update(library.compact_theta_sketch.deserialize(data))
            merged = step.get_result()
        return _as_java(merged.serialize())

    return _union_of(aggregate, union)


def _as_java(theta: bytes) -> bytes:
    """A compact theta sketch with Java's header, so that equal sketches have equal bytes.

    Java sets a flag for a single value, writes the sampling probability 1.0 for several values, and
    omits the hash of the seed for an empty sketch. No reader uses these fields.
    """
    longs, flags = theta[0] & _LONGS, theta[_FLAGS_AT]
    if longs > 1:
        return theta[:12] + struct.pack("<f", 1.0) + theta[16:]
    if flags & _IS_EMPTY:
        return theta[:6] + b"\0\0"
    return theta[:_FLAGS_AT] + bytes([flags | _IS_SINGLE]) + theta[_FLAGS_AT + 1 :]


def _union_of(aggregate: Aggregate, union: Callable[[Sequence[bytes]], bytes]) -> Fold:
    """A fold that computes the union of the sets in each group.

    A group with one set is unchanged.
    """

    def checked(sets: Sequence[bytes]) -> bytes:
        try:
            return union(sets)
        except _UNREADABLE as error:
            raise InvalidRequest(
                "the aggregate function cannot read a value",
                column=aggregate.column,
                function=aggregate.function,
                reason=error,
            ) from error

    def fold(values: pa.Array, groups: Groups, _: np.ndarray | None) -> pa.Array:
        rows, numbers, known = groups.only(is_valid(values))
        first = pick(values, rows[known.starts])
        several = np.flatnonzero(known.sizes > 1)
        if not len(several):
            return spread(first, numbers, groups.count)
        bounds = zip(known.starts[several].tolist(), known.lasts[several].tolist(), strict=True)
        united = pa.array(
            [
                checked(values.take(pa.array(rows[start : last + 1])).to_pylist())
                for start, last in bounds
            ],
            values.type,
        )
        place = np.arange(known.count)
        place[several] = known.count + np.arange(len(several))
        return spread(pick(pa.concat_arrays([first, united]), place), numbers, groups.count)

    return Fold(fold=fold, commutes=True)


def _datasketches(aggregate: Aggregate) -> ModuleType:
    what = f"the function {aggregate.function} of column {aggregate.column}"
    return optional("datasketches", extra="sketches", what=what)
