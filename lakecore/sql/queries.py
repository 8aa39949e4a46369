"""Queries: registers the tables of a query as DuckDB views and returns a DuckDB relation.

Each table of a query is read at one snapshot, chosen when the statement starts. DuckDB pushes
columns and filters into the read. Data is read only when the relation is read.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds

from lakecore.errors import InvalidRequest, LakecoreError, NotFound, StorageError, Unsupported
from lakecore.model.times import to_milliseconds
from lakecore.sql.explain_query import ReadState, parts_of_plan
from lakecore.sql.max_partition import largest_partition, with_largest_partitions
from lakecore.sql.rewrite import Reference, rewritten
from lakecore.sql.statement_views import StatementViews
from lakecore.sql.tokens import Kind, quoted, quoted_text, tokenize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType
    from typing import TypeAlias

    from lakecore.model.times import Time
    from lakecore.sql.explain_query import Scanned
    from lakecore.sql.statement_views import Noted, Scope
    from lakecore.sql.statements import Chain
    from lakecore.sql.workspace import Workspace
    from lakecore.table.handle import Table

    Parameters: TypeAlias = Sequence[object] | Mapping[str, object] | None

__all__ = ["Queries", "batches_of", "error_of", "names_in_scope", "reader_of", "written"]

T = TypeVar("T")
_FULL = 3
_VIEWS_MAX = 1000
_SMALL_BATCH_ROWS = 8_192
_BATCH_ROWS = 131_072
_FILE_ENDS = (".parquet", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".gz", ".zst", ".arrow")
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}
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
        self._unknown: list[Chain] = []
        """Names in the statement that are not tables of a catalog: DuckDB may know them."""
        self.connection = duckdb.connect(config=_SETTINGS)

    def relation(
        self,
        text: str,
        parameters: Parameters = None,
        scope: Scope = lambda _name: None,
    ) -> duckdb.DuckDBPyRelation:
        """The rows of a query. `scope` gives a Python object by its name, or None."""
        self._unknown.clear()
        return self._run(self._prepared(text, scope), parameters)

    def reader(self, text: str, scope: Scope) -> pa.RecordBatchReader:
        """The rows of a query as a stream."""
        return reader_of(lambda: self.relation(text, None, scope))

    def explained(self, text: str, scope: Scope) -> list[tuple[str, str]]:
        """The parts of the plan: DuckDB's, and lakecore's for each of its tables."""
        tables: list[Scanned] = []

        def noted(reference: Reference, table: Table) -> None:
            tables.append((".".join(reference.chain), table, _travel(self, reference)))

        return parts_of_plan(self._prepared(text, scope, noted), tables, self.run)

    def tables_of(self, text: str, scope: Scope) -> list[Table]:
        """The tables of the catalog that a query reads, directly or by temporary views."""
        found: list[Table] = []
        self._prepared(text, scope, lambda _reference, table: found.append(table))
        return found

    def execute(self, text: str) -> duckdb.DuckDBPyRelation:
        """Run a statement on objects of DuckDB."""
        self._unknown.clear()
        return self._run(text, None)

    def set(self, key: str, value: str | None) -> None:
        """Set a setting of DuckDB; None resets it. Raises Unsupported for those of lakecore."""
        known = self.values([f"EXISTS (FROM duckdb_settings() WHERE name = {quoted_text(key)})"])
        if not known[0] or key in _SETTINGS:
            raise Unsupported(
                "this is no option of Paimon and no setting of DuckDB that a session may change",
                key=key,
            )
        text = f"RESET {quoted(key)}"
        self.execute(text if value is None else f"SET {quoted(key)} = {quoted_text(value)}")

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
        """DuckDB's type names for the types of Arrow columns."""
        if not schema.names:
            return []
        return [str(kind) for kind in self.connection.from_arrow(schema.empty_table()).types]

    def _run(self, text: str, parameters: Parameters) -> duckdb.DuckDBPyRelation:
        try:
            # A statement without rows returns None, which DuckDB's type stubs omit.
            found = cast(
                "duckdb.DuckDBPyRelation | None", self.connection.sql(text, params=parameters)
            )
        except (duckdb.Error, RuntimeError) as error:
            if isinstance(error, duckdb.CatalogException):
                for chain in self._unknown:
                    self._workspace.table(chain)  # raises, and names what exists
            raise error_of(error) from error
        return self.connection.sql("SELECT 'OK' AS result") if found is None else found

    def _prepared(
        self,
        text: str,
        scope: Scope,
        noted: Noted | None = None,
    ) -> str:
        text = with_largest_partitions(text, self._largest_partition)
        try:
            return rewritten(text, self.connection, StatementViews(self, scope, noted))
        except duckdb.Error as error:
            raise error_of(error) from error

    def _largest_partition(self, chain: Chain) -> str:
        table = self._workspace.table(chain)

        def type_of(key: str) -> str:
            return self.types(pa.schema([table.schema.arrow.field(key)]))[0]

        return largest_partition(table, type_of)

    def table_view(
        self, reference: Reference, noted: Noted | None
    ) -> duckdb.DuckDBPyRelation | None:
        """The rows of a table of the catalog; None if it has no such table."""
        chain = reference.chain
        generator = self._workspace.generators.get(chain[0]) if len(chain) == 1 else None
        if generator is not None:
            return self.connection.from_arrow(generator.table())
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
        return table.to_duckdb(self.connection, **travel)

    def stored_query(self, chain: Chain) -> str | None:
        """The query of a temporary view; None if there is no such view."""
        return self._workspace.views.get(chain[0]) if len(chain) == 1 else None

    def full_names(self, chain: Chain) -> list[Chain]:
        """The longer forms of a table's name: `database.table` and `catalog.database.table`."""
        if len(chain) > _FULL:
            return []
        full = self._workspace.full(chain)
        return [full[-size:] for size in range(len(chain) + 1, _FULL + 1)]

    def unknown(self, reference: Reference) -> None:
        """Remember a name that the catalog does not have: DuckDB may know it.

        A reference with time travel or options can only be a table of the catalog, and raises.
        """
        chain = reference.chain
        if reference.unit or reference.function or reference.options:
            self._workspace.table(chain)  # raises, and names what exists
        if len(chain) > 1 or not _is_file(chain[0]):
            self._unknown.append(chain)

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
        name = f"_lakecore_view_{next(self._numbers)}"
        relation.create_view(name)
        self._views.append(name)
        if len(self._views) > _VIEWS_MAX:
            self.connection.execute(f"DROP VIEW IF EXISTS {quoted(self._views.pop(0))}")
        return name


