"""Files of the operating system; `put_if_absent` is a hard link.

A path is absolute or relative, or a `file:` URI, as `format.locations` reads it.

To publish a file only if it is absent:

1. write the bytes to a hidden file in the same directory, `.NAME.UUID.tmp`, and fsync it, so that
   no crash can leave a published file without its content;
2. hard-link it to the target: the link fails if the target exists, on NFS too;
3. remove the hidden name, and fsync the directory, so that the new name survives a power failure.

A crash leaves at most a hidden file, which is an orphan.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import (
    AlreadyExists,
    CommitUnknown,
    CorruptTable,
    InvalidRequest,
    NotFound,
    StorageError,
    Unsupported,
)
from lakecore.format.layout import canonical, check_text, is_local
from lakecore.io.ambient import SYSTEM
from lakecore.io.stores.store import NEAR_AT_ONCE, FileStatus, plain_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WRITE_BACK_BYTES = 4 << 20
_RENAMES_MAX = 3
_SYNC_FILE_RANGE_WRITE = 2

# Errors of `link` on file systems without hard links (FAT, some FUSE and network mounts).
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV}

# Errors of a failing disk or file server, after which the link may or may not exist.
_OUTCOME_UNKNOWN = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EINTR}

# Errors of a write. Other errors while an output is open come from the code of the caller.
_WRITE_FAILED = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class LocalStore:
    """Files of the operating system. Written data is durable when a call returns.

    A relative path refers to the working directory at the time the store was created.
    """

    def __init__(self) -> None:
        try:
            self._directory = os.getcwd()
        except FileNotFoundError:  # it was removed; absolute paths do not need it
            self._directory = ""

    def read(self, path: str) -> bytes:
        with plain_errors(path), open(self._at(path), "rb", opener=_open_regular) as file:
            return file.read()

    def exists(self, path: str) -> bool:
        with plain_errors(path):
            try:
                os.stat(self._at(path))
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def size(self, path: str) -> int:
        with plain_errors(path):
            status = os.stat(self._at(path))
            _require_regular(path, status)
        return status.st_size

    def list(self, directory: str) -> tuple[FileStatus, ...]:
        prefix = directory.rstrip("/") + "/"
        children: list[FileStatus] = []
        with plain_errors(directory):
            try:
                entries = os.scandir(self._at(directory))
            except (FileNotFoundError, NotADirectoryError):
                return ()
            with entries:
                for entry in entries:
                    with suppress(FileNotFoundError):  # removed since the listing began
                        status = entry.stat()
                        is_directory = stat.S_ISDIR(status.st_mode)
                        size_bytes = 0 if is_directory else status.st_size
                        modified_ms = status.st_mtime_ns // 1_000_000
                        child = FileStatus(
                            prefix + entry.name,
                            size_bytes,
                            modified_ms,
                            is_directory,
                            is_link=entry.is_symlink(),
                        )
                        children.append(child)
        return tuple(sorted(children, key=lambda child: child.path))

    def put(self, path: str, data: bytes) -> None:
        local = self._at(path)
        with plain_errors(path), _hidden_file(local, data) as hidden:
            os.replace(hidden, local)
            _sync_directory(os.path.dirname(local))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        local = self._at(path)
        with plain_errors(path):
            if os.path.lexists(local):
                return False
            with _hidden_file(local, data) as hidden:
                if not _link(hidden, local, path):
                    return False
            try:
                _sync_directory(os.path.dirname(local))
            except OSError as error:
                raise CommitUnknown(
                    "the file is there, but may not survive a power failure", path=path
                ) from error
            return True

    def delete(self, path: str) -> None:
        with plain_errors(path), suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self._at(path))

    delete_many = None
    at_once = NEAR_AT_ONCE

    def delete_directory(self, path: str) -> None:
        local = self._at(path)
        if os.path.dirname(os.path.abspath(local)) == os.path.abspath(local):
            raise InvalidRequest("refused to delete the root of a file system", path=path)
        _refuse_link(local, path)
        with plain_errors(path):
            while os.path.lexists(local):
                with suppress(FileNotFoundError):  # another process is deleting it too
                    shutil.rmtree(local)

    def remove_empty_directory(self, path: str) -> None:
        # An error is harmless: then the directory is kept, for example because a writer uses it.
        with suppress(OSError):
            os.rmdir(self._at(path))

    @property
    def renames_at_once(self) -> bool:
        return True

    def rename_directory(self, source: str, target: str) -> None:
        local_source, local_target = self._at(source), self._at(target)
        if not os.path.isdir(local_source):
            raise NotFound("no such directory", path=source)
        _refuse_link(local_source, source)
        if os.path.lexists(local_target):
            raise AlreadyExists("the target of the rename exists", path=target)
        with plain_errors(target):
            try:
                _rename(local_source, local_target)
            except OSError as error:
                if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise AlreadyExists("the target of the rename exists", path=target) from error
                if error.errno in {errno.EXDEV, errno.EBUSY}:
                    raise Unsupported(
                        "the directory is a mount point, or on another disk than the one above it",
                        path=source,
                    ) from error
                raise
            _sync_directory(os.path.dirname(local_source))
            _sync_directory(os.path.dirname(local_target))

    def copy_directory(self, source: str, target: str) -> None:
        with plain_errors(source):
            shutil.copytree(self._at(source), self._at(target), dirs_exist_ok=True)
            os.sync()

    def make_directory(self, path: str) -> None:
        with plain_errors(path):
            _make_directory(self._at(path))

    def open_input(self, path: str) -> pa.NativeFile:
        local = self._at(path)
        with plain_errors(path):
            _require_regular(path, os.stat(local))
            return pa.OSFile(local, "r")

    @contextmanager
    def open_output(self, path: str) -> Iterator[pa.NativeFile]:
        """As `Store.open_output`; fsyncs the file and its directory when the block ends."""
        local = self._at(path)
        with plain_errors(path):
            _make_directory(os.path.dirname(local))
            # NOTE: this descriptor only serves fsync, and is opened before the first write, because
            # a write-back error is reported to the descriptors that were open when it happened.
            # O_NONBLOCK: opening a pipe that nobody reads fails instead of waiting.
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NONBLOCK", 0)
            descriptor = os.open(local, flags, 0o666)
        try:
            with plain_errors(path):
                sink = _Output(local, "w")
                sink.descriptor = descriptor
            try:
                yield sink
            finally:
                with plain_errors(path):
                    sink.close()
            with plain_errors(path):
                os.fsync(descriptor)
                _sync_directory(os.path.dirname(local))
        except BaseException as error:
            with suppress(OSError):
                os.unlink(local)
            if isinstance(error, OSError) and error.errno in _WRITE_FAILED:
                with plain_errors(path):
                    raise
            raise
        finally:
            os.close(descriptor)

    def local_path(self, path: str) -> str | None:
        """As `Store.local_path`.

        Raises CorruptTable for a pipe, on which a reader would wait forever.
        """
        local = self._at(path)
        try:
            status = os.stat(local)
        except OSError:  # opening the file reports it
            return local
        if not stat.S_ISDIR(status.st_mode):
            _require_regular(path, status)
        return local

    def _at(self, path: str) -> str:
        """The absolute path for the operating system."""
        if path.startswith("/"):
            check_text(path)
            return path
        if not is_local(path):
            raise InvalidRequest("the path is one of another storage", path=path)
        return os.path.join(self._directory, canonical(path))


class _Output(pa.OSFile):  # type: ignore[misc]  # pyarrow has no stubs
    """A file that starts write-back while it is written, so that its fsync is faster."""

    descriptor: int
    _written_back = 0

    def write(self, data: object) -> int:
        count: int = super().write(data)
        end = self.tell()
        if end - self._written_back >= _WRITE_BACK_BYTES:
            begin_write_back(self.descriptor, self._written_back, end - self._written_back)
            self._written_back = end
        return count


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Linux's call that starts writing part of a file to disk without waiting for completion."""
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError, TypeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return function


