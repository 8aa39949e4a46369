"""The actions `kafka_sync_table` and `kafka_sync_database`.

See https://paimon.apache.org/docs/master/cdc-ingestion/kafka-cdc/
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.cdc.actions import Action, Arguments, Opened
from lakecore.cdc.kafka.settings import KafkaSettings
from lakecore.cdc.kafka.source import KafkaSource
from lakecore.cdc.message_actions import (
    DATABASE_FLAGS,
    TABLE_FLAGS,
    database_opened,
    table_opened,
)

if TYPE_CHECKING:
    from lakecore.io.ambient import Ambient

__all__ = ["KAFKA_ACTIONS", "MESSAGE_METADATA"]

MESSAGE_METADATA = ("topic", "partition", "offset", "timestamp", "timestamp_type")
"""The metadata columns of messages in topics."""


def _sync_table(arguments: Arguments, ambient: Ambient) -> Opened:
    return table_opened(arguments, ambient, _source(arguments, ambient), MESSAGE_METADATA)


def _sync_database(arguments: Arguments, ambient: Ambient) -> Opened:
    return database_opened(arguments, ambient, _source(arguments, ambient), MESSAGE_METADATA)


def _source(arguments: Arguments, ambient: Ambient) -> KafkaSource:
    return KafkaSource(KafkaSettings.parse(arguments.conf), arguments.mapping, ambient)


KAFKA_ACTIONS = {
    "kafka_sync_table": Action(
        conf="kafka_conf", takes_table=True, opens=_sync_table, flags=TABLE_FLAGS
    ),
    "kafka_sync_database": Action(
        conf="kafka_conf", takes_table=False, opens=_sync_database, flags=DATABASE_FLAGS
    ),
}
