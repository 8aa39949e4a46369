"""Runs a MERGE INTO whose conditions or values hold queries: DuckDB pairs the rows.

One query of DuckDB reads each table at one snapshot:

1. number the rows of the source, so that new rows keep their order: of two with one key, the last
   one counts;
2. find the pairs of rows for which ON is true, the rows of the table in no pair, and the rows of
   the source in no pair. For each of them, the first WHEN whose condition is true is chosen;
3. compute the new values of each WHEN, for the rows that chose it.

The result is then merged into the table, which applies the clauses. Rows match by
the primary key or, if the table has none, by all columns. A row of the table in several pairs is an
error there. Without a primary key, equal rows of the table become one row of the result: their
expressions have equal values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from lakecore.errors import CommitConflict, LakecoreError
from lakecore.scalar.values import cut_to_precision
from lakecore.sql.merge_texts import Step, Texts, Value, assigned, check_nested, has_query
from lakecore.sql.python_objects import NotingScope
from lakecore.sql.query_errors import written
from lakecore.sql.statements import Chain, Delete, Merge, Update
from lakecore.sql.tokens import quoted, quoted_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    import duckdb

    from lakecore.model.snapshot import CommitResult
    from lakecore.sql.python_objects import Scope
    from lakecore.sql.queries import Parameters, Queries
    from lakecore.table.handle import Table
    from lakecore.table.verbs.merge_files import MergeInto


# --- found rows ----------------------------------------------------------------------------------
# Merges the rows that a query finds into the table that the query reads, at one snapshot.
#
# The query runs while the merge runs, at the snapshot that the merge changes. If another commit is
# made in between, the query and the merge start again. If the query reads a Python object that
# gives its rows only once, the statement fails instead: a second query would find no rows.

_ATTEMPTS_MAX = 5
_NEWEST = "deletion-vectors.merge-on-read"
"""The option of a read that shows the newest rows, also with deletion vectors."""


def newest_rows(queries: Queries, table: Table, chain: Chain) -> str:
    """The rows that a verb changes, as the source of a query.

    With deletion vectors, a read skips level 0, but a verb changes the newest rows.
    """
    named = ".".join(map(quoted, queries.name_of_table(chain)))
    vectors = table.options.deletion_vectors_enabled
    return f"{named} /*+ OPTIONS('{_NEWEST}' = 'true') */" if vectors else named


def equal_columns(names: Iterable[str], left: str, right: str) -> str:
    """The condition that two rows have equal values in these columns; nulls are equal."""
    return " AND ".join(
        f"{left}.{quoted(name)} IS NOT DISTINCT FROM {right}.{quoted(name)}" for name in names
    )


def merge_found(
    table: Table,
    scope: NotingScope,
    read: Callable[[], pa.RecordBatchReader],
    merge: Callable[[object], MergeInto],
) -> CommitResult:
    """Merge the rows that `read` returns. `read` and `merge` are called in each attempt.

    Raises CommitConflict if other commits win every attempt.
    """
    for _ in range(_ATTEMPTS_MAX):
        rows = _Rows(read, table)
        try:
            return written(rows, merge(rows).execute)
        except LakecoreError:
            if rows.failure is None:
                raise
            if not isinstance(rows.failure, CommitConflict):
                raise rows.failure from rows.failure.__cause__
            if scope.gave_once:
                raise rows.failure from None
    raise CommitConflict(
        "the table changed in each attempt while the rows of the statement were found",
        table=table.identifier,
        attempts=_ATTEMPTS_MAX,
    )


class _Rows:
    """Rows of a query that runs when they are read. Raises CommitConflict if the table changed."""

    def __init__(self, read: Callable[[], pa.RecordBatchReader], table: Table) -> None:
        self._read = read
        self._table = table
        self._before = table.context.history.latest_snapshot_id()
        self._reader: pa.RecordBatchReader | None = None
        self.failure: LakecoreError | None = None
        """The error of the query. Readers of the stream raise another error in its place."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        try:
            self._reader = self._read()
            if self._table.context.history.latest_snapshot_id() != self._before:
                raise CommitConflict("the table changed while the rows of the statement were found")
        except LakecoreError as error:
            self.failure = error
            raise
        return self._reader.__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """Free the connection for other statements."""
        if self._reader is not None:
            self._reader.close()


