"""HDFS, by its native protocol; `put_if_absent` is a rename.

The client is the package `hdfs-native`: it needs neither Java nor Hadoop's libraries, and follows
name nodes in a high-availability pair (`service_settings.py`).

To publish a file only if it is absent:

1. write the bytes to a hidden file in the same directory, `.NAME.UUID.tmp`, and close it;
2. rename it to the target without overwriting. The name node renames in one step, and refuses if
   the target exists. No reader sees a file that is half written;
3. if the reply is lost, delete the hidden file. If it still existed, the rename has not happened
   and never will. Otherwise the content of the target decides: our bytes, or the bytes of another
   writer;
4. if the name node no longer answers, raise `CommitUnknown`.

A crash leaves at most a hidden file, which is an orphan.

INVARIANT: the bytes given to `put_if_absent` are unique to the caller, as for every store.
"""

from __future__ import annotations

import importlib
import os
import re
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Protocol

import pyarrow as pa

from lakecore.errors import (
    AlreadyExists,
    CommitUnknown,
    InvalidRequest,
    LakecoreError,
    NotFound,
    StorageError,
    Unsupported,
)
from lakecore.io.ambient import SYSTEM
from lakecore.io.stores.service_settings import HdfsSettings, hdfs_settings
from lakecore.io.stores.services import check_reachable
from lakecore.io.stores.storage_errors import TranslatedFile, plain_remote_errors
from lakecore.io.stores.store import FAR_AT_ONCE, FileStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

PACKAGE = "hdfs_native"
INSTALL = "pip install 'lakecore[hdfs]'"
READ_AHEAD_BYTES = 1 << 20

_GSSAPI = re.compile(r'GSSAPIError\(.*?"([^"]*)"\)$', re.DOTALL)
"""An error of the library of Kerberos; the last text in it is the reason."""

# The client's exceptions for failures of the network or of a name node.
_FAILURES = (OSError, ValueError, RuntimeError, NotImplementedError)


class _Status(Protocol):
    """The client's status of a file or directory."""

    path: str
    length: int
    isdir: bool
    modification_time: int  # milliseconds since 1970


class _Client(Protocol):
    """The part of `hdfs_native.Client` that lakecore uses. Paths begin with `/`."""

    def get_file_info(self, path: str) -> _Status: ...
    def list_status(self, path: str) -> Iterator[_Status]: ...
    def read(self, path: str) -> IO[bytes]: ...
    def create(self, path: str, write_options: object) -> IO[bytes]: ...
    def mkdirs(self, path: str, *, create_parent: bool) -> None: ...
    def rename(self, src: str, dst: str, *, overwrite: bool = False) -> None: ...
    def delete(self, path: str, *, recursive: bool = False) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Connection:
    """The client of one process; its threads do not survive a fork."""

    pid: int
    client: _Client
    write_options: Callable[..., object]


