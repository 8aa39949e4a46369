"""The actions `mysql_sync_table` and `mysql_sync_database`.

See https://paimon.apache.org/docs/master/cdc-ingestion/mysql-cdc/
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.cdc.actions import Action, Arguments, Opened, rules_of
from lakecore.cdc.mysql.settings import MySqlSettings
from lakecore.cdc.mysql.source import MySqlSource
from lakecore.cdc.routing import Routing
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from lakecore.cdc.events import SourceSchema, SourceTable
    from lakecore.io.ambient import Ambient

__all__ = ["MYSQL_ACTIONS"]

_METADATA = ("database_name", "table_name", "op_ts")


def _sync_table(arguments: Arguments, ambient: Ambient) -> Opened:
    """Open the action that writes all tables named by the options to one target."""
    if "table-name" not in arguments.conf:
        raise InvalidRequest("mysql_conf needs these options", missing=["table-name"])
    settings = _settings(arguments)
    target = f"{arguments.database}.{arguments.table}"

    def route(table: SourceTable) -> str | None:
        return target if settings.takes(table.database, table.name) else None

    rules = rules_of(arguments, route, ambient)

    def keyed(schema: SourceSchema) -> bool:
        return bool(rules.primary_keys or (rules.takes_source_keys and schema.primary_key))

    source = MySqlSource(settings, ambient, group=lambda _: target, keyed=keyed)
    return Opened(source, rules, follows_new_tables=True)


def _sync_database(arguments: Arguments, ambient: Ambient) -> Opened:
    """Open the action that writes each table to a target of the same name.

    Tables without a primary key are left out, unless `--unique_keys true` finds another key.
    """
    if "table-name" in arguments.conf:
        raise InvalidRequest(
            "a database action chooses tables by --including_tables and --excluding_tables",
            option="table-name",
        )
    settings = _settings(arguments)
    routing = Routing(
        database=arguments.database,
        including_tables=arguments.text("including_tables") or ".*",
        excluding_tables=arguments.text("excluding_tables"),
        including_dbs=settings.databases,
        table_prefix=arguments.text("table_prefix") or "",
        table_suffix=arguments.text("table_suffix") or "",
        merge_shards=arguments.flag("merge_shards", default=True),
        case_sensitive=arguments.case_sensitive,
    )

    mode = arguments.text("mode") or "divided"
    if mode not in {"divided", "combined"}:
        raise InvalidRequest("unknown mode", mode=mode, known=["divided", "combined"])
    eager = arguments.flag("eager_init", default=False)
    return Opened(
        MySqlSource(
            settings,
            ambient,
            routing.includes,
            lambda table: routing.target(table) or "",
            needs_key=True,
        ),
        rules_of(arguments, routing.target, ambient, falls_back=True),
        follows_new_tables=mode == "combined",
        needs_key=True,
        opens_at_start=routing.may_be_target if eager else None,
        ignores_incompatible=arguments.flag("ignore_incompatible", default=False),
    )


def _settings(arguments: Arguments) -> MySqlSettings:
    unknown = [name for name in arguments.metadata if name not in _METADATA]
    if unknown:
        raise InvalidRequest("unknown metadata column", columns=unknown, known=list(_METADATA))
    return MySqlSettings.parse(
        arguments.conf,
        arguments.mapping,
        metadata=bool(arguments.metadata),
        unique_keys=arguments.flag("unique_keys", default=False),
    )


MYSQL_ACTIONS = {
    "mysql_sync_table": Action(
        conf="mysql_conf", takes_table=True, opens=_sync_table, flags=("unique_keys",)
    ),
    "mysql_sync_database": Action(
        conf="mysql_conf",
        takes_table=False,
        opens=_sync_database,
        flags=(
            "ignore_incompatible",
            "merge_shards",
            "table_prefix",
            "table_suffix",
            "including_tables",
            "excluding_tables",
            "mode",
            "multiple_table_partition_keys",
            "eager_init",
            "unique_keys",
        ),
    ),
}
