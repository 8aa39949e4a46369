"""The options of a REST catalog, checked, and merged with the server's options.

https://paimon.apache.org/docs/master/concepts/rest/overview/

The server sends defaults and overrides. The user's options take precedence over the defaults, and
the overrides take precedence over the user's options.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import format_datetime
from threading import Lock
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote_plus, unquote_plus

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
from lakecore.catalog.rest.http_client import Authorization, http_library
from lakecore.errors import InvalidRequest, LakecoreError, StorageError, Unsupported
from lakecore.io.ambient import SYSTEM, Ambient
from lakecore.io.stores.local import LocalStore
from lakecore.io.stores.open import open_store
from lakecore.io.stores.services import flag
from lakecore.masking import masked_options
from lakecore.options import NEVER_STORED, below, nearest, parse_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import httpx
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
        return below(self.texts, HEADER)

    @property
    def table_defaults(self) -> Mapping[str, str]:
        return below(self.texts, TABLE_DEFAULT)

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


# --- dlf signers ---------------------------------------------------------------------------------
# The signatures of Alibaba's Data Lake Formation (DLF).
#
# https://paimon.apache.org/docs/master/concepts/rest/dlf/
#
# - `default`: DLF4-HMAC-SHA256 over a canonical form of the request;
# - `openapi`: HMAC-SHA1 over the headers, for endpoints of the OpenAPI gateway.


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """An access key; a temporary key also has a `security_token` and the time when it expires."""

    key_id: str
    secret: str
    security_token: str | None = None
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request to sign, with a URL-encoded `path` and plain `params`."""

    method: str
    path: str
    params: Mapping[str, str]
    body: bytes | None


