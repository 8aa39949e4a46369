"""A plugin of dbt-duckdb that keeps models in a Paimon warehouse.

`paimon.sql` beside this module is the other half: macros for the project, which `python -m
lakecore.dbt` prints. They run the model into a table in memory, and call `Plugin.store`:

1. The settings of the model are checked; keys must be unique among its rows.
2. The table is created, or found. Its columns follow `on_schema_change`.
3. The rows become one commit, whose user is the invocation of dbt, or what the project states. A
   table takes one commit of each, so that a run that is repeated counts once.
4. The view through which dbt reads the table is brought up to date.

INVARIANT: a setting of dbt that has no meaning here is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING, cast

from lakecore.errors import CommitConflict, InvalidRequest, LakecoreError, Unsupported
from lakecore.loads import LoadedTable, opened, table_name
from lakecore.model.casts import may_cast
from lakecore.model.rows import ROW_KIND
from lakecore.model.schema_change import SchemaChange
from lakecore.model.types import Field, from_arrow, with_nullable
from lakecore.options import OptionValue, option_texts
from lakecore.session import Session, connect
from lakecore.sql.tokens import quoted
from lakecore.table.writes.batch_write import columns_of_rows

try:
    from dbt.adapters.duckdb.plugins import BasePlugin
    from dbt_common.exceptions import CompilationError, DbtRuntimeError
except ImportError as error:
    raise Unsupported(
        "dbt needs packages that are not installed",
        packages="dbt-core, dbt-duckdb",
        install="pip install 'lakecore[dbt]'",
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakecore.frames.duckdb_face import DuckDBConnection, DuckDBRelation
    from lakecore.sql.attached import Attached
    from lakecore.table.handle import Table

__all__ = ["Plugin", "macros"]

_MACROS = 1
"""The number that the macros of this version state."""
_ROWS_SCHEMA = "__lakecore"
"""The schema, in memory, of the tables that hold the rows of models."""
_NEW, _OLD = "__lakecore_new", "__lakecore_old"
"""What follows the name of a table while another one, with other keys, takes its place."""
_MANY_ROWS_OF_A_KEY = ("merge-engine", "sequence.field")
"""Options under which several rows of a key are meant, and decided by the table."""
_STRATEGIES = ("append", "merge", "delete+insert", "insert_overwrite")
_SCHEMA_CHANGES = ("ignore", "fail", "append_new_columns", "sync_all_columns")
_SETTINGS = ("unique_key", "partition_by", "incremental_strategy", "on_schema_change", "options")


def macros() -> str:
    """The macros that a dbt project needs in its folder `macros`."""
    return files(__name__).joinpath("paimon.sql").read_text()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """What a model says about its table, and about this load."""

    table: LoadedTable
    incremental: bool
    full_refresh: bool
    overwrites_partitions: bool
    on_schema_change: str
    commit_user: str


class Plugin(BasePlugin):
    """The plugin that `profiles.yml` names: `module: lakecore.dbt`.

    Its alias is the name of the DuckDB database that shows the warehouse. Its config holds the
    options of the catalog, as `lakecore.connect` takes them.
    """

    _session: Session
    _connection: DuckDBConnection
    _attached: Attached

    def initialize(self, plugin_config: Mapping[str, OptionValue]) -> None:
        """Open the warehouse. dbt-duckdb mixes its own settings into the config."""
        settings = self.creds.settings or {}
        options = {key: each for key, each in plugin_config.items() if key not in settings}
        try:
            self._session = connect(options)
        except LakecoreError as error:
            raise DbtRuntimeError(str(error)) from error
        self._lock = Lock()

    def configure_connection(self, conn: DuckDBConnection) -> None:
        """Show the tables of the warehouse as views of the connection."""
        try:
            self._end_refreshes()
            self._attached = self._session.attach(conn, name=self.name)
        except LakecoreError as error:
            raise DbtRuntimeError(str(error)) from error
        self._attached.run(f"CREATE SCHEMA {quoted(self.name)}.{_ROWS_SCHEMA}")
        self._connection = conn

    def store(self, target_config: object) -> None:
        """Make the rows of a model its table's. `config` is what the macros put together."""
        relation, config = target_config.relation, target_config.config  # type: ignore[attr-defined]
        name = target_config.location.path  # type: ignore[attr-defined]
        try:
            if config["macros"] != _MACROS:
                raise InvalidRequest(
                    "the project has the macros of another version of lakecore: "
                    "python -m lakecore.dbt > macros/paimon.sql"
                )
            with self._connection.cursor() as cursor:
                self._store(
                    cursor.sql(f"SELECT * FROM {name}"),  # noqa: S608  a quoted name of dbt
                    table_name(relation.schema, relation.identifier),
                    config,
                )
        except LakecoreError as error:
            raise DbtRuntimeError(str(error)) from error
        finally:
            self._attached.run(f"DROP TABLE IF EXISTS {name}")

    def _store(self, rows: DuckDBRelation, table: str, config: Mapping[str, object]) -> None:
        rows = self._spelled(rows, table)
        model = _model(table, config, rows.columns)
        _check_keys(rows, model.table)
        schema, _ = columns_of_rows(rows.limit(0))
        if model.full_refresh and not self._fits(model.table, schema):
            self._replace(rows, schema, model)
        else:
            with opened(self._session, model.table, schema) as found:
                _load(self._session, found, rows, schema, model)
        self._describe(table, config)
        with self._lock:
            self._attached.refresh(table)

    def _spelled(self, rows: DuckDBRelation, table: str) -> DuckDBRelation:
        """The rows, with columns as the table spells them: for DuckDB, `ID` and `id` are equal."""
        if not self._session.table_exists(table):
            return rows
        known = {name.lower(): name for name in self._session.get_table(table).schema.names}
        names = [(quoted(each), quoted(known.get(each.lower(), each))) for each in rows.columns]
        return rows.select(", ".join(f"{each} AS {spelled}" for each, spelled in names))

    def _replace(self, rows: DuckDBRelation, schema: pa.Schema, model: _Model) -> None:
        """Load a new table, with other keys or types, and give it the name of the old one."""
        table = model.table.name
        new, old = f"{table}{_NEW}", f"{table}{_OLD}"
        for left in (new, old):  # by a run that was killed
            self._session.drop_table(left, ignore_if_not_exists=True)
        model = replace(model, table=replace(model.table, name=new))
        with opened(self._session, model.table, schema) as found:
            _load(self._session, found, rows, schema, model)
        users = self._session.get_table(new).inspect.snapshots()["commit_user"].to_list()
        if model.commit_user not in users:
            raise CommitConflict("another run replaces the table now", table=table)
        # A catalog that cannot rename says so here, before anything is lost.
        self._session.rename_table(table, old)
        self._session.rename_table(new, table)
        self._session.drop_table(old)

    def _end_refreshes(self) -> None:
        """Give a table its name back if its replacement ended between the two renames."""
        for database in self._session.list_databases():
            names = set(self._session.list_tables(database))
            for old in sorted(names):
                name = old.removesuffix(_OLD)
                if name not in names:
                    source, target = table_name(database, old), table_name(database, name)
                    self._session.rename_table(source, target)

    def _fits(self, wanted: LoadedTable, rows: pa.Schema) -> bool:
        """Whether the table can be loaded in place; one that does not exist fits."""
        if not self._session.table_exists(wanted.name):
            return True
        schema = self._session.get_table(wanted.name).schema
        fixed = {*wanted.primary_keys, *wanted.partition_keys}
        *_, other = _differences(schema.fields, rows)
        types = {name: from_arrow(rows.field(name).type, context=name) for name in other}
        return (
            set(schema.primary_keys) == set(wanted.primary_keys)
            and set(schema.partition_keys) == set(wanted.partition_keys)
            and not other & fixed
            and all(may_cast(schema.field(n).type, types[n], explicit=True) for n in other)
        )

    def _describe(self, table: str, config: Mapping[str, object]) -> None:
        """Store the descriptions of dbt as comments, where they differ."""
        schema = self._session.get_table(table).schema
        described = cast("Mapping[str, Mapping[str, str]]", config["columns"])
        texts = {name.lower(): each["description"] for name, each in described.items()}
        changes = [
            SchemaChange.update_column_comment(each.name, texts[each.name.lower()])
            for each in schema.fields
            if texts.get(each.name.lower(), each.description or "") != (each.description or "")
        ]
        comment = cast("str | None", config["comment"])
        if comment is not None and comment != (schema.comment or ""):
            changes.append(SchemaChange.update_comment(comment))
        if changes:
            self._session.alter_table(table, changes)


