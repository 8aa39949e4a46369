"""Finds the table or warehouse that a command names; options come from flags and settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from lakecore.cli.settings import settings, stated
from lakecore.deferred import deferred
from lakecore.errors import InvalidRequest, LakecoreError, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakecore.catalog.options import is_access_option, is_storage_option
    from lakecore.forks import require_threads
    from lakecore.session import Session, connect, open_table, sql_engine
    from lakecore.sql.engine import SqlEngine
    from lakecore.table.handle import Table
else:
    SqlEngine = deferred("lakecore.sql.engine", "SqlEngine")
    connect = deferred("lakecore.session", "connect")
    is_access_option = deferred("lakecore.catalog.options", "is_access_option")
    is_storage_option = deferred("lakecore.catalog.options", "is_storage_option")
    open_table = deferred("lakecore.session", "open_table")
    require_threads = deferred("lakecore.forks", "require_threads")
    sql_engine = deferred("lakecore.session", "sql_engine")

_IDENTIFIER = re.compile(r"[^/\\:]*[^/\\:.][^/\\:]*\.[^/\\:]+")
_DIRECTORY = re.compile(r"(?P<warehouse>.*?)/*(?P<database>[^/]+)\.db/+(?P<table>[^/]+?)/*")
_OF_CATALOGS = (
    "alter-table-cascade",
    "catalog-key",
    "client-pool-size",
    "commit.single-writer",
    "dlf.",
    "hadoop-conf-dir",
    "header.",
    "hive-conf-dir",
    "hive.metastore.",
    "hive.skip-update-stats",
    "jdbc.",
    "location-in-properties",
    "lock",
    "metastore",
    "sync-all-properties",
    "table-default.",
    "table.type",
    "token",
    "uri",
)


def table_of(name: str, warehouse: str | None, option: Iterable[str] | None) -> Table:
    """The table in a directory, or the table of that name if a warehouse is given.

    With a warehouse, `database.table` is a name. An argument with a slash is always a path. Options
    of catalogs and storage apply to the warehouse; all other options apply to the table.
    """
    known = settings()
    options = stated(option)
    place = warehouse or known.warehouse
    if not place or not _IDENTIFIER.fullmatch(name):
        try:
            return open_table(name, options={**_access_options(), **options})
        except NotFound as error:
            if "/" in name:
                raise NotFound(
                    "no table in this directory; `lakecore tables WAREHOUSE` lists tables",
                    **error.facts,
                ) from error
            raise NotFound(
                "no table in this directory; a name is DATABASE.TABLE and needs its warehouse: "
                "--warehouse PATH, LAKECORE_WAREHOUSE or a profile",
                path=name,
                **({"warehouse": place} if place else {}),
            ) from error
    of_catalog, own = _parted(options)
    table = connect({"warehouse": place, **known.options, **of_catalog}).get_table(name)
    return table.copy(own) if own else table


def _access_options() -> dict[str, str]:
    """The options of the profile that a table in a directory takes."""
    return {key: text for key, text in settings().options.items() if is_access_option(key)}


def storage_options(option: Iterable[str] | None) -> dict[str, str]:
    """The options of storage that the profile and --option state."""
    texts = {**settings().options, **stated(option)}
    return {key: text for key, text in texts.items() if is_storage_option(key)}


def session_of(
    path: str | None, warehouse: str | None, option: Iterable[str] | None, *, create: bool = False
) -> Session:
    """The session on the warehouse of the argument, of --warehouse, or of the settings."""
    return connect(catalog_options_of(path, warehouse, option), create=create)


def engine_of(
    warehouse: str | None, option: Iterable[str] | None, *, create: bool = False
) -> SqlEngine:
    """The SQL engine on the warehouse; without a catalog if no warehouse is named.

    Raises InvalidRequest for options of a catalog without a warehouse.
    """
    named = warehouse or settings().warehouse
    if not named and not create and not option:
        require_threads()
        return SqlEngine(None, open_table)
    return sql_engine(session_of(None, warehouse, option, create=create))


def catalog_options_of(
    path: str | None, warehouse: str | None, option: Iterable[str] | None
) -> dict[str, str]:
    """The options of the catalog that a command names. Raises InvalidRequest if it names none."""
    known = settings()
    place = path or warehouse or known.warehouse
    if not place:
        raise InvalidRequest(
            "name a warehouse: by --warehouse PATH, by LAKECORE_WAREHOUSE, or by a profile"
        )
    return {"warehouse": place, **known.options, **stated(option)}


def place_of(
    name: str, warehouse: str | None, option: Iterable[str] | None, *, create: bool = False
) -> tuple[Session, str, dict[str, str]]:
    """The session, the name in it, and the options of the table that a command names.

    The directory of a table is `WAREHOUSE/DATABASE.db/TABLE`. The table need not exist. With
    `create`, a missing warehouse is created.
    """
    known = settings()
    of_catalog, own = _parted(stated(option))
    place, identifier = warehouse or known.warehouse, name
    if not place or not _IDENTIFIER.fullmatch(name):
        found = _DIRECTORY.fullmatch(name)
        if found is None:
            raise InvalidRequest(
                "name the table DATABASE.TABLE, with --warehouse PATH, or by its directory "
                "WAREHOUSE/DATABASE.db/TABLE",
                given=name,
                **({"warehouse": place} if place else {}),
            )
        database = found["database"]
        quoted = f"`{database}`" if "." in database else database
        place, identifier = found["warehouse"] or ".", f"{quoted}.{found['table']}"
    session = connect({"warehouse": place, **known.options, **of_catalog}, create=create)
    return session, identifier, own


def _parted(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split options: those of the catalog and its storage, and those of the table."""
    of_catalog = {
        key: text
        for key, text in options.items()
        if is_access_option(key) or key.startswith(_OF_CATALOGS)
    }
    return of_catalog, {key: text for key, text in options.items() if key not in of_catalog}


# --- completion -----------------------------------------------------------------------------------
# Completion of table names in a shell, without the engine: only local warehouses are listed.


_DATABASE = ".db"


def tables(warehouse: str | None, start: str) -> list[str]:
    """The names `database.table` of a local warehouse that begin with this text."""
    try:
        place = warehouse or settings().warehouse
    except LakecoreError:  # a completion must not print errors, such as those of wrong settings
        return []
    root = (place or "").removeprefix("file://").removeprefix("file:")
    if not root or "://" in root:
        return []
    found = (
        f"{path.parent.parent.name.removesuffix(_DATABASE)}.{path.parent.name}"
        for path in Path(root).glob(f"*{_DATABASE}/*/schema")
    )
    return sorted(name for name in found if name.startswith(start))
