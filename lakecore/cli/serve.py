"""Executes `lakecore serve-rest`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lakecore.catalog.registry import open_catalog
from lakecore.cli.output import flush, write
from lakecore.cli.target import catalog_options_of
from lakecore.errors import InvalidRequest
from lakecore.rest_server.serving import serve

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["serve_rest"]


def serve_rest(
    warehouse: str | None,
    option: Sequence[str] | None,
    host: str,
    port: int,
    token: str | None,
    token_file: str | None,
) -> None:
    """Serve the warehouse until SIGINT or SIGTERM."""
    catalog = open_catalog(catalog_options_of(None, warehouse, option), create=False)
    serve(catalog, host=host, port=port, token=_token(token, token_file), on_start=_say_address)


def _token(token: str | None, token_file: str | None) -> str | None:
    if token_file is None:
        return token or None
    if token:
        raise InvalidRequest("give the token or a file with it, not both", option="--token-file")
    try:
        text = Path(token_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            "the token file cannot be read", path=token_file, reason=type(error).__name__
        ) from error
    if not text:
        raise InvalidRequest("the token file is empty", path=token_file)
    return text


def _say_address(address: str) -> None:
    write(f"{address}\n")
    flush()
