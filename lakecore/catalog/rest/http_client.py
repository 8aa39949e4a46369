"""Requests to a REST server, with authorization, retries, paging, and lakecore's errors.

https://paimon.apache.org/docs/master/concepts/rest/rest-api/

Retries follow Paimon: a request is sent again at most 5 times, after the replies 429 and 503. After
a broken connection, only requests that change nothing are sent again. The client first waits as
long as `Retry-After` says, or else 1 s, 2 s, 4 s ... with some jitter.

INVARIANT: a request that may have had an effect is never sent twice. If the reply is lost,
`ReplyLost` is raised, and the caller must check whether the request had its effect.
"""

from __future__ import annotations

import json
import weakref
from email.utils import parsedate_to_datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote_plus

from lakecore.errors import (
    AlreadyExists,
    InvalidRequest,
    LakecoreError,
    NotFound,
    StorageError,
    Unsupported,
    optional,
)
from lakecore.io.ambient import SYSTEM, Ambient
from lakecore.io.stores.services import Timeouts
from lakecore.masking import masked

if TYPE_CHECKING:
    import ssl
    from collections.abc import Collection, Iterator, Mapping
    from types import ModuleType

    import httpx


http_library = partial(optional, "httpx", extra="rest", what="a REST catalog")
_RETRIES_MAX = 5
_WAIT_MAX_SECONDS = 64.0
_BUSY = (429, 503)
_SUCCESS = (200, 202, 204)
_TIMEOUTS = Timeouts()
_WITHOUT_EFFECT = ("GET", "HEAD")
_ERRORS: dict[int, tuple[type[LakecoreError], str]] = {
    400: (InvalidRequest, "the server found the request invalid"),
    401: (StorageError, "the server does not know the token"),
    403: (StorageError, "the server does not permit this"),
    404: (NotFound, "the server does not have it"),
    409: (AlreadyExists, "the server has it already"),
    501: (Unsupported, "the server does not support this"),
}


@cache
def _tls(library: ModuleType) -> ssl.SSLContext:
    """How servers are verified; cached, because loading certificates is slow."""
    context: ssl.SSLContext = library.create_ssl_context()
    return context


class Authorization(Protocol):
    """Makes the headers that authorize a request."""

    def headers(
        self, method: str, path: str, params: Mapping[str, str], body: bytes | None
    ) -> Mapping[str, str]:
        """The headers of one request, with a URL-encoded `path` and plain `params`."""


class ReplyLost(StorageError):
    """A request was sent without a reply, and may have had its effect."""


