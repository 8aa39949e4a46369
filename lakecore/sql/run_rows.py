"""INSERT, UPDATE, DELETE, MERGE and CREATE TABLE AS, executed by the verbs of tables.

Rows of a query stream from DuckDB into the write, in the types of the table's columns. Values are
cast as in an INSERT of DuckDB. A statement that fails does not change the table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.catalog.new_table import SchemaLike, new_schema
from lakecore.errors import CommitConflict, InvalidRequest, Unsupported
from lakecore.model.schema import TableSchema, number_fields
from lakecore.model.types import Field, Variant
from lakecore.scalar.values import cut_to_precision, sql_expr, storable_times
from lakecore.sql import merge_texts
from lakecore.sql import statements as s
from lakecore.sql.merge_by_query import change_by_query, holds_query, merge_by_query
from lakecore.sql.merge_texts import assigned, check_nested, column_of, renamed
from lakecore.sql.queries import reader_of
from lakecore.sql.query_errors import written
from lakecore.sql.tokens import quoted, quoted_text
from lakecore.table.publication import ExclusiveCreate, SchemaProposal
from lakecore.table.writes.batch_write import columns_of_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb

    from lakecore.model.snapshot import CommitResult
    from lakecore.sql.python_objects import Scope
    from lakecore.sql.queries import Parameters, Queries
    from lakecore.sql.workspace import Workspace
    from lakecore.table.handle import Table


# --- replace table -------------------------------------------------------------------------------
# REPLACE TABLE: an existing table gets another schema and no rows, and keeps its snapshots.
#
# 1. Check the new schema by the rules of creation, before anything changes.
# 2. TRUNCATE in one commit.
# 3. Publish the new schema as the next one.
#
# As in Paimon, this is not atomic: after a failure between 2 and 3, the table is empty and has its
# old schema. Time travel reads old snapshots with the schema of their time. A column that keeps
# name and type keeps its id; all others get new ids, so that no old value appears in a new column
# (https://paimon.apache.org/docs/master/spark/sql-ddl/#replace-table).


def replace_table(
    table: Table,
    columns: SchemaLike,
    *,
    primary_keys: Sequence[str],
    partition_keys: Sequence[str],
    options: Mapping[str, str],
    comment: str | None,
) -> None:
    """Replace the schema of a table and remove its rows.

    Raises Unsupported if the partition keys change, as in Paimon.
    """
    context = table.context
    if not isinstance(context.publication, ExclusiveCreate):
        raise Unsupported("a table of this catalog cannot be replaced", table=table.identifier)
    wanted = new_schema(
        columns,
        primary_keys=primary_keys,
        partition_keys=partition_keys,
        options=options,
        comment=comment,
        now_ms=context.ambient.now_ms(),
        table=table.identifier,
    )
    if wanted.partition_keys != context.schema.partition_keys:
        raise Unsupported(
            "the partition keys of a table cannot be replaced; drop the table and create it",
            table=table.identifier,
            before=context.schema.partition_keys,
            after=wanted.partition_keys,
        )
    table.truncate()
    emptied = context.history.latest_snapshot_id()
    latest = context.history.latest_schema()
    if latest is None or latest.id != context.schema.id:
        raise CommitConflict(
            "another process changed the schema; the table is empty and has that schema",
            table=table.identifier,
        )
    proposal = SchemaProposal(schema=_next(context.schema, wanted), changes=())
    if context.history.latest_snapshot_id() != emptied or not context.publication.publish_schema(
        context.store, context.layout, proposal
    ):
        raise CommitConflict(
            "another process wrote to the table while it was replaced; it has its old schema",
            table=table.identifier,
        )


def _next(old: TableSchema, wanted: TableSchema) -> TableSchema:
    """The wanted schema as the next one after `old`; new columns get ids that were never used."""
    known = {(field.name, str(field.type)): field for field in old.fields}
    new = [field for field in wanted.fields if (field.name, str(field.type)) not in known]
    numbered, next_id = number_fields(new, old.highest_field_id + 1)
    fresh = {field.name: field for field in numbered}

    def with_id(field: Field) -> Field:
        kept = known.get((field.name, str(field.type)))
        if kept is None:
            return fresh[field.name]
        return replace(field, id=kept.id, type=kept.type)

    return replace(
        wanted,
        id=old.id + 1,
        fields=tuple(map(with_id, wanted.fields)),
        highest_field_id=next_id - 1,
    )


# --- run rows ------------------------------------------------------------------------------------

_TEXTS = ("VARCHAR", "JSON")
"""The DuckDB types whose values are read as JSON text for a VARIANT column."""


class RowStatements:
    """The statements that write rows, on one session."""

    def __init__(self, workspace: Workspace, queries: Queries) -> None:
        self._workspace = workspace
        self._queries = queries

    def run(self, statement: s.RowStatement, parameters: Parameters, scope: Scope) -> CommitResult:
        """Execute a statement."""
        match statement:
            case s.Insert():
                return self.insert(statement, parameters, scope)
            case s.Update():
                return self.update(statement, scope)
            case s.Delete():
                return self.delete(statement, scope)
            case s.Merge():
                return self.merge(statement, parameters, scope)
            case s.Truncate():
                return self._workspace.table(statement.chain).truncate()

    def insert(self, statement: s.Insert, parameters: Parameters, scope: Scope) -> CommitResult:
        """INSERT INTO and INSERT OVERWRITE."""
        table = self._workspace.table(statement.chain, statement.options)
        relation = self._queries.relation(statement.query, parameters, scope)
        rows, fixed = self.rows_for(table, statement, relation)
        if not statement.overwrite:
            return written(rows, lambda: table.write(rows))
        return written(rows, lambda: table.overwrite(rows, fixed or None))

    def rows_for(
        self, table: Table, statement: s.Insert, relation: duckdb.DuckDBPyRelation
    ) -> tuple[pa.RecordBatchReader, dict[str, object]]:
        """The rows of a query in the types of the table's columns, and the values of PARTITION."""
        given = statement.partition or {}
        constants = {key: value for key, value in given.items() if value is not None}
        schema = table.schema
        names = names_of_insert(statement, schema, relation.columns)
        # The reader occupies the connection, so run all other queries first.
        fixed = partition_values(self._queries, schema, constants)
        return self._fitted(relation, schema, names, constants), fixed

    def _fitted(
        self,
        relation: duckdb.DuckDBPyRelation,
        schema: TableSchema,
        names: Sequence[str],
        constants: Mapping[str, str],
    ) -> pa.RecordBatchReader:
        arrow = schema.arrow
        target = pa.schema([arrow.field(name) for name in [*names, *constants]])
        check_nested(relation, target)
        types = self._queries.types(target)
        parts = []
        for at, (name, given) in enumerate(zip(names, relation.types, strict=True)):
            kind, value = schema.field(name).type, f"#{at + 1}"
            if isinstance(kind, Variant) and str(given) in _TEXTS:
                types[at] = "VARCHAR"
            parts.append(f"CAST({cut_to_precision(value, str(given), kind)} AS {types[at]})")
        parts += [
            f"CAST({quoted_text(value)} AS {kind})"
            for value, kind in zip(constants.values(), types[len(names) :], strict=True)
        ]
        listed = (
            f"{part} AS {quoted(name)}" for part, name in zip(parts, target.names, strict=True)
        )
        return reader_of(lambda: relation.project(", ".join(listed)))

    def create_as(self, statement: s.CreateTable, parameters: Parameters, scope: Scope) -> Table:
        """CREATE TABLE ... AS. If it fails, no new table exists."""
        assert statement.query is not None, "the caller checks"
        if statement.columns:
            raise Unsupported("CREATE TABLE ... AS has the columns of the query; name none")
        self._workspace.make_default_database(statement.chain)
        catalog, identifier = self._workspace.identifier(statement.chain)
        if statement.if_not_exists and catalog.table_exists(identifier):
            return catalog.get_table(identifier)
        relation = self._queries.relation(statement.query, parameters, scope)
        rows = reader_of(lambda: storable_times(relation))
        before = self._workspace.replaced(statement)
        if before is not None:
            return written(rows, lambda: self._replace_as(statement, before, rows))
        return written(
            rows,
            lambda: catalog.create_table(
                identifier,
                data=rows,
                primary_keys=statement.primary_keys,
                partition_keys=statement.partition_keys,
                options=statement.options,
                comment=statement.comment,
            ),
        )

    def _replace_as(
        self, statement: s.CreateTable, before: Table, rows: pa.RecordBatchReader
    ) -> Table:
        catalog, _ = self._workspace.identifier(statement.chain)
        columns, data = columns_of_rows(rows)
        replace_table(
            before,
            columns,
            primary_keys=statement.primary_keys,
            partition_keys=statement.partition_keys,
            options={**catalog.names.table_defaults, **statement.options},
            comment=statement.comment,
        )
        table = before.refresh()
        table.write(data)
        return table

    def update(self, statement: s.Update, scope: Scope) -> CommitResult:
        """UPDATE: DuckDB evaluates the expressions for each row."""
        table = self._workspace.table(statement.chain)
        if holds_query(statement):
            return change_by_query(self._queries, table, statement, scope)
        columns = table.schema.arrow.names
        names = {statement.alias or statement.chain[-1]: "", _dotted(statement.chain): ""}
        texts = {path: renamed(text, names, columns) for path, text in statement.values.items()}
        values = {name: sql_expr(text) for name, text in assigned(texts, table.schema).items()}
        where = None if statement.where is None else renamed(statement.where, names, columns)
        return table.update(values, where)

    def delete(self, statement: s.Delete, scope: Scope) -> CommitResult:
        """DELETE."""
        table = self._workspace.table(statement.chain)
        if holds_query(statement):
            return change_by_query(self._queries, table, statement, scope)
        names = {statement.alias or statement.chain[-1]: "", _dotted(statement.chain): ""}
        columns = table.schema.arrow.names
        where = "true" if statement.where is None else renamed(statement.where, names, columns)
        return table.delete(where)

    def merge(self, statement: s.Merge, parameters: Parameters, scope: Scope) -> CommitResult:
        """MERGE INTO."""
        table = self._workspace.table(statement.chain)
        statement = merge_texts.with_named_values(statement, table.schema.names)
        if merge_texts.holds_query(statement):
            return merge_by_query(self._queries, table, statement, parameters, scope)
        source = self._queries.relation(f"FROM {statement.source}", parameters, scope)
        rows = reader_of(lambda: source)
        return written(rows, lambda: merge_into(statement, table, rows))


