"""Queries: registers the tables of a query as DuckDB views and returns a DuckDB relation.

Each table of a query is read at one snapshot, chosen when the statement starts. DuckDB pushes
columns and filters into the read. Data is read only when the relation is read.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, TypeAlias, cast

import duckdb
import pyarrow as pa

from lakecore.deferred import deferred
from lakecore.errors import InvalidRequest, LakecoreError, NotFound, Unsupported, did_you_mean
from lakecore.scalar.infinity import finite_rows
from lakecore.sql.cursor import QUERY_STARTS, Cursor
from lakecore.sql.json_files import with_stated_arrays
from lakecore.sql.query_errors import FAILURES, error_of, error_of_result
from lakecore.sql.rewrite import rewritten
from lakecore.sql.statement_views import StatementViews, TableView
from lakecore.sql.tokens import Kind, quoted, quoted_text, tokenize
from lakecore.sql.workspace import Workspace, variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyarrow.compute import max as largest_of

    from lakecore.io.stores.engine_files import EngineFiles
    from lakecore.model.times import Time, to_milliseconds
    from lakecore.sql.metadata_rows import metadata_names, rows_with_metadata
    from lakecore.sql.native_views import NativeViews, ReadState, Scanned, parts_of_plan
    from lakecore.sql.python_objects import Scope
    from lakecore.sql.references import Reference
    from lakecore.sql.statement_views import Noted
    from lakecore.sql.statements import Chain, Explain
    from lakecore.table.handle import Table
    from lakecore.table.reads.source import TableSource
    from lakecore.table.reads.time_travel import Travel, resolve

    Parameters: TypeAlias = Sequence[object] | Mapping[str, object] | None
else:
    largest_of = deferred("pyarrow.compute", "max")
    TableSource = deferred("lakecore.table.reads.source", "TableSource")
    Travel = deferred("lakecore.table.reads.time_travel", "Travel")
    resolve = deferred("lakecore.table.reads.time_travel", "resolve")
    EngineFiles = deferred("lakecore.io.stores.engine_files", "EngineFiles")
    NativeViews = deferred("lakecore.sql.native_views", "NativeViews")
    metadata_names = deferred("lakecore.sql.metadata_rows", "metadata_names")
    parts_of_plan = deferred("lakecore.sql.native_views", "parts_of_plan")
    rows_with_metadata = deferred("lakecore.sql.metadata_rows", "rows_with_metadata")
    to_milliseconds = deferred("lakecore.model.times", "to_milliseconds")


# --- max partition -------------------------------------------------------------------------------
# `sys.max_pt('table')`: the largest value of the first partition key, among partitions with files.
#
# The call is replaced in the text by its value, before DuckDB parses it
# (https://paimon.apache.org/docs/master/spark/sql-functions/#max_pt).


def with_largest_partitions(text: str, value_of: Callable[[Chain], str]) -> str:
    """The text with each call of `sys.max_pt` replaced by its value, as `value_of` computes it."""
    if "max_pt" not in text.lower():
        return text
    cursor = Cursor(text)
    pieces: list[str] = []
    copied = 0
    while not cursor.done():
        token = cursor.take()
        if token.word != "SYS" or not (
            cursor.at_symbol(".")
            and cursor.ahead(1).word == "MAX_PT"
            and cursor.ahead(2).value == "("
        ):
            continue
        cursor.take()
        cursor.take()
        cursor.expect_symbol("(")
        if cursor.token.kind is not Kind.STRING:
            raise cursor.expected("the name of a table, in quotes")
        chain = Cursor(cursor.string()).chain()
        cursor.expect_symbol(")")
        pieces += [text[copied : token.start], value_of(chain)]
        copied = cursor.tokens_before(0)[-1].end
    return "".join([*pieces, text[copied:]])


def largest_partition(table: Table, type_of: Callable[[str], str]) -> str:
    """The value, as an expression of the type that DuckDB gives to the partition key.

    Raises InvalidRequest if the table has no partition keys or no partition with a value.
    """
    keys = table.schema.partition_keys
    if not keys:
        raise InvalidRequest("max_pt needs a partitioned table", table=table.identifier)
    context = table.context
    context.options.require_all_rows()
    snapshot, schema = resolve(context, Travel())
    source = TableSource(context=context, snapshot=snapshot, table_schema=schema)
    values = context.partitions.values(sorted(source.partitions())).column(0)
    largest = largest_of(values)
    if not largest.is_valid:
        raise InvalidRequest("max_pt finds no partition with data files", table=table.identifier)
    return f"CAST({quoted_text(str(largest.cast(pa.string())))} AS {type_of(keys[0])})"


# --- plain names ---------------------------------------------------------------------------------
# Names of result columns without the names of lakecore's views.
#
# DuckDB names a column without an alias after its expression. If that holds a subquery, the name
# would hold the view that stands for a table, and another one in the next statement.

_VIEW = "_lakecore_view_"


def with_plain_names(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The same rows; a table in the name of a column has its own name, or its alias."""
    if not any(_VIEW in name for name in relation.columns):
        return relation
    names = enumerate(map(plain_name, relation.columns), 1)
    return relation.project(", ".join(f"#{place} AS {quoted(name)}" for place, name in names))


