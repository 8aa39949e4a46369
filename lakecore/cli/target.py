"""The table or warehouse that a command names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakecore.catalog.options import is_storage_option
from lakecore.cli.arguments import stated
from lakecore.errors import InvalidRequest, NotFound
from lakecore.session import connect, open_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakecore.session import Session
    from lakecore.table.handle import Table

__all__ = ["session_of", "table_of"]

_IDENTIFIER = re.compile(r"[^/\\:]*[^/\\:.][^/\\:]*\.[^/\\:]+")


def table_of(name: str, warehouse: str | None, option: Iterable[str] | None) -> Table:
    """The table in a directory, or the table of that name if a warehouse is given.

    With a warehouse, `database.table` is a name; a text with a slash is always a path. Storage
    options apply to the warehouse, all others to the table.
    """
    options = stated(option)
    if not warehouse or not _IDENTIFIER.fullmatch(name):
        try:
            return open_table(name, options=options)
        except NotFound as error:
            if "/" in name:
                raise
            raise NotFound(
                "no table in this directory; a name is DATABASE.TABLE and needs its warehouse: "
                "--warehouse PATH, or LAKECORE_WAREHOUSE",
                path=name,
                **({"warehouse": warehouse} if warehouse else {}),
            ) from error
    storage = {key: text for key, text in options.items() if is_storage_option(key)}
    table = connect({"warehouse": warehouse, **storage}).get_table(name)
    own = {key: text for key, text in options.items() if key not in storage}
    return table.copy(own) if own else table


def session_of(
    path: str | None,
    warehouse: str | None,
    option: Iterable[str] | None,
    *,
    create: bool = False,
) -> Session:
    """The session on the warehouse that the argument names, or else --warehouse."""
    place = path or warehouse
    if not place:
        raise InvalidRequest("name a warehouse, as an argument or by --warehouse")
    return connect({"warehouse": place, **stated(option)}, create=create)
