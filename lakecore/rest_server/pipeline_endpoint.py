"""The HTTP endpoint of a running pipeline: `/metrics` for Prometheus, `/live` for a supervisor.

`/live` answers 200 while the pipeline takes steps, also while the pipeline waits for its source or
is idle, and 503 after `STUCK_SECONDS` without a step. The answer has no other content, and the
request needs no token.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakecore.cdc.pipeline import Pipeline, status_of
from lakecore.errors import InvalidRequest, LakecoreError
from lakecore.io.ambient import SYSTEM
from lakecore.metrics import METRICS_TYPE, pipeline_text
from lakecore.rest_server.app import Token, token_of
from lakecore.rest_server.replies import Problem
from lakecore.rest_server.serving import beside, check_host, check_token

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, MutableMapping

    from lakecore.catalog.catalog import Catalog

log = logging.getLogger("lakecore.cdc")

STUCK_SECONDS = 600.0
_VARIABLE = "LAKECORE_METRICS_TOKEN"
_TEXT = "text/plain; charset=utf-8"


class Endpoint:
    """An ASGI application over one running pipeline, whose steps call `beat`."""

    def __init__(self, catalog: Catalog, pipeline: Pipeline, host: str, token: str | None) -> None:
        self._catalog = catalog
        self._pipeline = pipeline
        self._host = host
        self._tokens = () if token is None else (Token(name="token", text=token),)
        self._beat_ms = SYSTEM.now_ms()

    def beat(self) -> None:
        """Record that the pipeline takes a step."""
        self._beat_ms = SYSTEM.now_ms()

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[object]],
        send: Callable[[MutableMapping[str, object]], Awaitable[None]],
    ) -> None:
        del receive
        headers = {
            name.decode("latin-1"): each.decode("latin-1") for name, each in scope["headers"]
        }
        try:
            status, kind, text = await self._answer(scope["method"], scope["path"], headers)
        except Problem as problem:
            status, kind, text = problem.code, _TEXT, f"{problem}\n"
        except LakecoreError as error:
            status, kind, text = 500, _TEXT, f"{error}\n"
        stated = [(b"content-type", kind.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": stated})
        await send({"type": "http.response.body", "body": text.encode()})

    async def _answer(
        self, method: str, path: str, headers: MutableMapping[str, str]
    ) -> tuple[int, str, str]:
        silent = (SYSTEM.now_ms() - self._beat_ms) / 1000
        if method not in {"GET", "HEAD"}:
            raise Problem(405, "the endpoint is read-only")
        if path == "/live":
            if silent > STUCK_SECONDS:
                raise Problem(503, f"the pipeline has taken no step for {silent:.0f} s")
            return 200, _TEXT, "alive\n"
        if path != "/metrics":
            raise Problem(404, "the endpoint has /metrics and /live")
        if not self._tokens:
            check_host(headers.get("host", ""), self._host)
        token_of(headers.get("authorization"), self._tokens)
        name, state = self._pipeline.label, self._pipeline.state
        status = await asyncio.to_thread(status_of, self._catalog, name, state, SYSTEM)
        return 200, METRICS_TYPE, pipeline_text(status, name, silent)


@contextmanager
def endpoint(
    address: str, catalog: Catalog, pipeline: Pipeline, token: str | None
) -> Iterator[Callable[[], object]]:
    """A context manager in which the endpoint of a pipeline listens at `HOST:PORT`.

    The value is a function to call at each step of the pipeline.
    """
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not port.isdecimal() or int(port) >= 1 << 16:
        raise InvalidRequest(
            "the address is HOST:PORT", option="--metrics-address", value=address,
            example="127.0.0.1:9400",
        )  # fmt: skip
    try:
        check_token(host, token)
    except InvalidRequest as error:
        raise InvalidRequest(error.message, variable=_VARIABLE, host=host) from error
    app = Endpoint(catalog, pipeline, host, token)
    with beside(app, host=host, port=int(port)) as where:
        log.info("the endpoint listens. address=%s", where)
        yield app.beat