class HdfsStore:
    """The files of one HDFS, opened with the options of a catalog."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self._settings: HdfsSettings = hdfs_settings(uri, options)
        self._lock = threading.Lock()
        self._connection: _Connection | None = None

    def __repr__(self) -> str:
        return f"HdfsStore({self._settings.address!r})"

    def __getstate__(self) -> dict[str, object]:
        """The state that another process needs to open the same files with its own connection."""
        return {"_settings": self._settings}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=threading.Lock(), _connection=None)

    def read(self, path: str) -> bytes:
        with _plain_errors(path):
            return bytes(self._open(path).read(-1))

    def exists(self, path: str) -> bool:
        with _plain_errors(path):
            return self._info(path) is not None

    def size(self, path: str) -> int:
        with _plain_errors(path):
            info = self._info(path)
        if info is None:
            raise NotFound("no such file", path=path)
        if info.isdir:
            raise NotFound("a directory, not a file", path=path)
        return int(info.length)

    def list(self, directory: str) -> tuple[FileStatus, ...]:
        key, prefix = _key(directory), directory.rstrip("/") + "/"
        with _plain_errors(directory):
            try:
                entries = list(self._client.list_status(key))
            except (FileNotFoundError, NotADirectoryError):
                return ()
            except RuntimeError as error:
                if "is not a directory" in str(error):
                    return ()
                raise
        children = [
            FileStatus(
                prefix + entry.path.rstrip("/").rpartition("/")[2],
                0 if entry.isdir else int(entry.length),
                int(entry.modification_time),
                bool(entry.isdir),
            )
            for entry in entries
            if entry.path.rstrip("/") != key.rstrip("/")  # a file lists itself
        ]
        return tuple(sorted(children, key=lambda child: child.path))

    def put(self, path: str, data: bytes) -> None:
        with _plain_errors(path), self._hidden_file(path, data) as hidden:
            self._client.rename(hidden, _key(path), overwrite=True)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with _plain_errors(path):
            if self._info(path) is not None:
                return False
            with self._hidden_file(path, data) as hidden:
                try:
                    self._client.rename(hidden, _key(path))
                except FileExistsError as error:
                    return self._is_ours(path, data, error)
                except _FAILURES as error:
                    return self._after_doubt(path, hidden, data, error)
                return True

    def delete(self, path: str) -> None:
        with _plain_errors(path), suppress(FileNotFoundError):
            self._client.delete(_key(path))

    delete_many = None
    at_once = FAR_AT_ONCE

    def delete_directory(self, path: str) -> None:
        key = _key(path)
        if key == "/":
            raise InvalidRequest("refused to delete the root of a file system", path=path)
        with _plain_errors(path), suppress(FileNotFoundError):
            self._client.delete(key, recursive=True)

    def remove_empty_directory(self, path: str) -> None:
        # An error is harmless: the directory stays, for example because a writer uses it again.
        with suppress(*_FAILURES, LakecoreError):
            self._client.delete(_key(path))

    @property
    def renames_at_once(self) -> bool:
        return True

    def rename_directory(self, source: str, target: str) -> None:
        with _plain_errors(source):
            info = self._info(source)
            if info is None or not info.isdir:
                raise NotFound("no such directory", path=source)
            self.make_directory(target.rstrip("/").rpartition("/")[0])
            try:
                self._client.rename(_key(source), _key(target))
            except FileExistsError as error:
                raise AlreadyExists("the target of the rename exists", path=target) from error

    def copy_directory(self, source: str, target: str) -> None:
        source, target = source.rstrip("/"), target.rstrip("/")
        self.make_directory(target)
        for child in self.list(source):
            copy = target + child.path[len(source) :]
            if child.is_directory:
                self.copy_directory(child.path, copy)
            else:
                self.put(copy, self.read(child.path))

    def make_directory(self, path: str) -> None:
        with _plain_errors(path):
            try:
                self._client.mkdirs(_key(path), create_parent=True)
            except FileExistsError:
                info = self._info(path)
                if info is None or not info.isdir:
                    raise

    def open_input(self, path: str) -> pa.NativeFile:
        with _plain_errors(path):
            translated = TranslatedFile(self._open(path), partial(_plain_errors, path))
            return pa.PythonFile(translated, mode="r")

    @contextmanager
    def open_output(self, path: str) -> Iterator[pa.NativeFile]:
        """As `Store.open_output`, but the file is visible from the start."""
        with _plain_errors(path):
            file = self._create(_key(path), overwrite=True)
        sink = pa.PythonFile(TranslatedFile(file, partial(_plain_errors, path)), mode="w")
        try:
            yield sink
            sink.close()
        except BaseException:
            with suppress(*_FAILURES):
                file.close()
            with suppress(*_FAILURES, LakecoreError):
                self._client.delete(_key(path))
            raise

    def local_path(self, path: str) -> str | None:  # noqa: ARG002 - there is none for any
        return None

    # ------------------------------------------------------------------------------------- commit

    @contextmanager
    def _hidden_file(self, path: str, data: bytes) -> Iterator[str]:
        """A closed hidden file with the data, in the same directory as the path.

        The file is removed after the block.
        """
        directory, _, name = _key(path).rpartition("/")
        # Nothing reads this temporary name, so the name need not be reproducible from a seed.
        hidden = f"{directory}/.{name}.{SYSTEM.new_uuid()}.tmp"
        try:
            with self._create(hidden, overwrite=False) as file:
                file.write(data)
            yield hidden
        finally:
            with suppress(*_FAILURES):
                self._client.delete(hidden)

    def _after_doubt(self, path: str, hidden: str, data: bytes, doubt: Exception) -> bool:
        """Whether a rename without a clear reply has happened.

        After the call, the rename cannot happen any more.
        """
        try:
            was_there = self._client.delete(hidden)
        except _FAILURES as error:
            raise CommitUnknown(
                "the name node did not say whether it renamed the file, and does not answer now",
                path=path,
                reason=error,
            ) from doubt
        if was_there:
            raise doubt
        return self._is_ours(path, data, doubt)

    def _is_ours(self, path: str, data: bytes, doubt: Exception) -> bool:
        """Whether the file at the path has our bytes, from a rename whose reply was lost."""
        try:
            return self.read(path) == data
        except LakecoreError as error:
            raise CommitUnknown(
                "the name node did not say whether it renamed the file, and it cannot be read now",
                path=path,
                reason=error,
            ) from doubt

    # ------------------------------------------------------------------------------------- client

    @property
    def _client(self) -> _Client:
        return self._connected().client

    def _connected(self) -> _Connection:
        with self._lock:
            connection = self._connection
            if connection is None or connection.pid != os.getpid():
                connection = self._connection = self._connect()
            return connection

    def _connect(self) -> _Connection:
        try:
            package = importlib.import_module(PACKAGE)
        except ImportError as error:
            raise Unsupported(
                f"a package is missing; install it by {INSTALL}", package=PACKAGE
            ) from error
        settings = self._settings
        authority = settings.address.partition("://")[2]
        if ":" in authority:  # else it may be the name of several name nodes
            check_reachable(settings.address)
        try:
            client = package.Client(settings.address, dict(settings.config), settings.directory)
        except _FAILURES as error:
            raise StorageError(
                "the name nodes of the HDFS are not known; give the URI host and port, or set "
                "hadoop-conf-dir",
                uri=settings.address,
                reason=error,
            ) from error
        return _Connection(os.getpid(), client, package.WriteOptions)

    def _info(self, path: str) -> _Status | None:
        """The status of a file or directory; None if there is none."""
        try:
            return self._client.get_file_info(_key(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _open(self, path: str) -> IO[bytes]:
        try:
            return self._client.read(_key(path))
        except _FAILURES:
            info = self._info(path)
            if info is not None and info.isdir:
                raise NotFound("a directory, not a file", path=path) from None
            raise

    def _create(self, key: str, *, overwrite: bool) -> IO[bytes]:
        connection = self._connected()
        options = connection.write_options(overwrite=overwrite, create_parent=True)
        return connection.client.create(key, options)


@dataclass(frozen=True, slots=True, repr=False)
class _plain_errors(plain_remote_errors):  # noqa: N801 - used as a function
    """The same for errors of HDFS, without the Java stack traces in them."""

    failures: tuple[type[Exception], ...] = _FAILURES

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if isinstance(error, _FAILURES) and not isinstance(error, LakecoreError):
            if (reason := _GSSAPI.search(str(error))) is not None:
                raise StorageError(
                    "the login by Kerberos failed: get a ticket by `kinit -kt KEYTAB PRINCIPAL`; "
                    "KRB5CCNAME names the cache of the tickets, if it is not the usual one",
                    path=self.path,
                    reason=reason[1],
                ) from error
            error.args = (_without_stack(error),)
        plain_remote_errors.__exit__(self, kind, error, trace)


def _without_stack(error: Exception) -> str:
    """The message of a server's error, without the Java stack trace."""
    text = re.split(r"(?:\\n|\n)(?:\\t|\s)*at ", str(error), maxsplit=1)[0]
    remote = re.fullmatch(r'RPCError\("([\w.$]+)", "(.*)', text, flags=re.DOTALL)
    return text if remote is None else f"{remote[1].rpartition('.')[2]}: {remote[2]}"


def _key(path: str) -> str:
    """The path without scheme and name node."""
    return "/" + path.partition("://")[2].partition("/")[2].strip("/")
