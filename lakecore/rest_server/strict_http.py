"""HTTP/1.1 of the server: uvicorn's protocol, with one meaning for each request, and time limits.

A proxy and this server must agree where a request ends, so a request whose head leaves a choice is
refused with 400, and its connection is closed: `Content-Length` together with `Transfer-Encoding`,
a header twice that can have one value only, or a
`Content-Length` of several numbers. A connection whose next request head is not complete
within `HEAD_SECONDS` is closed.

A refused request may still be arriving. A socket that is closed with unread bytes is reset, and the
client may lose the answer: so what arrives after the answer is read and dropped for a while.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

__all__ = ["HEAD_SECONDS", "StrictHttp"]

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
        """Stop to wait."""
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
        """Refuse a head that leaves a choice; else handle what has arrived."""
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
