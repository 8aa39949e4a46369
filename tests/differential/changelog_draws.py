"""Changelog producers, drawn for tables whose changelogs both engines must make alike.

Java puts a key's only row into a lookup changelog (and into the file, if it writes one) as the
merge function leaves it; lakecore keeps it as it reads. So lookup is drawn where a function leaves
a lone row as it is: see `differences.NOT_DRAWN`.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.interop import values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.differential.plans import ColumnPlan, EnginePlan
    from tests.interop.columns import Type

SHARE = 0.5
INPUT, LOOKUP, FULL = "input", "lookup", "full-compaction"
_UNEQUAL = frozenset({"FLOAT", "DOUBLE", "ARRAY", "MAP", "MULTISET"})


def draw_producer(
    seed: int, plan: EnginePlan, keys: Sequence[ColumnPlan], columns: Sequence[ColumnPlan]
) -> dict[str, str]:
    """The options of a changelog producer; none for some of the tables."""
    # Its own dice: what else a seed draws stays as it is.
    chance = random.Random(f"{seed} changelog")
    able = [
        producer
        for producer in (LOOKUP, FULL)
        if chance.random() < SHARE and _is_comparable(producer, plan, keys)
    ]
    if not able:
        first_row = plan.options.get("merge-engine") == "first-row"
        return {} if first_row or chance.random() < SHARE else {"changelog-producer": INPUT}
    options = {"changelog-producer": chance.choice(able)}
    if chance.random() < SHARE and not any(_is_unequal(each.column.type) for each in columns):
        options["changelog-producer.row-deduplicate"] = "true"
        if chance.random() < SHARE:
            ignored = chance.choice(columns).name
            options["changelog-producer.row-deduplicate-ignore-fields"] = ignored
    return options


def _is_comparable(producer: str, plan: EnginePlan, keys: Sequence[ColumnPlan]) -> bool:
    engine = plan.options.get("merge-engine", "deduplicate")
    if producer == FULL:
        return engine != "first-row"
    if any(key.column.type.root in values.BINARIES for key in keys):
        return False
    if engine in ("deduplicate", "first-row"):
        return True
    special = ("sequence-group", "distinct", "nested-key", "list-agg-delimiter")
    return not plan.retracts and not any(key.endswith(special) for key in plan.options)


def _is_unequal(kind: Type) -> bool:
    """Whether the type holds values that are equal or not as the release has it."""
    return kind.root in _UNEQUAL or any(_is_unequal(child.type) for child in kind.children)
