"""What was read of the data files of a table, and what was written to them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.model.rows import KIND_TEXTS
from tests.stores import FailingStore

if TYPE_CHECKING:
    from lakecore.io.stores.store import Store
    from lakecore.table.handle import Table


class ReadingStore(FailingStore):
    """Passes every call on, and adds up the bytes that its open files give out."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.bytes_read = 0

    def add(self, size_bytes: int) -> None:
        with self._lock:
            self.bytes_read += size_bytes

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(_Counted(self, super().open_input(path)), mode="r")

    def local_path(self, path: str) -> str | None:  # noqa: ARG002 - nobody may read past the count
        return None


class _Counted(io.RawIOBase):
    def __init__(self, store: ReadingStore, file: pa.NativeFile) -> None:
        self._store, self._file = store, file

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(None if size < 0 else size)
        self._store.add(len(data))
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        place: int = self._file.seek(offset, whence)
        return place

    def tell(self) -> int:
        place: int = self._file.tell()
        return place

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()


def rows_written(table: Table, *, changelog: bool = False) -> list[tuple[object, ...]]:
    """The rows of the newest snapshot's own files, each its kind and then its columns."""
    newest = table.context.history.latest_snapshot_id()
    assert newest is not None
    mode = "changelog" if changelog else "delta"
    changes = table.copy({"incremental-between-scan-mode": mode}).changes(newest - 1, newest)
    return [(KIND_TEXTS.index(kind), *row) for kind, *row in changes.collect().rows()]
