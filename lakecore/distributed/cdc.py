"""For tasks: converts CDC messages to rows of target tables, and finds needed schema changes."""

from __future__ import annotations

from lakecore.catalog.catalog import Catalog
from lakecore.catalog.registry import open_catalog
from lakecore.cdc.actions import COMMON_FLAGS, Arguments
from lakecore.cdc.dead_letters import DeadLetters
from lakecore.cdc.events import ChangeBatch, SourceSchema, SourceTable
from lakecore.cdc.formats.decoder import Decoder
from lakecore.cdc.formats.messages import Messages
from lakecore.cdc.formats.registry import decoder_for
from lakecore.cdc.kafka.actions import MESSAGE_METADATA
from lakecore.cdc.message_actions import (
    DATABASE_FLAGS,
    TABLE_FLAGS,
    database_rules,
    table_rules,
)
from lakecore.cdc.pipeline import state_store
from lakecore.cdc.shaping import does_not_fit, fitting, needed_changes, shaped
from lakecore.cdc.shard_order import in_order
from lakecore.cdc.state import StateFiles
from lakecore.cdc.target_rows import TargetRows
from lakecore.cdc.target_rules import TargetRules
from lakecore.options import option_texts

__all__ = [
    "COMMON_FLAGS",
    "DATABASE_FLAGS",
    "MESSAGE_METADATA",
    "TABLE_FLAGS",
    "Arguments",
    "Catalog",
    "ChangeBatch",
    "DeadLetters",
    "Decoder",
    "Messages",
    "SourceSchema",
    "SourceTable",
    "StateFiles",
    "TargetRows",
    "TargetRules",
    "database_rules",
    "decoder_for",
    "does_not_fit",
    "fitting",
    "in_order",
    "needed_changes",
    "open_catalog",
    "option_texts",
    "shaped",
    "state_store",
    "table_rules",
]
