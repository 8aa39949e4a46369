"""Runs the server until a signal stops it."""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from lakecore.errors import InvalidRequest
from lakecore.rest_server.app import RestApp, Token, audit, server_library
from lakecore.rest_server.replies import Problem

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Sequence

    from lakecore.catalog.catalog import Catalog

TOKEN_LENGTH_MIN = 16
CONNECTIONS_MAX = 1_000
_ENDS_WITHIN_SECONDS = 5.0


def serve(
    catalog: Catalog,
    *,
    host: str,
    port: int,
    token: str | None = None,
    tokens: Sequence[Token] = (),
    on_start: Callable[[str], None],
) -> None:
    """Serve a catalog until SIGINT or SIGTERM.

    `token` may do everything; each of `tokens` may do what its scope allows. Port 0 means any free
    port. `on_start` gets the address of the server.

    Raises InvalidRequest if other machines can connect without a token, or if the port is taken.
    """
    known = [*tokens] if token is None else [Token(name="token", text=token), *tokens]
    texts: list[str | None] = [each.text for each in known]
    for text in texts or [None]:
        check_token(host, text)
    _show_audit()
    listen(RestApp(catalog, known), host=host, port=port, on_start=on_start)


def listen(app: object, *, host: str, port: int, on_start: Callable[[str], None]) -> None:
    """Serve an application until SIGINT or SIGTERM. `on_start` gets the address of the server.

    Raises InvalidRequest if the port is taken.
    """
    with _listening(host, port) as (listener, address):
        on_start(address)
        server_library("uvicorn").Server(server_config(app)).run(sockets=[listener])


@contextmanager
def beside(app: object, *, host: str, port: int) -> Iterator[str]:
    """A context manager in which a thread serves an application; the value is the address.

    Raises InvalidRequest if the port is taken.
    """
    server = server_library("uvicorn").Server(server_config(app))
    with _listening(host, port) as (listener, address):
        runs = partial(server.run, sockets=[listener])
        thread = threading.Thread(target=runs, name="lakecore-server", daemon=True)
        thread.start()
        try:
            yield address
        finally:
            server.should_exit = True
            thread.join(_ENDS_WITHIN_SECONDS)


@contextmanager
def _listening(host: str, port: int) -> Iterator[tuple[socket.socket, str]]:
    """A context manager: a socket that clients can connect to, and its address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen()  # from now on, clients can connect, and wait until the server runs
        except OSError as error:
            raise InvalidRequest(
                "the server cannot listen there", host=host, port=port, reason=error.strerror
            ) from error
        shown = f"[{host}]" if family == socket.AF_INET6 else host
        yield listener, f"http://{shown}:{listener.getsockname()[1]}"


def _show_audit() -> None:
    """Write the audit log to standard error, unless the program has its own handlers."""
    audit.setLevel(logging.INFO)
    if not audit.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        audit.addHandler(handler)


def server_config(app: object, **changed: object) -> Any:  # noqa: ANN401  uvicorn's configuration
    """How uvicorn serves an application of this package."""
    uvicorn = server_library("uvicorn")
    strict = server_library("lakecore.rest_server.serving").StrictHttp
    settings = {
        "http": strict,
        "ws": "none",
        "log_level": "warning",
        "access_log": False,
        "lifespan": "off",
        "timeout_keep_alive": 30,
        "limit_concurrency": CONNECTIONS_MAX,
        "server_header": False,
    }
    return uvicorn.Config(app, **settings | changed)


def check_token(host: str, token: str | None) -> None:
    """Raise InvalidRequest for a server that other machines can reach without a long token."""
    if token is None:
        if _is_loopback(host):
            return
        raise InvalidRequest(
            "a server that other machines can reach needs a token", option="--token", host=host
        )
    if len(token) < TOKEN_LENGTH_MIN and not _is_loopback(host):
        raise InvalidRequest(
            "the token is too short for a server that other machines can reach",
            option="--token-length",
            least=TOKEN_LENGTH_MIN,
        )


def check_host(stated: str, host: str) -> None:
    """Raise Problem if a request to a server without a token does not name this machine.

    Otherwise, a site that resolves its own name to 127.0.0.1 could read the answer (DNS rebinding).
    """
    if stated.rpartition(":")[2].isdecimal() and not stated.endswith("]"):
        stated = stated.rpartition(":")[0]
    own = f"[{host}]" if ":" in host else host
    if stated.lower() not in {"localhost", "127.0.0.1", "[::1]", own}:
        raise Problem(421, "this server answers to names of this machine only")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# --- strict http ---------------------------------------------------------------------------------
# HTTP/1.1 of the server: uvicorn's protocol, with one meaning for each request, and time limits.
#
# A proxy and this server must agree where a request ends, so a request with an ambiguous head is
# refused with 400, and its connection is closed: `Content-Length` together with
# `Transfer-Encoding`, a header twice that can have one value only, or a `Content-Length` of several
# numbers. A connection whose next request head is not complete within `HEAD_SECONDS` is closed.
#
# A refused request may still be arriving. A socket that is closed with unread bytes is reset, and
# the client may lose the answer: so what arrives after the answer is read and dropped for a while.

HEAD_SECONDS = 30.0
_LINGER_SECONDS = 2.0
_SINGLE = (b"authorization", b"content-length", b"content-type", b"host", b"transfer-encoding")


class StrictHttp(H11Protocol):
    """The protocol of one connection."""

    _head_timer: asyncio.TimerHandle | None = None
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_watching()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle what has arrived, unless the connection was refused."""
        if not self._refused:
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Answer 400, then close once the client did, or `_LINGER_SECONDS` later."""
        self._refused = True
        self._stop_watching()
        text = msg.encode("ascii")
        self.transport.write(
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"
            b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text)
        )
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def handle_events(self) -> None:
        """Refuse an ambiguous head; else handle what has arrived."""
        if self.conn.their_state is h11.IDLE:
            fault = _fault(self.conn.trailing_data[0])
            if fault:
                self.send_400_response(fault)
                return
        super().handle_events()
        if self.conn.their_state is h11.IDLE:
            self._watch_head()
        else:
            self._stop_watching()

    def _watch_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_watching(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def _fault(received: bytes) -> str:
    """What is wrong with the head of a request; empty if nothing, or if it is not complete."""
    head, end, _ = received.replace(b"\r\n", b"\n").partition(b"\n\n")
    if not end:
        return ""
    lines = head.split(b"\n")[1:]
    if any(line[:1] in (b" ", b"\t") for line in lines):
        return "a header has one line"
    headers = [line.partition(b":")[::2] for line in lines]
    names = [name.strip().lower() for name, _ in headers]
    for name in _SINGLE:
        if names.count(name) > 1:
            return f"{name.decode()} is stated twice"
    for name, (_, value) in zip(names, headers, strict=True):
        if name == b"content-length" and not value.strip().isdigit():
            return "content-length is not a number"
    if b"content-length" in names and b"transfer-encoding" in names:
        return "content-length and transfer-encoding exclude each other"
    return ""