def _load(
    session: Session, table: Table, rows: DuckDBRelation, schema: pa.Schema, model: _Model
) -> None:
    """One commit with the rows; the columns of the table change as the model says."""
    change = model.on_schema_change
    new, missing, other = _differences(table.schema.fields, schema)
    fixed = {*table.schema.primary_keys, *table.schema.partition_keys}
    if missing & fixed:
        raise InvalidRequest(
            "the model lacks a column of the key", table=model.table.name, columns=missing & fixed
        )
    if change == "fail" and (new or missing or other):
        raise CompilationError(
            f"the columns of {model.table.name} have changed, and on_schema_change is 'fail': "
            f"new {sorted(new)}, missing {sorted(missing)}, of another type {sorted(other)}"
        )
    if change == "ignore":
        if missing:
            raise InvalidRequest(
                "the model lacks columns of its table; set on_schema_change to append_new_columns "
                "to write nulls, or to sync_all_columns to drop them",
                table=model.table.name,
                columns=sorted(missing),
            )
        kept = [quoted(name) for name in rows.columns if name not in new]
        rows = rows.select(", ".join(kept))
    if change == "sync_all_columns":
        table = table.copy({"write.merge-schema.explicit-cast": "true"})
    evolve = change in {"append_new_columns", "sync_all_columns"}
    if model.incremental and not model.overwrites_partitions:
        table.write(rows, evolve_schema=evolve, commit_user=model.commit_user, identifier=1)
    else:
        table.overwrite(
            rows,
            dynamic=model.incremental,
            evolve_schema=evolve,
            commit_user=model.commit_user,
            identifier=1,
        )
    if change == "sync_all_columns" and missing:
        session.alter_table(
            model.table.name, [SchemaChange.drop_column(name) for name in sorted(missing)]
        )


