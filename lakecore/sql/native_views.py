"""Views through which DuckDB reads the files of tables itself; later statements reuse them.

Planning a read, checking the files and binding a view take longer than a small query. If a table is
in the same state as before, and its files are unchanged, a statement uses the view of an earlier
statement. A state is a snapshot with a schema and options. The names of the snapshot's manifest
lists identify it, because no file name is used twice.

A bitmap for each file says which rows a scan returns (`frames/duckdb_face.py`). The bitmaps are
stored in variables of the connection: DuckDB pushes a filter with a constant into the scan, but not
a join with a table of bitmaps.

Files that overlap are scanned if the bitmaps of their surviving rows are known or cheap to compute.
Computing them reads the keys of all rows. If the query has a condition on the first key that leaves
few files and row groups, lakecore's own reader is faster.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

import duckdb

from lakecore.errors import LakecoreError, Unsupported
from lakecore.frames.duckdb_face import (
    Merges,
    bits_of_files,
    check_files,
    dataset,
    names_alike,
    scan_query,
    scannable_files,
)
from lakecore.io.files.file_checks import are_unchanged
from lakecore.io.files.file_format import Checks
from lakecore.memory import Share
from lakecore.sql.query_errors import raise_interrupt
from lakecore.sql.statement_views import NativeView, TableView
from lakecore.sql.tokens import quoted, quoted_text
from lakecore.table.changes.between import changes_of_options
from lakecore.table.reads.readable import known_rows, rows_of
from lakecore.table.reads.source import TableSource
from lakecore.table.reads.time_travel import Travel, resolve
from lakecore.table.reads.told import told_snapshot
from lakecore.table.system.system_columns import SystemTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakecore.frames.source import BatchSource
    from lakecore.model.times import Time
    from lakecore.table.handle import Table

# --- table facts ---------------------------------------------------------------------------------
# Facts about tables that a statement needs: their size, and the columns that allow pruning.


def stored_rows(table: Table, travel: ReadState) -> int | None:
    """An upper bound of the rows of a state: the stored rows, before merging; None if unknown."""
    read: object = table  # a catalog gives system tables the type of a table
    if isinstance(read, SystemTable) or table.context.falls_back:
        return None
    if not travel and changes_of_options(table.context) is not None:
        return None
    snapshot, _ = resolve(table.context, Travel(**travel))
    return None if snapshot is None else told_snapshot(snapshot, table.context).total_record_count


def pruning_columns(table: Table) -> frozenset[str]:
    """The columns, in lower case, whose filters let a read skip files or row groups.

    They always include the partition keys. The files of a table with a primary key are sorted by
    it, so only its first column is added. In a table without a key, any column may help.
    """
    schema = table.schema
    names = [*schema.primary_keys[:1], *schema.partition_keys]
    return frozenset(name.lower() for name in (names if schema.primary_keys else schema.names))


# --- native views --------------------------------------------------------------------------------

_VIEWS_MAX = 256
_VIEWS_MIN = 16
"""So many views are kept, however large their bitmaps are: open results may still read them."""
_FOOTERS_EVERY = 64
"""After this many new views, the size of the cached footers is checked."""


class NativeViews:
    """The views of a connection through which DuckDB scans the files of tables itself."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, new_name: Callable[[], str]) -> None:
        self._connection = connection
        self._new_name = new_name
        self._views: OrderedDict[tuple[object, ...], NativeView] = OrderedDict()
        self._bits_max = 0
        self._created = 0
        self._cache_footers(enabled=True)

    def table_view(self, table: Table, travel: ReadState, *, explained: bool) -> TableView:
        """The rows of a state of a table: a view of its files if DuckDB scans them itself."""
        source = rows_of(table, Travel(**travel))
        _require_distinct(source)
        view = self.shown(source) if explained else self.find(source)
        if view is None:
            check_files(source)
            view = None if explained else self.create(source)
        if view is not None:
            return TableView(
                view=view,
                rows=lambda: stored_rows(table, travel),
                count=lambda: known_rows(source),
            )
        merged = self._merged(table, travel, source)
        # `find`: the statement may name the same state twice, and then both use the first view.
        return replace(
            merged, scan=lambda: self.find(source) or self.create(source, Merges.COMPUTED)
        )

    def merged_view(self, table: Table, travel: ReadState, source: BatchSource) -> TableView:
        """The rows of a source, read by lakecore's own reader."""
        _require_distinct(source)
        check_files(source)
        return self._merged(table, travel, source)

    def _merged(self, table: Table, travel: ReadState, source: BatchSource) -> TableView:
        return TableView(
            self._connection.from_arrow(dataset(source)),
            rows=lambda: stored_rows(table, travel),
            count=lambda: known_rows(source),
            pruning=lambda: pruning_columns(table),
        )

    def find(self, source: BatchSource) -> NativeView | None:
        """The existing view of this state of a table; None if there is none, or if files changed.

        A file has changed if its inode, size or modification time is not the one that was checked.
        """
        if not isinstance(source, TableSource):
            return None
        key = _state(source)
        known = None if key is None else self._views.get(key)
        if key is None or known is None:
            return None
        names = source.schema.names
        if source.checks is not Checks.NEVER and not are_unchanged(known.paths, names):
            self._drop(key)
            return None
        self._views.move_to_end(key)
        return known

    def create(self, source: BatchSource, merges: Merges = Merges.KNOWN) -> NativeView | None:
        """A view of this state of a table; None if DuckDB must not scan its files."""
        files = scannable_files(source, merges=merges)
        if not files:
            return None
        name = self._new_name()
        bits = bits_of_files(files)
        variables = tuple(f"{name}_{number}" for number in range(len(bits)))
        text = scan_query(
            files, source.schema, lambda number: f"getvariable({quoted_text(variables[number])})"
        )
        try:
            for variable, each in zip(variables, bits, strict=True):
                kind = "BIT" if isinstance(each, bytes) else "BIT[]"
                self._connection.execute(
                    f"SET VARIABLE {quoted(variable)} = CAST($1 AS {kind})", [each]
                )
            types = self._view(name, text)
        except (duckdb.Error, RuntimeError) as error:
            raise_interrupt(error)
            # lakecore's own reader will raise an error that says what is wrong with the file.
            self._reset(variables)
            return None
        view = NativeView(
            name=name,
            types=types,
            paths=tuple(file.path for file in files),
            variables=variables,
            bytes_of_bits=sum(
                sum(map(len, each)) if isinstance(each, list) else len(each) for each in bits
            ),
        )
        self._keep(source, view)
        self._created += 1
        if self._created % _FOOTERS_EVERY == 0 and isinstance(source, TableSource):
            self._limit_footers(Share.FOOTERS.of(source.context.budget.size_bytes))
        return view

    def shown(self, source: BatchSource) -> NativeView | None:
        """A view for EXPLAIN: as `create`, but with a single bit in place of each bitmap."""
        files = scannable_files(source)
        if not files:
            return None
        name = self._new_name()
        text = scan_query(files, source.schema, None)
        with suppress(duckdb.Error, RuntimeError):
            return NativeView(name=name, types=self._view(name, text))
        return None

    def _limit_footers(self, size_max_bytes: int) -> None:
        """Stop the caching of Parquet footers if they take more than this.

        DuckDB also keeps the footers of files that no view reads any more, up to its own limit of
        most of the machine's memory. It has no statement that drops them.
        """
        size = "SELECT sum(memory_usage_bytes) FROM duckdb_memory() WHERE tag = 'OBJECT_CACHE'"
        ((size_bytes,),) = self._connection.execute(size).fetchall()
        if size_bytes is not None and size_bytes > size_max_bytes:
            self._cache_footers(enabled=False)

    def _cache_footers(self, *, enabled: bool) -> None:
        # Cached footers are valid: DuckDB checks a file's time, and no file name is used twice.
        self._connection.execute(f"SET parquet_metadata_cache = {enabled}")

    def _view(self, name: str, text: str) -> dict[str, str]:
        """Create a view; returns the types of its columns."""
        relation = self._connection.sql(text)
        self._connection.execute(f"CREATE VIEW {quoted(name)} AS {text}")
        names = [column.lower() for column in relation.columns]
        return dict(zip(names, map(str, relation.types), strict=True))

    def _keep(self, source: BatchSource, view: NativeView) -> None:
        key = _state(source) if isinstance(source, TableSource) else None
        self._views[(view.name,) if key is None else key] = view
        if isinstance(source, TableSource):
            self._bits_max = Share.VIEW_MASKS.of(source.context.budget.size_bytes)

    def begin(self) -> None:
        """Drop the oldest views if there are too many, before a statement uses some of them."""
        for oldest in list(self._views):
            if not self._is_full():
                return
            self._drop(oldest)

    def renew(self) -> None:
        """Let no later statement reuse these views: a setting may change how DuckDB reads files."""
        self._views = OrderedDict(((view.name,), view) for view in self._views.values())

    def _is_full(self) -> bool:
        count = len(self._views)
        bits = sum(view.bytes_of_bits for view in self._views.values())
        return count > _VIEWS_MAX or (count > _VIEWS_MIN and bits > self._bits_max)

    def _drop(self, key: tuple[object, ...]) -> None:
        view = self._views.pop(key)
        self._connection.execute(f"DROP VIEW IF EXISTS {quoted(view.name)}")
        self._reset(view.variables)

    def _reset(self, variables: Sequence[str]) -> None:
        for variable in variables:
            self._connection.execute(f"RESET VARIABLE {quoted(variable)}")


