"""Whether what was compacted under one schema of a table may be committed under another.

Rows that were merged by one aggregate function, or in the order of one column, are not what the
table asks for once that is another. A compaction beside such a change is made anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.options import Effect, find_option

if TYPE_CHECKING:
    from lakecore.table.context import TableContext

_DECIDES = frozenset({Effect.READ, Effect.WRITE})


def same_rules(before: TableContext, after: TableContext) -> bool:
    """Whether files compacted by the schema and options of `before` are right for `after`.

    Columns may come, go and change their names; those that both have must be of one type. Options
    may change that neither decide how rows are read nor how they are written.
    """
    old, new = before.schema, after.schema
    if old == new:
        return True
    shared = old.by_id.keys() & new.by_id.keys()
    if any(old.by_id[at].type != new.by_id[at].type for at in shared):
        return False
    return _deciding(before) == _deciding(after)


def _deciding(context: TableContext) -> dict[str, str]:
    """The texts of the options that decide how rows lie and merge."""
    found = {key: find_option(key) for key in context.options.texts}
    return {
        key: context.options.texts[key]
        for key, known in found.items()
        if known is not None and known.effect in _DECIDES
    }
