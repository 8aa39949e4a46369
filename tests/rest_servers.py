"""A REST server of lakecore in a thread of the test's own process, and one that breaks."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import uvicorn

from lakecore.rest_server.app import RestApp
from lakecore.rest_server.serving import server_config

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, MutableMapping

    from lakecore.catalog.catalog import Catalog

    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

TOKEN = "a-token-of-the-tests"


@contextmanager
def rest_server(catalog: Catalog, app: Any = None) -> Iterator[dict[str, str]]:
    """The options of a client of a server over the catalog."""
    config = server_config(app or RestApp(catalog, TOKEN), port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.005)
    (listener,) = server.servers[0].sockets
    try:
        yield {
            "metastore": "rest",
            "uri": f"http://127.0.0.1:{listener.getsockname()[1]}",
            "warehouse": "any",
            "token.provider": "bear",
            "token": TOKEN,
        }
    finally:
        server.should_exit = True
        thread.join()


@dataclass
class Fault:
    """What happens to the next requests whose path ends so.

    - `carried_out`: whether the server carries the request out first;
    - `status`: what it replies instead; None breaks the connection without a reply;
    - `times`: how often.
    """

    method: str
    ending: str
    carried_out: bool = False
    status: int | None = None
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class BreakingApp:
    """The server, with faults. `seen` lists each request."""

    def __init__(self, catalog: Catalog) -> None:
        self._app = RestApp(catalog, TOKEN)
        self.faults: list[Fault] = []
        self.seen: list[str] = []
        self.before: Callable[[str], None] | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        method, path = scope.get("method", ""), scope.get("path", "")
        self.seen.append(f"{method} {path}")
        if self.before is not None:
            self.before(f"{method} {path}")
        fault = next(
            (f for f in self.faults if f.times and f.method == method and path.endswith(f.ending)),
            None,
        )
        if fault is None:
            await self._app(scope, receive, send)
            return
        fault.times -= 1
        if fault.carried_out:

            async def swallow(message: MutableMapping[str, Any]) -> None:
                pass

            await self._app(scope, receive, swallow)
        headers = [(k.encode(), v.encode()) for k, v in fault.headers.items()]
        if fault.status is None:  # a reply that promises more than it holds breaks the connection
            headers = [(b"content-length", b"1000")]
        start = {"type": "http.response.start", "status": fault.status or 200, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": fault.body})