def plain_name(name: str) -> str:
    """The name with `view AS t`, and `(SELECT * FROM view WHERE filter) AS t`, replaced by `t`."""
    tokens = tokenize(name)
    pieces: list[str] = []
    copied = 0
    for at, token in enumerate(tokens):
        if token.start < copied or not token.value.startswith(_VIEW):
            continue
        first, after = at, at + 1
        if tokens[after].word == "WHERE" and at > 3:
            first, depth = at - 4, 1
            while depth:
                depth += {"(": 1, ")": -1}.get(tokens[after].value, 0)
                after += 1
        start, end = tokens[first].start, tokens[after].start
        if tokens[after].word == "AS":
            end = tokens[after + 1].start
        pieces.append(name[copied:start])
        copied = end
    return "".join([*pieces, name[copied:]])


# --- queries -------------------------------------------------------------------------------------

_FULL = 3
_VIEWS_MAX = 1000
_UNKNOWN = re.compile('Catalog Error: Table with name |Binder Error: Catalog ".*" does not exist')
"""The beginning of an error about a table; the second one is DuckDB 1's, for another catalog."""
_REMOTE = re.compile(r"\b(s3|s3a|s3n|gs|gcs|abfss?|wasbs?|oss|hdfs)://", re.IGNORECASE)
_SMALL_BATCH_ROWS = 8_192
_BATCH_ROWS = 131_072
_SEALED = "a query on the page"
_SHOWS_SECRETS = re.compile(r"\$(options|schemas|aggregation_fields)\b", re.IGNORECASE)
_FILE_ENDS = (".parquet", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".gz", ".zst", ".arrow")
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}
_OF_DUCKDB = frozenset({"information_schema", "pg_catalog"})
_INCREMENTAL = {
    "paimon_incremental_query": "incremental-between",
    "paimon_incremental_between_timestamp": "incremental-between-timestamp",
    "paimon_incremental_to_auto_tag": "incremental-to-auto-tag",
}


