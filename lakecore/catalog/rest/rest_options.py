"""The options of a REST catalog, checked, and merged with the server's options.

https://paimon.apache.org/docs/master/concepts/rest/overview/

The server sends defaults and overrides. The user's options take precedence over the defaults, and
the overrides take precedence over the user's options.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING

from lakecore.catalog.identifier import MAIN_BRANCH
from lakecore.catalog.options import (
    METASTORE,
    TABLE_DEFAULT,
    WAREHOUSE,
    check_kerberos,
    is_access_option,
    is_storage_option,
    of_process,
)
from lakecore.errors import InvalidRequest, StorageError, Unsupported
from lakecore.io.stores.open import open_store
from lakecore.io.stores.services import flag
from lakecore.masking import masked_options
from lakecore.options import NEVER_STORED, nearest, parse_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from lakecore.catalog.rest.served_publication import ServedTable
    from lakecore.io.ambient import Ambient
    from lakecore.io.stores.store import DeleteMany, FileStatus, Store

URI = "uri"
PREFIX = "prefix"
TOKEN = "token"  # noqa: S105  the name of an option
TOKEN_PROVIDER = "token.provider"  # noqa: S105  the name of an option
DATA_TOKEN = "data-token.enabled"  # noqa: S105  the name of an option
HEADER = "header."
BEAR, DLF = "bear", "dlf"

_KNOWN = (
    METASTORE,
    WAREHOUSE,
    URI,
    TOKEN,
    TOKEN_PROVIDER,
    DATA_TOKEN,
    "catalog-options-table.enabled",
    "dlf.access-key-id",
    "dlf.access-key-secret",
    "dlf.oss-endpoint",
    "dlf.region",
    "dlf.security-token",
    "dlf.signing-algorithm",
    "dlf.token-ecs-metadata-url",
    "dlf.token-ecs-role-name",
    "dlf.token-loader",
    "dlf.token-path",
)
# Options of features that lakecore does not have, with the values that switch the feature off.
_FIXED = {
    "cache-enabled": ("false",),
    "case-sensitive": ("true",),
    "io-cache.enabled": ("false",),
    "local-cache.enabled": ("false",),
    "lock.enabled": ("false",),
    "resolving-file-io.enabled": ("false",),
    "rest.commit.retry-acquire-lock": ("false",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RestOptions:
    """The options of one catalog. `warehouse`: a name that the server knows, or empty.

    `given`: the options of the user; `texts`: the same, merged with the server's options.
    """

    given: Mapping[str, str]
    texts: Mapping[str, str]
    uri: str
    warehouse: str

    @property
    def prefix(self) -> str:
        """The prefix of every path, which the server chooses."""
        return self.texts.get(PREFIX, "")

    @property
    def headers(self) -> Mapping[str, str]:
        """HTTP headers of every request."""
        return {
            key.removeprefix(HEADER): text
            for key, text in self.texts.items()
            if key.startswith(HEADER)
        }

    @property
    def table_defaults(self) -> Mapping[str, str]:
        return {
            key.removeprefix(TABLE_DEFAULT): text
            for key, text in self.texts.items()
            if key.startswith(TABLE_DEFAULT)
        }

    @property
    def asks_data_tokens(self) -> bool:
        """Whether the server gives each table its own credentials for the storage."""
        return flag(DATA_TOKEN, self.texts.get(DATA_TOKEN, "false"))

    @property
    def storage(self) -> Mapping[str, str]:
        return {key: text for key, text in self.texts.items() if is_storage_option(key)}

    def __repr__(self) -> str:
        """The options, with secrets hidden."""
        return f"RestOptions({masked_options(self.texts)!r})"


def parse_rest_options(given: Mapping[str, str]) -> RestOptions:
    """The checked options of the user.

    Raises InvalidRequest for an unknown or missing key, Unsupported for a feature that lakecore
    does not have.
    """
    uri = given.get(URI, "").strip().rstrip("/")
    if not uri:
        raise InvalidRequest("a REST catalog needs the address of its server", option=URI)
    if "://" not in uri:
        uri = f"http://{uri}"
    check_kerberos(given)
    for key, text in given.items():
        _check(key, text)
    options = RestOptions(
        given=dict(given), texts=dict(given), uri=uri, warehouse=given.get(WAREHOUSE, "").strip()
    )
    parse_options(options.table_defaults, table="(table-default)", creating=True)
    return options


def merged_options(
    mine: RestOptions, defaults: Mapping[str, str], overrides: Mapping[str, str]
) -> RestOptions:
    """The options of the user, merged with the options that the server has sent.

    Only the user can set what the process allows (`of_process`).
    """
    merged = {**defaults, **mine.texts, **overrides}
    served = {key: text for key, text in merged.items() if key not in NEVER_STORED}
    return replace(mine, texts=served | of_process(mine.texts))


def _check(key: str, text: str) -> None:
    if key in _FIXED:
        if text.strip().lower() not in _FIXED[key]:
            raise Unsupported(
                "the catalog option is not supported", option=key, value=text, supported=_FIXED[key]
            )
        return
    if key in _KNOWN or key.startswith((HEADER, TABLE_DEFAULT)) or is_access_option(key):
        return
    near = nearest(key, {each: each for each in (*_KNOWN, *_FIXED)})
    raise InvalidRequest(
        "unknown option of a REST catalog; options of new tables begin with table-default",
        option=key,
        **({"did_you_mean": near[0]} if near else {"known": _KNOWN}),
    )


def texts_of(reply: Mapping[str, object], key: str) -> dict[str, str]:
    """The options of the server, without nulls."""
    found = reply.get(key)
    if not isinstance(found, dict):
        return {}
    return {str(k): str(v) for k, v in found.items() if v is not None}


# --- table storage -------------------------------------------------------------------------------
# The storage of a table of a REST catalog, with the credentials that the server issues.
#
# With `data-token.enabled`, the server issues credentials for each table. New credentials are
# requested when the old ones expire within an hour, also during a long scan.

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

    @property
    def delete_many(self) -> DeleteMany | None:
        return self._now.delete_many

    @property
    def at_once(self) -> int:
        return self._now.at_once

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
