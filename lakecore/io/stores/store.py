"""The storage interface `Store`: files by path. `MemoryStore` is its reference implementation.

A path is a full path or a URI, as `format.layout` builds it: `/data/w/shop.db/t/snapshot/LATEST`,
`s3://bucket/w/...`, `memory://name/...`. The parts of a path are separated by `/`.

INVARIANT: `put_if_absent` is the only atomic step that lakecore relies on. Other readers may see
any other operation half done, and this must be harmless. Data files, manifests and manifest lists
are therefore written under new names that nobody reads before a snapshot refers to them.

Stores differ in two ways, and no code may depend on either: whether a directory still exists after
its last file is deleted, and whether a file is visible before its output is closed.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeAlias

import pyarrow as pa
from pyarrow.fs import FileSystem, LocalFileSystem

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
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType


DELETES_MAX = 1_000
"""The most files of a call of `Store.delete_many`."""
DeleteMany: TypeAlias = "Callable[[Sequence[str]], None]"
NEAR_AT_ONCE, FAR_AT_ONCE = 8, 64
"""`Store.at_once` of a local disk, and of a storage behind a network."""


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A file or directory in a listing; its time is None if the storage states none.

    `is_link`: whether the entry is a symbolic link; the other facts are then those of its target.
    """

    path: str
    size_bytes: int
    modified_ms: int | None
    is_directory: bool
    is_link: bool = False


class Store(Protocol):
    """Files by path. `put_if_absent` is the only atomic step that lakecore relies on.

    Every method raises `StorageError` if the storage refuses the operation (permissions, space,
    network).
    """

    def read(self, path: str) -> bytes:
        """The whole file; `NotFound` if it does not exist."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory with this path exists."""

    def size(self, path: str) -> int:
        """The size of a file in bytes; `NotFound` if it does not exist."""

    def list(self, directory: str) -> tuple[FileStatus, ...]:
        """The direct children, sorted by name; empty if the directory does not exist."""

    def put(self, path: str, data: bytes) -> None:
        """Write a whole file; replaces an existing one, and creates its directories."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file if it does not exist. Exactly one of several concurrent callers gets True.

        The bytes must be unique to the caller (a snapshot contains a uuid), because a store may
        return True if the file already exists with the same bytes. Raises `CommitUnknown` if the
        file may exist, now or later. After any other error of lakecore, the file does not exist and
        will not be created.
        """

    def delete(self, path: str) -> None:
        """Delete a file; no error if it does not exist."""

    @property
    def delete_many(self) -> DeleteMany | None:
        """Deletes up to `DELETES_MAX` files by one request; None if the store has no such request.

        No error if some do not exist.
        """

    @property
    def at_once(self) -> int:
        """How many calls are best made concurrently: more if each waits for a network."""

    def delete_directory(self, path: str) -> None:
        """Delete a directory and everything below it; no error if it does not exist."""

    def remove_empty_directory(self, path: str) -> None:
        """Remove a directory if it is empty; no error if it does not exist or holds files."""

    @property
    def renames_at_once(self) -> bool:
        """Whether `rename_directory` is atomic, that is, one step."""

    def rename_directory(self, source: str, target: str) -> None:
        """Rename a directory; `NotFound` if it is missing, `AlreadyExists` if the target exists."""

    def copy_directory(self, source: str, target: str) -> None:
        """Copy a directory file by file, in any order, into a directory that may exist."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; no error if it exists."""

    def open_input(self, path: str) -> pa.NativeFile:
        """A file opened for random access; `NotFound` if it does not exist."""

    def open_output(self, path: str) -> AbstractContextManager[pa.NativeFile]:
        """A new file to write to, which is complete and durable when the block ends.

        Missing directories are created. If the block raises an error, the file is deleted.
        """

    def local_path(self, path: str) -> str | None:
        """The path by which an engine's own reader can open the file directly, or None."""


def has_file(store: Store, path: str) -> bool:
    """Whether a small file exists, by reading it.

    `Store.exists` also looks for a directory, by a listing if there is no such file.
    """
    try:
        store.read(path)
    except NotFound:
        return False
    return True


def discard(store: Store, path: str) -> None:
    """Delete a file of work that failed. If that fails too, the file remains as an orphan.

    Raises no error of the store, which would hide the first failure.
    """
    with suppress(LakecoreError, OSError):
        store.delete(path)


@dataclass(frozen=True, slots=True)
class plain_errors:  # noqa: N801 - used as a function
    """Translate errors of the operating system about `path` into lakecore's errors, chained.

    NOTE: No generator. From Python 3.12 on, an error that leaves one refers to all frames above it
    and they to the error: what they hold, such as memory of the budget, stays until the garbage
    collector runs. Most of these errors are expected: a look for a file that is not there.
    """

    path: str

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        path = self.path
        match error:
            case None | LakecoreError():
                return
            case FileNotFoundError() | NotADirectoryError():
                raise NotFound("no such file", path=path) from error
            case IsADirectoryError():
                raise NotFound("a directory, not a file", path=path) from error
            case FileExistsError():
                raise AlreadyExists("the path exists already", path=path) from error
            case OSError():
                reason = error.strerror or error
                raise StorageError("the storage refused", path=path, reason=reason) from error


@contextmanager
def damage_is_corrupt(path: str, what: str) -> Iterator[None]:
    """Translate Arrow's errors about the bytes of a data file into CorruptTable.

    Other errors are translated as by `plain_errors`.
    """
    try:
        with plain_errors(path):
            try:
                yield
            except OSError as error:
                # Arrow's own OSError has no number and no subclass, unlike one of the operating
                # system.
                if type(error) is not OSError or error.errno is not None:
                    raise
                raise _damaged(path, what, error) from error
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, UnicodeDecodeError, ZeroDivisionError) as error:
        raise _damaged(path, what, error) from error


def _damaged(path: str, what: str, error: Exception) -> CorruptTable:
    return CorruptTable(f"the data file is not readable as {what}", path=path, cause=error)


@dataclass(frozen=True, slots=True)
class _MemoryFile:
    data: pa.Buffer
    modified_ms: int


class MemoryStore:
    """Files in the memory of this process: the reference implementation of `Store`.

    A directory exists while it contains something, as in an object store, or after
    `make_directory`. With `renames_at_once=False`, directory operations can be seen half done, as
    in an object store.
    """

    def __init__(self, ambient: Ambient = SYSTEM, *, renames_at_once: bool = True) -> None:
        self._ambient = ambient
        self.renames_at_once = renames_at_once
        self._lock = threading.RLock()
        self._files: dict[str, _MemoryFile] = {}
        self._directories: set[str] = set()

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: another process would see other files under the same names."""
        raise Unsupported(
            "a memory:// warehouse exists only in its own process; use a warehouse on "
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

    delete_many = None
    at_once = NEAR_AT_ONCE

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
        """As `Store.open_output`; the file becomes visible when the block ends."""
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


# --- no files ------------------------------------------------------------------------------------
# A file that cannot be opened, for libraries that require one.
#
# Opening it fails within Arrow's C++ code. A file system written in Python could fail instead, but
# Arrow's threads may call it while the interpreter shuts down, which aborts the process.

NO_FILES: FileSystem = LocalFileSystem()
"""The file system in which Arrow looks for `NO_FILE`."""
NO_FILE = (
    "/dev/null/pyarrow's own functions cannot read the rows that lakecore merges; give them "
    "dataset.to_table(), or query the dataset by DuckDB or Polars"
)
"""The path, which Arrow's error shows. No such file can exist: /dev/null is no directory."""
