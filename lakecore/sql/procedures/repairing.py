"""Procedures that repair metadata: of a catalog, of a table's manifests, and of its history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import Unsupported
from lakecore.sql.procedures.procedure import Procedure, flag, number, options_of, text
from lakecore.table.verbs.repair_verbs import manifests_summary

if TYPE_CHECKING:
    from lakecore.sql.procedures.procedure import Call

__all__ = ["PROCEDURES"]


def _repair(call: Call) -> list[tuple[object, ...]]:
    names = [each.strip() for each in (call.text("identifier") or "").split(",") if each.strip()]
    for name in names or (None,):
        call.workspace.catalog.repair(name)
    return [("Success",)]


def _compact_manifest(call: Call) -> list[tuple[object, ...]]:
    for name in ("manifest_sort_partition_field", "manifest_sort_max_rewrite_size"):
        if call.text(name) is not None:
            raise Unsupported("lakecore does not sort manifests by a field", argument=name)
    if call.flag("manifest_sort_enabled"):
        raise Unsupported(
            "lakecore does not sort manifests by a field", argument="manifest_sort_enabled"
        )
    table = call.table(options=options_of(call.text("options")))
    if call.flag("dry_run"):
        return [(manifests_summary(table.context),)]
    table.compact_manifests()
    return [("success",)]


def _remove_unexisting_files(call: Call) -> list[tuple[object, ...]]:
    if call.number("parallelism") is not None:
        raise Unsupported(
            "lakecore has no such setting: Flink runs jobs by it", argument="parallelism"
        )
    gone = call.table().remove_unexisting_files(dry_run=call.flag("dry_run"))
    return [(path,) for path in gone]


def _repair_earliest_snapshot(call: Call) -> list[tuple[object, ...]]:
    snapshot_id = call.number("snapshot_id")
    assert snapshot_id is not None, "the argument is required"
    return [(call.table().repair_earliest_snapshot(snapshot_id), snapshot_id)]


_TABLE = text("table", required=True)

PROCEDURES = (
    Procedure(
        name="repair",
        arguments=(text("identifier"),),
        run=_repair,
        about="list again the tables of a warehouse, of databases or by name, parted by commas",
    ),
    Procedure(
        name="compact_manifest",
        arguments=(
            _TABLE,
            text("options"),
            flag("dry_run"),
            flag("manifest_sort_enabled"),
            text("manifest_sort_partition_field"),
            text("manifest_sort_max_rewrite_size"),
        ),
        run=_compact_manifest,
        about="merge small manifests and those with entries of deleted files",
    ),
    Procedure(
        name="remove_unexisting_files",
        arguments=(_TABLE, flag("dry_run"), number("parallelism")),
        run=_remove_unexisting_files,
        about="take data files that do not exist out of the newest snapshot; their rows are lost",
    ),
    Procedure(
        name="repair_earliest_snapshot",
        arguments=(_TABLE, number("snapshot_id", required=True)),
        columns=("previous_earliest_snapshot_id", "current_earliest_snapshot_id"),
        run=_repair_earliest_snapshot,
        about="let the history begin after a gap of lost snapshots",
    ),
)
