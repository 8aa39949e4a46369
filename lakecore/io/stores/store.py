"""Bytes by name: what lakecore asks of a storage, and a storage in memory that defines it.

A path is a full path or a URI, as `format.layout` builds it: `/data/w/shop.db/t/snapshot/LATEST`,
`s3://bucket/w/...`, `memory://name/...`. Its parts are separated by `/`.

INVARIANT: `put_if_absent` is the only atomic step that lakecore relies on. All else may be seen
half done by others, and must be harmless then: a data file, a manifest, a list is written under a
fresh name that nobody knows before a snapshot names it.

What differs between stores, so that nothing may depend on it: whether a directory is still there
after its last file went; whether a file shows up before its output is closed.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Protocol

import pyarrow as pa

from lakecore.errors import (
    AlreadyExists,
    CorruptTable,
    LakecoreError,
    NotFound,
    StorageError,
    Unsupported,
)
from lakecore.io.ambient import SYSTEM, Ambient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

__all__ = ["FileStatus", "MemoryStore", "Store", "damage_is_corrupt", "plain_errors"]


@dataclass(frozen=True, slots=True)
class FileStatus:
    """One child of a directory; the time is None where the storage keeps none."""

    path: str
    size_bytes: int
    modified_ms: int | None
    is_directory: bool


class Store(Protocol):
    """Bytes by name. `put_if_absent` is the only atomic step lakecore relies on.

    Every method raises `StorageError` when the storage refuses: permission, space, network.
    """

    def read(self, path: str) -> bytes:
        """The whole file; `NotFound` if there is none."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory of that name."""
        ...

    def size(self, path: str) -> int:
        """The bytes of a file; `NotFound` if there is none."""
        ...

    def list(self, directory: str) -> tuple[FileStatus, ...]:
        """The direct children, sorted by name; none if there is no such directory."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write a file in one piece, over the one that may be there; makes its directories."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file if it does not exist. Of concurrent callers, exactly one gets True.

        The bytes have to be the caller's own (a snapshot carries a uuid): a store may answer True
        to the bytes that are there already. `CommitUnknown`: the file may or may not be there, now
        or later. Any other error of lakecore: it is not, and will not be.
        """
        ...

    def delete(self, path: str) -> None:
        """Remove a file; that it is absent is fine."""
        ...

    def delete_directory(self, path: str) -> None:
        """Remove a directory and all that is below it; that it is absent is fine."""
        ...

    def remove_empty_directory(self, path: str) -> None:
        """Remove a directory if nothing is in it; that it is absent, or holds files, is fine."""
        ...

    @property
    def renames_at_once(self) -> bool:
        """Whether `rename_directory` is one step, of which nobody sees a part."""
        ...

    def rename_directory(self, source: str, target: str) -> None:
        """Move a directory; `NotFound`, or `AlreadyExists` if the target does."""
        ...

    def copy_directory(self, source: str, target: str) -> None:
        """Copy a directory file by file, in any order, into one that may be there."""
        ...

    def make_directory(self, path: str) -> None:
        """Make a directory, and those above it; that it exists is fine."""
        ...

    def open_input(self, path: str) -> pa.NativeFile:
        """A file for random access; `NotFound` if there is none."""
        ...

    def open_output(self, path: str) -> AbstractContextManager[pa.NativeFile]:
        """A new file to write to, complete and durable once the block ends; makes directories.

        If the block ends with an error the file is removed.
        """
        ...

    def local_path(self, path: str) -> str | None:
        """The path by which a native reader may open the file itself, or None."""
        ...


@contextmanager
def plain_errors(path: str) -> Iterator[None]:
    """Raise what the operating system says of `path` as an error of lakecore's tree, chained."""
    try:
        yield
    except LakecoreError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound("no such file", path=path) from error
    except IsADirectoryError as error:
        raise NotFound("a directory, not a file", path=path) from error
    except FileExistsError as error:
        raise AlreadyExists("the path is taken", path=path) from error
    except OSError as error:
        reason = error.strerror or error
        raise StorageError("the storage refused", path=path, reason=reason) from error


@contextmanager
def damage_is_corrupt(path: str, what: str) -> Iterator[None]:
    """Raise what Arrow says of the bytes of a data file as CorruptTable, else as `plain_errors`."""
    try:
        with plain_errors(path):
            try:
                yield
            except OSError as error:
                # Arrow's own has neither a number nor a kind, as what the system says has.
                if type(error) is not OSError or error.errno is not None:
                    raise
                raise _damaged(path, what, error) from error
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, UnicodeDecodeError, ZeroDivisionError) as error:
        raise _damaged(path, what, error) from error


