"""Runs the server until a signal stops it."""

from __future__ import annotations

import ipaddress
import logging
import socket
from typing import TYPE_CHECKING, Any

from lakecore.errors import InvalidRequest
from lakecore.rest_server.app import RestApp, audit, server_library
from lakecore.rest_server.tokens import Token

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.catalog.catalog import Catalog

__all__ = ["serve", "server_config"]

TOKEN_LENGTH_MIN = 16
CONNECTIONS_MAX = 1_000


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

    `token` may do everything, `tokens` what their scopes say. Port 0 means any free port.
    `on_start` gets the address of the server.

    Raises InvalidRequest if other machines can connect without a token, or if the port is taken.
    """
    known = [*tokens] if token is None else [Token(name="token", text=token), *tokens]
    texts: list[str | None] = [each.text for each in known]
    for text in texts or [None]:
        _check_token(host, text)
    uvicorn = server_library("uvicorn")
    _show_audit()
    config = server_config(RestApp(catalog, known))
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
        uvicorn.Server(config).run(sockets=[listener])


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
    strict = server_library("lakecore.rest_server.strict_http").StrictHttp
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
