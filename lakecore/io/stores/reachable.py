"""Checks once, before the first request, whether the server of a storage can be reached.

The clients of remote storages repeat a request that could not connect for one to two minutes, and
opening a warehouse takes several requests. A wrong address or a server that is down is reported
within `SECONDS_MAX` instead.

A server behind a proxy is not checked, because only the proxy may be able to reach it.
"""

from __future__ import annotations

import socket
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
_PORTS = {"http": 80, "https": 443, "hdfs": 8020}


def check_reachable(
    address: str,
    ambient: Ambient = SYSTEM,
    open_connection: Callable[..., socket.socket] = socket.create_connection,
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
            open_connection((parts.hostname, port), min(left, _ATTEMPT_SECONDS)).close()
        except OSError as error:
            reason = str(error.strerror or error)
        else:
            return
    raise StorageError(
        "the storage cannot be reached",
        address=f"{parts.scheme}://{parts.hostname}:{port}",
        reason=reason,
        waited_seconds=round((ambient.now_ms() - began) / 1000, 1),
    )


def _has_proxy(scheme: str, host: str) -> bool:
    proxies = getproxies()
    return (scheme in proxies or "all" in proxies) and not proxy_bypass(host)