def _require_distinct(source: BatchSource) -> None:
    """Raise Unsupported if column names differ only in case: DuckDB would read only the first."""
    alike = names_alike(source.schema.names)
    if alike:
        raise Unsupported(
            "SQL does not distinguish columns that differ only in case; read the table in Python, "
            "by scan or to_arrow",
            columns=alike,
        )


def _state(source: TableSource) -> tuple[object, ...] | None:
    """A key that identifies the rows of a source; None if the table is empty.

    Some system tables show other rows or columns of the same snapshot: `$ro` has only the last
    level.
    """
    snapshot, context = source.snapshot, source.context
    if snapshot is None or source.own is not None:
        return None
    return (
        context.layout.root,
        context.layout.branch,
        snapshot.id,
        snapshot.base_manifest_list,
        snapshot.delta_manifest_list,
        source.table_schema.id,
        source.table_schema.names,
        source.last_level_only,
        source.without,
        tuple(sorted(context.options.texts.items())),
    )


# --- explain query -------------------------------------------------------------------------------
# EXPLAIN: DuckDB's plan of a query, followed by lakecore's plan for each table.
#
# If the query has a single scan of a single table, lakecore plans the read of the columns and
# filters that DuckDB pushes into this scan. Otherwise lakecore plans a read of each whole table,
# because DuckDB's plan does not say which scan reads which table.