def names_of_insert(statement: s.Insert, schema: TableSchema, given: Sequence[str]) -> list[str]:
    """For each column of the query, the column of the table that it is stored in.

    Raises InvalidRequest for columns and partition keys that do not fit.
    """
    stated = statement.partition or {}
    for key in stated:
        if key not in schema.partition_keys:
            raise InvalidRequest(
                "PARTITION names a column that is not a partition key",
                column=key,
                partition_keys=schema.partition_keys,
            )
    columns = schema.arrow.names
    if statement.by_name:
        names = list(given)
    elif statement.columns is not None:
        names = list(statement.columns)
    else:
        names = [name for name in columns if stated.get(name) is None]
        # In Spark, keys of PARTITION (a, b) without a value are the last columns of the rows.
        last = [key for key, value in stated.items() if value is None]
        names = [name for name in names if name not in last] + last
    names = [column_of(name, columns) for name in names]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InvalidRequest("a column occurs twice", columns=sorted(twice))
    if len(names) != len(given):
        raise InvalidRequest(
            "the query has another number of columns than the table takes",
            query=len(given),
            table=len(names),
            columns=names,
        )
    return names


def merge_into(statement: s.Merge, table: Table, rows: object) -> CommitResult:
    """Carry out a MERGE INTO with the rows of its source.

    Raises Unsupported for queries in conditions and values.
    """
    if merge_texts.holds_query(statement):
        raise Unsupported(
            "another engine merges without queries in conditions and values; put them into the "
            "query after USING"
        )
    statement = merge_texts.with_named_values(statement, table.schema.names)
    names = merge_texts.side_names(statement, "target", "source")
    builder = table.merge(rows, renamed(statement.on, names))
    for clause in statement.clauses:
        condition = None if clause.condition is None else renamed(clause.condition, names)
        values = None
        if clause.values is not None:
            texts = {path: renamed(text, names) for path, text in clause.values.items()}
            set_to = assigned(texts, table.schema, "target.")
            values = {name: sql_expr(text) for name, text in set_to.items()}
        match clause.match, clause.action:
            case "matched", "delete":
                builder = builder.when_matched_delete(condition)
            case "by_source", "delete":
                builder = builder.when_not_matched_by_source_delete(condition)
            case "by_source", _:
                builder = builder.when_not_matched_by_source_update(values or {}, condition)
            case "matched", _ if values is None:
                builder = builder.when_matched_update_all(condition)
            case "matched", _:
                builder = builder.when_matched_update(values or {}, condition)
            case _ if values is None:
                builder = builder.when_not_matched_insert_all(condition)
            case _:
                builder = builder.when_not_matched_insert(values or {}, condition)
    return builder.execute()


def partition_values(
    queries: Queries, schema: TableSchema, stated: Mapping[str, str | None]
) -> dict[str, object]:
    """The values of a partition in the types of its keys. Raises InvalidRequest if one is wrong."""
    for key in stated:
        if key not in schema.partition_keys:
            raise InvalidRequest(
                "this is not a partition key", column=key, partition_keys=schema.partition_keys
            )
    if not stated:
        return {}
    types = queries.types(pa.schema([schema.arrow.field(key) for key in stated]))
    texts = [
        "NULL" if value is None else f"CAST({quoted_text(value)} AS {kind})"
        for value, kind in zip(stated.values(), types, strict=True)
    ]
    return dict(zip(stated, queries.values(texts), strict=True))


def _dotted(chain: Sequence[str]) -> str:
    return ".".join(chain)
