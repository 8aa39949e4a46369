"""What is special about how a table lies in its files, drawn beside what its rows mean.

- `postponed`: bucket -2. Rows lie in the postponed bucket until lakecore moves them, for Java's
  core has no job that does. Java's table has one bucket in its place, and is compacted then.
- `across`: the primary key lacks the partition key, so that keys move between partitions.
- `rescaled`: partitions get another number of buckets. Java reads and overwrites them.
- `expiring`: rows expire in full compactions. Their times lie decades apart from any test.
- `clustered`: lakecore sorts the rows of both tables; Java reads them and goes on.
- `marked`: a table without a key whose verbs mark rows in deletion vectors.
- `indexed`: files have indexes, and each engine reads by those of the other.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from tests.differential.plans import ColumnPlan
from tests.differential.value_draws import draw_value
from tests.interop import values
from tests.interop.columns import Column, parse_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.differential.plans import EnginePlan
    from tests.differential.value_draws import Dice
    from tests.interop.columns import Type

Layout: TypeAlias = Literal[
    "plain", "postponed", "across", "rescaled", "expiring", "clustered", "marked", "indexed"
]
LAYOUTS: tuple[Layout, ...] = (
    *("plain", "postponed", "across", "rescaled", "expiring", "clustered", "marked", "indexed"),
)
# The share of tables that are not plain.
SHARE = 0.5
PLACE, TIME = "p9", "t9"
# How often a layout is drawn of the tables that can have it: few tables can have some.
_WEIGHTS: Mapping[str, int] = {"rescaled": 2, "expiring": 2, "clustered": 9, "marked": 3}
# 1990 and 2100, as seconds.
_TIMES = (631_152_000, 4_102_444_800)
_PLACES = ("INT", "STRING", "DATE", "BIGINT")
_NUMBERS = frozenset({*values.INTEGERS, "DATE", "DECIMAL"})
_INDEXABLE: Mapping[str, frozenset[str]] = {
    "bloom-filter": frozenset({*values.INTEGERS, "STRING", "VARCHAR", "DATE"}),
    "bitmap": frozenset({*values.INTEGERS, "STRING", "VARCHAR", "DATE", "BOOLEAN"}),
    "range-bitmap": frozenset({*values.INTEGERS, "STRING", "VARCHAR", "DATE", "BOOLEAN"}),
    "bsi": frozenset({*values.INTEGERS, "DATE"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """The layout of a table, and what it makes of the columns, partition keys and options."""

    layout: Layout
    columns: Sequence[ColumnPlan]
    partition: Sequence[str]
    options: Mapping[str, str]


def lay_out(seed: int, dice: Dice, plan: EnginePlan, plain: Laid) -> Laid:
    """The table in a layout that it can have; as it is for a share of the tables."""
    # Its own dice: what else a seed draws stays as it is.
    chance = random.Random(f"{seed} layout")
    dice = replace(dice, chance=chance)
    if chance.random() >= SHARE:
        return plain
    able = [each for each in LAYOUTS[1:] if _is_able(each, plan, plain)]
    (layout,) = chance.choices(able, [_WEIGHTS.get(each, 1) for each in able])
    options = dict(plain.options)
    columns, partition = list(plain.columns), list(plain.partition)
    match layout:
        case "postponed":
            options = {key: text for key, text in options.items() if "dynamic-bucket" not in key}
            options |= {"bucket": "-2", "postpone.default-bucket-num": chance.choice(("1", "3"))}
            if options.get("file.compression") in ("none", "lz4"):
                # See `differences.NOT_DRAWN`.
                options["file.compression"] = "snappy"
        case "across":
            options |= {"bucket": "-1", "dynamic-bucket.target-row-num": chance.choice(("2", "9"))}
            kind = parse_type(chance.choice(_PLACES))
            pool = tuple(draw_value(dice, kind, plain=True) for _ in range(3))
            place = ColumnPlan(Column(PLACE, kind), pool, chance.choice((0.0, 0.2)))
            columns.insert(chance.randint(0, len(columns)), place)
            partition = [PLACE]
        case "expiring":
            kind = parse_type(chance.choice(("INT", "BIGINT")))
            old, late = _TIMES
            pool = (old, late if kind.root == "BIGINT" else 2_147_483_000)
            columns.append(ColumnPlan(Column(TIME, kind), pool, chance.choice((0.0, 0.2))))
            options |= {
                "record-level.expire-time": "3650 d",
                "record-level.time-field": TIME,
                "write-only": "true",
            }
            options.pop("metadata.stats-mode", None)
        case "clustered" if chance.random() < 0.4:
            named = chance.sample(columns, min(len(columns), chance.randint(1, 2)))
            able_columns = [each.name for each in named if _is_sortable(each.column.type)]
            if able_columns:
                options |= {
                    "clustering.incremental": "true",
                    "clustering.columns": ",".join(able_columns),
                }
        case "marked":
            options["deletion-vectors.enabled"] = "true"
            if chance.random() < 0.3:
                options["deletion-vectors.bitmap64"] = "true"
        case "indexed":
            options |= _indexes(chance, columns)
    return Laid(layout=layout, columns=columns, partition=partition, options=options)


def _is_able(layout: Layout, plan: EnginePlan, plain: Laid) -> bool:
    options = plain.options
    bucket, producer = options["bucket"], options.get("changelog-producer", "none")
    inline = options.get("write-only") != "true"
    match layout:
        case "postponed":
            return plan.keyed
        case "across":
            # Paimon refuses sequence fields there; retractions: see `differences.NOT_DRAWN`.
            folds = options.get("merge-engine") in ("partial-update", "aggregation")
            # lakecore refuses to move a key that it cannot delete from its old partition.
            stuck = "ignore-delete" in options or "sequence.field" in options
            # Java takes its own deletions for rows that add: see `differences.NOT_DRAWN`.
            stuck |= "rowkind.field" in options
            return plan.keyed and not stuck and not (folds and plan.retracts)
        case "rescaled":
            return bucket != "-1"
        case "expiring":
            # Only full compactions drop the same rows in both: see `differences.NOT_DRAWN`.
            return plan.keyed and not inline and producer != "lookup"
        case "clustered":
            sortable = any(_is_sortable(each.column.type) for each in plain.columns)
            return not plan.keyed and bucket == "-1" and sortable
        case "marked":
            return not plan.keyed
        case _:
            return any(
                each.column.type.root in roots
                for each in plain.columns
                for roots in _INDEXABLE.values()
            )


def sortable_columns(columns: Sequence[ColumnPlan]) -> list[str]:
    """The columns that rows can be sorted by."""
    return [each.name for each in columns if _is_sortable(each.column.type)]


def _is_sortable(kind: Type) -> bool:
    return kind.root in {*_NUMBERS, "STRING", "VARCHAR", "BOOLEAN"}


def _indexes(chance: random.Random, columns: Sequence[ColumnPlan]) -> dict[str, str]:
    """Indexes of some columns, a column perhaps in several."""
    options: dict[str, str] = {}
    for index, roots in _INDEXABLE.items():
        able = [each.name for each in columns if each.column.type.root in roots]
        if not able or (options and chance.random() < 0.5):
            continue
        chosen = chance.sample(able, chance.randint(1, min(2, len(able))))
        options[f"file-index.{index}.columns"] = ",".join(chosen)
        if index == "bloom-filter":
            options |= {f"file-index.{index}.{name}.items": "40" for name in chosen}
    if chance.random() < 0.5:
        options["file-index.in-manifest-threshold"] = "1 b"
    return options