class Refusal(Exception):
    """An error reply of the server. `code`: Paimon's code; `retry_after`: seconds."""

    def __init__(
        self,
        code: int,
        text: str,
        resource: str = "",
        name: str = "",
        request_id: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(text)
        self.code, self.text, self.resource, self.name = code, text, resource, name
        self.request_id, self.retry_after = request_id, retry_after

    def as_error(self, **facts: object) -> LakecoreError:
        kind, message = _ERRORS.get(self.code, (StorageError, "the server failed"))
        told = {
            "code": self.code,
            "resource": " ".join(part for part in (self.resource, self.name) if part) or None,
            "reason": masked(self.text) or None,
            "request_id": self.request_id or None,
        }
        return kind(message, **facts, **{k: v for k, v in told.items() if v is not None})


class RestClient:
    """Requests to one server. Safe for use by several threads."""

    def __init__(
        self,
        uri: str,
        authorization: Authorization,
        headers: Mapping[str, str],
        ambient: Ambient = SYSTEM,
        timeouts: Timeouts = _TIMEOUTS,
    ) -> None:
        library = http_library()
        self._uri = uri
        self._authorization = authorization
        self._headers = dict(headers)
        self._ambient = ambient
        self._library = library
        self._client: httpx.Client = library.Client(
            timeout=library.Timeout(timeouts.catalog_answer, connect=timeouts.connect, pool=None),
            follow_redirects=False,
            verify=_tls(library),
        )
        # Catalogs have no `close`: close the connections when the catalog and its tables are gone.
        self.close = weakref.finalize(self, self._client.close)

    def get(self, path: str, params: Mapping[str, str] = {}) -> dict[str, Any]:
        return self.send("GET", path, params=params)

    def post(self, path: str, body: object, *, retries: bool = True) -> dict[str, Any]:
        """The reply to a POST; `retries`: the request is sent again when the server is busy."""
        return self.send("POST", path, body=body, retries=retries)

    def delete(self, path: str) -> dict[str, Any]:
        return self.send("DELETE", path)

    def answer(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        absent: Collection[int] = (),
        **named: object,
    ) -> dict[str, Any] | None:
        """The reply to a request; None if the server answers with one of the codes `absent`.

        Raises only errors of lakecore; `named` are the facts of a refusal.
        """
        try:
            return self.send(method, path, body=body)
        except Refusal as refusal:
            if refusal.code in absent:
                return None
            raise refusal.as_error(**named) from None

    def names(
        self, path: str, key: str, *, absent: Collection[int] = (), **named: object
    ) -> tuple[str, ...]:
        """The sorted names in a list of the server; none for one of the codes `absent`."""
        try:
            return tuple(sorted(map(str, self.pages(path, key))))
        except Refusal as refusal:
            if refusal.code in absent:
                return ()
            raise refusal.as_error(**named) from None

    def pages(self, path: str, key: str, params: Mapping[str, str] = {}) -> Iterator[Any]:
        """The items of a list that the server returns in pages."""
        token: str | None = None
        while True:
            given = dict(params) if token is None else {**params, "pageToken": token}
            reply = self.get(path, given)
            items = reply.get(key) or []
            yield from items
            before, token = token, reply.get("nextPageToken")
            if not token or not items:
                return
            if token == before:
                raise StorageError("the server returns the same page again", request=path)

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] = {},
        body: object = None,
        retries: bool = True,
    ) -> dict[str, Any]:
        """The reply as JSON; empty without a body.

        Raises `Refusal` for an error of the server, `ReplyLost` if a request that may have had an
        effect got no reply, StorageError if the server cannot be reached.
        """
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        for attempt in range(_RETRIES_MAX + 1):
            last = attempt == _RETRIES_MAX or not retries
            try:
                response = self._once(method, path, params, data)
            except ReplyLost as lost:
                silent = isinstance(lost.__context__, self._library.TimeoutException) and attempt
                if last or silent or method not in _WITHOUT_EFFECT:
                    raise
                self._wait(attempt, None)
                continue
            if response.status_code in _SUCCESS:
                return _decoded(response, path)
            refusal = _refusal(response)
            if last or response.status_code not in _BUSY:
                raise refusal
            self._wait(attempt, refusal.retry_after)
        raise AssertionError("the last attempt returns or raises")

    def _once(
        self, method: str, path: str, params: Mapping[str, str], data: bytes | None
    ) -> httpx.Response:
        library = self._library
        query = "&".join(f"{quote_plus(key)}={quote_plus(params[key])}" for key in params)
        url = f"{self._uri}{path}" + (f"?{query}" if query else "")
        headers = {**self._headers}
        if data is not None:
            headers["Content-Type"] = "application/json"
        headers.update(self._authorization.headers(method, path, params, data))
        try:
            return self._client.request(method, url, content=data, headers=headers)
        except (library.ConnectError, library.ConnectTimeout, library.UnsupportedProtocol) as error:
            raise StorageError(
                "the server cannot be reached", uri=self._uri, reason=masked(str(error))
            ) from None
        except (library.TransportError, library.InvalidURL) as error:
            raise ReplyLost(
                "the server did not reply",
                uri=self._uri,
                request=f"{method} {path}",
                reason=masked(str(error)) or type(error).__name__,
            ) from None

    def _wait(self, attempt: int, stated: float | None) -> None:
        seconds = min(2.0**attempt, _WAIT_MAX_SECONDS) if stated is None else stated
        self._ambient.sleep(seconds * (1 + 0.1 * self._ambient.random()))


def encoded(name: str) -> str:
    """A name, URL-encoded as Java does it, as one part of a path.

    Raises InvalidRequest for a name that would change the path: clients and servers resolve
    `tags/..` to the table, even if the dots are encoded.
    """
    if name in (".", ".."):
        raise InvalidRequest("a REST catalog cannot name this", name=name)
    return quote_plus(name, safe="*").replace("~", "%7E")


def _decoded(response: httpx.Response, path: str) -> dict[str, Any]:
    if not response.content:
        return {}
    try:
        reply = response.json()
    except (ValueError, RecursionError) as error:
        raise StorageError("the reply of the server is not JSON", request=path) from error
    if not isinstance(reply, dict):
        raise StorageError("the reply of the server is not an object", request=path)
    return reply


def _refusal(response: httpx.Response) -> Refusal:
    try:
        body = response.json()
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        body = {}
    code = body.get("code")
    return Refusal(
        code if isinstance(code, int) and code else response.status_code,
        str(body.get("message") or response.reason_phrase),
        str(body.get("resourceType") or ""),
        str(body.get("resourceName") or ""),
        response.headers.get("x-request-id", ""),
        _seconds(response.headers.get("retry-after")),
    )


def _seconds(text: str | None) -> float | None:
    """The seconds of a header Retry-After, which may be a date."""
    if text is None:
        return None
    if text.strip().isdecimal():
        return float(text)
    try:
        then = parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError):
        return None
    return max(0.0, then - SYSTEM.now_ms() / 1000)