class Queries:
    """The DuckDB connection of a session, with the views of its tables."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._numbers = count(1)
        self._views: list[str] = []
        self._place = ("", "")
        self._unknown: list[Chain] = []
        """Names in the statement that are not tables of a catalog: DuckDB may know them."""
        self.connection = duckdb.connect(config=_SETTINGS)
        self._reads_remote = False
        # DuckDB would print its progress between the rows, on standard output.
        self.connection.execute("SET enable_progress_bar = true")
        self.connection.execute("SET enable_progress_bar_print = false")

    @cached_property
    def _scans(self) -> NativeViews:
        return NativeViews(self.connection, self._new_name)

    def relation(
        self, text: str, parameters: Parameters = None, scope: Scope = lambda _name: None
    ) -> duckdb.DuckDBPyRelation:
        """The rows of a query. `scope` returns the Python object of a name, or None."""
        verb, query, *_ = tokenize(text)
        if verb.word in {"DESCRIBE", "SUMMARIZE"} and query.word in QUERY_STARTS:
            # A view names the columns as the query itself would.
            view = self.create_view(self.relation(text[verb.end :], parameters, scope))
            return self._run(f"{verb.word} {quoted(view)}", None)
        self._unknown.clear()
        return self._run(self._prepared(text, scope), parameters)

    def reader(
        self,
        text: str,
        scope: Scope,
        parameters: Parameters = None,
        shaped: Callable[[duckdb.DuckDBPyRelation], duckdb.DuckDBPyRelation] = lambda rows: rows,
    ) -> pa.RecordBatchReader:
        """The rows of a query as a stream; `shaped` chooses and casts its columns."""
        return reader_of(lambda: shaped(self.relation(text, parameters, scope)))

    def explained(self, statement: Explain, scope: Scope) -> list[tuple[str, str]]:
        """The parts of the plan: DuckDB's, and lakecore's for each of its tables."""
        tables: list[Scanned] = []

        def noted(reference: Reference, table: Table) -> None:
            tables.append((".".join(reference.chain), table, _travel(self, reference)))

        text = self._prepared(statement.text, scope, noted)
        return parts_of_plan(text, tables, self.run, analyze=statement.analyze)

    def tables_of(self, text: str, scope: Scope) -> list[Table]:
        """The tables of the catalog that a query reads, directly or by temporary views."""
        found: list[Table] = []
        self._prepared(text, scope, lambda _reference, table: found.append(table))
        return found

    def execute(self, text: str) -> duckdb.DuckDBPyRelation:
        """Run a statement on objects of DuckDB."""
        self._unknown.clear()
        return self._run(text, None)

    def change(self, text: str) -> duckdb.DuckDBPyRelation:
        """Run a statement that may change DuckDB's settings.

        The session's time zone, which verbs use too, follows a change of DuckDB's setting.
        """
        machine = self._machine_zone
        done = self.execute(text)
        zone = self._zone()
        self._workspace.zone = "" if zone == machine else zone
        return done

    @cached_property
    def _machine_zone(self) -> str:
        return self._zone()

    def _zone(self) -> str:
        return str(self.values(["current_setting('TimeZone')"])[0])

    def set(self, key: str, value: str | None) -> None:
        """Set a setting of DuckDB; None resets it.

        Raises Unsupported for a setting that lakecore controls.
        """
        rows = self.execute("SELECT name FROM duckdb_settings()").fetchall()
        settings = {str(name) for (name,) in rows} - set(_SETTINGS)
        if key not in settings:
            raise Unsupported(
                "this is no option of Paimon and no setting of DuckDB that a session may change",
                key=key,
                **did_you_mean(key, [*settings, *variables()]),
            )
        text = f"RESET {quoted(key)}"
        self.change(text if value is None else f"SET {quoted(key)} = {quoted_text(value)}")
        if "_scans" in self.__dict__:
            self._scans.renew()

    def values(self, expressions: Sequence[str]) -> list[object]:
        """The values of expressions without columns, such as arguments and times."""
        if not expressions:
            return []
        listed = ", ".join(f"({text}\n)" for text in expressions)
        self._unknown.clear()
        try:
            rows = self._run(f"SELECT {listed}", None).fetchall()
        except duckdb.Error as error:
            raise error_of(error) from error
        return list(rows[0])

    def types(self, schema: pa.Schema) -> list[str]:
        """DuckDB's type names for the columns of an Arrow schema."""
        if not schema.names:
            return []
        return [str(kind) for kind in self.connection.from_arrow(schema.empty_table()).types]

    def _run(self, text: str, parameters: Parameters) -> duckdb.DuckDBPyRelation:
        if "current_" in text.lower():
            self._name_place()
        if _REMOTE.search(text):
            self._open_remote_files()
        if "json" in text.lower():
            text = with_stated_arrays(text, parameters, self.connection, self._opened)
        try:
            # A statement without rows returns None, which DuckDB's type stubs omit.
            found = cast(
                "duckdb.DuckDBPyRelation | None", self.connection.sql(text, params=parameters)
            )
        except (duckdb.Error, RuntimeError) as error:
            if _UNKNOWN.match(str(error)):
                for chain in self._unknown:
                    self._workspace.table(chain)  # raises, and names what exists
            raise error_of(error) from error
        if found is None:
            return self.connection.sql("SELECT 'OK' AS result")
        return with_plain_names(found)

    def _name_place(self) -> None:
        """Let current_catalog(), current_database() and current_schema() name the session's."""
        catalog, database = self._workspace.catalog_name, self._workspace.database
        if self._place != (catalog, database):
            for function, name in (
                ("catalog", catalog),
                ("database", database),
                ("schema", database),
            ):
                text = f"CREATE OR REPLACE TEMP MACRO current_{function}() AS {quoted_text(name)}"
                self.connection.execute(text)
            self._place = catalog, database

    def _open_remote_files(self) -> None:
        """Let DuckDB read remote files, with the storage options of the session's catalogs."""
        if not self._reads_remote:
            self._reads_remote = True
            with suppress(ImportError):  # then DuckDB says that it cannot read them
                self.connection.register_filesystem(EngineFiles(self._workspace.options_of_path))

    def _opened(self, path: str) -> pa.NativeFile | str:
        if not _REMOTE.match(path):
            return path
        return EngineFiles(self._workspace.options_of_path).open(path)

    def _prepared(self, text: str, scope: Scope, noted: Noted | None = None) -> str:
        text = with_largest_partitions(text, self._largest_partition)
        if "_scans" in self.__dict__:
            self._scans.begin()
        try:
            return rewritten(text, self.connection, StatementViews(self, scope, noted))
        except duckdb.Error as error:
            raise error_of(error) from error

    def _largest_partition(self, chain: Chain) -> str:
        table = self._workspace.table(chain)

        def type_of(key: str) -> str:
            return self.types(pa.schema([table.schema.arrow.field(key)]))[0]

        return largest_partition(table, type_of)

    def table_view(self, reference: Reference, noted: Noted | None) -> TableView | None:
        """The rows of a table of the catalog; None if it has no such table."""
        chain = reference.chain
        generator = self._workspace.generators.get(chain[0]) if len(chain) == 1 else None
        if generator is not None:
            return TableView(self.connection.from_arrow(generator.table()))
        if len(chain) == 1 and _is_file(chain[0]):
            return None
        travel, options = _travel(self, reference), self._options(reference)
        if "$" in chain[-1]:
            # For a system table, options of its table say which state it shows.
            options, travel = {**options, **_scan_options(travel)}, {}
        table = self._workspace.find(chain, options)
        if table is None:
            return None
        if noted is not None:
            noted(reference, table)
        metadata = metadata_names(table, reference.metadata)
        if metadata:
            found = rows_with_metadata(table, travel, metadata)
            return replace(self._scans.merged_view(table, travel, found), metadata=metadata)
        return self._scans.table_view(table, travel, explained=noted is not None)

    def stored_query(self, chain: Chain) -> str | None:
        """The query of a temporary view; None if there is no such view."""
        return self._workspace.views.get(chain[0]) if len(chain) == 1 else None

    def catalog_view(self, chain: Chain) -> tuple[str, str] | None:
        """The catalog and the query of a view that a catalog stores; None if there is none."""
        if "/" in chain[0] or (len(chain) == 1 and _is_file(chain[0])):
            return None
        return self._workspace.stored_view(chain)

    def schema_in_view(self, text: str, view: Chain) -> pa.Schema:
        """The columns of a query to be stored as a view.

        Its tables are resolved as a reader of the view resolves them.
        """
        catalog = self._workspace.full(view)[0]
        views = StatementViews(self, lambda _name: None, None)
        self._unknown.clear()
        try:
            prepared = views.within(".".join(self._workspace.full(view)), catalog, text)
        except duckdb.Error as error:
            raise error_of(error) from error
        return self._run(prepared, None).limit(0).to_arrow_table().schema

    def sealed(self, text: str) -> duckdb.DuckDBPyRelation:
        """The rows of one SELECT that may only read tables of the current catalog, and compute.

        The text passes the checks of a stored view (`stored_views.py`). Names of tables have two
        parts, `database.table`. Raises InvalidRequest for everything else, and for system tables
        that may show secrets.
        """
        secret = _SHOWS_SECRETS.search(text)
        if secret is not None:
            raise InvalidRequest(
                "options may hold secrets, so a query on the page does not read this system table",
                found=secret[0],
            )
        views = StatementViews(self, lambda _name: None, None)
        self._unknown.clear()
        try:
            prepared = views.within(_SEALED, self._workspace.catalog_name, text)
        except duckdb.Error as error:
            raise error_of(error) from error
        except InvalidRequest as error:
            if error.facts.get("view") != _SEALED:
                raise
            about = error.message.replace("the query of a stored view", _SEALED)
            about = about.replace("a stored view", _SEALED)
            facts = {key: value for key, value in error.facts.items() if key != "view"}
            raise InvalidRequest(about, **facts) from error
        return self._run(prepared, None)

    def full_names(self, chain: Chain) -> list[Chain]:
        """The longer forms of a table's name: `database.table` and `catalog.database.table`."""
        if len(chain) > _FULL:
            return []
        full = self._workspace.full(chain)
        return [full[-size:] for size in range(len(chain) + 1, _FULL + 1)]

    def full_name(self, chain: Chain) -> Chain:
        """The name with catalog and database.

        A name that only the session knows is returned unchanged.
        """
        workspace = self._workspace
        known = (workspace.views, workspace.temporary, workspace.generators)
        if len(chain) > _FULL or (len(chain) == 1 and any(chain[0] in names for names in known)):
            return chain
        return workspace.full(chain)

    def name_of_table(self, chain: Chain) -> Chain:
        """The name by which a query reads this table, also if a temporary view hides it."""
        workspace = self._workspace
        hiding = (workspace.views, workspace.generators)
        if len(chain) > 1 or not any(chain[0] in names for names in hiding):
            return chain
        if chain[0] in workspace.temporary:
            raise InvalidRequest("a temporary view hides the temporary table", name=chain[0])
        return workspace.full(chain)

    def unknown(self, reference: Reference) -> None:
        """Remember a name that the catalog does not have: DuckDB may know it.

        A reference with time travel or options can only be a table of the catalog, and raises.
        """
        chain = reference.chain
        if len(chain) > 1 and chain[-2].lower() in _OF_DUCKDB:
            raise Unsupported(
                "this schema lists what DuckDB holds; SHOW TABLES, DESCRIBE t and sys.tables list "
                "the tables of the catalog",
                name=".".join(chain),
            )
        if reference.unit or reference.function or reference.options:
            self._workspace.table(chain)  # raises, and names what exists
        if len(chain) > 1 or not _is_file(chain[0]):
            self._unknown.append(chain)

    def missing(self, chain: Chain) -> LakecoreError:
        """The error for a name that is neither a table nor a view of a catalog."""
        try:
            self._workspace.table(chain)
        except LakecoreError as error:
            return error
        return NotFound("no such table or view", name=".".join(chain))

    def run(self, text: str) -> duckdb.DuckDBPyRelation:
        """Run a query in which views have replaced the tables."""
        return self._run(text, None)

    def _options(self, reference: Reference) -> dict[str, str]:
        options = dict(reference.options)
        if reference.function is not None:
            values = [str(value) for value in self.values(reference.arguments)]
            options[_INCREMENTAL[reference.function]] = ",".join(values)
        return options

    def create_view(self, relation: duckdb.DuckDBPyRelation) -> str:
        """Create a view of the relation for one statement. Returns the name of the view."""
        name = self._new_name()
        relation.create_view(name)
        self._views.append(name)
        if len(self._views) > _VIEWS_MAX:
            self.connection.execute(f"DROP VIEW IF EXISTS {quoted(self._views.pop(0))}")
        return name

    def _new_name(self) -> str:
        return f"_lakecore_view_{next(self._numbers)}"


