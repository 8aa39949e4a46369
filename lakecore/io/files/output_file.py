"""A file that is written by appending bytes: it is either closed, or abandoned and removed."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from lakecore.io.files.file_format import Abandoned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.io.stores.store import Store

__all__ = ["OutputFile", "RowFile"]


class OutputFile:
    """An open file. `head` are its first bytes; if their write fails, the file is removed."""

    def __init__(self, store: Store, path: str, *, head: bytes = b"") -> None:
        self._store = store
        self._path = path
        self.size_bytes = len(head)
        with ExitStack() as opening:
            self._out = opening.enter_context(store.open_output(path))
            if head:
                self._out.write(head)
            self._closing = opening.pop_all()

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._out.write(data)
        self.size_bytes += len(data)

    def close(self) -> None:
        """End the file, which is then visible."""
        self._closing.close()

    def abort(self) -> None:
        """Abandon the file and remove it."""
        self._closing.__exit__(Abandoned, Abandoned(), None)
        self._store.delete(self._path)


class RowFile:
    """The methods of `RunWriter` for formats that write rows immediately and have no bounds."""

    def __init__(self, file: OutputFile) -> None:
        self._file = file
        self._row_count = 0

    def holds(self, size_bytes: int) -> bool:
        return self._file.size_bytes >= size_bytes

    def flush(self) -> None:
        """Does nothing: rows are written immediately."""

    def close(self) -> tuple[int, int]:
        try:
            self._file.close()
        except BaseException:
            self.abort()
            raise
        return self._file.size_bytes, self._row_count

    @property
    def text_bounds(self) -> Mapping[str, tuple[str, str]]:
        """Always empty: the format has no bounds."""
        return {}

    def abort(self) -> None:
        self._file.abort()
