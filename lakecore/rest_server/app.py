"""The HTTP layer of the server: checks the token and limits, and parses and prints JSON.

- A request needs the header `Authorization: Bearer TOKEN`; tokens are compared in constant time.
- Paths are split at slashes before they are decoded, so a name may contain an encoded slash.
- A body has at most `BODY_BYTES_MAX` bytes, and arrives within `BODY_SECONDS`. The bodies of all
  requests in work have at most `BODIES_BYTES_MAX`; further requests get the reply 503.
- The log `lakecore.rest_server` names the reason of a failure, and uvicorn logs unexpected errors;
  the client gets no details.
- The log `lakecore.rest_server.audit` has a line for each request that changes something, or tries
  to: the name of the token, the method, the object, and the status of the reply.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import math
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl, unquote_plus

from lakecore.errors import InvalidRequest, LakecoreError, optional
from lakecore.metrics import METRICS_TYPE, Numbers, prometheus
from lakecore.rest_server.replies import Problem, Reply, error_reply, problem_of
from lakecore.rest_server.served_catalog import PREFIX, ServedCatalog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
    from types import ModuleType

    from lakecore.catalog.catalog import Catalog


# --- tokens --------------------------------------------------------------------------------------
# Who sends a request, and what they may do: a token, with a scope.
#
# A scope has two parts: whether the token may change anything, and the databases that it may name.
# `allow` checks a request before it is carried out; `visible` is the catalog whose lists of
# databases are those of the scope.

_KEYS = {"token", "databases", "access"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token and its scope. `databases` None: all databases."""

    name: str
    text: str
    databases: frozenset[str] | None = None
    writes: bool = True


NOBODY = Token(name="anyone", text="")
"""The sender of requests to a server without tokens."""


def token_of(stated: str | None, tokens: Sequence[Token]) -> Token:
    """The token of a request's header `Authorization`. Raises Problem if there is none."""
    if not tokens:
        return NOBODY
    found: Token | None = None
    given = (stated or "").encode("utf-8", "replace")
    for each in tokens:  # the time must not tell which token is nearly right
        if hmac.compare_digest(given, f"Bearer {each.text}".encode()):
            found = each
    if found is None:
        raise Problem(401, "the token is missing or wrong")
    return found


def allow(token: Token, method: str, parts: Sequence[str], body: Mapping[str, Any]) -> None:
    """Raise Problem (403) for a request that the token may not make."""
    if method != "GET" and not token.writes:
        raise Problem(403, "this token may only read")
    if token.databases is None:
        return
    named: list[object] = []
    match (method, *parts):
        case (_, "databases", database, *_):
            named = [database]
        case ("POST", "databases"):
            named = [body.get("name")]
        case ("POST", _, "rename"):
            places = (body.get("source"), body.get("destination"))
            named = [each.get("database") for each in places if isinstance(each, dict)]
    for each in named:
        if not isinstance(each, str) or each not in token.databases:
            raise Problem(403, "this token may not use the database", "DATABASE", str(each))


def visible(catalog: Catalog, token: Token) -> Catalog:
    """The catalog, with the databases that the token may use."""
    return catalog if token.databases is None else cast("Catalog", _Visible(catalog, token))


@dataclass(frozen=True, slots=True)
class _Visible:
    catalog: Catalog
    token: Token

    def list_databases(self) -> tuple[str, ...]:
        allowed = self.token.databases or ()
        return tuple(name for name in self.catalog.list_databases() if name in allowed)

    def __getattr__(self, name: str) -> object:
        return getattr(self.catalog, name)


def parse_tokens(text: str, path: str) -> tuple[Token, ...]:
    """The tokens of a TOML file: a table for each, named as the log shall name it.

    Raises InvalidRequest for another form and for an unknown key. No error shows a token.
    """
    try:
        found = tomllib.loads(text)
    except ValueError:
        raise InvalidRequest("the file of tokens is not TOML", path=path) from None
    tokens = tuple(_token(path, name, stated) for name, stated in found.items())
    if not tokens:
        raise InvalidRequest("the file has no tokens", path=path)
    if len({token.text for token in tokens}) < len(tokens):
        raise InvalidRequest("two names have the same token", path=path)
    return tokens


