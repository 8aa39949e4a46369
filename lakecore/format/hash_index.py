"""Converts the hash index of a dynamic bucket to bytes and back.

The index has the hash of every key that was ever put in the bucket. The file consists of big-endian
32-bit integers; their order has no meaning. A damaged hash would silently put a stored key into a
second bucket. The format has no checksum, and other programs would read a trailer as hashes. So
lakecore puts the CRC-32 of the file into its name.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from lakecore.errors import CorruptTable
from lakecore.format.layout import checksum_in, index_file_name
from lakecore.model.files import HASH_INDEX, IndexFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STORED = np.dtype(">i4")


def decode_hashes(data: bytes, file: IndexFile, path: str) -> NDArray[np.int32]:
    """The hashes that an index file holds, in the order of the file.

    Raises CorruptTable naming `path` if the bytes are not those that the index manifest and the
    name of the file describe. The name has a checksum only if lakecore wrote the file.
    """
    if len(data) != file.size_bytes or len(data) != file.row_count * _STORED.itemsize:
        raise CorruptTable(
            "a hash index has another size than its manifest says",
            path=path,
            size_bytes=len(data),
            manifest_size_bytes=file.size_bytes,
            manifest_hashes=file.row_count,
        )
    if checksum_in(file.name) not in (None, zlib.crc32(data)):
        raise CorruptTable("a hash index fails its checksum", path=path)
    return np.frombuffer(data, dtype=_STORED).astype(np.int32)


def encode_hashes(hashes: NDArray[np.int32], writer: str) -> tuple[bytes, IndexFile]:
    """The bytes of an index file with these hashes, and its entry.

    `writer` is a part of the file name, and makes it unique.
    """
    data = hashes.astype(_STORED).tobytes()
    return data, IndexFile(
        index_type=HASH_INDEX,
        name=index_file_name(writer, 0, zlib.crc32(data)),
        size_bytes=len(data),
        row_count=len(hashes),
    )
