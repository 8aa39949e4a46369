"""Procedures that change rows: merge_into, drop_partition."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.model.schema_change import SchemaChange
from lakecore.sql.cursor import Cursor
from lakecore.sql.parse_rows import set_values
from lakecore.sql.procedures.procedure import (
    Call,
    Procedure,
    chain_of,
    partitions_of,
    text,
)
from lakecore.sql.run_rows import RowStatements, partition_values
from lakecore.sql.statements import Merge, MergeClause
from lakecore.sql.tokens import quoted, split

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PROCEDURES"]

_DONE: list[tuple[object, ...]] = [("Success",)]


def _merge_into(call: Call) -> list[tuple[object, ...]]:
    """Run MERGE INTO with the arguments of the Flink action.

    `*` means all columns: by name if both tables have the same names, otherwise by position.
    """
    target = chain_of(call.text("target_table") or "")
    alias = call.text("target_alias") or target[-1]
    for statement in split(call.text("source_sqls") or ""):
        # The statements that prepare the source make temporary views and tables.
        call.run(statement)
    source = chain_of(call.text("source_table") or "")
    names = {alias, target[-1]}
    whole = partial(_all_columns, call, source, alias)
    clauses = [
        *_updates(call, "matched", "matched_upsert", names, whole),
        *_deletes(call, "matched", "matched_delete_condition"),
        *_inserts(call, whole),
        *_updates(call, "by_source", "not_matched_by_source_upsert", names, whole),
        *_deletes(call, "by_source", "not_matched_by_source_delete_condition"),
    ]
    if not clauses:
        raise InvalidRequest("merge_into needs at least one setting or condition")
    merge = Merge(
        chain=target,
        alias=alias,
        source=".".join(map(quoted, source)),
        source_chain=source,
        source_alias=None,
        on=call.text("merge_condition") or "",
        clauses=tuple(clauses),
    )
    rows = RowStatements(call.workspace, call.queries)
    rows.merge(merge, None, lambda _name: None)
    return _DONE


def _all_columns(
    call: Call, source: tuple[str, ...], alias: str
) -> dict[tuple[str, ...], str] | None:
    """The values that `*` stands for; None if a column gets the value of its namesake."""
    columns = call.table("target_table").schema.names
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


def _updates(
    call: Call,
    match: str,
    prefix: str,
    names: set[str],
    whole: Callable[[], dict[tuple[str, ...], str] | None],
) -> list[MergeClause]:
    setting = call.text(f"{prefix}_setting")
    if setting is None:
        return []
    values = whole() if setting.strip() == "*" else set_values(Cursor(setting), names)
    if values is not None and setting.strip() == "*":  # the keys of matched rows are equal
        keys = call.table("target_table").schema.primary_keys
        values = {path: text for path, text in values.items() if path[0] not in keys}
    condition = call.text(f"{prefix}_condition")
    return [MergeClause(match=match, action="update", condition=condition, values=values)]


def _deletes(call: Call, match: str, name: str) -> list[MergeClause]:
    condition = call.text(name)
    if condition is None:
        return []
    return [MergeClause(match=match, action="delete", condition=condition)]


def _inserts(
    call: Call, whole: Callable[[], dict[tuple[str, ...], str] | None]
) -> list[MergeClause]:
    given = call.text("not_matched_insert_values")
    if given is None:
        return []
    values: dict[tuple[str, ...], str] | None
    if given.strip() == "*":
        values = whole()
    else:
        columns = call.table("target_table").schema.arrow.names
        cursor = Cursor(f"({given})")
        texts = cursor.listed(lambda: cursor.until(symbols=","))
        if len(texts) != len(columns):
            raise InvalidRequest(
                "not_matched_insert_values gives each column one value",
                columns=columns,
                values=len(texts),
            )
        values = dict(zip(((name,) for name in columns), texts, strict=True))
    condition = call.text("not_matched_insert_condition")
    return [MergeClause(match="not_matched", action="insert", condition=condition, values=values)]


def _drop_partition(call: Call) -> list[tuple[object, ...]]:
    table = call.table()
    wanted = partitions_of(call.text("partitions")) or []
    table.drop_partition(*(partition_values(call.queries, table.schema, each) for each in wanted))
    return _DONE


def _alter_column_default_value(call: Call) -> list[tuple[object, ...]]:
    catalog, identifier = call.workspace.identifier(chain_of(call.text("table") or ""))
    change = SchemaChange.update_column_default_value(
        call.text("column") or "", call.text("default_value")
    )
    catalog.alter_table(identifier, [change])
    return _DONE


PROCEDURES = (
    Procedure(
        name="alter_column_default_value",
        arguments=(
            text("table", required=True),
            text("column", required=True),
            text("default_value", required=True),
        ),
        run=_alter_column_default_value,
        about="state the value of a column that a row does not give",
    ),
    Procedure(
        name="merge_into",
        arguments=(
            text("target_table", required=True),
            text("target_alias", "the name of the table"),
            text("source_sqls"),
            text("source_table", required=True),
            text("merge_condition", required=True),
            text("matched_upsert_condition"),
            text("matched_upsert_setting"),
            text("not_matched_insert_condition"),
            text("not_matched_insert_values"),
            text("matched_delete_condition"),
            text("not_matched_by_source_upsert_condition"),
            text("not_matched_by_source_upsert_setting"),
            text("not_matched_by_source_delete_condition"),
        ),
        run=_merge_into,
        about="MERGE INTO by arguments",
    ),
    Procedure(
        name="drop_partition",
        arguments=(text("table", required=True), text("partitions", required=True)),
        run=_drop_partition,
        about="remove the rows of partitions",
    ),
)
