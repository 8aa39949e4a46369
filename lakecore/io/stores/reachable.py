"""Checks once, before the first request, whether the server of a storage or a catalog answers.

The clients repeat a request that got no answer, and opening a warehouse takes several requests. A
wrong address, or a server that is down or silent, is reported within `SECONDS_MAX` instead. A
server of http or HDFS must answer a request, one of https a TLS handshake.

A server behind a proxy is not checked, because only the proxy may be able to reach it.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from lakecore.errors import InvalidRequest, StorageError
from lakecore.io.ambient import SYSTEM, Ambient

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SECONDS_MAX", "check_reachable"]

SECONDS_MAX = 10.0
_ATTEMPTS_MAX = 4
_ATTEMPT_SECONDS = 4.0
_WAIT_SECONDS = 0.2
_METHODS = {"http": "HEAD", "hdfs": "GET"}
"""The requests to ask by. A name node refuses this one, in the words of HTTP."""
_PORTS = {"http": 80, "https": 443, "hdfs": 8020}


def check_reachable(
    address: str,
    ambient: Ambient = SYSTEM,
    ask: Callable[[str, tuple[str, int], float], None] | None = None,
) -> None:
    """Raise StorageError if nothing answers at an address such as `https://host:port/path`.

    Tries several times, with random waits, and gives up after `SECONDS_MAX`.
    """
    parts = urlsplit(address)
    try:
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError as error:
        raise InvalidRequest(
            "the port of an address of a storage is not a number up to 65535", host=parts.hostname
        ) from error
    if not parts.hostname or port is None or _has_proxy(parts.scheme, parts.hostname):
        return
    began, reason = ambient.now_ms(), ""
    for attempt in range(_ATTEMPTS_MAX):
        wait = _WAIT_SECONDS * 2**attempt * (0.5 + ambient.random()) if attempt else 0.0
        left = SECONDS_MAX - (ambient.now_ms() - began) / 1000 - wait
        if left <= 0:
            break
        ambient.sleep(wait)
        try:
            (ask or _ask)(parts.scheme, (parts.hostname, port), min(left, _ATTEMPT_SECONDS))
        except OSError as error:
            reason = str(error.strerror or error)
        else:
            return
    raise StorageError(
        "the server cannot be reached, or does not answer",
        address=f"{parts.scheme}://{parts.hostname}:{port}",
        reason=reason,
        waited_seconds=round((ambient.now_ms() - began) / 1000, 1),
    )


def _ask(scheme: str, address: tuple[str, int], seconds: float) -> None:
    """Return if the server answers in time, whatever it says; else raise OSError."""
    with socket.create_connection(address, seconds) as connection:
        if scheme == "https":
            # A client without certificates: also its refusal of the server's one is an answer.
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            with suppress(ssl.SSLError):
                tls.wrap_socket(connection, server_hostname=address[0]).close()
        elif scheme in _METHODS:
            head = (
                f"{_METHODS[scheme]} / HTTP/1.1\r\nHost: {address[0]}\r\nConnection: close\r\n\r\n"
            )
            connection.sendall(head.encode())
            connection.recv(1)


def _has_proxy(scheme: str, host: str) -> bool:
    proxies = getproxies()
    return (scheme in proxies or "all" in proxies) and not proxy_bypass(host)
