"""Selects the files whose row ids may match a condition on `_ROW_ID`.

The manifest states the range of the row ids of a file. If a file was rewritten, it stores the row
ids itself, and the manifest does not state their range: such a file is always read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.model.rows import ROW_ID, TRACKING_FIELDS
from lakecore.plan.predicate import condition_on
from lakecore.plan.row_ids import may_hold_row_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.schema import TableSchema
    from lakecore.plan.predicate import Predicate


def keep_row_ids(
    entries: Sequence[ManifestEntry], schema: TableSchema, predicate: Predicate | None
) -> tuple[Sequence[ManifestEntry], int]:
    """The entries whose row ids may match, and the number of entries left out."""
    if predicate is None or ROW_ID not in schema.names:
        return entries, 0
    mask = may_hold_row_ids([entry.file for entry in entries], predicate)
    kept = [entry for entry, keep in zip(entries, mask, strict=True) if keep]
    return kept, len(entries) - len(kept)


def on_stored_columns(schema: TableSchema, predicate: Predicate | None) -> Predicate | None:
    """The part of a predicate on columns that files store; conditions on row ids are left out."""
    if ROW_ID not in schema.names:
        return predicate
    stored = [field.name for field in schema.fields if field not in TRACKING_FIELDS]
    return condition_on(predicate, stored)
