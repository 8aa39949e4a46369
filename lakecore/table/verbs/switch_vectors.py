"""The full compaction before a schema change that switches `deletion-vectors.enabled` on or off.

- On, in a table with a key: reads will no longer merge the files of a bucket, so the compaction
  must leave one run in each bucket.
- Off: deleted rows would reappear, so the compaction removes the rows that vectors hide.

Afterwards, the schema change checks these conditions (`compactions/change_options.py`). If another
process has written since the compaction, the change is refused, and no row is lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.model.schema_change import RemoveOption, SetOption
from lakecore.table.compactions.change_options import check_vectors_change
from lakecore.table.verbs.compaction import CompactionRequest, compact_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.schema_change import Change
    from lakecore.table.context import TableContext

VECTORS = "deletion-vectors.enabled"
_ALLOW = "deletion-vectors.modifiable"


def compact_for_switch(context: TableContext, changes: Sequence[Change]) -> bool:
    """Compact the table in full if these changes switch deletion vectors on or off and need it.

    Returns whether it compacted. Does nothing unless `deletion-vectors.modifiable` is true.
    """
    options, schema = context.options, context.schema
    stated = dict(schema.options)
    for change in changes:
        if isinstance(change, SetOption):
            stated[change.key] = change.value
        elif isinstance(change, RemoveOption):
            stated.pop(change.key, None)
    after = replace(options, deletion_vectors_enabled=_is_true(stated.get(VECTORS)))
    if not _is_true(stated.get(_ALLOW)):
        return False
    try:
        check_vectors_change(context.history, options, after, keyed=bool(schema.primary_keys))
    except InvalidRequest:
        compact_table(context, CompactionRequest(full=True))
        return True
    return False


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() == "true"
