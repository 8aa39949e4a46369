"""Stores for tests: those of `lakecore.testing`, some that count or meddle, and an S3 service."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import boto3  # type: ignore[import-untyped]
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from moto.s3.models import s3_backends
from werkzeug.serving import make_server

from lakecore.errors import StorageError
from lakecore.testing.stores import FailingStore, StoreFailure, WatchedStore, files_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from lakecore.io.stores.store import FileStatus, Store

__all__ = [
    "FailingStore",
    "FullStore",
    "MeddledStore",
    "ReadCounter",
    "RequestCounter",
    "S3Service",
    "StoreFailure",
    "files_below",
    "s3_service",
]


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


class FullStore(WatchedStore):
    """Has no space for files whose path has a text, after so many of them."""

    def __init__(self, inner: Store, text: str, count: int) -> None:
        super().__init__(inner)
        self.text = text
        self.left = count

    @contextmanager
    def call(self, name: str, path: str) -> Iterator[None]:
        if name in {"put", "put_if_absent", "open_output"} and self.text in path:
            self.left -= 1
            if self.left < 0:
                raise StorageError("no space left", path=path)
        yield


class MeddledStore(FailingStore):
    """Does something, once each, just before a snapshot is published: another who comes first."""

    def __init__(self, inner: Store, *deeds: Callable[[], object]) -> None:
        super().__init__(inner)
        self.deeds = list(deeds)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if self.deeds and "/snapshot-" in path:
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
    listings: int = 0  # how many requests have listed keys
    requests: Counter[str] = field(default_factory=Counter)  # by method, and LIST
    waiting: int = 0  # requests that have come and wait for `silent_seconds`
    waiting_max: int = 0
    sent_bytes: int = 0  # of all files that were read

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

    def started(start_response: Any, status: str, headers: Any, *more: Any) -> Any:
        if status.startswith("206"):
            service.sent_bytes += int(dict(headers).get("Content-Length", 0))
        return start_response(status, headers, *more)

    def serve(environ: Any, start_response: Any) -> Any:
        service.waiting += 1
        service.waiting_max = max(service.waiting_max, service.waiting)
        time.sleep(service.silent_seconds)
        service.waiting -= 1
        lists = "list-type" in environ["QUERY_STRING"]
        service.listings += lists
        service.requests["LIST" if lists else environ["REQUEST_METHOD"]] += 1
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
            body = answer(environ, partial(started, start_response))
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
