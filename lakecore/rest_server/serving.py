"""Runs the server until a signal stops it."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.rest_server.app import RestApp, server_library

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.catalog.catalog import Catalog

__all__ = ["serve"]

TOKEN_LENGTH_MIN = 16


def serve(
    catalog: Catalog,
    *,
    host: str,
    port: int,
    token: str | None,
    on_start: Callable[[str], None],
) -> None:
    """Serve a catalog until SIGINT or SIGTERM.

    Port 0 means any free port. `on_start` gets the address of the server.

    Raises InvalidRequest if other machines can connect without a token, or if the port is taken.
    """
    _check_token(host, token)
    uvicorn = server_library("uvicorn")
    app = RestApp(catalog, token)
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
        on_start(f"http://{shown}:{listener.getsockname()[1]}")
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, lifespan="off", timeout_keep_alive=30
        )
        uvicorn.Server(config).run(sockets=[listener])


def _check_token(host: str, token: str | None) -> None:
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


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