def _token(path: str, name: str, stated: object) -> Token:
    facts = {"path": path, "name": name}
    if not isinstance(stated, dict) or not stated.keys() <= _KEYS:
        raise InvalidRequest("a token is a table with these keys", **facts, allowed=sorted(_KEYS))
    text, databases = stated.get("token"), stated.get("databases")
    access = stated.get("access", "write")
    if not isinstance(text, str) or not text.isascii() or not text.strip():
        raise InvalidRequest("a token is a text of ASCII characters", **facts)
    if access not in ("read", "write"):
        raise InvalidRequest("the access of a token is 'read' or 'write'", **facts)
    listed = databases is None or isinstance(databases, list)
    if not listed or not all(isinstance(each, str) for each in databases or ()):
        raise InvalidRequest("the databases of a token are a list of names", **facts)
    return Token(
        name=name,
        text=text,
        databases=None if databases is None else frozenset(databases),
        writes=access == "write",
    )


# --- app -----------------------------------------------------------------------------------------

log = logging.getLogger("lakecore.rest_server")
audit = logging.getLogger("lakecore.rest_server.audit")
BODY_BYTES_MAX = 32 << 20
BODIES_BYTES_MAX = 128 << 20
BODY_SECONDS = 60.0
PATH_BYTES_MAX = 8 << 10
JSON_TYPE = "application/json"
_VERSION = "v1"
_NAMING = ("name", "identifier", "source", "destination", "tagName", "branch", "instant")


def server_library(name: str, extra: str = "rest-server") -> ModuleType:
    """A library of the server. Raises Unsupported, naming the extra, if it is not installed."""
    return optional(name, extra=extra, what="a server")


class RestApp:
    """An ASGI application that serves one catalog. Without a token, it accepts all requests.

    A token given as a string may do everything.
    """

    def __init__(self, catalog: Catalog, tokens: Sequence[Token] | str | None) -> None:
        if isinstance(tokens, str):
            tokens = [Token(name="token", text=tokens)]
        self._tokens = tuple(tokens or ())
        self._served = ServedCatalog(catalog)
        self._scoped = {token: self._served.over(visible(catalog, token)) for token in self._tokens}
        self._catalog, self._numbers, self._counting = catalog, Numbers(), asyncio.Lock()
        self._bodies_bytes = 0
        self._in_thread = server_library("starlette.concurrency").run_in_threadpool
        self._responses = server_library("starlette.responses")
        self._requests = server_library("starlette.requests")

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        if scope["type"] != "http":
            return
        call = _Call(request=self._requests.Request(scope, receive))
        status = 500
        try:
            reply = await self._reply(call)
            status = reply.status
        finally:
            if call.request.method != "GET":
                facts = (call.who, call.request.method, call.named, status)
                audit.info("change who=%s verb=%s object=%s status=%d", *facts)
        content, kind = b"" if reply.body is None else json.dumps(reply.body).encode(), JSON_TYPE
        if reply.metrics is not None:
            content, kind = reply.metrics.encode(), METRICS_TYPE
        # The rest of a body that the client still sends would be read as the next request.
        headers = {} if call.read else {"connection": "close"}
        response = self._responses.Response(
            content, status_code=reply.status, media_type=kind, headers=headers
        )
        await response(scope, receive, send)

    async def _reply(self, call: _Call) -> Reply:
        request = call.request
        try:
            token = token_of(request.headers.get("authorization"), self._tokens)
            call.who = token.name
            if (request.method, request.scope["path"]) == ("GET", "/metrics"):
                call.read = True
                async with self._counting:
                    return Reply(200, metrics=await self._in_thread(self._metrics, token))
            parts, query = _address(request.scope)
            held = _Held(self)
            try:
                body = _object(await held.body(request))
                call.read, call.body = True, body
                allow(token, request.method, parts, body)
                handle = self._scoped.get(token, self._served).handle
                reply: Reply = await self._in_thread(handle, request.method, parts, query, body)
            finally:
                held.release()
        except Problem as problem:
            return error_reply(problem)
        except self._requests.ClientDisconnect:
            return error_reply(Problem(400, "the body is not complete"))
        except LakecoreError as error:
            found = problem_of(error)
            if found.code == 500:
                log.warning("request failed: %s %s: %s", request.method, call.path, error)
            return error_reply(found)
        return reply

    def _metrics(self, token: Token) -> str:
        """The metrics of what the token may use; pipelines belong to no single database."""
        seen = visible(self._catalog, token)
        return prometheus(seen, self._numbers, with_pipelines=token.databases is None)


