"""Object stores, through fsspec; `put_if_absent` is a conditional put.

S3, GCS and Azure can refuse a put if the path exists, and of concurrent puts they accept only one.
In fsspec this is `pipe_file(mode="create")`. If the client or the service does not support it,
commits raise `Unsupported`. The option `commit.single-writer=true` states that there is only one
writer: then a check before the put is enough.

`put_if_absent` takes these steps, so that a lost reply causes neither a lost nor a double commit:

1. Once for each store, check with a test file that the service refuses a second put. Some
   S3-compatible services ignore the condition, and some client versions do not send it.
2. Send the conditional put. If it is accepted, the file is ours. If it is refused because of
   anything but an existing path (permission, no bucket), nothing was written.
3. If it is refused because the path exists, read the file and compare it with our bytes. The file
   may be ours, because every client repeats a request after a lost reply; aiohttp always does.
4. If there is no reply, or a server error, the put may have been executed, or may be executed
   later. Send it again; only one of the repetitions can succeed.
5. If there is still no reply, but the file exists, compare the file: no put can succeed any more.
   If the file does not exist or cannot be read, raise `CommitUnknown`.

INVARIANT: the bytes given to `put_if_absent` are unique to the caller (each snapshot contains a
uuid), or their origin does not matter. Otherwise step 3 could mistake another commit for ours.
"""

from __future__ import annotations

import importlib
import os
import threading
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from glob import has_magic
from typing import IO, TYPE_CHECKING, cast

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
from lakecore.io.ambient import SYSTEM, Ambient
from lakecore.io.stores.service_settings import client_settings
from lakecore.io.stores.services import (
    FileSystem,
    Service,
    client_failures,
    connect,
    entries,
    flag,
    timeouts_of,
)
from lakecore.io.stores.storage_errors import (
    Answer,
    TranslatedFile,
    answer,
    http_status,
    lacks_bucket,
    plain_remote_errors,
)
from lakecore.io.stores.store import FAR_AT_ONCE, DeleteMany, FileStatus
from lakecore.masking import mask_exception, secret_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


ATTEMPTS_MAX = 4
RETRY_WAIT_SECONDS = 0.2
READ_AHEAD_BYTES = 1 << 20
UPLOAD_PART_BYTES = 8 << 20
TAIL_BYTES = 64 << 10
"""The bytes to read at the end of a file when it is opened: most footers are shorter."""
_SMALL_READ_BYTES = 64 << 10
_NO_RANGE = 416

# An object store has no empty directories: this file stands for one. Paimon's readers ignore it.
DIRECTORY_MARKER = ".directory"

SINGLE_WRITER_OPTION = "commit.single-writer"


@dataclass(frozen=True, slots=True)
class _Connection:
    """The clients of one process; fsspec's clients do not survive a fork."""

    pid: int
    files: FileSystem
    commit_files: FileSystem  # gives up early: a commit retries by itself
    failures: tuple[type[Exception], ...]


