"""A file of BLOB values that is being written.

Values wait until they take about 1 MiB, so memory does not grow with their number. Only then, or at
its end, the file is opened.
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
_OPEN_BYTES = 4 << 20
"""What an open file counts: some storages buffer a part of it, and a process may open few files."""


class BlobOutput:
    """An open file of BLOB values."""

    def __init__(self, store: Store, path: str) -> None:
        self.path = path
        self.lengths: list[int] = []
        self.size_bytes = 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._store = store
        self._file: OutputFile | None = None

    @property
    def held_bytes(self) -> int:
        """The memory in bytes that the file takes."""
        return self._waiting_bytes + (0 if self._file is None else _OPEN_BYTES)

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

    def _write_waiting(self) -> OutputFile:
        if self._file is None:
            self._file = OutputFile(self._store, self.path)
        parts, self._waiting = self._waiting, []
        # Joining large values would copy them.
        joined = self._waiting_bytes <= 2 * _WAITING_BYTES_MAX
        for part in [b"".join(parts)] if joined else parts:
            self._file.write(part)
        self._waiting_bytes = 0
        return self._file

    def close(self) -> int:
        """End the file. Returns its size in bytes."""
        try:
            file = self._write_waiting()
            file.write(encode_index(self.lengths))
            file.close()
        except BaseException:
            self.abort()
            raise
        return file.size_bytes

    def abort(self) -> None:
        """Abandon the file and remove it."""
        if self._file is not None:
            self._file.abort()
