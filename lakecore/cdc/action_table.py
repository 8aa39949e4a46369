"""The table of all actions that follow a source, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.cdc.files.actions import FILES_ACTIONS
from lakecore.cdc.kafka.actions import KAFKA_ACTIONS
from lakecore.cdc.mysql.actions import MYSQL_ACTIONS
from lakecore.cdc.postgres.actions import POSTGRES_ACTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.cdc.actions import Action

__all__ = ["SYNC_ACTIONS"]

SYNC_ACTIONS: Mapping[str, Action] = {
    **MYSQL_ACTIONS,
    **POSTGRES_ACTIONS,
    **KAFKA_ACTIONS,
    **FILES_ACTIONS,
}