# --- merge by query ------------------------------------------------------------------------------

_SOURCE, _PAIRS = "_lakecore_source", "_lakecore_pairs"
_ALONE, _NEW = "_lakecore_alone", "_lakecore_new"
"""Names of subqueries: the rows of the table in no pair, and the rows of the source in no pair."""
_ROW, _OF = "_lakecore_row", "_lakecore_of"
"""Columns: the number of a row of the source; in a pair, the number of its row of the source."""
_CLAUSE, _IS_OLD = "_lakecore_clause", "_lakecore_is_old"
"""Columns: the number of the chosen WHEN; whether a row of the result is a row of the table."""
_VALUE = "_lakecore_value_"


def merge_by_query(
    queries: Queries, table: Table, statement: Merge, parameters: Parameters, scope: Scope
) -> CommitResult:
    """Execute the statement in one commit.

    Raises CommitConflict if other commits win every attempt.
    """
    objects = NotingScope(scope)
    source = queries.relation(f"SELECT * FROM {statement.source}\nLIMIT 0", parameters, objects)
    schema = table.schema
    texts = Texts(
        statement=statement,
        schema=schema,
        options=table.options,
        types=dict(zip(schema.names, queries.types(schema.arrow), strict=True)),
        columns=dict(zip(source.columns, map(str, source.types), strict=True)),
    )
    query = _Query(
        table=table,
        rows=newest_rows(queries, table, statement.chain),
        texts=texts,
        on=texts.on(),
        steps=texts.steps(),
    )
    given: dict[tuple[int, Value], str] = {}
    for number, step in enumerate(query.steps):
        checked = [each for each in step.values if not each.star and query.depends_on_type(each)]
        if checked:
            found = queries.relation(query.values_of(step, checked), parameters, objects)
            columns = [schema.arrow.field(each.column) for each in checked]
            check_nested(found, pa.schema(columns))
            types = zip(checked, map(str, found.types), strict=True)
            given |= {(number, each): kind for each, kind in types if query.is_time(each)}
    text = query.text(given)
    return merge_found(
        table, objects, lambda: queries.reader(text, objects, parameters), query.merge
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Query:
    """The query for the rows that a MERGE INTO changes, and the merge of these rows.

    `rows` are those of the table, as the source of a query.
    """

    table: Table
    rows: str
    texts: Texts
    on: str
    steps: tuple[Step, ...]

    @property
    def _ids(self) -> tuple[str, ...]:
        """The columns that identify a row of the table."""
        schema = self.table.schema
        return schema.primary_keys or schema.names

    @property
    def _places(self) -> dict[Value, str]:
        """The columns of the result with the new values."""
        found = dict.fromkeys(value for step in self.steps for value in step.values)
        return {value: f"{_VALUE}{number}" for number, value in enumerate(found)}

    def depends_on_type(self, value: Value) -> bool:
        """Whether the type of a value decides how its column takes it: a nested one, or a time."""
        kind = self.table.schema.arrow.field(value.column).type
        return bool(pa.types.is_nested(kind)) or self.is_time(value)

    def is_time(self, value: Value) -> bool:
        """Whether the column of a value holds times of a number of digits."""
        kind = self.table.schema.arrow.field(value.column).type
        return bool(pa.types.is_timestamp(kind) or pa.types.is_time(kind))

    # --- the merge of the result ------------------------------------------------------------------

    def merge(self, rows: object) -> MergeInto:
        """The merge of the result into the table."""
        on: list[str] | str = list(self._ids)
        if not self.table.schema.primary_keys:
            on = f"source.{_IS_OLD} AND {equal_columns(self._ids, 'source', 'target')}"
        found = self.table.merge(rows, on)
        for number, step in enumerate(self.steps):
            chosen = pl.col(f"source.{_CLAUSE}") == number
            new = {each.column: pl.col(f"source.{self._places[each]}") for each in step.values}
            if step.action == "delete":
                found = found.when_matched_delete(chosen)
            elif step.action == "update":
                found = found.when_matched_update(new, chosen)
            else:
                found = found.when_not_matched_insert(new, chosen)
        return found

    # --- the query --------------------------------------------------------------------------------

    def text(self, given: Mapping[tuple[int, Value], str]) -> str:
        """The whole query. `given`: the types of the times that the clauses compute, by number.

        A row of its result identifies a row of the table, and has the number of the clause that
        applies to it and the new values.
        """
        parts = [f"{_SOURCE} AS MATERIALIZED (\n{self._numbered_source()})"]
        parts.append(f"{_PAIRS} AS MATERIALIZED (\n{self._pairs()})")
        if self._has("by_source"):
            parts.append(f"{_ALONE} AS MATERIALIZED (\n{self._alone()})")
        if self._has("not_matched"):
            parts.append(f"{_NEW} AS MATERIALIZED (\n{self._new()})")
        order = f"\nORDER BY {_ROW}" if self._has("not_matched") else ""
        results = "\nUNION ALL\n".join(self._results(given))
        return "WITH " + ",\n".join(parts) + f"\n{results}{order}"

    def values_of(self, step: Step, values: list[Value]) -> str:
        """A query without rows whose columns have the types of these values before their casts."""
        listed = ", ".join(f"({each.text}\n)" for each in values)
        rows = {
            "matched": f"{self._target()}, {_SOURCE} AS {self._s}",
            "not_matched": f"{_SOURCE} AS {self._s}",
            "by_source": self._target(),
        }
        source = f"SELECT * FROM {self.texts.statement.source}\n"
        return f"WITH {_SOURCE} AS ({source}) SELECT {listed} FROM {rows[step.match]} LIMIT 0"

    @property
    def _s(self) -> str:
        return quoted(self.texts.source)

    @property
    def _t(self) -> str:
        return quoted(self.texts.target)

    def _has(self, match: str) -> bool:
        return any(step.match == match for step in self.steps)

    def _target(self) -> str:
        return f"{self.rows} AS {self._t}"

    def _numbered_source(self) -> str:
        source = self.texts.statement.source
        return f"SELECT *, row_number() OVER () AS {_ROW} FROM {source}\n"

    def _carried(self) -> str:
        """The columns of the table that identify its rows, and those that expressions may name."""
        words = self.texts.words()
        kept = [n for n in self.table.schema.names if n in self._ids or n.lower() in words]
        return ", ".join(f"{self._t}.{quoted(name)} AS {quoted(name)}" for name in kept)

    def _pairs(self) -> str:
        return (
            f"SELECT {self._distinct}{self._carried()}, {self._s}.{_ROW} AS {_OF}, "
            f"{self._choice('matched')} FROM {self._target()}, {_SOURCE} AS {self._s} "
            f"WHERE ({self.on}\n)"
        )

    def _alone(self) -> str:
        same = equal_columns(self._ids, "_lakecore_pair", self._t)
        return (
            f"SELECT {self._distinct}{self._carried()}, {self._choice('by_source')} "
            f"FROM {self._target()} "
            f"WHERE NOT EXISTS (SELECT 1 FROM {_PAIRS} AS _lakecore_pair WHERE {same})"
        )

    def _new(self) -> str:
        return (
            f"SELECT {self._s}.*, {self._choice('not_matched')} FROM {_SOURCE} AS {self._s} "
            f"WHERE NOT EXISTS (SELECT 1 FROM {_PAIRS} AS _lakecore_pair "
            f"WHERE _lakecore_pair.{_OF} = {self._s}.{_ROW})"
        )

    @property
    def _distinct(self) -> str:
        return "" if self.table.schema.primary_keys else "DISTINCT "

    def _choice(self, match: str) -> str:
        """The number of the first clause whose condition is true; null if there is none."""
        whens = " ".join(
            f"WHEN ({step.condition or 'true'}\n) THEN {self._chosen(number, step)}"
            for number, step in enumerate(self.steps)
            if step.match == match
        )
        return f"{f'CASE {whens} END' if whens else 'NULL::INTEGER'} AS {_CLAUSE}"

    def _chosen(self, number: int, step: Step) -> str:
        """The number of a clause, as SQL. For `UPDATE SET *`, an error if the key would change."""
        keys = self.table.schema.primary_keys
        if step.action != "update" or not any(value.star for value in step.values) or not keys:
            return str(number)
        changed = " OR ".join(
            f"{self._s}.{quoted(name)} IS DISTINCT FROM {self._t}.{quoted(name)}" for name in keys
        )
        said = quoted_text(
            "a column of the primary key cannot be updated: merge on it, or name the columns to set"
        )
        return f"CASE WHEN {changed} THEN error({said}) ELSE {number} END"

    def _results(self, given: Mapping[tuple[int, Value], str]) -> Iterator[str]:
        s, t = self._s, self._t
        paired = f"{_PAIRS} AS {t} JOIN {_SOURCE} AS {s} ON {s}.{_ROW} = {t}.{_OF}"
        rows = {"matched": paired, "by_source": f"{_ALONE} AS {t}", "not_matched": f"{_NEW} AS {s}"}
        for number, step in enumerate(self.steps):
            side = s if step.match == "not_matched" else t
            times = {each: given[number, each] for each in step.values if (number, each) in given}
            chosen = f"{rows[step.match]} WHERE {side}.{_CLAUSE} = {number}"
            yield self._cut(times, self._result(step, number, chosen, times))
        if self._has("matched"):
            # Pairs that no clause applies to: a row of the table must not be in several pairs.
            yield self._result(None, None, f"{_PAIRS} AS {t} WHERE {t}.{_CLAUSE} IS NULL")

    def _cut(self, times: Mapping[Value, str], result: str) -> str:
        """The result of a clause, whose times are cut to the digits of their columns."""
        if not times:
            return result
        parts = (
            f"CAST({cut_to_precision(name, kind, self.table.schema.field(each.column).type)} "
            f"AS {each.type}) AS {name}"
            for each, kind in times.items()
            for name in [self._places[each]]
        )
        return f"SELECT * REPLACE ({', '.join(parts)}) FROM (\n{result})"

    def _result(
        self, step: Step | None, number: int | None, rows: str, times: Collection[Value] = ()
    ) -> str:
        """The SELECT for the rows of one clause. `rows` is its FROM and WHERE.

        The values of `times` keep the types of their expressions. If `step` is None, the rows are
        the pairs to which no clause applies.
        """
        own = {value: value.text for value in step.values} if step is not None else {}
        place = "CAST(NULL AS BIGINT)"
        if step is not None and step.match == "not_matched":
            types = self.texts.types
            ids = [f"CAST(NULL AS {types[name]})" for name in self._ids]
            place = f"{self._s}.{_ROW}"
            # A SELECT without columns would give one row for an aggregate in a query of its values.
            is_old = f"{self._s}.{quoted(next(iter(self.texts.columns)))} IS NULL AND false"
        else:
            ids = [f"{self._t}.{quoted(name)}" for name in self._ids]
            is_old = "true"
        listed = [f"{id_} AS {quoted(name)}" for id_, name in zip(ids, self._ids, strict=True)]
        listed += [f"{is_old} AS {_IS_OLD}", f"{place} AS {_ROW}"]
        listed.append(f"CAST({'NULL' if number is None else number} AS INTEGER) AS {_CLAUSE}")
        for value, name in self._places.items():
            text = f"({own[value]}\n)" if value in own else "NULL"
            kept = f"CAST({text} AS {value.type})" if value not in times else text
            listed.append(f"{kept} AS {name}")
        return f"SELECT {', '.join(listed)} FROM {rows}"


# --- run by query --------------------------------------------------------------------------------
# Runs an UPDATE or DELETE with a subquery in its condition or values as a MERGE.
#
# 1. DuckDB finds the rows for which the condition is true. The query returns their primary key
#    (without one, all columns) and their new values.
# 2. A MERGE with these rows as its source updates or deletes them. Without a key, the source has
#    one
#    row for all equal rows: the condition is true for all of them or for none.
#
# The rows are found at the snapshot that the merge changes.

_NEW_VALUE = "_lakecore_new_"


def holds_query(statement: Update | Delete) -> bool:
    """Whether an expression of the statement holds a query in parentheses."""
    texts = [statement.where or ""]
    if isinstance(statement, Update):
        texts += statement.values.values()
    return any(map(has_query, texts))


def change_by_query(
    queries: Queries, table: Table, statement: Update | Delete, scope: Scope
) -> CommitResult:
    """Execute the statement in one commit.

    Raises CommitConflict if other commits win every attempt.
    """
    schema = table.schema
    values = assigned(statement.values, schema) if isinstance(statement, Update) else {}
    keys = schema.primary_keys or schema.names
    _check_nested(queries, table, statement, values, scope)
    text = _query(queries, table, statement, values)
    on: list[str] | str = list(keys)
    if not schema.primary_keys:
        on = equal_columns(keys, "source", "target")
    objects = NotingScope(scope)

    def merge(rows: object) -> MergeInto:
        found = table.merge(rows, on)
        if not values:
            return found.when_matched_delete()
        new = {name: pl.col(f"source.{_NEW_VALUE}{place}") for place, name in enumerate(values)}
        return found.when_matched_update(new)

    types = queries.types(pa.schema([schema.arrow.field(name) for name in values]))

    def cast(found: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
        """The rows of the query, with the new values as their columns store them."""
        parts = [f"#{place} AS {quoted(name)}" for place, name in enumerate(keys, 1)]
        for place, (name, kind) in enumerate(zip(values, types, strict=True)):
            at = len(keys) + place
            stored = schema.field(name).type
            value = cut_to_precision(f"#{at + 1}", str(found.types[at]), stored)
            parts.append(f"CAST({value} AS {kind}) AS {_NEW_VALUE}{place}")
        rows = found.project(", ".join(parts))
        return rows if schema.primary_keys else rows.distinct()

    return merge_found(table, objects, lambda: queries.reader(text, objects, None, cast), merge)


def _check_nested(
    queries: Queries,
    table: Table,
    statement: Update | Delete,
    values: Mapping[str, str],
    scope: Scope,
) -> None:
    arrow = table.schema.arrow
    nested = {
        name: text for name, text in values.items() if pa.types.is_nested(arrow.field(name).type)
    }
    if nested:
        query = _query(queries, table, statement, nested)
        found = queries.relation(query, None, scope).limit(0)
        news = found.columns[-len(nested) :]
        check_nested(found.select(*news), pa.schema([arrow.field(name) for name in nested]))


def _query(
    queries: Queries, table: Table, statement: Update | Delete, values: Mapping[str, str]
) -> str:
    """The query for the rows that the statement changes."""
    schema = table.schema
    names = [quoted(name) for name in schema.primary_keys or schema.names]
    qualifier = quoted(statement.alias or statement.chain[-1])
    columns = [f"{qualifier}.{name} AS {name}" for name in names]
    columns += [f"({text}\n) AS {_NEW_VALUE}{place}" for place, text in enumerate(values.values())]
    alias = "" if statement.alias is None else f" AS {qualifier}"
    where = "" if statement.where is None else f" WHERE ({statement.where}\n)"
    source = f"{newest_rows(queries, table, statement.chain)}{alias}{where}"
    return f"SELECT {', '.join(columns)} FROM {source}"