class ReadState(TypedDict, total=False):
    """The state of a table to read, as keyword arguments of the read methods."""

    snapshot_id: int
    tag: str
    timestamp: Time


Scanned = tuple[str, "Table", ReadState]
"""A table of a query: its name in the query, the table, and the state that is read."""
_SCANS = {"PYTHON_ARROW_SCAN", "ARROW_SCAN"}  # of DuckDB 2 and DuckDB 1


def parts_of_plan(
    text: str,
    tables: Sequence[Scanned],
    run: Callable[[str], duckdb.DuckDBPyRelation],
    *,
    analyze: bool = False,
) -> list[tuple[str, str]]:
    """The plan of a query over views, as (name, text): DuckDB's, then lakecore's for each table.

    With `analyze`, the query runs, and DuckDB's plan has times and numbers of rows.
    """
    verb = "EXPLAIN ANALYZE" if analyze else "EXPLAIN"
    rows = [(str(key), str(value)) for key, value in run(f"{verb} {text}").fetchall()]
    pushed: tuple[list[str] | None, str | None] = (None, None)
    if len(tables) == 1:
        described = run(f"EXPLAIN (FORMAT JSON) {text}").fetchall()
        scans = list(_scans(json.loads(described[0][1])))
        if len(scans) == 1:
            pushed = scans[0]
    return [*rows, *((name, _plan(table, state, *pushed)) for name, table, state in tables)]


def _plan(table: Table, state: ReadState, columns: list[str] | None, where: str | None) -> str:
    read: object = table  # a catalog gives system tables the type of a table
    if isinstance(read, SystemTable):
        return f"table:     {table.identifier}\nreads:     metadata"
    with suppress(LakecoreError):  # some of DuckDB's filters cannot be parsed
        return str(table.explain(columns, where, **state))
    return str(table.explain(**state))


def _scans(nodes: object) -> Iterator[tuple[list[str] | None, str | None]]:
    """The columns and the filter of each scan of an Arrow dataset in a plan of DuckDB."""
    for node in nodes if isinstance(nodes, list) else ():
        if node.get("name") in _SCANS:
            facts = node.get("extra_info", {})
            names, filters = (_listed(facts.get(key)) for key in ("Projections", "Filters"))
            yield names or None, " AND ".join(filters) or None
        yield from _scans(node.get("children"))


def _listed(fact: object) -> list[str]:
    if fact is None or fact == "":
        return []
    return [str(each) for each in fact] if isinstance(fact, list) else [str(fact)]
