"""The state of an SQL session: catalogs, current database, variables and temporary objects.

A name of one part is a temporary table or view, or a table of the current database. A name of two
parts is `database.table`; a name of three parts is `catalog.database.table`. Names are
case-sensitive, as in Paimon.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from lakecore.catalog.identifier import BRANCH_MARK, SYSTEM_DATABASE, parse_identifier
from lakecore.deferred import deferred
from lakecore.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    StorageError,
    Unsupported,
    did_you_mean,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakecore.catalog.catalog import Catalog
    from lakecore.catalog.options import of_process
    from lakecore.catalog.registry import open_catalog
    from lakecore.cdc.source_catalogs import SourceCatalog, opened_source
    from lakecore.io.history import History
    from lakecore.io.stores.service_settings import is_storage_option
    from lakecore.options import below, find_option, option_keys
    from lakecore.options.kinds import parse_duration
    from lakecore.sql.datagen import Generator
    from lakecore.sql.statements import Chain, CreateTable
    from lakecore.table.handle import Table
else:
    opened_source = deferred("lakecore.cdc.source_catalogs", "opened_source")
    of_process = deferred("lakecore.catalog.options", "of_process")
    below = deferred("lakecore.options", "below")
    find_option = deferred("lakecore.options", "find_option")
    is_storage_option = deferred("lakecore.io.stores.service_settings", "is_storage_option")
    option_keys = deferred("lakecore.options", "option_keys")
    open_catalog = deferred("lakecore.catalog.registry", "open_catalog")
    parse_duration = deferred("lakecore.options.kinds", "parse_duration")
    Table = deferred("lakecore.table.handle", "Table")

DEFAULT_CATALOG = "paimon"
DEFAULT_DATABASE = "default"
SOURCE_TYPES = ("files", "kafka", "mysql", "postgres")
"""The types of source catalogs."""
_SPARK = "spark.paimon."
_PREFIXES = ("paimon.", _SPARK)
_ANY = "*"
_FULL = 3
_HISTORIES_MAX = 64
RUNTIME_MODE = "execution.runtime-mode"
INTERVAL = "execution.checkpointing.interval"
_INTERVAL_DEFAULT = "10 s"
UNTIL = "cdc.until"
_WITH_EFFECT = {RUNTIME_MODE: ("batch", "streaming"), INTERVAL: None, UNTIL: ("caught-up",)}
"""Variables with an effect, and the values allowed (None: any). They choose, in this order: whether
queries follow their tables; the time between two commits; when a CDC pipeline ends."""
_WITHOUT_EFFECT = {
    "sql-client.execution.result-mode": ("table", "tableau", "changelog"),
    "sql.dialect": None,
}
"""Variables in Flink's guides that have no effect here, and the values allowed (None: any)."""
_FLINK = _WITH_EFFECT | _WITHOUT_EFFECT


