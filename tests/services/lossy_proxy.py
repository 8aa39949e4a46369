"""An HTTP proxy in front of an emulator; it loses requests or replies of conditional writes."""

from __future__ import annotations

import http.client
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Headers that belong to one connection, or that `send_response` writes itself.
HOP = {"connection", "transfer-encoding", "keep-alive", "content-length", "date", "server"}


@dataclass
class Faults:
    """How many of the next conditional writes fail, and how many have arrived."""

    port: int = 0
    lost_requests: int = 0  # neither carried out nor answered
    lost_replies: int = 0  # carried out, but not answered
    seen: int = 0


@contextmanager
def lossy_proxy(upstream: int) -> Iterator[Faults]:
    """A proxy in front of the server on port `upstream` of this machine."""
    faults = Faults()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def pass_on(self) -> None:
            body = self._body()
            conditional = self.command in {"PUT", "POST"} and (
                "If-None-Match" in self.headers or "ifGenerationMatch" in self.path
            )
            faults.seen += conditional
            if conditional and faults.lost_requests:
                faults.lost_requests -= 1
                self._hang_up()
                return
            connection = http.client.HTTPConnection("127.0.0.1", upstream, timeout=30)
            try:
                headers = {key: value for key, value in self.headers.items() if key != "Expect"}
                headers.pop("Transfer-Encoding", None)
                headers["Content-Length"] = str(len(body))
                connection.request(self.command, self.path, body, headers)
                reply = connection.getresponse()
                data = reply.read()
            finally:
                connection.close()
            if conditional and faults.lost_replies:
                faults.lost_replies -= 1
                self._hang_up()
                return
            self.send_response_only(reply.status, reply.reason)
            for key, value in reply.getheaders():
                if key.lower() not in HOP:
                    self.send_header(key, value)
            length = reply.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def _hang_up(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = pass_on  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    faults.port = server.server_port
    try:
        yield faults
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
