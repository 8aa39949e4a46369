"""The HTTP layer of the server: checks the token and limits, and parses and prints JSON.

- A request needs the header `Authorization: Bearer TOKEN`; tokens are compared in constant time.
- Paths are split at slashes before they are decoded, so a name may contain an encoded slash.
- A body has at most `BODY_BYTES_MAX` bytes.
- uvicorn logs unexpected errors; the client gets no details.
"""

from __future__ import annotations

import hmac
import importlib
import json
import logging
import math
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote_plus

from lakecore.errors import LakecoreError, Unsupported
from lakecore.rest_server.replies import Problem, Reply, error_reply, problem_of
from lakecore.rest_server.served_catalog import ServedCatalog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping
    from types import ModuleType

    from lakecore.catalog.catalog import Catalog

__all__ = ["RestApp", "server_library"]

log = logging.getLogger("lakecore.rest_server")
BODY_BYTES_MAX = 32 << 20
PATH_BYTES_MAX = 8 << 10
_VERSION = "v1"


def server_library(name: str) -> ModuleType:
    """A library of the server. Raises Unsupported, naming the extra, if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unsupported(
            "a REST server needs a package that is not installed",
            package=name,
            install="pip install 'lakecore[rest-server]'",
        ) from error


class RestApp:
    """An ASGI application that serves one catalog. Without a token, it accepts all requests."""

    def __init__(self, catalog: Catalog, token: str | None) -> None:
        self._served = ServedCatalog(catalog)
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._in_thread = server_library("starlette.concurrency").run_in_threadpool
        self._responses = server_library("starlette.responses")
        self._requests = server_library("starlette.requests")

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        reply = await self._reply(self._requests.Request(scope, receive))
        content = b"" if reply.body is None else json.dumps(reply.body).encode()
        response = self._responses.Response(
            content, status_code=reply.status, media_type="application/json"
        )
        await response(scope, receive, send)

    async def _reply(self, request: Any) -> Reply:  # noqa: ANN401  Starlette's request
        method, path = request.method, request.scope["path"]
        try:
            self._authorize(request.headers.get("authorization"))
            parts, query = _address(request.scope)
            body = _object(await _body(request))
            reply: Reply = await self._in_thread(self._served.handle, method, parts, query, body)
        except Problem as problem:
            return error_reply(problem)
        except LakecoreError as error:
            found = problem_of(error)
            if found.code == 500:
                log.warning("request failed: %s %s: %s", method, path, error)
            return error_reply(found)
        return reply

    def _authorize(self, stated: str | None) -> None:
        if self._expected is None:
            return
        if not hmac.compare_digest((stated or "").encode("utf-8", "replace"), self._expected):
            raise Problem(401, "the token is missing or wrong")


def _address(scope: MutableMapping[str, Any]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The decoded parts of a path below `/v1`, and the query."""
    raw = bytes(scope.get("raw_path") or scope["path"].encode())
    if len(raw) > PATH_BYTES_MAX:
        raise Problem(414, "the path is too long")
    try:
        _, version, *parts = raw.decode("ascii").split("/")
        decoded = tuple(unquote_plus(part, errors="strict") for part in parts)
        query = dict(parse_qsl(bytes(scope["query_string"]).decode("ascii"), errors="strict"))
    except (UnicodeDecodeError, ValueError):
        raise Problem(400, "the path is not valid") from None
    if version != _VERSION or not decoded:
        raise Problem(404, f"paths begin with /{_VERSION}/")
    return decoded, query


async def _body(request: Any) -> bytes:  # noqa: ANN401  Starlette's request
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > BODY_BYTES_MAX:
            raise Problem(413, f"a body has at most {BODY_BYTES_MAX} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


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
    """The number. Raises ValueError for one that would become infinite: no reader accepts that."""
    number = float(text)
    return number if math.isfinite(number) else _no_constant(text)
