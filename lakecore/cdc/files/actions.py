"""The actions `files_sync_table` and `files_sync_database`, with the arguments of Kafka's actions.

Paimon has no such actions. They read a folder of recorded messages, for example to try out a
format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.cdc.actions import Action, Arguments, Opened
from lakecore.cdc.files.source import FilesSettings, FilesSource
from lakecore.cdc.message_actions import (
    DATABASE_FLAGS,
    TABLE_FLAGS,
    database_opened,
    table_opened,
)

if TYPE_CHECKING:
    from lakecore.io.ambient import Ambient

__all__ = ["FILES_ACTIONS"]


def _sync_table(arguments: Arguments, ambient: Ambient) -> Opened:
    return table_opened(arguments, ambient, _source(arguments, ambient), ())


def _sync_database(arguments: Arguments, ambient: Ambient) -> Opened:
    return database_opened(arguments, ambient, _source(arguments, ambient), ())


def _source(arguments: Arguments, ambient: Ambient) -> FilesSource:
    return FilesSource(FilesSettings.parse(arguments.conf), arguments.mapping, ambient)


FILES_ACTIONS = {
    "files_sync_table": Action(
        conf="files_conf", takes_table=True, opens=_sync_table, flags=TABLE_FLAGS
    ),
    "files_sync_database": Action(
        conf="files_conf", takes_table=False, opens=_sync_database, flags=DATABASE_FLAGS
    ),
}