def _damaged(path: str, what: str, error: Exception) -> CorruptTable:
    return CorruptTable(f"the data file is no readable {what}", path=path, cause=error)


@dataclass(frozen=True, slots=True)
class _MemoryFile:
    data: pa.Buffer
    modified_ms: int


class MemoryStore:
    """Files in the memory of this process: the definition of `Store` that runs.

    Directories exist while something is in them, as in an object store, or once they were made.
    `renames_at_once=False` is how an object store is: directory operations can be seen half done.
    """

    def __init__(self, ambient: Ambient = SYSTEM, *, renames_at_once: bool = True) -> None:
        self._ambient = ambient
        self.renames_at_once = renames_at_once
        self._lock = threading.RLock()
        self._files: dict[str, _MemoryFile] = {}
        self._directories: set[str] = set()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: another process would see other files under the same names."""
        raise Unsupported(
            "what lies in the memory of a process cannot be handed to another; use a warehouse on "
            "disk, or in an object store"
        )

    def read(self, path: str) -> bytes:
        data: bytes = self._file(path).data.to_pybytes()
        return data

    def exists(self, path: str) -> bool:
        with self._lock:
            return path in self._files or self._is_directory(path.rstrip("/"))

    def size(self, path: str) -> int:
        size_bytes: int = self._file(path).data.size
        return size_bytes

    def list(self, directory: str) -> tuple[FileStatus, ...]:
        prefix = directory.rstrip("/") + "/"
        children: dict[str, FileStatus] = {}
        with self._lock:
            for path in (*self._files, *self._directories):
                if not path.startswith(prefix):
                    continue
                child = prefix + path[len(prefix) :].partition("/")[0]
                file = self._files.get(child)
                children[child] = (
                    FileStatus(child, 0, None, is_directory=True)
                    if file is None
                    else FileStatus(child, file.data.size, file.modified_ms, is_directory=False)
                )
        return tuple(children[path] for path in sorted(children))

    def put(self, path: str, data: bytes) -> None:
        self._keep(path, pa.py_buffer(bytes(data)))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self._lock:
            if self.exists(path):
                return False
            self.put(path, data)
            return True

    def delete(self, path: str) -> None:
        with self._lock:
            self._files.pop(path, None)

    def delete_directory(self, path: str) -> None:
        directory = path.rstrip("/")
        with self._lock:
            for name in self._below(directory):
                self._files.pop(name, None)
                self._directories.discard(name)
            self._directories.discard(directory)

    def remove_empty_directory(self, path: str) -> None:
        directory = path.rstrip("/")
        with self._lock:
            if not self._below(directory):
                self._directories.discard(directory)

    def rename_directory(self, source: str, target: str) -> None:
        source, target = source.rstrip("/"), target.rstrip("/")
        with self._lock:
            if not self._is_directory(source):
                raise NotFound("no such directory", path=source)
            if self.exists(target):
                raise AlreadyExists("the target of the rename exists", path=target)
            for name in (source, *self._below(source)):
                renamed = target + name[len(source) :]
                if name in self._files:
                    self._files[renamed] = self._files.pop(name)
                if name in self._directories:
                    self._directories.remove(name)
                    self._directories.add(renamed)

    def copy_directory(self, source: str, target: str) -> None:
        source, target = source.rstrip("/"), target.rstrip("/")
        with self._lock:
            for name in self._below(source):
                if name in self._files:
                    self._files[target + name[len(source) :]] = self._files[name]

    def make_directory(self, path: str) -> None:
        with self._lock:
            self._directories.add(path.rstrip("/"))

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self._file(path).data)

    @contextmanager
    def open_output(self, path: str) -> Iterator[pa.NativeFile]:
        """As `Store.open_output`; the file shows up when the block ends."""
        sink = pa.BufferOutputStream()
        yield sink
        self._keep(path, sink.getvalue())

    def local_path(self, path: str) -> str | None:  # noqa: ARG002 - there is none for any
        return None

    def _file(self, path: str) -> _MemoryFile:
        with self._lock:
            file = self._files.get(path)
        if file is None:
            raise NotFound("no such file", path=path)
        return file

    def _keep(self, path: str, data: pa.Buffer) -> None:
        with self._lock:
            self._files[path] = _MemoryFile(data, self._ambient.now_ms())

    def _is_directory(self, path: str) -> bool:
        return path in self._directories or bool(self._below(path))

    def _below(self, directory: str) -> tuple[str, ...]:
        prefix = directory + "/"
        names = (*self._files, *self._directories)
        return tuple(name for name in names if name.startswith(prefix))