@dataclass(slots=True)
class _Call:
    """A request in progress, with the facts for its line in the audit log."""

    request: Any
    who: str = "-"
    read: bool = False
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The path as it was sent, so that it is one line of ASCII."""
        raw = bytes(self.request.scope.get("raw_path") or b"")
        return raw[:PATH_BYTES_MAX].decode("ascii", "backslashreplace")

    @property
    def named(self) -> str:
        """The path, and the names in the body."""
        names = {key: self.body[key] for key in _NAMING if key in self.body}
        return f"{self.path} {json.dumps(names)[:PATH_BYTES_MAX]}" if names else self.path


class _Held:
    """The share of one request in the bytes of all bodies in progress."""

    def __init__(self, app: RestApp) -> None:
        self._app, self._bytes = app, 0

    async def body(self, request: Any) -> bytes:  # noqa: ANN401  Starlette's request
        chunks = []
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for chunk in request.stream():
                    self._take(len(chunk))
                    chunks.append(chunk)
        except TimeoutError:
            raise Problem(408, "the body did not arrive in time") from None
        return b"".join(chunks)

    def _take(self, count: int) -> None:
        self._bytes += count
        self._app._bodies_bytes += count  # noqa: SLF001  a part of the application
        if self._bytes > BODY_BYTES_MAX:
            raise Problem(413, f"a body has at most {BODY_BYTES_MAX} bytes")
        if self._app._bodies_bytes > BODIES_BYTES_MAX:  # noqa: SLF001
            raise Problem(503, "too many requests with a body at the same time; send it again")

    def release(self) -> None:
        self._app._bodies_bytes -= self._bytes  # noqa: SLF001


def _address(scope: MutableMapping[str, Any]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The decoded parts of a path below `/v1`, and the query."""
    (version, *decoded), query = split_address(scope)
    if version != _VERSION or not decoded:
        raise Problem(404, f"paths begin with /{_VERSION}/")
    return tuple(decoded[decoded[0] == PREFIX :]), query


def split_address(scope: MutableMapping[str, Any]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The decoded parts of a path, at least one, and the query. Raises Problem."""
    raw = bytes(scope.get("raw_path") or scope["path"].encode())
    if len(raw) > PATH_BYTES_MAX:
        raise Problem(414, "the path is too long")
    try:
        _, *parts = raw.decode("ascii").split("/")
        decoded = tuple(unquote_plus(part, errors="strict") for part in parts)
        query = dict(parse_qsl(bytes(scope["query_string"]).decode("ascii"), errors="strict"))
    except (UnicodeDecodeError, ValueError):
        raise Problem(400, "the path is not valid") from None
    if not decoded:
        raise Problem(400, "the path is not valid")
    return decoded, query


def _object(data: bytes) -> dict[str, Any]:
    if not data.strip():
        return {}
    try:
        text = data.decode()
        body = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        if "\\u" in text:
            # Half a character could be stored, but never read again.
            json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise Problem(400, "the body is not JSON") from None
    if not isinstance(body, dict):
        raise Problem(400, "the body is not an object")
    return body


def _no_constant(text: str) -> float:
    raise ValueError(f"not a number of JSON: {text}")


def _finite(text: str) -> float:
    """The number. Raises ValueError if it would become infinite: no reader accepts infinity."""
    number = float(text)
    return number if math.isfinite(number) else _no_constant(text)
