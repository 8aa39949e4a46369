"""The hash index of a dynamic bucket <-> bytes: the hash of every key ever put in it.

The file consists of big-endian 32-bit integers; their order has no meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakecore.errors import CorruptTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STORED = np.dtype(">i4")


def decode_hashes(data: bytes, path: str) -> NDArray[np.int32]:
    """The hashes that an index file holds, in its order."""
    if len(data) % _STORED.itemsize:
        raise CorruptTable("a hash index is cut short", path=path, size_bytes=len(data))
    return np.frombuffer(data, dtype=_STORED).astype(np.int32)


def encode_hashes(hashes: NDArray[np.int32]) -> bytes:
    """The bytes of an index file of these hashes."""
    return hashes.astype(_STORED).tobytes()