def _travel(queries: Queries, reference: Reference) -> ReadState:
    """The arguments of a read for the state that a reference names."""
    if reference.unit is None or reference.moment is None:
        return {}
    token, following, *_ = tokenize(reference.moment)
    names = {Kind.STRING, Kind.QUOTED}
    if reference.unit == "VERSION":
        names.add(Kind.WORD)  # a tag needs no quotes
    value: object = token.value
    if following.kind is not Kind.END or token.kind not in names:
        (value,) = queries.values([reference.moment])
    if reference.unit == "VERSION":
        return _version(value)
    if isinstance(value, bool):
        raise InvalidRequest("a time is a text or a number of seconds", time=value)
    if isinstance(value, int):
        # Spark's TIMESTAMP AS OF takes seconds; a number that large can only be milliseconds.
        return {"timestamp": value if value > _SECONDS_MAX else value * 1000}
    return {"timestamp": cast("Time", value)}


def _scan_options(travel: ReadState) -> dict[str, str]:
    """The options of a table that select this state."""
    options: dict[str, str] = {}
    if "snapshot_id" in travel:
        options["scan.snapshot-id"] = str(travel["snapshot_id"])
    if "tag" in travel:
        options["scan.tag-name"] = travel["tag"]
    if "timestamp" in travel:
        options["scan.timestamp-millis"] = str(to_milliseconds(travel["timestamp"]))
    return options


