"""The storage of a table of a REST catalog, with the credentials that the server issues.

With `data-token.enabled`, the server issues credentials for each table. They expire, so new
credentials are requested when less than an hour is left, also during a long scan.
"""

from __future__ import annotations

from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from lakecore.catalog.identifier import MAIN_BRANCH
from lakecore.errors import StorageError
from lakecore.io.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from lakecore.catalog.rest.rest_options import RestOptions
    from lakecore.catalog.rest.served_table import ServedTable
    from lakecore.io.ambient import Ambient
    from lakecore.io.stores.store import FileStatus, Store

__all__ = ["TokenStore", "open_table_storage"]

_FRESH_MS = 3_600_000
_OSS_ENDPOINT = "dlf.oss-endpoint"


def open_table_storage(
    served: ServedTable, path: str, options: RestOptions, ambient: Ambient
) -> Store:
    """The store of a table's files."""
    if not options.asks_data_tokens:
        return open_store(path, options.storage)
    return TokenStore(served.on_branch(MAIN_BRANCH), path, options, ambient)


class TokenStore:
    """A store whose credentials the server renews. Safe for use by several threads."""

    def __init__(
        self, served: ServedTable, path: str, options: RestOptions, ambient: Ambient
    ) -> None:
        self._served = served
        self._path = path
        self._options = options
        self._ambient = ambient
        self._lock = Lock()
        self._store: Store | None = None
        self._expires_ms = 0

    @property
    def _now(self) -> Store:
        """The store, with credentials that do not expire soon."""
        with self._lock:
            left_ms = self._expires_ms - self._ambient.now_ms()
            if self._store is None or left_ms < _FRESH_MS:
                self._store, self._expires_ms = self._renewed()
            return self._store

    def _renewed(self) -> tuple[Store, int]:
        reply = self._served.ask("GET", "token")
        token, expires_ms = reply.get("token"), reply.get("expiresAtMillis")
        if not isinstance(token, dict) or not isinstance(expires_ms, int):
            raise StorageError("the server gives the table no token", table=self._served.name)
        options = {**self._options.storage, **{str(key): str(token[key]) for key in token}}
        endpoint = self._options.texts.get(_OSS_ENDPOINT)
        if endpoint:
            options["fs.oss.endpoint"] = endpoint
        return open_store(self._path, options), expires_ms

    def __repr__(self) -> str:
        return f"TokenStore({self._path!r})"

    def read(self, path: str) -> bytes:
        return self._now.read(path)

    def exists(self, path: str) -> bool:
        return self._now.exists(path)

    def size(self, path: str) -> int:
        return self._now.size(path)

    def list(self, directory: str) -> tuple[FileStatus, ...]:
        return self._now.list(directory)

    def put(self, path: str, data: bytes) -> None:
        self._now.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._now.put_if_absent(path, data)

    def delete(self, path: str) -> None:
        self._now.delete(path)

    def delete_directory(self, path: str) -> None:
        self._now.delete_directory(path)

    def remove_empty_directory(self, path: str) -> None:
        self._now.remove_empty_directory(path)

    @property
    def renames_at_once(self) -> bool:
        return self._now.renames_at_once

    def rename_directory(self, source: str, target: str) -> None:
        self._now.rename_directory(source, target)

    def copy_directory(self, source: str, target: str) -> None:
        self._now.copy_directory(source, target)

    def make_directory(self, path: str) -> None:
        self._now.make_directory(path)

    def open_input(self, path: str) -> pa.NativeFile:
        return self._now.open_input(path)

    @contextmanager
    def open_output(self, path: str) -> Iterator[pa.NativeFile]:
        with self._now.open_output(path) as output:
            yield output

    def local_path(self, path: str) -> str | None:
        return self._now.local_path(path)