@dataclass(slots=True, kw_only=True)
class Workspace:
    """The state of one SQL session."""

    catalogs: dict[str, Catalog]
    sources: dict[str, SourceCatalog] = field(default_factory=dict)
    open_path: Callable[..., Table]
    catalog_name: str = DEFAULT_CATALOG
    database: str = DEFAULT_DATABASE
    variables: dict[str, str] = field(default_factory=dict)
    temporary: dict[str, Table] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    generators: dict[str, Generator] = field(default_factory=dict)
    zone: str = ""
    """The time zone that the session has set (`SET TimeZone`); empty: that of the machine."""
    histories: dict[tuple[str, str], History] = field(default_factory=dict)
    """The histories of the tables that were read last, by directory and branch."""

    @property
    def is_streaming(self) -> bool:
        """Whether queries follow their tables (`SET 'execution.runtime-mode' = 'streaming'`)."""
        return self.variables.get(RUNTIME_MODE) == "streaming"

    @property
    def commit_interval(self) -> str:
        """The time between two commits of a streaming INSERT."""
        return self.variables.get(INTERVAL, _INTERVAL_DEFAULT)

    @property
    def until(self) -> str | None:
        """When a CDC pipeline ends by itself (`caught-up`); None if only Ctrl-C ends it."""
        return self.variables.get(UNTIL)

    @property
    def catalog(self) -> Catalog:
        """The current catalog."""
        return self.catalog_of(self.catalog_name)

    # --- names ------------------------------------------------------------------------------------

    def catalog_of(self, name: str) -> Catalog:
        """A catalog by its name. Raises NotFound with the names that exist."""
        if name in self.sources:
            raise Unsupported(
                "a source catalog is not queried and has no current database; CREATE TABLE ... AS "
                "TABLE and CREATE DATABASE ... AS DATABASE follow it",
                catalog=name,
            )
        if not self.catalogs:
            raise NotFound(
                "there is no catalog: name a table by its path in double quotes, or say "
                "CREATE CATALOG c WITH ('warehouse' = '...') and USE CATALOG c"
            )
        if name not in self.catalogs:
            known = sorted(self.catalogs)
            raise NotFound(
                "no catalog of that name", catalog=name, **did_you_mean(name, known), known=known
            )
        return self.catalogs[name]

    def full(self, chain: Chain) -> tuple[str, str, str]:
        """The catalog, database and table that a chain names."""
        if len(chain) > _FULL:
            raise InvalidRequest(
                "a table is named by catalog.database.table at most", name=".".join(chain)
            )
        missing = (self.catalog_name, self.database)[: _FULL - len(chain)]
        catalog, database, table = (*missing, *chain)
        return catalog, database, table

    def identifier(self, chain: Chain) -> tuple[Catalog, str]:
        """The catalog of a table, and the table's name in it."""
        if len(chain) == 1 and _is_path(chain[0]):
            raise InvalidRequest(
                "a statement that defines a table names it in a catalog, not by its path",
                path=chain[0],
            )
        catalog, database, table = self.full(chain)
        quoted = f"`{database}`" if "." in database or "`" in database else database
        return self.catalog_of(catalog), f"{quoted}.{table}"

    def databases(self, chain: Chain) -> tuple[Catalog, str]:
        """The catalog and the name of a database."""
        if not chain:
            return self.catalog, self.database
        if len(chain) == 1:
            return self.catalog, chain[0]
        catalog, name = chain[0], chain[-1]
        if len(chain) > _FULL - 1:
            raise InvalidRequest("a database is catalog.database at most", name=".".join(chain))
        return self.catalog_of(catalog), name

    def known_database(self, chain: Chain) -> tuple[Catalog, str]:
        """The catalog and the name of a database that exists. Raises NotFound otherwise."""
        catalog, name = self.databases(chain)
        if not catalog.database_exists(name):
            known = catalog.list_databases()
            facts = did_you_mean(name, known)
            raise NotFound("no such database", database=name, **facts, known=known)
        return catalog, name

    def use(self, chain: Chain, *, catalog: bool) -> None:
        """Make a catalog or a database the current one."""
        if catalog:
            if len(chain) != 1:
                raise InvalidRequest("a catalog has one name", name=".".join(chain))
            self.catalog_of(chain[0])
            self.catalog_name, self.database = chain[0], DEFAULT_DATABASE
            return
        _, self.database = self.known_database(chain)
        if len(chain) > 1:
            self.catalog_name = chain[0]

    def create_catalog(self, name: str, options: Mapping[str, str]) -> None:
        """Open a catalog under a name. Flink's `type` is paimon, or the type of a source."""
        if name in self.catalogs or name in self.sources:
            raise AlreadyExists("a catalog of that name exists", catalog=name)
        given = dict(options)
        kind = given.pop("type", "paimon")
        if kind in SOURCE_TYPES:
            self.sources[name] = opened_source(kind, given)
            return
        if kind not in {"paimon", "lakecore"}:
            raise Unsupported(
                "a catalog is Paimon's: 'type'='paimon', or a source of changes",
                type=kind,
                known=SOURCE_TYPES,
            )
        self.catalogs[name] = open_catalog(given, create=True)

    def drop_catalog(self, name: str, *, if_exists: bool) -> None:
        """Remove a catalog from the session."""
        if self.sources.pop(name, None) is not None:
            return
        if if_exists and name not in self.catalogs:
            return
        self.catalog_of(name)
        if name == self.catalog_name:
            raise InvalidRequest("the current catalog cannot be dropped; USE another", catalog=name)
        del self.catalogs[name]

    def make_default_database(self, chain: Chain) -> None:
        """Create the database `default` for a first table in it, as Paimon's Flink catalog does."""
        catalog, database, _ = self.full(chain)
        if database == DEFAULT_DATABASE:
            self.catalog_of(catalog).create_database(database, ignore_if_exists=True)

    # --- tables -----------------------------------------------------------------------------------

    def table(self, chain: Chain, options: Mapping[str, str] | None = None) -> Table:
        """The table of this name, with the dynamic options of variables and of the statement.

        Raises NotFound, with the names that exist.
        """
        name, system = _split_system(chain[-1])
        found = self._data_table((*chain[:-1], name))
        has_own_data = self.full(chain)[1] != SYSTEM_DATABASE
        dynamic = dict(options or {})
        if has_own_data:
            dynamic = {**self.dynamic_options(chain), **dynamic}
        if dynamic:
            found = found.copy(dynamic)
        if self.zone and has_own_data:
            found = Table(replace(found.context, zone=self.zone))
        if system is None:
            return found
        # As in a catalog: a system table has the reading verbs of a table.
        return cast("Table", found.inspect.system_table(system))

    def _data_table(self, chain: Chain) -> Table:
        if len(chain) == 1 and chain[0] in self.temporary:
            return self.temporary[chain[0]].refresh()
        if len(chain) == 1 and _is_path(chain[0]):
            return self._at_path(chain[0])
        catalog, identifier = self.identifier(chain)
        table = catalog.get_table(identifier)
        if self.full(chain)[1] != SYSTEM_DATABASE:
            self._share_files(table)
        return table

    def _share_files(self, table: Table) -> None:
        """Let a table use the manifests that an earlier statement has cached."""
        history = table.context.history
        place = history.layout.root, history.layout.branch
        known = self.histories.pop(place, None)
        if known is not None:
            history.share_files(known)
        self.histories[place] = history
        if len(self.histories) > _HISTORIES_MAX:
            del self.histories[next(iter(self.histories))]

    def _at_path(self, path: str) -> Table:
        """The table in a directory, or its branch, as `.../orders$branch_b1`."""
        folder, _, branch = path.partition(f"${BRANCH_MARK}")
        current = self.catalogs.get(self.catalog_name)
        options = {} if current is None else of_process(current.option_texts)
        options |= self.options_of_path(folder)
        try:
            return self.open_path(folder, branch=branch or None, options=options)
        except StorageError as error:  # a file, not a directory
            raise NotFound("no table in this directory", path=path) from error

    def find(self, chain: Chain, options: Mapping[str, str] | None = None) -> Table | None:
        """The table of this name; None if there is none."""
        if len(chain) > _FULL:
            return None
        try:
            return self.table(chain, options)
        except NotFound:
            return None
        except Unsupported:
            if self.stored_view(chain) is not None:
                return None
            raise

    def stored_view(self, chain: Chain) -> tuple[str, str] | None:
        """The catalog and the query of a view that a catalog stores; None if there is none."""
        if len(chain) > _FULL or "$" in chain[-1]:
            return None
        name = self.full(chain)[0]
        if name not in self.catalogs:
            return None
        catalog, identifier = self.identifier(chain)
        if catalog.views is None:
            return None
        view = catalog.views.find(parse_identifier(identifier))
        return None if view is None else (name, view.own_query)

    def replaced(self, statement: CreateTable) -> Table | None:
        """The table that a CREATE OR REPLACE or a REPLACE statement replaces.

        If there is no such table, returns None for CREATE OR REPLACE, raises NotFound for REPLACE.
        """
        if not statement.replace:
            return None
        catalog, identifier = self.identifier(statement.chain)
        if "$" in statement.chain[-1]:
            raise Unsupported("a branch or a system table is not replaced", table=identifier)
        if not statement.existing and not catalog.table_exists(identifier):
            return None
        return catalog.get_table(identifier)

    def storage_options(self, chain: Chain = ()) -> dict[str, str]:
        """The storage options of the catalog that a full name states, or of the current catalog."""
        name = chain[0] if len(chain) == _FULL else self.catalog_name
        if name not in self.catalogs:
            return {}
        texts = self.catalogs[name].option_texts
        return {key: text for key, text in texts.items() if is_storage_option(key)}

    def options_of_path(self, path: str) -> dict[str, str]:
        """The storage options for a path or URI, from the catalogs of the session.

        They are those of the catalog whose warehouse is in the same bucket, else those of the first
        one on the same kind of storage; the current catalog comes first. A local path has none.
        """
        names = [self.catalog_name, *self.catalogs]
        for same in (_bucket, _scheme):
            for name in names if same(path) else ():
                catalog = self.catalogs.get(name)
                if catalog is not None and same(catalog.warehouse) == same(path):
                    texts = catalog.option_texts
                    return {key: text for key, text in texts.items() if is_storage_option(key)}
        return {}

    # --- variables --------------------------------------------------------------------------------

    def dynamic_options(self, chain: Chain) -> dict[str, str]:
        """The options that variables set for a table.

        An option for a table's name takes precedence over one for `*`. Both take precedence over an
        option without a table.
        """
        if len(chain) > _FULL:
            return {}
        names = self.full(chain)
        names = (*names[:2], names[2].partition("$")[0])
        found = {
            key.removeprefix(_SPARK): value
            for key, value in self.variables.items()
            if find_option(key.removeprefix(_SPARK)) is not None
        }
        ranked = sorted(_patterns(names), key=lambda pattern: -pattern.count(_ANY))
        for pattern in ranked:
            for prefix in _PREFIXES:
                found |= below(self.variables, f"{prefix}{pattern}.")
        return found

    def set_variable(self, key: str, value: str) -> bool:
        """Store a variable of Paimon or Flink. Returns False for any other variable."""
        if find_option(key.removeprefix(_SPARK)) is not None:
            pass  # an option for all tables
        elif key.startswith(_PREFIXES):
            prefix = next(each for each in _PREFIXES if key.startswith(each))
            if key.removeprefix(prefix).count(".") < _FULL:
                raise InvalidRequest(
                    "name catalog, database and table before the option, or `*` for any: "
                    "SET 'paimon.*.*.*.scan.snapshot-id' = '3'",
                    key=key,
                )
        elif key in _FLINK:
            allowed = _FLINK[key]
            if allowed is not None and value not in allowed:
                raise Unsupported(
                    "this value is not supported", key=key, value=value, known=allowed
                )
            if key == INTERVAL:
                _check_interval(value)
        else:
            return False
        self.variables[key] = value
        return True

    def reset_variable(self, key: str) -> bool:
        """Remove a variable of Paimon or Flink. Returns False for any other variable."""
        known = key in _FLINK or key.startswith(_PREFIXES) or find_option(key) is not None
        return self.variables.pop(key, None) is not None or known


