"""Every public verb of a session and a table has a command, or a written reason why not."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import lakecore as lc
from lakecore.cli.app import app

SESSION = {
    "alter_table": "alter",
    "compact_database": "compact-database",
    "create_database": "db create",
    "create_table": "table create",
    "database_exists": "db describe",
    "drop_database": "db drop",
    "drop_table": "table drop",
    "get_table": "table describe",
    "list_databases": "db list",
    "list_tables": "table list",
    "remove_orphan_files": "orphans",
    "rename_table": "table rename",
    "repair": "repair",
    "sql": "sql",
    "table_exists": "table describe",
    "warehouse": "db describe",
}
TABLE = {
    "analyze": "analyze",
    "branches": "branch list",
    "changes": "changes",
    "clear_consumers": "consumer clear",
    "compact": "compact",
    "consumers": "consumer list",
    "count": "count",
    "create_branch": "branch create",
    "create_tag": "tag create",
    "delete": "delete",
    "delete_branch": "branch delete",
    "delete_tag": "tag delete",
    "drop_partition": "table drop-partition",
    "expire_changelogs": "expire changelogs",
    "expire_partitions": "expire partitions",
    "expire_snapshots": "expire snapshots",
    "expire_tags": "tag expire",
    "explain": "explain",
    "export_iceberg": "iceberg",
    "fast_forward": "branch fast-forward",
    "head": "read",
    "identifier": "table describe",
    "inspect": "inspect",
    "mark_partition_done": "partition-done",
    "merge": "merge",
    "options": "table describe",
    "overwrite": "write",
    "path": "table describe",
    "purge_files": "table purge",
    "remove_orphan_files": "orphans",
    "rename_branch": "branch rename",
    "rename_tag": "tag rename",
    "repair_hints": "table repair-hints",
    "replace_tag": "tag create",
    "rescale": "rescale",
    "reset_consumer": "consumer reset",
    "rollback_to": "rollback",
    "scan": "read",
    "schema": "table describe",
    "stream": "stream",
    "tags": "tag list",
    "truncate": "table truncate",
    "update": "update",
    "write": "write",
}
NO_COMMAND = {
    "attach": "a DuckDB connection lives in a Python program",
    "branch": "`-o branch=NAME` and `db.t$branch_NAME` name a branch",
    "commit": "messages are values of a distributed program",
    "compact_manifests": "`lakecore action compact_manifest`",
    "context": "it is lakecore's own value",
    "copy": "`-o KEY=VALUE` does it for one command",
    "ingest": "it takes frames of a Python program; INSERT of `lakecore sql` streams",
    "last_identifier": "it is for programs that number their commits",
    "lookup": "`read --where` finds rows by key",
    "new_stream_write": "it is for programs that commit by themselves",
    "new_write": "it is for distributed programs",
    "open_lookup": "it is an object of a Python program",
    "refresh": "each command opens the table anew",
    "remove_unexisting_files": "`lakecore action remove_unexisting_files`",
    "repair_earliest_snapshot": "`CALL sys.repair_earliest_snapshot` of `lakecore sql`",
    "rewrite_file_index": "`lakecore action rewrite_file_index`",
    "to_arrow": "`read --output parquet`",
    "to_arrow_dataset": "it is an object of a Python program",
    "to_batches": "`read --json` streams",
    "to_duckdb": "`lakecore sql`",
    "to_pandas": "it is an object of a Python program",
    "to_polars": "it is an object of a Python program",
}


def public(owner: type) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


@pytest.mark.parametrize(("owner", "commands"), [(lc.Session, SESSION), (lc.Table, TABLE)])
def test_every_verb_has_a_command_or_a_reason(owner: type, commands: dict[str, str]) -> None:
    assert public(owner) - set(commands) - set(NO_COMMAND) == set()
    assert set(commands) <= public(owner)


def test_reasons_are_for_verbs_that_exist() -> None:
    assert set(NO_COMMAND) <= public(lc.Session) | public(lc.Table)


@pytest.mark.parametrize("command", sorted({*SESSION.values(), *TABLE.values()}))
def test_commands_of_verbs_exist(command: str) -> None:
    done = CliRunner().invoke(app, [*command.split(), "--help"])

    assert done.exit_code == 0
    assert f"Usage: lakecore {command} " in done.output
