"""Classifies the exceptions of remote clients, independent of the client.

fsspec's clients report "no such file" and "exists" with Python's own exceptions. Other errors have
the clients' own classes; the HTTP status is then somewhere in the chain of causes. An unrecognised
error counts as no answer: if an unknown outcome were treated as a refusal, a commit could be lost.

A file of a client is used long after it was opened, by the readers and writers of a format:
`TranslatedFile` translates the errors of each of its calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import IO, TYPE_CHECKING

from lakecore.errors import AlreadyExists, LakecoreError, NotFound, StorageError
from lakecore.masking import mask_exception

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_NO_BUCKET_GCS = "specified bucket does not exist"


class Answer(Enum):
    """How a service answered a conditional put that did not succeed."""

    TAKEN = auto()  # the path exists
    REFUSED = auto()  # nothing was written, and a retry would not help
    BUSY = auto()  # nothing was written: another put to that path was in progress
    NONE = auto()  # the data may have been written, or may still be


def answer(error: Exception) -> Answer:
    """The meaning of an exception that a conditional put raised."""
    status = http_status(error)
    if isinstance(error, FileExistsError) or status == 412:
        return Answer.TAKEN
    if status == 409:
        return Answer.BUSY
    if isinstance(error, PermissionError | FileNotFoundError):
        return Answer.REFUSED
    # 408 is a timeout and 429 throttling, from the service or from a proxy.
    if status is not None and (status == 501 or (400 <= status < 500 and status not in {408, 429})):
        return Answer.REFUSED
    return Answer.NONE


def http_status(error: BaseException) -> int | None:
    """The HTTP status of an exception or of one of its causes; None if there is none."""
    cause: BaseException | None = error
    while cause is not None:
        status = _own_status(cause)
        if status is not None:
            return status
        cause = cause.__cause__
    return None


@dataclass(frozen=True, slots=True, repr=False)
class plain_remote_errors:  # noqa: N801 - used as a function
    """Translate errors of a remote client about `path` into lakecore's errors, chained.

    `failures`: the client's exceptions, in addition to Python's OSError. `secrets` are masked in
    the messages. No generator, as `plain_errors`.
    """

    path: str
    failures: tuple[type[Exception], ...]
    secrets: tuple[str, ...] = ()

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if not isinstance(error, Exception) or not isinstance(error, (OSError, *self.failures)):
            return
        mask_exception(error, self.secrets)
        if isinstance(error, LakecoreError):
            return
        if isinstance(error, FileNotFoundError):
            # Often expected. A frame of fsspec refers to the error, and the error to the frame.
            error.__traceback__ = None
        raise _translated(error, self.path) from error  # a variable would be a cycle, too


def _translated(error: Exception, path: str) -> LakecoreError:
    if lacks_bucket(error):
        scheme, _, rest = path.partition("://")
        return NotFound("no such bucket", bucket=f"{scheme}://{rest.partition('/')[0]}", path=path)
    if isinstance(error, PermissionError) or http_status(error) in {401, 403}:
        return StorageError(
            "the storage refused the credentials, or they do not permit this; check the options "
            "with the keys or the token, and the rights of their owner",
            path=path,
            reason=getattr(error, "strerror", None) or error,
        )
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return NotFound("no such file", path=path)
    if isinstance(error, IsADirectoryError):
        return NotFound("a directory, not a file", path=path)
    if isinstance(error, FileExistsError):
        return AlreadyExists("the path exists already", path=path)
    reason = getattr(error, "strerror", None) or error
    return StorageError("the storage refused", path=path, reason=reason)


def lacks_bucket(error: BaseException) -> bool:
    """Whether the service says that the bucket, or the container, does not exist."""
    cause: BaseException | None = error
    while cause is not None:
        response = getattr(cause, "response", None)  # botocore
        stated = response.get("Error", {}) if isinstance(response, Mapping) else {}
        code = getattr(cause, "error_code", None) or stated.get("Code")  # azure, botocore
        if code in _NO_BUCKET or _NO_BUCKET_GCS in str(cause):
            return True
        cause = cause.__cause__
    return False


class TranslatedFile:
    """A file of a remote client, as `pa.PythonFile` uses it; every call raises lakecore's errors.

    `translated` makes the context in which the client is called.
    """

    def __init__(
        self, file: IO[bytes], translated: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._file = file
        self._translated = translated

    def read(self, size_bytes: int = -1) -> bytes:
        with self._translated():
            return self._file.read(size_bytes)

    def write(self, data: bytes) -> int:
        with self._translated():
            return self._file.write(data)

    def seek(self, position: int, whence: int = 0) -> int:
        with self._translated():
            return self._file.seek(position, whence)

    def tell(self) -> int:
        with self._translated():
            return self._file.tell()

    def flush(self) -> None:
        with self._translated():
            self._file.flush()

    def close(self) -> None:
        with self._translated():
            self._file.close()

    @property
    def closed(self) -> bool:
        return self._file.closed


def _own_status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)  # botocore
    if isinstance(response, Mapping):
        metadata = response.get("ResponseMetadata")
        if isinstance(metadata, Mapping):
            return _number(metadata.get("HTTPStatusCode"))
    for name in ("status_code", "status", "code"):  # azure, aiohttp, gcsfs
        status = _number(getattr(error, name, None))
        if status is not None:
            return status
    return None


def _number(value: object) -> int | None:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return value if isinstance(value, int) and 100 <= value < 600 else None
