"""The full compaction that a switch of `deletion-vectors.enabled` needs, before the schema changes.

- On, in a table with a key: files of a bucket are no longer merged with each other, so each bucket
  must be one run.
- Off: no vector may hide a row, or deleted rows would reappear.

The schema change then checks these conditions (`compactions/change_options.py`). If another process
has written in between, the change is refused and nothing is lost.
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
    """Compact the table in full if these changes switch deletion vectors and need it.

    Returns whether it compacted. Does nothing if the switch is not allowed.
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