def _version(value: object) -> ReadState:
    """The arguments of a read for a version: a snapshot id, or the name of a tag."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"snapshot_id": value}
    if isinstance(value, str):
        return {"snapshot_id": int(value)} if value.isdecimal() else {"tag": value}
    raise InvalidRequest("a version is the id of a snapshot or the name of a tag", version=value)


_SECONDS_MAX = 100_000_000_000


def _is_file(name: str) -> bool:
    return "\\" in name or "*" in name or name.lower().endswith(_FILE_ENDS)


def batches_of(relation: duckdb.DuckDBPyRelation) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema of a relation, and its rows in small batches. Raises only lakecore errors."""
    try:
        reader = relation.to_arrow_reader(_SMALL_BATCH_ROWS)
    except FAILURES as error:
        raise error_of_result(error) from error

    def read() -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except FAILURES as error:
            raise error_of_result(error) from error

    return reader.schema, read()


def reader_of(relation: Callable[[], duckdb.DuckDBPyRelation]) -> pa.RecordBatchReader:
    """The rows of a relation as a stream for a write. Raises only lakecore errors.

    An infinite date or timestamp raises an error: Paimon's types cannot hold it.
    """
    try:
        return finite_rows(relation()).to_arrow_reader(_BATCH_ROWS)
    except FAILURES as error:
        raise error_of(error) from error
