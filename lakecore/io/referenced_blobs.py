"""Reads the BLOB values that descriptors name.

Whoever writes a row chooses the file that its descriptor names. `format/blob_references.py` decides
which files may be read.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from lakecore.errors import CorruptTable, InvalidRequest, NotFound
from lakecore.format.blob_references import BlobDescriptor, managed_here, referenced
from lakecore.format.layout import Layout, is_local, is_within, storage_of
from lakecore.io.stores.open import locate, open_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from lakecore.io.stores.store import Store


_OPEN_MAX = 16
"""The most files that stay open: neighbouring rows have values in several files."""


@dataclass(frozen=True, slots=True)
class _Opened:
    path: str
    file: pa.NativeFile
    size_bytes: int


class ReferencedBlobs:
    """Reads values by their descriptors; a context manager that keeps a few files open.

    Files in another storage than the table are read with `storage_options`.
    """

    def __init__(self, store: Store, layout: Layout, storage_options: Mapping[str, str]) -> None:
        self._store = store
        self._layout = layout
        self._options = dict(storage_options)
        self._files: dict[str, _Opened] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        opened, self._files = self._files, {}
        for each in opened.values():
            each.file.close()

    def size(self, reference: bytes) -> int:
        """The length of a value in bytes; if the reference does not state it, from the file."""
        named = _descriptor(reference)
        if named.length >= 0:
            return named.length
        return max(self._open(named.uri).size_bytes - named.offset, 0)

    def read(self, reference: bytes) -> bytes:
        """The bytes of a value. For a value without bytes, no file is read.

        Raises InvalidRequest if the file may not be read, CorruptTable if it lacks these bytes or
        is a missing file of the table, and NotFound if another file is missing.
        """
        named = _descriptor(reference)
        if named.length == 0:
            return b""
        opened = self._open(named.uri)
        length = opened.size_bytes - named.offset if named.length < 0 else named.length
        if named.offset + length > opened.size_bytes or length < 0:
            raise CorruptTable(
                "a descriptor names bytes beyond the end of a file",
                file=opened.path,
                offset=named.offset,
                length=named.length,
                file_bytes=opened.size_bytes,
            )
        found: bytes = opened.file.read_at(length, named.offset)
        if len(found) != length:
            raise CorruptTable("a file of BLOB values ends early", file=opened.path)
        return found

    def _open(self, uri: str) -> _Opened:
        """The file that a descriptor names; the least recently used file is closed if needed."""
        opened = self._files.pop(uri, None)
        if opened is None:
            if len(self._files) >= _OPEN_MAX:
                self._files.pop(next(iter(self._files))).file.close()
            path, file = self._found(uri)
            opened = _Opened(path, file, file.size())
        self._files[uri] = opened
        return opened

    def _found(self, uri: str) -> tuple[str, pa.NativeFile]:
        """The path of the file that a descriptor names, and the file.

        A managed file is also found if the table was moved.
        """
        path = ""
        try:
            path = locate(referenced(self._layout, uri))
            _refuse_link_out(path, self._layout)
            return path, store_of(path, self._store, self._layout, self._options).open_input(path)
        except (InvalidRequest, NotFound) as error:
            moved = managed_here(self._layout, uri)
            if moved is not None and moved != path:
                with suppress(NotFound):
                    return moved, self._store.open_input(moved)
            if isinstance(error, NotFound) and is_within(path, self._layout.root):
                raise CorruptTable("a file of BLOB values is missing", file=path) from error
            raise


def _refuse_link_out(path: str, layout: Layout) -> None:
    """Raise InvalidRequest for a local file whose symbolic links lead out of the allowed places."""
    if not is_local(path):
        return
    allowed = [each for each in (layout.root, *layout.blob_roots) if is_local(each)]
    real = os.path.realpath(path)
    if not any(is_within(real, os.path.realpath(locate(each))) for each in allowed):
        raise InvalidRequest(
            "a symbolic link leads from the place that a descriptor names to one that is not "
            "allowed; if its files may be read, give its directory by lakecore.blob-paths",
            file=path,
            table=layout.root,
        )


def store_of(path: str, store: Store, layout: Layout, storage_options: Mapping[str, str]) -> Store:
    """The store of a file of BLOB values: that of the table, or one with `storage_options`.

    Raises InvalidRequest for another bucket of the table's storage without options for it.
    """
    root = layout.root
    own = is_local(root) and is_local(path)
    if own or _bucket(path) == _bucket(root):
        return store
    if storage_of(path) == storage_of(root) and not storage_options:
        raise InvalidRequest(
            "the place of BLOB values is in another bucket than the table; give the options of "
            "that storage with the prefix blob-descriptor., as dynamic options",
            path=path,
            table=root,
        )
    return open_store(path, storage_options)


def _descriptor(reference: bytes) -> BlobDescriptor:
    try:
        return BlobDescriptor.from_bytes(reference)
    except InvalidRequest as error:
        raise CorruptTable(f"a BLOB column holds something else: {error.message}") from error


def _bucket(path: str) -> tuple[str, str]:
    """The storage of a path, and its bucket or host."""
    return storage_of(path), path.partition("://")[2].partition("/")[0]
