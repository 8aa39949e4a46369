"""A file of BLOB values that is being written.

Values wait until they take about 1 MiB, so memory does not grow with their number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.format.blob_file import (
    NULL,
    PLACEHOLDER,
    encode_entry,
    encode_index,
    place_of_value,
)
from lakecore.io.files.output_file import OutputFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.io.stores.store import Store

_WAITING_BYTES_MAX = 1 << 20
"""Small values are written together, about so many bytes at once."""


class BlobOutput:
    """An open file of BLOB values."""

    def __init__(self, store: Store, path: str) -> None:
        self.path = path
        self.lengths: list[int] = []
        self.size_bytes = 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._file = OutputFile(store, path)

    def add(self, pieces: Sequence[bytes]) -> tuple[int, int]:
        """Append a value that is in pieces. Returns its offset and length in the file."""
        entry = encode_entry(pieces)
        size_bytes = sum(map(len, entry))
        begin = self.size_bytes
        self._waiting += entry
        self._waiting_bytes += size_bytes
        self.size_bytes += size_bytes
        self.lengths.append(size_bytes)
        if self._waiting_bytes >= _WAITING_BYTES_MAX:
            self._write_waiting()
        return place_of_value(begin, size_bytes)

    def add_null(self) -> None:
        """Append null."""
        self.lengths.append(NULL)

    def add_placeholder(self) -> None:
        """Append a placeholder: an older file holds the value."""
        self.lengths.append(PLACEHOLDER)

    def _write_waiting(self) -> None:
        parts, self._waiting = self._waiting, []
        # Joining large values would copy them.
        joined = self._waiting_bytes <= 2 * _WAITING_BYTES_MAX
        for part in [b"".join(parts)] if joined else parts:
            self._file.write(part)
        self._waiting_bytes = 0

    def close(self) -> int:
        """End the file. Returns its size in bytes."""
        try:
            self._write_waiting()
            self._file.write(encode_index(self.lengths))
            self._file.close()
        except BaseException:
            self.abort()
            raise
        return self._file.size_bytes

    def abort(self) -> None:
        """Abandon the file and remove it."""
        self._file.abort()
