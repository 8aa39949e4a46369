"""The actions of Paimon's Flink action jar: their flags, and the procedure that does the work.

Sources: https://paimon.apache.org/docs/master/flink/action-jars/ and the pages of
maintenance. A flag maps to an argument of the procedure. A flag that maps to an empty string only
concerns how Flink runs the job, and is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CATALOG_FLAGS = ("warehouse", "catalog_conf")
TABLE_FLAGS = ("database", "table", "path")
REPEATED = frozenset({"catalog_conf", "table_conf", "partition", "source_sql"})
"""Flags that may be given several times."""
FLINK = ""
_FLAG = re.compile(r"(\w+)([!?]?)(?:=(\w*))?")


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


def _action(name: str, flags: str = "", table: str | None = "table") -> Action:
    """The action that runs the procedure of its name.

    `flags`: each flag, with `!` if it is required, `?` if it needs no value, and `=ARGUMENT` where
    the argument of the procedure has another name.
    """
    found = [_FLAG.fullmatch(each) for each in flags.split()]
    stated = [each.groups() for each in found if each is not None]
    return Action(
        procedure=name,
        flags={flag: flag if argument is None else argument for flag, _, argument in stated},
        required=tuple(flag for flag, mark, _ in stated if mark == "!"),
        switches=tuple(flag for flag, mark, _ in stated if mark == "?"),
        table=table,
    )


_ALL = (
    _action("clear_consumers", "including_consumers excluding_consumers"),
    _action(
        "compact",
        "partition=partitions table_conf=options order_strategy order_by where "
        "partition_idle_time compact_strategy buckets",
    ),
    _action("compact_chain_table", "partition! overwrite"),
    _action(
        "compact_database",
        "table_conf=table_options including_databases including_tables "
        "excluding_tables mode partition_idle_time compact_strategy",
        table=None,
    ),
    _action(
        "compact_manifest",
        "options dry_run? manifest_sort_enabled manifest_sort_partition_field "
        "manifest_sort_max_rewrite_size",
    ),
    _action("create_branch", "branch_name!=branch tag_name=tag ignore_if_exists?"),
    _action("create_tag", "tag_name!=tag snapshot=snapshot_id time_retained"),
    _action("create_tag_from_timestamp", "tag! timestamp! time_retained"),
    _action("create_tag_from_watermark", "tag! watermark! time_retained"),
    _action("delete", "where! source_sql sink_parallelism="),
    _action("delete_branch", "branch_name!=branch"),
    _action("delete_tag", "tag_name!=tag"),
    _action("drop_partition", "partition!=partitions"),
    _action("expire_changelogs", "retain_max retain_min older_than max_deletes delete_all?"),
    _action(
        "expire_partitions",
        "table_conf=options expiration_time! timestamp_formatter! timestamp_pattern "
        "expire_strategy max_expires",
    ),
    _action("expire_snapshots", "retain_max retain_min older_than max_deletes options"),
    _action("expire_tags", "older_than"),
    _action("fast_forward", "branch_name!=branch"),
    _action("mark_partition_done", "partition!=partitions"),
    _action("merge_branch", "source_branch! target_branch"),
    _action(
        "merge_into",
        "target_as=target_alias source_sql=source_sqls source_table! "
        "on!=merge_condition merge_actions! matched_upsert_set=matched_upsert_setting "
        "matched_upsert_condition "
        "not_matched_by_source_upsert_set=not_matched_by_source_upsert_setting "
        "not_matched_by_source_upsert_condition matched_delete_condition "
        "not_matched_by_source_delete_condition not_matched_insert_values "
        "not_matched_insert_condition",
        table="target_table",
    ),
    _action("remove_orphan_files", "older_than dry_run? parallelism mode"),
    _action("remove_unexisting_files", "dry_run? parallelism="),
    _action("remove_unexisting_manifests"),
    _action("rename_tag", "tag_name!=tag target_tag_name!=target_tag"),
    _action("repair", "identifier", table=None),
    _action("replace_tag", "tag_name!=tag snapshot=snapshot_id time_retained"),
    _action("rescale", "bucket_num partition scan_parallelism= sink_parallelism="),
    _action("reset_consumer", "consumer_id! next_snapshot=next_snapshot_id"),
    _action("rewrite_file_index", "identifier!=table partitions", table=None),
    _action("rollback_to", "version!=tag"),
    _action("rollback_to_timestamp", "timestamp!"),
)
ACTIONS = {each.procedure: each for each in _ALL}

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
