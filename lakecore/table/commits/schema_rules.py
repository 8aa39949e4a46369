"""Whether files written or compacted under one schema may be committed under another.

If the aggregate function or the sequence field has changed, rows that a compaction merged before
are wrong: the compaction is repeated. New rows are valid after most schema changes, except changes
of options that are fixed from the first snapshot on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.options import DECLARED, Effect, find_option, parse_options
from lakecore.table.reads.travel import in_names_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakecore.options import Option
    from lakecore.table.context import TableContext

_FIXED = tuple(name for name, known in DECLARED.items() if known.immutable)
"""The options that never change once a table has snapshots."""
_FIRST_KEYS = ("bucket", "changelog-producer")


def _lie_or_merge(option: Option) -> bool:
    """Whether the option decides where rows are stored or how they merge."""
    return option.effect in (Effect.READ, Effect.WRITE)


def _first(option: Option) -> bool:
    """Whether the option is fixed by the first snapshot, because it applies to the first rows."""
    return option.immutable or option.effect is Effect.READ or option.key in _FIRST_KEYS


def same_rules(before: TableContext, after: TableContext) -> bool:
    """Whether files compacted under the schema and options of `before` are valid for `after`.

    Columns may be added, dropped and renamed; common columns must have the same type. Options that
    affect neither reading nor writing of rows may change.
    """
    old, new = before.schema, after.schema
    if old == new:
        return True
    shared = old.by_id.keys() & new.by_id.keys()
    if any(old.by_id[at].type != new.by_id[at].type for at in shared):
        return False
    return _deciding(before.options.texts, _lie_or_merge) == _deciding(
        in_names_of(after, old), _lie_or_merge
    )


def may_follow(before: TableContext, after: TableContext, *, empty: bool) -> bool:
    """Whether rows written under the schema and options of `before` are valid for `after`.

    `empty`: the table had no snapshot when they were written, so any option could change. Later,
    the options that decide where rows are stored and how they merge are fixed.
    """
    texts = in_names_of(after, before.schema)
    if empty:
        return _deciding(before.options.texts, _first) == _deciding(texts, _first)
    options = parse_options(texts, table=after.identifier)
    return all(getattr(before.options, name) == getattr(options, name) for name in _FIXED)


def _deciding(texts: Mapping[str, str], decides: Callable[[Option], bool]) -> dict[str, str]:
    """The options for which `decides` is true."""
    found = {key: find_option(key) for key in texts}
    return {key: texts[key] for key, known in found.items() if known is not None and decides(known)}
