"""All procedures, and how a CALL finds and runs one."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from lakecore.errors import NotFound, Unsupported
from lakecore.sql.procedures import changing, compacting, repairing, retaining, tagging
from lakecore.sql.procedures.procedure import Call

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.sql import statements as s
    from lakecore.sql.procedures.procedure import Procedure
    from lakecore.sql.queries import Queries
    from lakecore.sql.run_show import Rows
    from lakecore.sql.workspace import Workspace

__all__ = ["PROCEDURES", "call", "listed"]

_SYSTEM = "sys"
_HELP = "help"
_UNSUPPORTED = {
    "migrate_table": "it moves tables of a Hive metastore",
    "migrate_database": "it moves tables of a Hive metastore",
    "migrate_file": "it moves tables of a Hive metastore",
    "clone": "copy the rows: CREATE TABLE ... AS",
    "query_service": "it starts servers of Flink",
    "create_function": "lakecore keeps no functions",
    "alter_function": "lakecore keeps no functions",
    "drop_function": "lakecore keeps no functions",
    "alter_view_dialect": "lakecore keeps no views",
} | dict.fromkeys(
    (
        "compact_chain_table",
        "compact_manifest",
        "copy",
        "copy_files",
        "create_global_index",
        "drop_global_index",
        "full_text_search",
        "materialize_deletion_vectors",
        "merge_branch",
        "reassign_row_id",
        "remove_unexisting_files",
        "remove_unexisting_manifests",
        "repair_earliest_snapshot",
        "rescale",
        "rollback_to_as_latest",
        "trigger_tag_automatic_creation",
        "vector_search",
    ),
    "lakecore does not have it",
)
"""Procedures of Paimon that lakecore does not have, with the reason."""

PROCEDURES: dict[str, Procedure] = {
    each.name: each
    for module in (changing, compacting, repairing, retaining, tagging)
    for each in module.PROCEDURES
}


def call(
    workspace: Workspace,
    queries: Queries,
    statement: s.Call,
    run: Callable[[str], object],
) -> Rows:
    """The result rows of a CALL. `run` runs another statement in the same session."""
    *catalog, schema, name = ("", *statement.procedure.split("."))[-3:]
    name = name.lower()
    if schema not in {"", _SYSTEM}:
        raise NotFound("procedures are in `sys`", procedure=statement.procedure)
    if name == _HELP:
        return listed()
    procedure = PROCEDURES.get(name)
    if procedure is None:
        if name in _UNSUPPORTED:
            raise Unsupported(
                "this procedure is not supported", procedure=name, reason=_UNSUPPORTED[name]
            )
        near = get_close_matches(name, PROCEDURES, 1)
        raise NotFound(
            "no procedure of that name; CALL sys.help() lists them",
            procedure=name,
            **({"did_you_mean": near[0]} if near else {}),
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


def listed() -> Rows:
    """All procedures with their arguments."""
    rows: list[tuple[object, ...]] = [
        (name, each.usage, each.about) for name, each in sorted(PROCEDURES.items())
    ]
    return ("procedure", "usage", "about"), rows
