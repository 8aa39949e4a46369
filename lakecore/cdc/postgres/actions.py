"""The action `postgres_sync_table`.

See https://paimon.apache.org/docs/master/cdc-ingestion/postgres-cdc/
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.cdc.actions import Action, Arguments, Opened, rules_of
from lakecore.cdc.postgres.settings import PostgresSettings
from lakecore.cdc.postgres.source import PostgresSource
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from lakecore.cdc.events import SourceTable
    from lakecore.io.ambient import Ambient

__all__ = ["POSTGRES_ACTIONS"]

_METADATA = ("database_name", "schema_name", "table_name", "op_ts")


def _sync_table(arguments: Arguments, ambient: Ambient) -> Opened:
    """Open the action that writes all tables named by the options to one target."""
    unknown = [name for name in arguments.metadata if name not in _METADATA]
    if unknown:
        raise InvalidRequest("unknown metadata column", columns=unknown, known=list(_METADATA))
    settings = PostgresSettings.parse(
        arguments.conf, arguments.mapping, metadata=bool(arguments.metadata)
    )
    target = f"{arguments.database}.{arguments.table}"

    def route(table: SourceTable) -> str | None:
        schema, _, name = table.name.partition(".")
        return target if settings.takes(schema, name) else None

    source = PostgresSource(settings, ambient)
    return Opened(source, rules_of(arguments, route, ambient), follows_new_tables=True)


POSTGRES_ACTIONS = {
    "postgres_sync_table": Action(conf="postgres_conf", takes_table=True, opens=_sync_table)
}
