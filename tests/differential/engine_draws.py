"""Merge engines, drawn: the value columns and options of each, and the kinds of rows it takes.

Each function draws a plan that both engines must carry out alike; what differs by decision is kept
out of it, or tagged for `differences`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.differential.aggregate_draws import (
    ORDER_FREE,
    AggregatedColumn,
    aggregated_column,
)
from tests.differential.differences import FOLDED_ALONE
from tests.differential.plans import (
    ADDS,
    RETRACTS,
    ColumnPlan,
    EnginePlan,
    nullable,
    order_column,
    value_column,
)
from tests.interop.columns import Column, parse_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.differential.value_draws import Dice

VERBS = ("delete", "update", "upsert")


def deduplicate(dice: Dice) -> EnginePlan:
    """Any columns; any kinds; perhaps sequence fields."""
    values = _values(dice)
    sequences, options = _sequence(dice)
    if dice.chance.random() < 0.15:
        options["ignore-delete"] = "true"
    elif dice.chance.random() < 0.1:
        options["ignore-update-before"] = "true"
    kinds: list[ColumnPlan] = []
    if dice.chance.random() < 0.15:
        kinds.append(ColumnPlan(Column("op", parse_type("STRING NOT NULL")), (*ADDS, *RETRACTS)))
        options["rowkind.field"] = "op"
    return EnginePlan(
        columns=_shuffled(dice, [*values, *sequences, *kinds]),
        verbs=() if kinds or any("ignore" in key for key in options) else VERBS,
        options=options,
        retracts=dice.chance.choice((0.0, 0.3, 0.5)),
        tags=frozenset({"descending"} if "sequence.field.sort-order" in options else ()),
    )


def first_row(dice: Dice) -> EnginePlan:
    """Any columns; deletions only where they are ignored; nothing shows before it is compacted."""
    options = {"merge-engine": "first-row"}
    retracts = 0.0
    if dice.chance.random() < 0.3:
        options["ignore-delete"] = "true"
        retracts = 0.4
    return EnginePlan(
        columns=tuple(_values(dice)),
        options=options,
        retracts=retracts,
        compacts_always=True,
    )


def aggregation(dice: Dice) -> EnginePlan:
    """A function for most columns; retractions if every function takes them."""
    options = {"merge-engine": "aggregation"}
    retracting = dice.chance.random() < 0.5
    removing = retracting and dice.chance.random() < 0.3
    aggregated: list[AggregatedColumn] = []
    for index in range(dice.chance.randint(1, 5)):
        found = aggregated_column(dice, f"a{index}", retracting=retracting)
        # Paimon refuses a table that both removes records and ignores retractions.
        if removing and f"fields.a{index}.ignore-retract" in found.options:
            continue
        if removing and f"fields.a{index}.distinct" in found.options:
            found = replace(found, plan=_elements_once(found.plan))
        aggregated.append(found)
        options |= found.options
    if removing:
        options["aggregation.remove-record-on-delete"] = "true"
    if dice.chance.random() < 0.2:
        defaults = ["last_value", "last_non_null_value"]
        if not retracting:
            defaults += ["first_value", "first_non_null_value"]
        options["fields.default-aggregate-function"] = dice.chance.choice(defaults)
    sequences, ordering = _sequence(dice)
    plain = [value_column(dice, "v0")] if dice.chance.random() < 0.5 else []
    tags = {"descending"} if "sequence.field.sort-order" in ordering else set[str]()
    loses = any(each.loses(retracting=retracting) for each in aggregated)
    if loses or removing or (retracting and (plain or sequences)):
        tags.add(FOLDED_ALONE)
    return EnginePlan(
        columns=_shuffled(dice, [*(each.plan for each in aggregated), *plain, *sequences]),
        options=options | ordering,
        retracts=dice.chance.choice((0.2, 0.4)) if retracting else 0.0,
        order_free=_order_free(aggregated),
        tags=frozenset(tags),
    )


def _elements_once(plan: ColumnPlan) -> ColumnPlan:
    """The column with no element twice in a list: see `differences.NOT_DRAWN`."""
    lists = [
        list({repr(each): each for each in value}.values()) if isinstance(value, list) else value
        for value in plan.pool
    ]
    return replace(plan, pool=tuple(lists))


def partial_update(dice: Dice) -> EnginePlan:
    """Without groups, or with one or two of them; functions inside them; removals."""
    if dice.chance.random() < 0.35:
        return _partial_update_alone(dice)
    return _partial_update_by_groups(dice)


def append(dice: Dice) -> EnginePlan:
    """Any columns, no key."""
    return EnginePlan(columns=tuple(_values(dice)), keyed=False, verbs=VERBS)


ENGINES: Mapping[str, Callable[[Dice], EnginePlan]] = {
    "deduplicate": deduplicate,
    "partial-update": partial_update,
    "aggregation": aggregation,
    "first-row": first_row,
    "append": append,
}
WEIGHTS = (4, 4, 4, 1, 3)


def _verbs_of_parts(options: Mapping[str, str]) -> tuple[str, ...]:
    """The verbs of a table of partial updates: a MERGE with nulls would set nothing."""
    removes = "partial-update.remove-record-on-delete" in options
    return ("delete", "update") if removes else ("update",)


def _partial_update_alone(dice: Dice) -> EnginePlan:
    options = {"merge-engine": "partial-update"}
    sequences, ordering = _sequence(dice)
    retracts = 0.0
    if dice.chance.random() < 0.3:
        options["ignore-delete"] = "true"
        retracts = 0.3
    elif not sequences and dice.chance.random() < 0.5:
        options["partial-update.remove-record-on-delete"] = "true"
        retracts = 0.3
    tags = {"descending"} if "sequence.field.sort-order" in ordering else set[str]()
    if "partial-update.remove-record-on-delete" in options:
        tags.add(FOLDED_ALONE)
    return EnginePlan(
        columns=_shuffled(dice, [*_values(dice), *sequences]),
        options=options | ordering,
        retracts=retracts,
        adds_first=True,
        deletes_stay="partial-update.remove-record-on-delete" in options,
        verbs=_verbs_of_parts(options),
        tags=frozenset(tags),
    )


def _partial_update_by_groups(dice: Dice) -> EnginePlan:
    options = {"merge-engine": "partial-update"}
    retracting = dice.chance.random() < 0.5
    columns: list[ColumnPlan] = []
    aggregated: list[AggregatedColumn] = []
    groups: list[list[str]] = []
    for group in range(dice.chance.randint(1, 2)):
        order = [order_column(dice, f"g{group}s{i}") for i in range(dice.chance.choice((1, 1, 2)))]
        members: list[ColumnPlan] = []
        for index in range(dice.chance.randint(1, 3)):
            name = f"g{group}v{index}"
            if dice.chance.random() < 0.5:
                members.append(value_column(dice, name))
                continue
            found = aggregated_column(dice, name, retracting=retracting, grouped=True)
            if found.function in ("first_non_null_value", "first_not_null_value"):
                if retracting:
                    members.append(value_column(dice, name))
                    continue
                found = replace(found, plan=replace(found.plan, nulls=0.0))
            aggregated.append(found)
            options |= found.options
            members.append(found.plan)
        names = ",".join(plan.name for plan in order)
        options[f"fields.{names}.sequence-group"] = ",".join(plan.name for plan in members)
        groups.append([plan.name for plan in order])
        columns += [*order, *members]
    if dice.chance.random() < 0.6:
        columns += [value_column(dice, "v0")]
    elif dice.chance.random() < 0.3:
        defaults = ["last_value", "last_non_null_value", *([] if retracting else ["first_value"])]
        options["fields.default-aggregate-function"] = dice.chance.choice(defaults)
    removing = retracting and dice.chance.random() < 0.3
    if removing:
        options["partial-update.remove-record-on-sequence-group"] = groups[0][0]
    elif dice.chance.random() < 0.15:
        options["ignore-delete"] = "true"
    columns = [nullable(plan) for plan in columns]
    pairs = retracting and not removing and dice.chance.random() < 0.15
    tags = {"begins with a retraction"} if pairs else set[str]()
    if removing or any(each.loses(retracting=retracting) for each in aggregated):
        tags.add(FOLDED_ALONE)
    return EnginePlan(
        columns=_shuffled(dice, columns),
        options=options,
        retracts=dice.chance.choice((0.2, 0.4)) if retracting else 0.0,
        adds_first=True,
        pairs=pairs,
        order_free=_order_free(aggregated),
        on_delete=frozenset(groups[0]) if removing else frozenset(),
        tags=frozenset(tags),
    )


def _values(dice: Dice) -> list[ColumnPlan]:
    return [value_column(dice, f"v{i}") for i in range(dice.chance.randint(1, 6))]


def _sequence(dice: Dice) -> tuple[list[ColumnPlan], dict[str, str]]:
    if dice.chance.random() < 0.55:
        return [], {}
    columns = [order_column(dice, f"s{i}") for i in range(dice.chance.choice((1, 1, 2)))]
    options = {"sequence.field": ",".join(plan.name for plan in columns)}
    if dice.chance.random() < 0.25:
        options["sequence.field.sort-order"] = "descending"
    return columns, options


def _shuffled(dice: Dice, columns: list[ColumnPlan]) -> tuple[ColumnPlan, ...]:
    return tuple(dice.chance.sample(columns, len(columns)))


def _order_free(aggregated: list[AggregatedColumn]) -> frozenset[str]:
    return frozenset(each.plan.name for each in aggregated if each.function in ORDER_FREE)
