"""Stores for tests: one that dies at call k, and an S3 service of this machine."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3  # type: ignore[import-untyped]
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from moto.s3.models import s3_backends
from werkzeug.serving import make_server

from lakecore.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from lakecore.io.stores.store import FileStatus, Store


class StoreFailure(OSError):
    """The failure that a `FailingStore` injects."""


class FailingStore:
    """Passes calls on to a store until the one that changes something for the `fail_at`-th time.

    That call, counted from 1, raises `StoreFailure` without effect, or with `after=True` once it
    took effect. From then on the process counts as dead: every call fails and has no effect. With
    `fail_at=None` it only counts. An output is two calls, its opening and its closing; where death
    falls between them an empty file stays behind, the worst that a storage may show.

    A directory is deleted or copied file by file, each a call, in an order that `seed` draws; it is
    renamed in one call only if the inner store does so. Where a directory is one (the inner store
    renames at once), a deletion is on the disk no sooner than something else is written into the
    same directory: death brings back some of the others, as `seed` draws them.
    """

    def __init__(
        self, inner: Store, fail_at: int | None = None, *, after: bool = False, seed: int = 0
    ) -> None:
        self.inner = inner
        self.fail_at = fail_at
        self.after = after
        self._random = random.Random(seed)
        self._unsynced: dict[str, bytes] = {}  # files deleted, which a power failure may bring back
        self.calls: list[tuple[str, str]] = []  # (method, path) of each call that changes something
        self.is_dead = False
        self._lock = threading.Lock()

    def read(self, path: str) -> bytes:
        self._require_life("read", path)
        return self.inner.read(path)

    def exists(self, path: str) -> bool:
        self._require_life("exists", path)
        return self.inner.exists(path)

    def size(self, path: str) -> int:
        self._require_life("size", path)
        return self.inner.size(path)

    def list(self, directory: str) -> tuple[FileStatus, ...]:
        self._require_life("list", directory)
        return self.inner.list(directory)

    def put(self, path: str, data: bytes) -> None:
        with self._change("put", path):
            self.inner.put(path, data)
            self._sync_directory_of(path)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self._change("put_if_absent", path):
            made = self.inner.put_if_absent(path, data)
            self._sync_directory_of(path)
            return made

    def delete(self, path: str) -> None:
        with self._change("delete", path):
            if self.inner.renames_at_once:
                with suppress(NotFound):
                    self._unsynced[path] = self.inner.read(path)
            self.inner.delete(path)

    def delete_directory(self, path: str) -> None:
        files = files_below(self.inner, path)
        self._random.shuffle(files)
        for file in files:
            self.delete(file)
        with self._change("delete_directory", path):
            self.inner.delete_directory(path)

    def remove_empty_directory(self, path: str) -> None:
        with self._change("remove_empty_directory", path):
            self.inner.remove_empty_directory(path)

    @property
    def renames_at_once(self) -> bool:
        return self.inner.renames_at_once

    def rename_directory(self, source: str, target: str) -> None:
        if not self.inner.renames_at_once:
            self.copy_directory(source, target)
            self.delete_directory(source)
            return
        with self._change("rename_directory", source):
            self.inner.rename_directory(source, target)
            moved = [path for path in self._unsynced if path.startswith(source + "/")]
            for path in moved:
                self._unsynced[target + path[len(source) :]] = self._unsynced.pop(path)

    def copy_directory(self, source: str, target: str) -> None:
        files = files_below(self.inner, source)
        self._random.shuffle(files)
        for file in files:
            self.put(target + file[len(source) :], self.inner.read(file))

    def make_directory(self, path: str) -> None:
        with self._change("make_directory", path):
            self.inner.make_directory(path)

    def open_input(self, path: str) -> pa.NativeFile:
        self._require_life("open_input", path)
        return self.inner.open_input(path)

    @contextmanager
    def open_output(self, path: str) -> Iterator[pa.NativeFile]:
        if self._dies("open_output", path):
            if self.after:
                self.inner.put(path, b"")
            raise self._failure("open_output", path)
        dies = False
        try:
            with self.inner.open_output(path) as sink:
                yield sink
                dies = self._dies("close_output", path)
                if dies and not self.after:
                    raise self._failure("close_output", path)  # noqa: TRY301 - inner must see it
            self._sync_directory_of(path)
        except BaseException:
            # The inner store has removed the file; a process that is dead could not have.
            if self.is_dead or (self._dies("remove_output", path) and not self.after):
                self.inner.put(path, b"")
            raise
        if dies:
            raise self._failure("close_output", path)

    def local_path(self, path: str) -> str | None:
        return self.inner.local_path(path)

    @contextmanager
    def _change(self, call: str, path: str) -> Iterator[None]:
        dies = self._dies(call, path)
        if dies and not self.after:
            raise self._failure(call, path)
        yield
        if dies:
            raise self._failure(call, path)

    def _dies(self, call: str, path: str) -> bool:
        """Count a call that changes something: whether it is the one to fail."""
        with self._lock:
            self._require_life(call, path)
            self.calls.append((call, path))
            self.is_dead = len(self.calls) == self.fail_at
            if self.is_dead:
                self._lose_what_was_not_synced()
            return self.is_dead

    def _sync_directory_of(self, path: str) -> None:
        directory = path.rpartition("/")[0]
        for deleted in [each for each in self._unsynced if each.rpartition("/")[0] == directory]:
            del self._unsynced[deleted]

    def _lose_what_was_not_synced(self) -> None:
        for path, data in self._unsynced.items():
            if self._random.random() < 0.5:
                self.inner.put(path, data)

    def _require_life(self, call: str, path: str) -> None:
        if self.is_dead:
            message = f"{call} of {path} after the process died"
            raise StoreFailure(message)

    def _failure(self, call: str, path: str) -> StoreFailure:
        return StoreFailure(f"injected at call {self.fail_at}: {call} of {path}")


def files_below(store: Store, directory: str) -> list[str]:
    """The paths of all files below a directory, sorted."""
    found: list[str] = []
    for child in store.list(directory):
        found += files_below(store, child.path) if child.is_directory else [child.path]
    return found


class ReadCounter(FailingStore):
    """Remembers the names of what was read, or asked for."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.reads: list[str] = []

    def read(self, path: str) -> bytes:
        self.reads.append(path.rpartition("/")[2])
        return super().read(path)

    def exists(self, path: str) -> bool:
        self.reads.append(path.rpartition("/")[2])
        return super().exists(path)