def begin_write_back(descriptor: int, start: int, size_bytes: int) -> None:
    """Start writing a part of a file to disk. A later fsync reports errors."""
    begin = _sync_file_range()
    if begin is not None:
        begin(descriptor, start, size_bytes, _SYNC_FILE_RANGE_WRITE)


def _rename(source: str, target: str) -> None:
    """Rename a directory. Creates its parent, because others may remove an empty parent."""
    for _ in range(_RENAMES_MAX):
        _make_directory(os.path.dirname(target))
        with suppress(FileNotFoundError):
            os.rename(source, target)
            return
    os.rename(source, target)


def _open_regular(local: str, flags: int) -> int:
    """Open a regular file and return its descriptor.

    Refuses pipes and devices, which could block.
    """
    descriptor = os.open(local, flags | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0), 0o666)
    try:
        _require_regular(local, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _require_regular(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise NotFound("a directory, not a file", path=path)
    if not stat.S_ISREG(status.st_mode):
        raise CorruptTable(
            "a pipe, a device or a socket is where a file of the table has to be", path=path
        )


def _refuse_link(local: str, path: str) -> None:
    """Raise InvalidRequest if a directory to move or delete is only a symbolic link."""
    if os.path.islink(local.rstrip("/")):
        raise InvalidRequest(
            "the directory is a symbolic link: it is neither moved nor deleted; remove the link",
            path=path,
            target=os.readlink(local.rstrip("/")),
        )


@contextmanager
def _hidden_file(local: str, data: bytes) -> Iterator[str]:
    """The path of a durable file with the data, next to `local`; removed after the block."""
    directory, name = os.path.split(local)
    _make_directory(directory)
    # Nothing reads this temporary name, so the name need not be reproducible from a seed.
    hidden = os.path.join(directory, f".{name}.{SYSTEM.new_uuid()}.tmp")
    try:
        descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        yield hidden
    finally:
        with suppress(OSError):
            os.unlink(hidden)


def _link(hidden: str, local: str, path: str) -> bool:
    """Hard-link the hidden file to the target. Returns whether they are the same file now."""
    try:
        os.link(hidden, local)
    except FileExistsError:
        # NOTE: NFS may make the link, lose the reply, and then refuse the repeated request.
        return os.stat(hidden).st_nlink == 2
    except OSError as error:
        if error.errno in _NO_HARD_LINKS:
            raise Unsupported(
                "this file system has no hard links, so commits on it would not be atomic; "
                "put the warehouse on one that has",
                path=path,
                reason=error.strerror,
            ) from error
        if error.errno in _OUTCOME_UNKNOWN:
            raise CommitUnknown(
                "the link may or may not have been made", path=path, reason=error.strerror
            ) from error
        raise
    return True


def _make_directory(local: str) -> None:
    """Make the directory and those above it, and fsync each parent that got a new entry."""
    if not local or os.path.isdir(local):
        return
    parent = os.path.dirname(local.rstrip("/"))
    _make_directory(parent)
    try:
        os.mkdir(local)
    except FileExistsError as error:
        if not os.path.isdir(local):
            raise StorageError("a file stands where a directory has to be", path=local) from error
    else:
        _sync_directory(parent)


def _sync_directory(local: str) -> None:
    """Make the entries of a directory durable."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows neither opens directories nor needs this
        return
    descriptor = os.open(local or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
