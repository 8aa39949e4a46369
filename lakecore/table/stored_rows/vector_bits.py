"""Deletion vectors as one bit for each row of a file; those of local index files are cached."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakecore.format.deletion_vector import decode_vectors
from lakecore.io.cache import Cache
from lakecore.io.files.file_checks import identity_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.io.stores.store import Store
    from lakecore.model.files import DataFile, VectorRange

_KNOWN: Cache[tuple[object, ...], bytes] = Cache(1)


def kept_bits(
    store: Store, path: str, parts: Sequence[tuple[DataFile, VectorRange]]
) -> Mapping[str, bytes]:
    """For each file, by name, a bit for each row: 1 unless its vector marks the row.

    The lowest bit of a byte comes first. The index file at `path` is only read for vectors that are
    not cached, or if it has changed. Raises NotFound for a missing file, CorruptTable for a damaged
    vector.
    """
    identity = identity_of(store, path)
    found: dict[str, bytes] = {}
    data: bytes | None = None
    for file, where in parts:
        key = (identity, where.offset, where.length, file.name, file.row_count)
        bits = None if identity is None else _KNOWN.get(key)
        if bits is None:
            data = store.read(path) if data is None else data
            deleted = decode_vectors(data, [where], path, file.row_count)[file.name]
            kept = np.ones(file.row_count, bool)
            kept[deleted[deleted < file.row_count]] = False
            bits = np.packbits(kept, bitorder="little").tobytes()
            if identity is not None:
                _KNOWN.put(key, bits, len(bits))
        found[file.name] = bits
    return found


def flags_of(bits: bytes, row_count: int) -> np.ndarray:
    """The bits as an array of booleans."""
    packed = np.frombuffer(bits, np.uint8)
    return np.unpackbits(packed, count=row_count, bitorder="little").view(bool)