class RequestCounter(FailingStore):
    """Counts the requests that an object store would get, by kind; data files are read in one."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.requests: Counter[str] = Counter()
        self.listed: list[str] = []

    def read(self, path: str) -> bytes:
        self.requests["GET"] += 1
        return super().read(path)

    def open_input(self, path: str) -> pa.NativeFile:
        self.requests["GET"] += 1
        return super().open_input(path)

    def exists(self, path: str) -> bool:
        found = super().exists(path)
        self.requests["HEAD"] += 1
        if not found:  # fsspec then looks for a directory
            self.requests["LIST"] += 1
            self.listed.append(path)
        return found

    def size(self, path: str) -> int:
        self.requests["HEAD"] += 1
        return super().size(path)

    def list(self, directory: str) -> tuple[FileStatus, ...]:
        self.requests["LIST"] += 1
        self.listed.append(directory)
        return super().list(directory)

    def put(self, path: str, data: bytes) -> None:
        self.requests["PUT"] += 1
        super().put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.requests["PUT"] += 1
        return super().put_if_absent(path, data)

    @contextmanager
    def open_output(self, path: str) -> Iterator[pa.NativeFile]:
        self.requests["PUT"] += 1
        with super().open_output(path) as sink:
            yield sink

    def delete(self, path: str) -> None:
        self.requests["DELETE"] += 1
        super().delete(path)


class MeddledStore(FailingStore):
    """Does something, once each, just before a snapshot is published: another who comes first."""

    def __init__(self, inner: Store, *deeds: Callable[[], object]) -> None:
        super().__init__(inner)
        self.deeds = list(deeds)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if self.deeds:
            self.deeds.pop(0)()
        return super().put_if_absent(path, data)


@dataclass
class S3Service:
    """An S3 service of this machine, as a client reaches it, and the ways in which it may fail."""

    endpoint: str = ""
    lost_requests: int = 0  # the next so many PUTs of a file are not carried out, nor answered
    lost_replies: int = 0  # the next so many are carried out and not answered
    refusal: str | None = None  # an HTTP status with which every PUT of a file is refused
    ignores_conditions: bool = False  # as some services that call themselves compatible
    silent_seconds: float = 0  # how long every request waits for its answer
    keys: set[str] | None = None  # the valid access keys; None: all keys are valid

    @property
    def options(self) -> dict[str, str]:
        """Paimon's catalog options for it."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key": "key",
            "s3.secret-key": "secret",
            "s3.region": "us-east-1",
            "s3.path.style.access": "true",
        }

    @contextmanager
    def client(self) -> Iterator[Any]:
        """Amazon's own client, to look at the service past lakecore."""
        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
        )
        try:
            yield client
        finally:
            client.close()

    def be_well(self) -> None:
        """Fail in no way from now on."""
        self.lost_requests = self.lost_replies = 0
        self.refusal = None
        self.silent_seconds = 0
        self.ignores_conditions = False
        self.keys = None


@contextmanager
def s3_service() -> Iterator[S3Service]:
    """An S3 service on a free port; what it holds is gone when the block ends."""
    service = S3Service()
    answer = DomainDispatcherApplication(create_backend_app)
    one_at_a_time = threading.Lock()

    def serve(environ: Any, start_response: Any) -> Any:
        time.sleep(service.silent_seconds)
        # Moto looks whether a key exists, then writes it; S3 does both as one step.
        with one_at_a_time:
            puts_file = environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].count("/") > 1
            if puts_file and service.ignores_conditions:
                environ.pop("HTTP_IF_NONE_MATCH", None)
            stated = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2]
            if service.keys is not None and stated.partition("/")[0] not in service.keys:
                start_response("403 Forbidden", [("Content-Length", "0")])
                return []
            if puts_file and service.refusal:
                start_response(service.refusal, [("Content-Length", "0")])
                return []
            if puts_file and service.lost_requests:
                service.lost_requests -= 1
                start_response("500 Internal Server Error", [("Content-Length", "0")])
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
                return []
            body = answer(environ, start_response)
            if puts_file and service.lost_replies:
                service.lost_replies -= 1
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return body

    server = make_server("127.0.0.1", 0, serve, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    service.endpoint = f"http://127.0.0.1:{server.server_port}"
    # Moto keeps what it holds for the whole process, whichever server it was given to.
    s3_backends.reset()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Quiet(MotoRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - werkzeug's name
        pass