class Signer(Protocol):
    """Signs requests."""

    def sign(
        self, request: Request, credentials: Credentials, ambient: Ambient
    ) -> Mapping[str, str]:
        """The headers to add; one of them is the signature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultSigner:
    """Signs requests by DLF4-HMAC-SHA256."""

    region: str

    def sign(
        self, request: Request, credentials: Credentials, ambient: Ambient
    ) -> Mapping[str, str]:
        time = _now(ambient).strftime("%Y%m%dT%H%M%SZ")
        headers = {
            "x-dlf-date": time,
            "x-dlf-content-sha256": "UNSIGNED-PAYLOAD",
            "x-dlf-version": "v1",
        }
        if request.body is not None:
            headers["Content-Type"] = "application/json"
            headers["Content-MD5"] = _md5(request.body)
        if credentials.security_token:
            headers["x-dlf-security-token"] = credentials.security_token
        query = "&".join(
            quote_plus(key) + (f"={quote_plus(request.params[key])}" if request.params[key] else "")
            for key in sorted(request.params)
        )
        lower = {key.lower(): text for key, text in headers.items()}
        canonical = "\n".join(
            [
                request.method,
                request.path,
                query,
                *(f"{key}:{lower[key].strip()}" for key in sorted(lower)),
                "UNSIGNED-PAYLOAD",
            ]
        )
        scope = f"{time[:8]}/{self.region}/DlfNext/aliyun_v4_request"
        text = "\n".join(
            ["DLF4-HMAC-SHA256", time, scope, hashlib.sha256(canonical.encode()).hexdigest()]
        )
        key = f"aliyun_v4{credentials.secret}".encode()
        for part in (time[:8], self.region, "DlfNext", "aliyun_v4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        headers["Authorization"] = (
            f"DLF4-HMAC-SHA256 Credential={credentials.key_id}/{scope},Signature={signature}"
        )
        return headers


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenApiSigner:
    """Signs requests by HMAC-SHA1, for the OpenAPI gateway."""

    host: str

    def sign(
        self, request: Request, credentials: Credentials, ambient: Ambient
    ) -> Mapping[str, str]:
        headers = {
            "Date": format_datetime(_now(ambient), usegmt=True),
            "Accept": "application/json",
            "Host": self.host,
            "x-acs-signature-method": "HMAC-SHA1",
            "x-acs-signature-nonce": ambient.new_uuid(),
            "x-acs-signature-version": "1.0",
            "x-acs-version": "2026-01-18",
        }
        if request.body is not None:
            headers["Content-MD5"] = _md5(request.body)
            headers["Content-Type"] = "application/json"
        if credentials.security_token:
            headers["x-acs-security-token"] = credentials.security_token
        signed = sorted(key for key in headers if key.startswith("x-acs-"))
        query = "&".join(
            key + (f"={request.params[key]}" if request.params[key] else "")
            for key in sorted(request.params)
        )
        resource = unquote_plus(request.path) + (f"?{query}" if query else "")
        text = "".join(
            [
                f"{request.method}\n",
                f"{headers['Accept']}\n",
                f"{headers.get('Content-MD5', '')}\n",
                f"{headers.get('Content-Type', '')}\n",
                f"{headers['Date']}\n",
                *(f"{key}:{headers[key]}\n" for key in signed),
                resource,
            ]
        )
        digest = hmac.digest(credentials.secret.encode(), text.encode(), "sha1")
        signature = base64.b64encode(digest).decode()
        headers["Authorization"] = f"acs {credentials.key_id}:{signature}"
        return headers


def _now(ambient: Ambient) -> datetime:
    return datetime.fromtimestamp(ambient.now_ms() / 1000, UTC)


def _md5(body: bytes) -> str:
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()


# --- authorization -------------------------------------------------------------------------------

_METADATA_URL = "http://100.100.100.200/latest/meta-data/Ram/security-credentials/"
_ATTEMPTS = 5
_REGION = re.compile(r"(?:pre-)?([a-z]+-[a-z]+(?:-\d+)?)")


@dataclass(frozen=True, slots=True, repr=False)
class BearerToken:
    """A token that the server has issued."""

    token: str

    def headers(
        self, method: str, path: str, params: Mapping[str, str], body: bytes | None
    ) -> Mapping[str, str]:
        del method, path, params, body
        return {"Authorization": f"Bearer {self.token}"}


class DlfSignature:
    """Signs each request with credentials that are read again before they expire."""

    def __init__(
        self,
        load: Callable[[], Credentials],
        signer: Signer,
        ambient: Ambient = SYSTEM,
    ) -> None:
        self._load = load
        self._signer = signer
        self._ambient = ambient
        self._lock = Lock()
        self._known: Credentials | None = None

    def headers(
        self, method: str, path: str, params: Mapping[str, str], body: bytes | None
    ) -> Mapping[str, str]:
        request = Request(method=method, path=path, params=params, body=body)
        return self._signer.sign(request, self._credentials(), self._ambient)

    def _credentials(self) -> Credentials:
        with self._lock:
            known = self._known
            now_ms = self._ambient.now_ms()
            if known is None or (
                known.expires_ms is not None and known.expires_ms - now_ms < _FRESH_MS
            ):
                known = self._known = self._load()
            return known


def authorization_of(options: RestOptions, ambient: Ambient = SYSTEM) -> Authorization:
    """The authorization that the options name. Raises InvalidRequest if an option is missing."""
    provider = options.texts.get(TOKEN_PROVIDER, "").strip().lower()
    if provider == BEAR:
        token = options.texts.get(TOKEN, "")
        if not token:
            raise InvalidRequest("the provider `bear` needs a token", option=TOKEN)
        return BearerToken(token)
    if provider != DLF:
        raise InvalidRequest(
            "a REST catalog needs a token provider",
            option=TOKEN_PROVIDER,
            value=provider or None,
            known=(BEAR, DLF),
        )
    return DlfSignature(_loader(options, ambient), _signer(options), ambient)


def _signer(options: RestOptions) -> Signer:
    host = options.uri.partition("://")[2].partition("/")[0]
    chosen = options.texts.get("dlf.signing-algorithm")
    if chosen is None:
        chosen = "openapi" if "dlfnext" in host else "default"
    if chosen == "openapi":
        return OpenApiSigner(host=host)
    if chosen != "default":
        raise Unsupported(
            "this signing algorithm is not supported",
            option="dlf.signing-algorithm",
            value=chosen,
            supported=("default", "openapi"),
        )
    region = options.texts.get("dlf.region")
    if region is None:
        found = _REGION.search(host)
        if found is None:
            raise InvalidRequest("the region is not in the address", option="dlf.region", host=host)
        region = found[1]
    return DefaultSigner(region=region)


def _loader(options: RestOptions, ambient: Ambient) -> Callable[[], Credentials]:
    """A function that loads credentials by the first documented method whose options are set."""
    texts = options.texts
    loader = texts.get("dlf.token-loader")
    path = texts.get("dlf.token-path")
    if loader == "ecs":
        return lambda: _from_ecs(options)
    if loader not in (None, "local_file"):
        raise InvalidRequest(
            "unknown loader of tokens",
            option="dlf.token-loader",
            value=loader,
            known=("ecs", "local_file"),
        )
    if loader == "local_file" or path is not None:
        if not path:
            raise InvalidRequest("the token file is not named", option="dlf.token-path")
        return lambda: _from_file(path, ambient)
    key_id, secret = texts.get("dlf.access-key-id"), texts.get("dlf.access-key-secret")
    if not key_id or not secret:
        raise InvalidRequest(
            "the provider `dlf` needs credentials",
            options=(
                "dlf.access-key-id and dlf.access-key-secret",
                "dlf.token-path",
                "dlf.token-loader",
            ),
        )
    fixed = Credentials(key_id, secret, texts.get("dlf.security-token"))
    return lambda: fixed


def _from_file(path: str, ambient: Ambient) -> Credentials:
    """The credentials of a file, which another process may be replacing."""
    problem: Exception | None = None
    for attempt in range(_ATTEMPTS):
        if attempt:
            ambient.sleep(0.1 * 2**attempt)
        try:
            return _parsed(LocalStore().read(path).decode())
        except (LakecoreError, ValueError) as error:
            problem = error
    raise StorageError(
        "the token file cannot be read", path=path, reason=type(problem).__name__
    ) from None


def _from_ecs(options: RestOptions) -> Credentials:
    httpx = http_library()
    base = options.texts.get("dlf.token-ecs-metadata-url", _METADATA_URL)
    try:
        role = options.texts.get("dlf.token-ecs-role-name") or _got(httpx.get(base, timeout=10))
        return _parsed(_got(httpx.get(f"{base.rstrip('/')}/{role.strip()}", timeout=10)))
    except (httpx.HTTPError, ValueError) as error:
        raise StorageError(
            "the metadata service gives no token", uri=base, reason=type(error).__name__
        ) from None


def _got(response: httpx.Response) -> str:
    return response.raise_for_status().text


def _parsed(text: str) -> Credentials:
    """Credentials from JSON. Raises ValueError if a part is missing."""
    try:
        parts = json.loads(text)
    except RecursionError as error:
        raise ValueError("no credentials") from error
    if not isinstance(parts, dict) or not {"AccessKeyId", "AccessKeySecret"} <= parts.keys():
        raise ValueError("no credentials")
    expires = parts.get("Expiration")
    expires_ms = None
    if expires:
        then = datetime.strptime(expires, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        expires_ms = int(then.timestamp() * 1000)
    return Credentials(
        parts["AccessKeyId"], parts["AccessKeySecret"], parts.get("SecurityToken"), expires_ms
    )