def _check_interval(value: str) -> None:
    try:
        parse_duration(value)
    except ValueError as error:
        raise InvalidRequest(f"the interval is {error}", key=INTERVAL, value=value) from error


def _split_system(name: str) -> tuple[str, str | None]:
    """The name of a table or branch, and of its system table: `t$files`, `t$branch_b1$files`."""
    table, *rest = name.split("$")
    if rest and rest[0].startswith(BRANCH_MARK):
        table = f"{table}${rest.pop(0)}"
    if len(rest) != 1 or not rest[0].strip():
        return name, None  # no suffix, or several: then the catalog raises the error
    return table, rest[0].lower()


def variables() -> list[str]:
    """The keys that SET takes: variables of Flink, and the options of tables."""
    return [*_FLINK, *option_keys()]


def _is_path(name: str) -> bool:
    """Whether a name of one part is the path of a table. No table has a name with a slash."""
    return "/" in name


def _scheme(path: str) -> str:
    """The kind of storage of a URI; empty for a path."""
    scheme, separator, _ = path.partition("://")
    alias = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasbs": "wasb"}
    return alias.get(scheme.lower(), scheme.lower()) if separator else ""


def _bucket(path: str) -> str:
    """The kind of storage and the bucket of a URI; empty for a path."""
    scheme = _scheme(path)
    return f"{scheme}://{path.partition('://')[2].partition('/')[0]}" if scheme else ""


def _patterns(names: tuple[str, ...]) -> list[str]:
    """The patterns that match a table's name: its parts, any of them replaced by `*`."""
    patterns = [""]
    for name in names:
        patterns = [f"{start}{each}." for start in patterns for each in (name, _ANY)]
    return [pattern.removesuffix(".") for pattern in patterns]