def _travel(queries: Queries, reference: Reference) -> ReadState:
    """The read arguments for the state that a reference names."""
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
    """The id of a snapshot, or the name of a tag."""
    if isinstance(value, int):
        return {"snapshot_id": value}
    if isinstance(value, str):
        return {"snapshot_id": int(value)} if value.isdecimal() else {"tag": value}
    raise InvalidRequest("a version is the id of a snapshot or the name of a tag", version=value)


_SECONDS_MAX = 100_000_000_000


def _is_file(name: str) -> bool:
    return "\\" in name or "*" in name or name.lower().endswith(_FILE_ENDS)


def names_in_scope(frame: FrameType | None) -> Scope:
    """Python objects with rows that the caller's code can name: the variables of its functions.

    The functions of lakecore itself are skipped.
    """
    frames: list[FrameType] = []
    while frame is not None:
        if not str(frame.f_globals.get("__name__", "")).startswith("lakecore."):
            frames.append(frame)
        frame = frame.f_back

    def find(name: str) -> object | None:
        for each in frames:
            for names in (each.f_locals, each.f_globals):
                held = names.get(name)
                if held is not None and _has_rows(held):
                    found: object = held
                    return found
        return None

    return find


def _has_rows(held: object) -> bool:
    if isinstance(held, type):
        return False
    return isinstance(held, pl.LazyFrame | ds.Dataset | pa.Table) or any(
        hasattr(held, name) for name in ("__arrow_c_stream__", "to_duckdb")
    )


def batches_of(
    relation: duckdb.DuckDBPyRelation,
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema of a relation, and its rows in small batches. Raises only lakecore errors."""
    try:
        reader = relation.to_arrow_reader(_SMALL_BATCH_ROWS)
    except duckdb.Error as error:
        raise error_of(error) from error

    def read() -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise error_of(error) from error

    return reader.schema, read()


def reader_of(relation: Callable[[], duckdb.DuckDBPyRelation]) -> pa.RecordBatchReader:
    """The rows of a relation as a stream for a write. Raises only lakecore errors."""
    try:
        return relation().to_arrow_reader(_BATCH_ROWS)
    except duckdb.Error as error:
        raise error_of(error) from error


class _Closable(Protocol):
    def close(self) -> None: ...


def written(rows: _Closable, verb: Callable[[], T]) -> T:
    """Run a verb that writes `rows`, and return its result. Raises only lakecore errors.

    Closes the rows: an open result would block the connection for other statements.
    """
    try:
        return verb()
    except LakecoreError:
        raise
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise InvalidRequest(
            "the query failed while its rows were written; nothing was committed",
            reason=str(error),
        ) from error
    finally:
        rows.close()


def error_of(error: BaseException) -> LakecoreError:
    """A DuckDB error as a lakecore error, with a message that says what the user can change."""
    text = str(error)
    head, _, _ = text.partition("\n\nLINE ")
    if isinstance(error, duckdb.CatalogException) and "does not exist" in text:
        return NotFound("the query names something that does not exist", reason=head)
    if isinstance(error, duckdb.IOException | duckdb.HTTPException):
        return StorageError("DuckDB cannot read what the query names", reason=head)
    if text.startswith("Resource In Use"):
        return InvalidRequest(
            "rows of an earlier statement are still being read; read them to the end, or close "
            "their reader"
        )
    return InvalidRequest("the query failed", reason=text)
