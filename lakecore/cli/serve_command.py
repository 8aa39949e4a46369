"""Declares `lakecore serve-rest`; `serve.py` carries it out."""

from __future__ import annotations

from typing import Annotated

import typer

from lakecore.cli.arguments import Options, Warehouse  # noqa: TC001  typer reads them
from lakecore.cli.run import run

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to a program."""
    app.command("serve-rest")(serve_rest)


def serve_rest(  # noqa: PLR0913  one parameter per option
    warehouse: Warehouse = None,
    option: Options = None,
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Without a token: only a local address.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 means any free port.")] = 8765,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            envvar="LAKECORE_REST_TOKEN",
            show_envvar=False,
            help="The token that clients must send. Safer: LAKECORE_REST_TOKEN.",
        ),
    ] = None,
    token_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="A file that holds the token.")
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A TOML file with a token and a scope for each user."),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the warehouse if it does not exist.")
    ] = False,
) -> None:
    """Serve a warehouse to other engines by Paimon's REST protocol.

    The address is the first line of standard output. Ctrl-C stops the server. Without a token,
    only programs of this machine can connect, and all of them may read and write every table.
    """
    given = (warehouse, option, host, port, token, token_file, tokens, create)
    run("lakecore.cli.serve", "serve_rest", *given)
