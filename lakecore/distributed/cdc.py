"""For tasks: converts CDC messages to rows of target tables, and finds needed schema changes."""

from __future__ import annotations

from lakecore.catalog.catalog import Catalog
from lakecore.catalog.registry import open_catalog
from lakecore.cdc.actions import (
    COMMON_FLAGS,
    DATABASE_FLAGS,
    TABLE_FLAGS,
    Arguments,
    database_rules,
    table_rules,
)
from lakecore.cdc.events import ChangeBatch, SourceSchema, SourceTable
from lakecore.cdc.formats.decoder import Decoder, Messages
from lakecore.cdc.formats.registry import decoder_for
from lakecore.cdc.kafka import MESSAGE_METADATA
from lakecore.cdc.pipeline import state_store
from lakecore.cdc.sink_parts import (
    TargetRows,
    does_not_fit,
    fitting,
    in_order,
    needed_changes,
    shaped,
)
from lakecore.cdc.state import DeadLetters, StateFiles
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
