"""`lakecore serve-rest`, `lakecore ui` and `lakecore metrics`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lakecore.cli.arguments import OfWarehouse, Verbs, argument, flag, switch
from lakecore.cli.printing import say
from lakecore.deferred import deferred
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from lakecore.catalog.registry import open_catalog
    from lakecore.cli.target import catalog_options_of
    from lakecore.metrics import Numbers, prometheus
    from lakecore.rest_server.app import parse_tokens, server_library
    from lakecore.rest_server.serving import serve
    from lakecore.ui.app import serve_ui
else:
    catalog_options_of = deferred("lakecore.cli.target", "catalog_options_of")
    open_catalog = deferred("lakecore.catalog.registry", "open_catalog")
    parse_tokens = deferred("lakecore.rest_server.app", "parse_tokens")
    Numbers = deferred("lakecore.metrics", "Numbers")
    prometheus = deferred("lakecore.metrics", "prometheus")
    server_library = deferred("lakecore.rest_server.app", "server_library")
    serve = deferred("lakecore.rest_server.serving", "serve")
    serve_ui = deferred("lakecore.ui.app", "serve_ui")

commands = Verbs()

Host = Annotated[str, switch("Address to listen on. Without a token: only a local address.")]
Port = Annotated[int, switch("Port to listen on; 0 means any free port.")]
TokenFile = Annotated[str | None, flag("FILE", "A file that holds the token.")]
Place = Annotated[str | None, argument("[WAREHOUSE]", "Path or URI of the warehouse.")]


@commands("serve-rest")
def serve_rest(  # noqa: PLR0913  one parameter per option
    of: OfWarehouse,
    *,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    token: Annotated[
        str | None,
        flag(
            "TEXT",
            "The token that clients must send. Safer: LAKECORE_REST_TOKEN.",
            envvar="LAKECORE_REST_TOKEN",
        ),
    ] = None,
    token_file: TokenFile = None,
    tokens: Annotated[
        str | None, flag("FILE", "A TOML file with a token and a scope for each user.")
    ] = None,
    create: Annotated[bool, switch("Create the warehouse if it does not exist.")] = False,
) -> None:
    """Serve a warehouse to other engines by Paimon's REST protocol.

    The address is the first line of standard output. Ctrl-C stops the server. Without a token,
    only programs of this machine can connect, and all of them may read and write every table.
    """
    server_library("uvicorn")
    known = () if tokens is None else parse_tokens(_text(tokens), tokens)
    catalog = open_catalog(catalog_options_of(None, of.warehouse, of.option), create=create)
    serve(
        catalog, host=host, port=port, token=_token(token, token_file), tokens=known, on_start=say
    )


@commands("ui")
def ui(
    path: Place = None,
    *,
    of: OfWarehouse,
    host: Host = "127.0.0.1",
    port: Port = 8766,
    token: Annotated[
        str | None,
        flag(
            "TEXT",
            "The token that readers must give. Safer: LAKECORE_UI_TOKEN.",
            envvar="LAKECORE_UI_TOKEN",
        ),
    ] = None,
    token_file: TokenFile = None,
) -> None:
    """Show a warehouse in a browser: tables, snapshots, files, rows. It changes nothing.

    The address is the first line of standard output. Ctrl-C stops the server. Without a token,
    only programs of this machine can connect.
    """
    server_library("uvicorn", "ui")
    catalog = open_catalog(catalog_options_of(path, of.warehouse, of.option), create=False)
    given = _token(token, token_file)
    serve_ui(catalog, host=host, port=port, token=given, on_start=say)


@commands("metrics")
def metrics(path: Place = None, *, of: OfWarehouse) -> None:
    """Print numbers of all tables and pipelines in Prometheus's text format."""
    catalog = open_catalog(catalog_options_of(path, of.warehouse, of.option), create=False)
    say(prometheus(catalog, Numbers()).rstrip("\n"))


def _token(token: str | None, token_file: str | None) -> str | None:
    if token_file is None:
        return token or None
    if token:
        raise InvalidRequest("give the token or a file with it, not both", option="--token-file")
    text = _text(token_file).strip()
    if not text:
        raise InvalidRequest("the token file is empty", path=token_file)
    return text


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            "the token file cannot be read", path=path, reason=type(error).__name__
        ) from error
