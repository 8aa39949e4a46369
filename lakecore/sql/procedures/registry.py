"""All procedures, and how a CALL finds and runs one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, NotFound, Unsupported, did_you_mean
from lakecore.sql.procedures import declared
from lakecore.sql.procedures.procedure import Call, Procedure
from lakecore.sql.run_show import Rows, is_like

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.sql import statements as s
    from lakecore.sql.queries import Queries
    from lakecore.sql.workspace import Workspace

_SYSTEM = "sys"
_HELP = "help"
_HIVE = "it changes tables of Hive into tables of Paimon; lakecore reads no tables of Hive"
_FUNCTIONS = "lakecore lists functions of REST catalogs, and neither changes nor runs them"
_GLOBAL_INDEX = "lakecore reads global indexes of other engines, and makes and searches none"
_PRIVILEGES = "lakecore has no users; the storage decides who may read and write"
UNSUPPORTED = {
    "alter_function": _FUNCTIONS,
    "clone": "copy the rows: CREATE TABLE t AS SELECT * FROM s",
    "compact_chain_table": "lakecore has no chain tables",
    "copy": "copy the rows: CREATE TABLE t AS SELECT * FROM s",
    "copy_files": "copy the rows: CREATE TABLE t AS SELECT * FROM s",
    "create_function": _FUNCTIONS,
    "create_global_index": _GLOBAL_INDEX,
    "create_privileged_user": _PRIVILEGES,
    "data_evolution_merge_into": "use the statement MERGE INTO",
    "drop_function": _FUNCTIONS,
    "drop_global_index": _GLOBAL_INDEX,
    "drop_privileged_user": _PRIVILEGES,
    "full_text_search": _GLOBAL_INDEX,
    "grant_privilege_to_user": _PRIVILEGES,
    "init_file_based_privilege": _PRIVILEGES,
    "materialize_deletion_vectors": "compact the table in full: CALL sys.compact('t')",
    "merge_branch": "lakecore moves a branch by fast_forward, and does not merge two",
    "migrate_database": _HIVE,
    "migrate_file": _HIVE,
    "migrate_table": _HIVE,
    "query_service": "it starts servers of Flink",
    "reassign_row_id": "a row of lakecore keeps its id",
    "remove_unexisting_manifests": (
        "the rows of a lost manifest cannot be told; go back to a tag or a snapshot: rollback_to"
    ),
    "revoke_privilege_from_user": _PRIVILEGES,
    "rollback_to_as_latest": (
        "it adds files again that a later expiry may delete; write the rows again: "
        "INSERT OVERWRITE t SELECT * FROM t VERSION AS OF 1"
    ),
    "vector_search": _GLOBAL_INDEX,
}
"""Procedures of Paimon that lakecore does not have, with the reason."""

PROCEDURES: dict[str, Procedure] = {
    each.name: each for each in vars(declared).values() if isinstance(each, Procedure)
}


def call(
    workspace: Workspace, queries: Queries, statement: s.Call, run: Callable[[str], object]
) -> Rows:
    """The result rows of a CALL. `run` runs another statement in the same session."""
    *catalog, schema, name = ("", *statement.procedure.split("."))[-3:]
    name = name.lower()
    if schema not in {"", _SYSTEM}:
        raise NotFound("procedures are in `sys`", procedure=statement.procedure)
    if name == _HELP:
        if statement.named or len(statement.positional) > 1:
            raise InvalidRequest("sys.help takes one argument: a part of the names to list")
        return listed(*map(str, queries.values(statement.positional)))
    procedure = PROCEDURES.get(name)
    if procedure is None:
        if name in UNSUPPORTED:
            raise Unsupported(
                "this procedure is not supported", procedure=name, reason=UNSUPPORTED[name]
            )
        raise NotFound(
            "no procedure of that name; CALL sys.help() lists them",
            procedure=name,
            **did_you_mean(name, PROCEDURES),
        )
    values = queries.values([*statement.positional, *statement.named.values()])
    positional = values[: len(statement.positional)]
    named = dict(zip(statement.named, values[len(positional) :], strict=True))
    given = procedure.read(positional, named)
    before = workspace.catalog_name
    if catalog and catalog[0]:
        workspace.catalog_of(catalog[0])
        workspace.catalog_name = catalog[0]
    try:
        rows = procedure.run(Call(workspace=workspace, queries=queries, values=given, run=run))
    finally:
        workspace.catalog_name = before
    return procedure.columns, rows


def listed(text: str = "", like: str | None = None) -> Rows:
    """The procedures whose names contain a text and match a pattern, with their arguments.

    Raises NotFound, with the nearest name, if there is none.
    """
    rows: list[tuple[object, ...]] = [
        (name, each.usage, each.about)
        for name, each in sorted(PROCEDURES.items())
        if text.lower() in name
    ]
    if not rows:
        raise NotFound("no procedure has such a name", name=text, **did_you_mean(text, PROCEDURES))
    if like is not None:
        rows = [row for row in rows if is_like(str(row[0]), like)]
    return ("procedure", "usage", "about"), rows
