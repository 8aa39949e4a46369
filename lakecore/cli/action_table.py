"""The actions of Paimon's Flink action jar: their flags, and the procedure that does the work.

Sources: https://paimon.apache.org/docs/master/flink/action-jars/ and the pages of
maintenance. A flag maps to an argument of the procedure. A flag that maps to an empty string only
concerns how Flink runs the job, and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CATALOG_FLAGS = ("warehouse", "catalog_conf")
TABLE_FLAGS = ("database", "table", "path")
REPEATED = frozenset({"catalog_conf", "table_conf", "partition", "source_sql"})
"""Flags that may be given several times."""
FLINK = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action. `table` is the argument for the table's name; None if the action takes none."""

    procedure: str
    flags: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    table: str | None = "table"

    @property
    def known(self) -> tuple[str, ...]:
        """All flags of the action."""
        own = () if self.table is None else TABLE_FLAGS
        return (*CATALOG_FLAGS, *own, *self.flags)


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_TAG = {"tag_name": "tag", "snapshot": "snapshot_id", "time_retained": "time_retained"}
_RETAIN = _same("retain_max", "retain_min", "older_than", "max_deletes")

ACTIONS: dict[str, Action] = {
    "clear_consumers": Action(
        procedure="clear_consumers", flags=_same("including_consumers", "excluding_consumers")
    ),
    "compact": Action(
        procedure="compact",
        flags={
            "partition": "partitions",
            "table_conf": "options",
            **_same("order_strategy", "order_by", "where"),
            **_same("partition_idle_time", "compact_strategy", "buckets"),
        },
    ),
    "compact_chain_table": Action(
        procedure="compact_chain_table",
        flags=_same("partition", "overwrite"),
        required=("partition",),
    ),
    "compact_database": Action(
        procedure="compact_database",
        flags={
            "table_conf": "table_options",
            **_same("including_databases", "including_tables", "excluding_tables", "mode"),
            **_same("partition_idle_time", "compact_strategy"),
        },
        table=None,
    ),
    "compact_manifest": Action(
        procedure="compact_manifest",
        flags=_same(
            "options",
            "dry_run",
            "manifest_sort_enabled",
            "manifest_sort_partition_field",
            "manifest_sort_max_rewrite_size",
        ),
        switches=("dry_run",),
    ),
    "create_branch": Action(
        procedure="create_branch",
        flags={
            "branch_name": "branch",
            "tag_name": "tag",
            "ignore_if_exists": "ignore_if_exists",
        },
        required=("branch_name",),
        switches=("ignore_if_exists",),
    ),
    "create_tag": Action(procedure="create_tag", flags=_TAG, required=("tag_name",)),
    "create_tag_from_timestamp": Action(
        procedure="create_tag_from_timestamp",
        flags=_same("tag", "timestamp", "time_retained"),
        required=("tag", "timestamp"),
    ),
    "create_tag_from_watermark": Action(
        procedure="create_tag_from_watermark",
        flags=_same("tag", "watermark", "time_retained"),
        required=("tag", "watermark"),
    ),
    "delete": Action(
        procedure="delete",
        flags={"where": "where", "source_sql": "source_sql", "sink_parallelism": FLINK},
        required=("where",),
    ),
    "delete_branch": Action(
        procedure="delete_branch", flags={"branch_name": "branch"}, required=("branch_name",)
    ),
    "delete_tag": Action(procedure="delete_tag", flags={"tag_name": "tag"}, required=("tag_name",)),
    "drop_partition": Action(
        procedure="drop_partition", flags={"partition": "partitions"}, required=("partition",)
    ),
    "expire_changelogs": Action(
        procedure="expire_changelogs",
        flags={**_RETAIN, "delete_all": "delete_all"},
        switches=("delete_all",),
    ),
    "expire_partitions": Action(
        procedure="expire_partitions",
        flags={
            "table_conf": "options",
            **_same("expiration_time", "timestamp_formatter", "timestamp_pattern"),
            **_same("expire_strategy", "max_expires"),
        },
        required=("expiration_time", "timestamp_formatter"),
    ),
    "expire_snapshots": Action(
        procedure="expire_snapshots", flags={**_RETAIN, "options": "options"}
    ),
    "expire_tags": Action(procedure="expire_tags", flags=_same("older_than")),
    "fast_forward": Action(
        procedure="fast_forward", flags={"branch_name": "branch"}, required=("branch_name",)
    ),
    "mark_partition_done": Action(
        procedure="mark_partition_done", flags={"partition": "partitions"}, required=("partition",)
    ),
    "merge_branch": Action(
        procedure="merge_branch",
        flags=_same("source_branch", "target_branch"),
        required=("source_branch",),
    ),
    "merge_into": Action(
        procedure="merge_into",
        flags={
            "target_as": "target_alias",
            "source_sql": "source_sqls",
            "source_table": "source_table",
            "on": "merge_condition",
            "merge_actions": "merge_actions",
            "matched_upsert_set": "matched_upsert_setting",
            "matched_upsert_condition": "matched_upsert_condition",
            "not_matched_by_source_upsert_set": "not_matched_by_source_upsert_setting",
            **_same("not_matched_by_source_upsert_condition", "matched_delete_condition"),
            **_same("not_matched_by_source_delete_condition", "not_matched_insert_values"),
            **_same("not_matched_insert_condition"),
        },
        required=("source_table", "on", "merge_actions"),
        table="target_table",
    ),
    "remove_orphan_files": Action(
        procedure="remove_orphan_files",
        flags=_same("older_than", "dry_run", "parallelism", "mode"),
        switches=("dry_run",),
    ),
    "remove_unexisting_files": Action(
        procedure="remove_unexisting_files",
        flags={"dry_run": "dry_run", "parallelism": FLINK},
        switches=("dry_run",),
    ),
    "remove_unexisting_manifests": Action(procedure="remove_unexisting_manifests"),
    "rename_tag": Action(
        procedure="rename_tag",
        flags={"tag_name": "tag", "target_tag_name": "target_tag"},
        required=("tag_name", "target_tag_name"),
    ),
    "repair": Action(procedure="repair", flags=_same("identifier"), table=None),
    "replace_tag": Action(procedure="replace_tag", flags=_TAG, required=("tag_name",)),
    "rescale": Action(
        procedure="rescale",
        flags={
            "bucket_num": "bucket_num",
            "partition": "partition",
            "scan_parallelism": FLINK,
            "sink_parallelism": FLINK,
        },
    ),
    "reset_consumer": Action(
        procedure="reset_consumer",
        flags={"consumer_id": "consumer_id", "next_snapshot": "next_snapshot_id"},
        required=("consumer_id",),
    ),
    "rewrite_file_index": Action(
        procedure="rewrite_file_index",
        flags={"identifier": "table", "partitions": "partitions"},
        required=("identifier",),
        table=None,
    ),
    "rollback_to": Action(procedure="rollback_to", flags={"version": "tag"}, required=("version",)),
    "rollback_to_timestamp": Action(
        procedure="rollback_to_timestamp", flags=_same("timestamp"), required=("timestamp",)
    ),
}

ELSEWHERE = {
    f"{source}_sync_{what}": "lakecore has no such source"
    for source in ("kafka", "mongodb", "pulsar")
    for what in ("database", "table")
}
"""Actions of the jar that lakecore does not support, with the reason."""

HELP = """\
Usage: lakecore action NAME [--FLAG VALUE]...

  Run an action of Paimon's Flink action jar, with the same name and flags.

  lakecore action NAME --help lists the flags of an action. Names are written with _ or -.

Actions:
""" + "".join(f"  {name}\n" for name in ACTIONS)
HELP += """
The actions that follow a source, such as mysql_sync_database: `lakecore cdc`.
"""
