"""Procedures that change rows, columns and views."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lakecore.catalog.views import DIALECT, AddDialect, DropDialect, UpdateDialect
from lakecore.errors import InvalidRequest
from lakecore.model.schema_change import SchemaChange
from lakecore.sql.cursor import Cursor
from lakecore.sql.parse_rows import set_values
from lakecore.sql.procedures.procedure import chain_of, procedure
from lakecore.sql.run_rows import RowStatements
from lakecore.sql.statements import AlterView, Merge, MergeClause
from lakecore.sql.stored_views import alter_view
from lakecore.sql.tokens import quoted, split

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.catalog.views import ViewChange
    from lakecore.sql.procedures.procedure import Call
    from lakecore.table.handle import Table


@procedure(target_alias="the name of the table")
def merge_into(  # noqa: PLR0913  the arguments of the procedure
    call: Call,
    target_table: str,
    *,
    target_alias: str | None,
    source_sqls: str | None,
    source_table: str,
    merge_condition: str,
    matched_upsert_condition: str | None,
    matched_upsert_setting: str | None,
    not_matched_insert_condition: str | None,
    not_matched_insert_values: str | None,
    matched_delete_condition: str | None,
    not_matched_by_source_upsert_condition: str | None,
    not_matched_by_source_upsert_setting: str | None,
    not_matched_by_source_delete_condition: str | None,
) -> None:
    """MERGE INTO by arguments.

    Run MERGE INTO with the arguments of the Flink action.

    `*` means all columns: by name if both tables have the same names, otherwise by position.
    """
    target = chain_of(target_table)
    alias = target_alias or target[-1]
    for statement in split(source_sqls or ""):
        # The statements that prepare the source make temporary views and tables.
        call.run(statement)
    source = chain_of(source_table)
    table = call.open(target_table)
    names = {alias, target[-1]}
    whole = partial(_all_columns, call, table, source, alias)

    def updates(match: str, setting: str | None, condition: str | None) -> list[MergeClause]:
        if setting is None:
            return []
        values = whole() if setting.strip() == "*" else set_values(Cursor(setting), names)
        if values is not None and setting.strip() == "*":  # the keys of matched rows are equal
            keys = table.schema.primary_keys
            values = {path: text for path, text in values.items() if path[0] not in keys}
        return [MergeClause(match=match, action="update", condition=condition, values=values)]

    def deletes(match: str, condition: str | None) -> list[MergeClause]:
        if condition is None:
            return []
        return [MergeClause(match=match, action="delete", condition=condition)]

    clauses = [
        *updates("matched", matched_upsert_setting, matched_upsert_condition),
        *deletes("matched", matched_delete_condition),
        *_inserts(table, not_matched_insert_values, not_matched_insert_condition, whole),
        *updates(
            "by_source",
            not_matched_by_source_upsert_setting,
            not_matched_by_source_upsert_condition,
        ),
        *deletes("by_source", not_matched_by_source_delete_condition),
    ]
    if not clauses:
        raise InvalidRequest("merge_into needs at least one setting or condition")
    merge = Merge(
        chain=target,
        alias=alias,
        source=".".join(map(quoted, source)),
        source_chain=source,
        source_alias=None,
        on=merge_condition,
        clauses=tuple(clauses),
    )
    rows = RowStatements(call.workspace, call.queries)
    rows.merge(merge, None, lambda _name: None)


def _all_columns(
    call: Call, table: Table, source: tuple[str, ...], alias: str
) -> dict[tuple[str, ...], str] | None:
    """The values that `*` stands for; None if a column gets the value of its namesake."""
    columns = table.schema.names
    given = call.queries.relation(f"FROM {'.'.join(map(quoted, source))}").columns
    if {name.lower() for name in given} == {name.lower() for name in columns}:
        return None
    if len(given) != len(columns):
        raise InvalidRequest(
            "`*` takes as many columns as the table has", source=given, columns=columns
        )
    side = "source" if source[-1].lower() == alias.lower() else quoted(source[-1])
    values = (f"{side}.{quoted(name)}" for name in given)
    return dict(zip(((name,) for name in columns), values, strict=True))


def _inserts(
    table: Table,
    given: str | None,
    condition: str | None,
    whole: Callable[[], dict[tuple[str, ...], str] | None],
) -> list[MergeClause]:
    if given is None:
        return []
    values: dict[tuple[str, ...], str] | None
    if given.strip() == "*":
        values = whole()
    else:
        columns = table.schema.arrow.names
        cursor = Cursor(f"({given})")
        texts = cursor.listed(lambda: cursor.until(symbols=","))
        if len(texts) != len(columns):
            raise InvalidRequest(
                "not_matched_insert_values gives each column one value",
                columns=columns,
                values=len(texts),
            )
        values = dict(zip(((name,) for name in columns), texts, strict=True))
    return [MergeClause(match="not_matched", action="insert", condition=condition, values=values)]


@procedure()
def drop_partition(call: Call, table: Table, partitions: str) -> None:
    """Remove the rows of partitions."""
    table.drop_partition(*(call.partitions(table, partitions) or ()))


@procedure()
def alter_column_default_value(call: Call, table: str, column: str, default_value: str) -> None:
    """State the value of a column that a row does not give."""
    catalog, identifier = call.workspace.identifier(chain_of(table))
    change = SchemaChange.update_column_default_value(column, default_value)
    catalog.alter_table(identifier, [change])


@procedure(engine=DIALECT)
def alter_view_dialect(
    call: Call, view: str, action: str, engine: str | None, query: str | None
) -> None:
    """Add, update or drop the query of a stored view for one engine."""
    dialect = (engine or "").strip() or DIALECT
    text = (query or "").strip()
    change: ViewChange
    match action:
        case "add" | "update":
            if not text:
                raise InvalidRequest("this action needs a query", action=action)
            change = (AddDialect if action == "add" else UpdateDialect)(dialect, text)
        case "drop":
            change = DropDialect(dialect)
        case _:
            raise InvalidRequest("an action is add, update or drop", action=action)
    chain = chain_of(view)
    alter_view(call.workspace, AlterView(chain=chain, changes=(change,)), None)