class RemoteStore:
    """The files of one remote service, opened with the options of a catalog."""

    def __init__(
        self, service: Service, uri: str, options: Mapping[str, str], ambient: Ambient = SYSTEM
    ) -> None:
        self._service = service
        self._settings = client_settings(service, uri, options)
        self._timeouts = timeouts_of(options)
        self._secrets = secret_values(options)
        self._single_writer = flag(SINGLE_WRITER_OPTION, options.get(SINGLE_WRITER_OPTION, "false"))
        self._ambient = ambient
        self._lock = threading.Lock()
        self._connection: _Connection | None = None
        self._promise: bool | None = None

    def __getstate__(self) -> dict[str, object]:
        """The state that another process needs to open the same storage.

        That process makes its own connection.
        """
        return {**self.__dict__, "_lock": None, "_connection": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def read(self, path: str) -> bytes:
        with self._plain_errors(path):
            return bytes(self._files.cat_file(_key(path)))

    def exists(self, path: str) -> bool:
        with self._plain_errors(path):
            return bool(self._files.exists(_key(path)))

    def size(self, path: str) -> int:
        with self._plain_errors(path):
            info = self._files.info(_key(path))
            if info["type"] != "file":
                raise NotFound("a directory, not a file", path=path)
            return _size_bytes(info)

    def list(self, directory: str) -> tuple[FileStatus, ...]:
        key, prefix = _key(directory), directory.rstrip("/") + "/"
        children: dict[str, FileStatus] = {}
        with self._plain_errors(directory):
            try:
                found = [*entries(self._service, self._files, key)]
            except (FileNotFoundError, NotADirectoryError) as error:
                if lacks_bucket(error):
                    raise
                return ()
            for entry in found:
                name = _below(key, str(entry["name"]))
                if name in {"", DIRECTORY_MARKER}:  # Hadoop's marker of a directory, or ours
                    continue
                is_directory = entry["type"] != "file"
                size_bytes = 0 if is_directory else _size_bytes(entry)
                children[name] = FileStatus(
                    prefix + name, size_bytes, _modified_ms(entry), is_directory
                )
        return tuple(children[name] for name in sorted(children))

    def put(self, path: str, data: bytes) -> None:
        with self._plain_errors(path):
            self._files.pipe_file(_key(path), data, mode="overwrite")

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if self._keeps_promise(path):
            return self._put_conditionally(path, data)
        if not self._single_writer:
            raise Unsupported(
                "this storage has no conditional put, so two writers could "
                f"overwrite each other's commits; if there is only one, set {SINGLE_WRITER_OPTION}",
                path=path,
                storage=self._service.protocol,
            )
        if self.exists(path):
            return False
        self.put(path, data)
        return True

    def delete(self, path: str) -> None:
        with self._plain_errors(path), suppress(FileNotFoundError):
            self._files.rm_file(_key(path))

    @property
    def delete_many(self) -> DeleteMany | None:
        takes_many = self._service.package == "s3fs" and self._service.deletes_many
        return self._delete_objects if takes_many else None

    @property
    def at_once(self) -> int:
        return FAR_AT_ONCE

    def _delete_objects(self, paths: Sequence[str]) -> None:
        by_bucket: dict[str, list[str]] = {}
        for path in paths:
            bucket, _, name = _key(path).partition("/")
            by_bucket.setdefault(bucket, []).append(name)
        for bucket, names in by_bucket.items():
            path = f"{paths[0].partition('://')[0]}://{bucket}"
            keys = {"Objects": [{"Key": name} for name in names], "Quiet": True}
            with self._plain_errors(path):
                reply = self._files.call_s3("delete_objects", Bucket=bucket, Delete=keys)
            # The request succeeds even if no file could be deleted.
            for failed in reply.get("Errors", ()):
                raise StorageError(
                    "the storage refused",
                    path=f"{path}/{failed.get('Key')}",
                    reason=f"{failed.get('Code')}: {failed.get('Message')}",
                )

    def delete_directory(self, path: str) -> None:
        key = _key(path)
        if "/" not in key.strip("/"):
            raise InvalidRequest("refused to delete a whole bucket", path=path)
        with self._plain_errors(path):
            self._delete_all(self._all_below(key))
            left = self._all_below(key)
            if left:
                raise StorageError("files could not be deleted", path=path, files=left[:3])

    @property
    def renames_at_once(self) -> bool:
        return False

    def rename_directory(self, source: str, target: str) -> None:
        """As `Store.rename_directory`: all files are copied, then the old ones are deleted."""
        key_source, key_target = _key(source), _key(target)
        with self._plain_errors(source):
            if not self._files.isdir(key_source):
                raise NotFound("no such directory", path=source)
            if self._files.exists(key_target):
                raise AlreadyExists("the target of the rename exists", path=target)
            names = self._all_below(key_source)
            self.copy_directory(source, target)
            self._delete_all(names)

    def copy_directory(self, source: str, target: str) -> None:
        key_source, key_target = _key(source), _key(target)
        with self._plain_errors(source):
            names = self._all_below(key_source)
            files = [name for name in names if not name.endswith("/")]
            copies = [f"{key_target}/{_below(key_source, name)}" for name in files]
            try:
                self._files.copy(files, copies)
                if not files:
                    self.make_directory(target)
            except BaseException:
                with suppress(*self._connected().failures):
                    made = {name.lstrip("/") for name in self._all_below(key_target)}
                    self._delete_all([name for name in copies if name.lstrip("/") in made])
                raise

    def make_directory(self, path: str) -> None:
        key = _key(path)
        with self._plain_errors(path):
            if not self._files.isdir(key):
                self._files.pipe_file(f"{key}/{DIRECTORY_MARKER}", b"", mode="overwrite")

    def remove_empty_directory(self, path: str) -> None:
        """Does nothing: a directory exists only while it contains a file."""

    def open_input(self, path: str) -> pa.NativeFile:
        with self._plain_errors(path):
            ranged = self._opened_by_its_end(path)
            if ranged is not None:
                translated = TranslatedFile(
                    cast("IO[bytes]", ranged), partial(self._plain_errors, path)
                )
                return pa.PythonFile(translated, mode="r")
            file = self._files.open(_key(path), "rb", block_size=READ_AHEAD_BYTES)
            details = getattr(file, "details", {})  # `open` has already sent this request
            if details.get("type") == "directory":
                raise NotFound("a directory, not a file", path=path)
            translated = TranslatedFile(file, partial(self._plain_errors, path))
            return pa.PythonFile(translated, mode="r")

    def _opened_by_its_end(self, path: str) -> RangedFile | None:
        """A file of S3, opened by a read of its end, which states the size.

        None if the normal way is to be tried: elsewhere, and if the file is empty.
        """
        if self._service.package != "s3fs":
            return None
        files, key, failures = self._files, _key(path), self._connected().failures
        bucket, _, name = key.partition("/")
        wanted = f"bytes=-{TAIL_BYTES}"
        try:
            reply = files.call_s3("get_object", Bucket=bucket, Key=name, Range=wanted)
        except failures as error:
            if http_status(error) == _NO_RANGE:
                return None
            raise
        size = str(reply.get("ContentRange", "")).rpartition("/")[2]
        try:
            data: bytes = importlib.import_module("fsspec.asyn").sync(
                files.loop, reply["Body"].read
            )
        except failures:  # cut short: the normal way repeats it
            return None
        if not size.isdecimal() or len(data) != min(TAIL_BYTES, int(size)):
            return None

        def fetch(start: int, end: int) -> bytes:
            return bytes(files.cat_file(key, start=start, end=end))

        return RangedFile(fetch, data, int(size))

    @contextmanager
    def open_output(self, path: str) -> Iterator[pa.NativeFile]:
        """As `Store.open_output`; the file becomes visible when the block ends."""
        with self._plain_errors(path):
            file = self._files.open(_key(path), "wb", block_size=UPLOAD_PART_BYTES)
        sink = pa.PythonFile(TranslatedFile(file, partial(self._plain_errors, path)), mode="w")
        try:
            yield sink
            sink.close()
        except BaseException:
            failures = self._connected().failures
            with suppress(*failures):
                _discard(file)
            with suppress(*failures):
                self._files.rm_file(_key(path))
            raise

    def local_path(self, path: str) -> str | None:  # noqa: ARG002 - there is none for any
        return None

    # ------------------------------------------------------------------------------------- commit

    def _put_conditionally(self, path: str, data: bytes) -> bool:
        connection = self._connected()
        doubt: Exception | None = None
        refusal: Exception | None = None
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                # Waits differ at random; otherwise all losers of a race would collide again.
                jitter = 0.5 + self._ambient.random()
                self._ambient.sleep(RETRY_WAIT_SECONDS * 2**attempt * jitter)
            try:
                connection.commit_files.pipe_file(_key(path), data, mode="create")
            except connection.failures as error:
                mask_exception(error, self._secrets)
                refusal = error
                match answer(error):
                    case Answer.TAKEN:
                        return self._is_ours(path, data, doubt or error)
                    case Answer.REFUSED:
                        break
                    case Answer.BUSY:
                        pass
                    case Answer.NONE:
                        doubt = error
            else:
                return True
        if doubt is not None:
            return self._is_ours(path, data, doubt)
        assert refusal is not None, "an attempt ends with an answer"
        with self._plain_errors(path):
            raise refusal

    def _is_ours(self, path: str, data: bytes, doubt: Exception) -> bool:
        """Whether the file at the path has our bytes, perhaps from an attempt without a reply."""
        try:
            return self.read(path) == data
        except LakecoreError as error:
            raise CommitUnknown(
                "the storage did not say whether it wrote the file, and it cannot be read now",
                path=path,
                reason=error,
            ) from doubt

    def _keeps_promise(self, path: str) -> bool:
        """Whether the service refuses the second of two conditional puts to one path."""
        if not self._service.conditional_put:
            return False
        with self._lock:
            if self._promise is None:
                self._promise = self._refuses_second_put(path)
            return self._promise

    def _refuses_second_put(self, path: str) -> bool:
        directory = _key(path).rpartition("/")[0]
        probe = f"{directory}/.probe.{SYSTEM.new_uuid()}.tmp"
        connection = self._connected()
        files = connection.files  # the client that repeats requests: this is not a commit
        with self._plain_errors(path):
            try:
                files.pipe_file(probe, b"first", mode="create")
                files.pipe_file(probe, b"second", mode="create")
            except connection.failures as error:
                match answer(error), http_status(error):
                    case Answer.TAKEN, _:
                        return True
                    case _, 501:  # not implemented
                        return False
                raise
            finally:
                with suppress(*connection.failures):
                    files.rm_file(probe)
        return False

    # ------------------------------------------------------------------------------------- client

    @property
    def _files(self) -> FileSystem:
        return self._connected().files

    def _connected(self) -> _Connection:
        connection = self._connection
        if connection is None or connection.pid != os.getpid():
            connection = _Connection(
                pid=os.getpid(),
                files=connect(self._service, self._settings, self._timeouts),
                commit_files=connect(
                    self._service, self._settings, self._timeouts, for_commits=True
                ),
                failures=client_failures(self._service),
            )
            self._connection = connection
        return connection

    def _plain_errors(self, path: str) -> AbstractContextManager[None]:
        return plain_remote_errors(path, self._connected().failures, self._secrets)

    def _all_below(self, key: str) -> tuple[str, ...]:
        """Every file below a directory, and Hadoop's directory markers `directory/`."""
        try:
            names = self._files.find(key)
        except FileNotFoundError:
            return ()
        return tuple(name for name in names if name.lstrip("/").startswith(key + "/"))

    def _delete_all(self, names: Sequence[str]) -> None:
        # `rm` deletes many names at once, but it expands wildcards, and strips a marker's slash.
        one_by_one = not self._service.deletes_many
        exact = [name for name in names if one_by_one or has_magic(name) or name.endswith("/")]
        many = [name for name in names if name not in set(exact)]
        if many:
            self._files.rm(many)
        for name in exact:
            self._files.rm_file(name)


class RangedFile:
    """A file that is read by ranges. Its end was read when it was opened.

    Small reads, and reads that follow each other, fetch more than they return: a request takes as
    long as the transfer of a megabyte. A large read elsewhere fetches what it returns, because its
    reader has buffers of its own.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], end: bytes, size_bytes: int) -> None:
        """`fetch` returns the bytes from one position up to another."""
        self._fetch = fetch
        self._size_bytes = size_bytes
        self._at = 0
        self._blocks = [(size_bytes - len(end), end), (0, b"")]
        self.closed = False

    def read(self, size_bytes: int = -1) -> bytes:
        left = max(0, self._size_bytes - self._at)
        wanted = left if size_bytes < 0 else min(size_bytes, left)
        parts: list[bytes] = []
        while wanted > 0:
            part = self._piece(self._at, wanted)
            parts.append(part)
            self._at += len(part)
            wanted -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _piece(self, start: int, wanted: int) -> bytes:
        """Some of the bytes from a position: those that were fetched, or else all."""
        for first, data in self._blocks:
            if first <= start < first + len(data):
                return data[start - first : start - first + wanted]
        end_first = self._blocks[0][0]
        first, data = self._blocks[1]
        is_small = wanted < _SMALL_READ_BYTES or start == first + len(data)
        ahead = READ_AHEAD_BYTES if is_small else 0
        data = self._fetch(start, min(start + wanted + ahead, end_first))
        if not data:
            raise OSError(f"a file ended before byte {start}")
        self._blocks[1] = (start, data)
        return data[:wanted]

    def seek(self, position: int, whence: int = 0) -> int:
        base = {0: 0, 1: self._at, 2: self._size_bytes}[whence]
        self._at = base + position
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self.closed = True
        self._blocks = [(self._size_bytes, b"")] * 2


def _key(path: str) -> str:
    """The path without its scheme; for Azure's `container@account`, only the container."""
    authority, slash, name = path.partition("://")[2].partition("/")
    return f"{authority.partition('@')[0]}{slash}{name}".rstrip("/")


def _below(directory: str, name: str) -> str:
    """The part of a name below a directory; empty for the directory itself and for other names."""
    prefix = directory + "/"
    name = name.lstrip("/")
    return name[len(prefix) :].rstrip("/") if name.startswith(prefix) else ""


def _size_bytes(info: Mapping[str, object]) -> int:
    size_bytes = info["size"]
    assert isinstance(size_bytes, int), "a file system says the size of a file"
    return size_bytes


def _modified_ms(info: Mapping[str, object]) -> int | None:
    """The time of the last change. S3, Azure, GCS and others use different names for it."""
    for name in ("LastModified", "last_modified", "updated", "mtime", "modified", "created"):
        match info.get(name):
            case datetime() as moment:
                return round(moment.timestamp() * 1000)
            case str(text) if text:
                return round(datetime.fromisoformat(text).timestamp() * 1000)
            case int(seconds) | float(seconds):
                return round(seconds * 1000)
            case _:
                continue
    return None


def _discard(file: IO[bytes]) -> None:
    """Close an upload without completing it."""
    buffered = importlib.import_module("fsspec.spec").AbstractBufferedFile
    if isinstance(file, buffered):
        file.discard()
        file.closed = True  # otherwise closing would complete the upload
