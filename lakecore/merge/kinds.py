"""Which row kinds a table can merge, so that a write of other kinds fails immediately."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.merge.aggregators import AGGREGATORS
from lakecore.model.rows import RETRACTS, RowKind
from lakecore.options import MergeEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.merge.aggregators.fold import Aggregate
    from lakecore.merge.spec import MergeSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The row kinds that a table cannot merge, why, and the column and function that cause it."""

    kinds: frozenset[RowKind]
    reason: str
    facts: dict[str, object]


def refused_kinds(engine: MergeEngine, spec: MergeSpec) -> Refusal | None:
    """The kinds that no written row may have; None if there are none.

    A single tombstone of a key would be accepted, but the next row of the key could not be merged
    with it, and the table would become unreadable.
    """
    kinds = RETRACTS - spec.ignored
    if not kinds or engine is MergeEngine.DEDUPLICATE:
        return None
    if engine is MergeEngine.FIRST_ROW:
        reason = "merge-engine=first-row takes no rows of kind -U and -D; set ignore-delete"
        return Refusal(kinds=kinds, reason=reason, facts={})
    if engine is MergeEngine.PARTIAL_UPDATE and not spec.groups:
        if spec.remove_on_delete:
            return None
        reason = (
            "merge-engine=partial-update takes no rows of kind -U and -D by itself; set "
            "ignore-delete, partial-update.remove-record-on-delete or sequence groups"
        )
        return Refusal(kinds=kinds, reason=reason, facts={})
    for aggregate in _retracted(engine, spec):
        if aggregate.ignore_retract or AGGREGATORS[aggregate.function](aggregate).retracts:
            continue
        if spec.remove_on_delete:
            kinds -= {RowKind.DELETE}
        reason = (
            "the aggregate function cannot retract rows of kind -U and -D; set ignore-delete, or "
            f"fields.{aggregate.column}.ignore-retract"
        )
        facts: dict[str, object] = {"column": aggregate.column, "function": aggregate.function}
        return Refusal(kinds=kinds, reason=reason, facts=facts) if kinds else None
    return None


def _retracted(engine: MergeEngine, spec: MergeSpec) -> Iterator[Aggregate]:
    """The aggregate functions that would have to retract rows."""
    grouped = {name for group in spec.groups for name in group.columns}
    for aggregate in spec.aggregates:
        if engine is MergeEngine.AGGREGATION or aggregate.column in grouped:
            yield aggregate
