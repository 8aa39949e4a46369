"""Executes `lakecore serve-rest`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lakecore.catalog.registry import open_catalog
from lakecore.cli.output import flush, write
from lakecore.cli.target import catalog_options_of
from lakecore.errors import InvalidRequest
from lakecore.rest_server.serving import serve
from lakecore.rest_server.tokens import parse_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["serve_rest"]


def serve_rest(  # noqa: PLR0913, PLR0917  one parameter per option
    warehouse: str | None,
    option: Sequence[str] | None,
    host: str,
    port: int,
    token: str | None,
    token_file: str | None,
    tokens: str | None,
    create: bool,  # noqa: FBT001  `run` passes arguments by position
) -> None:
    """Serve the warehouse until SIGINT or SIGTERM."""
    known = () if tokens is None else parse_tokens(_text(tokens), tokens)
    catalog = open_catalog(catalog_options_of(None, warehouse, option), create=create)
    serve(
        catalog,
        host=host,
        port=port,
        token=_token(token, token_file),
        tokens=known,
        on_start=_say_address,
    )


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


def _say_address(address: str) -> None:
    write(f"{address}\n")
    flush()
