"""Reads the BLOB values that descriptors name.

Whoever writes a row chooses the file that its descriptor names. `format/blob_paths.py` decides
which files may be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from lakecore.errors import CorruptTable, InvalidRequest, NotFound
from lakecore.format.blob_paths import managed_here, referenced
from lakecore.format.blob_references import BlobDescriptor
from lakecore.format.locations import is_local, is_within, storage_of
from lakecore.io.stores.open import locate, open_store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    import pyarrow as pa

    from lakecore.format.layout import Layout
    from lakecore.io.stores.store import Store

__all__ = ["ReferencedBlobs"]


class ReferencedBlobs:
    """Reads values by their descriptors; a context manager that keeps the last file open.

    Files in another storage than the table are read with `storage_options`.
    """

    def __init__(self, store: Store, layout: Layout, storage_options: Mapping[str, str]) -> None:
        self._store = store
        self._layout = layout
        self._options = dict(storage_options)
        self._path = ""
        self._file: pa.NativeFile | None = None
        self._file_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the open file."""
        if self._file is not None:
            self._file.close()
        self._file, self._path = None, ""

    def size(self, reference: bytes) -> int:
        """The length of a value in bytes; reads the length of its file if only that tells it."""
        named = _descriptor(reference)
        if named.length >= 0:
            return named.length
        self._open(named)
        return max(self._file_bytes - named.offset, 0)

    def read(self, reference: bytes) -> bytes:
        """The bytes of a value.

        Raises InvalidRequest if the file may not be read, CorruptTable if it lacks these bytes or
        is a missing file of the table, and NotFound if another file is missing.
        """
        named = _descriptor(reference)
        file = self._open(named)
        length = self._file_bytes - named.offset if named.length < 0 else named.length
        if named.offset + length > self._file_bytes or length < 0:
            raise CorruptTable(
                "a descriptor names bytes beyond the end of a file",
                file=self._path,
                offset=named.offset,
                length=named.length,
                file_bytes=self._file_bytes,
            )
        found: bytes = file.read_at(length, named.offset)
        if len(found) != length:
            raise CorruptTable("a file of BLOB values ends early", file=self._path)
        return found

    def _open(self, named: BlobDescriptor) -> pa.NativeFile:
        """The file that holds a value; it stays open until another one is needed."""
        path = self._path_of(named.uri)
        if self._file is None or path != self._path:
            self.close()
            try:
                self._file = self._store_of(path).open_input(path)
            except NotFound as error:
                if is_within(path, self._layout.root):
                    raise CorruptTable("a file of BLOB values is missing", file=path) from error
                raise
            self._path, self._file_bytes = path, self._file.size()
        return self._file

    def _path_of(self, uri: str) -> str:
        """The path of the file that a descriptor names; also of a managed file that was moved."""
        try:
            return locate(referenced(self._layout, uri))
        except InvalidRequest:
            moved = managed_here(self._layout, uri)
            if moved is None or not self._store.exists(moved):
                raise
            return moved

    def _store_of(self, path: str) -> Store:
        """The store of a file.

        Raises InvalidRequest for another bucket of the table's storage without options for it.
        """
        root = self._layout.root
        own = is_local(root) and is_local(path)
        if own or _bucket(path) == _bucket(root):
            return self._store
        if storage_of(path) == storage_of(root) and not self._options:
            raise InvalidRequest(
                "a descriptor names a file in another bucket than the table; give the options of "
                "that storage with the prefix blob-descriptor.",
                file=path,
                table=root,
            )
        return open_store(path, self._options)


def _descriptor(reference: bytes) -> BlobDescriptor:
    try:
        return BlobDescriptor.from_bytes(reference)
    except InvalidRequest as error:
        raise CorruptTable(f"a BLOB column holds something else: {error.message}") from error


def _bucket(path: str) -> tuple[str, str]:
    """The storage of a path, and its bucket or host."""
    return storage_of(path), path.partition("://")[2].partition("/")[0]