def _differences(fields: Sequence[Field], schema: pa.Schema) -> tuple[set[str], set[str], set[str]]:
    """The columns that a table lacks, those that only it has, and those of another type."""
    has = {field.name: with_nullable(field.type, nullable=True) for field in fields}
    gets = {each.name: from_arrow(each.type, context=each.name) for each in schema}
    both = has.keys() & gets.keys()
    other = {name for name in both if has[name] != gets[name]}
    return gets.keys() - has.keys(), has.keys() - gets.keys(), other


def _model(table: str, config: Mapping[str, object], columns: Sequence[str]) -> _Model:
    """The settings of a model. Raises InvalidRequest or Unsupported for a wrong one."""
    given = cast("Mapping[str, object]", config["given"])
    for setting in given:
        if setting not in _SETTINGS:
            raise Unsupported(
                "a Paimon table has no such setting of dbt", setting=setting, known=list(_SETTINGS)
            )
    options = given.get("options", {})
    keys = tuple(_columns("unique_key", given, columns))
    partitions = tuple(_columns("partition_by", given, columns))
    incremental = bool(config["incremental"])
    strategy = str(given.get("incremental_strategy", "merge" if keys else "append"))
    change = str(given.get("on_schema_change", "ignore")) if incremental else "sync_all_columns"
    for setting, value, known in (
        ("incremental_strategy", strategy, _STRATEGIES),
        ("on_schema_change", change, _SCHEMA_CHANGES),
    ):
        if value not in known:
            raise Unsupported(f"unknown {setting}", value=value, known=list(known))
    needs = {"merge": bool(keys), "delete+insert": bool(keys), "append": not keys}
    if not needs.get(strategy, bool(partitions)):
        raise InvalidRequest(
            "merge and delete+insert need a unique_key, append needs none, insert_overwrite needs "
            "partition_by",
            incremental_strategy=strategy,
            unique_key=list(keys),
            partition_by=list(partitions),
        )
    if config["commit_user"] is None:
        raise InvalidRequest(
            "the variable lakecore_commit_user is null: a table takes one load of a user"
        )
    full_refresh = bool(config["full_refresh"])
    return _Model(
        table=LoadedTable(
            name=table,
            primary_keys=keys,
            partition_keys=partitions,
            options=option_texts(cast("Mapping[str, OptionValue]", options), table=table),
        ),
        incremental=incremental and not full_refresh,
        full_refresh=full_refresh,
        overwrites_partitions=strategy == "insert_overwrite",
        on_schema_change="sync_all_columns" if full_refresh else change,
        commit_user=str(config["commit_user"]),
    )


def _columns(setting: str, given: Mapping[str, object], columns: Sequence[str]) -> Iterator[str]:
    """The columns that a setting names, each once, as the model spells them."""
    value = given.get(setting, ())
    names = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
    spelled = {each.lower(): each for each in columns}
    for name in dict.fromkeys(str(each).strip('"').lower() for each in cast("list[str]", names)):
        if name not in spelled:
            raise InvalidRequest(
                f"{setting} names a column that the model lacks", column=name, columns=columns
            )
        yield spelled[name]


def _check_keys(rows: DuckDBRelation, wanted: LoadedTable) -> None:
    """Raise InvalidRequest if a key is null, or if it would be chance which row of a key stays.

    A table takes several rows of a key if its options or `_row_kind` say what becomes of them.
    """
    if not wanted.primary_keys:
        return
    keys = [quoted(key) for key in wanted.primary_keys]
    if rows.filter(" OR ".join(f"{key} IS NULL" for key in keys)).limit(1).fetchall():
        raise InvalidRequest(
            "unique_key is null in a row of the model",
            table=wanted.name,
            unique_key=list(wanted.primary_keys),
        )
    if ROW_KIND in rows.columns or any(key in wanted.options for key in _MANY_ROWS_OF_A_KEY):
        return
    listed = ", ".join(keys)
    found = rows.aggregate(f"{listed}, count(*) AS n", listed).filter("n > 1").limit(1).fetchall()
    for *twice, count in found:
        raise InvalidRequest(
            "unique_key is not unique among the rows of the model; remove the duplicates, or say "
            "by the option sequence.field which row is the newest",
            table=wanted.name,
            key=dict(zip(wanted.primary_keys, twice, strict=True)),
            rows=count,
        )
