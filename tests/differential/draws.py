"""A seed becomes a history; the same seed, the same history."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.differential.changelog_draws import draw_producer
from tests.differential.differences import spoils_avro
from tests.differential.engine_draws import ENGINES, WEIGHTS
from tests.differential.extra_draws import with_extra_steps
from tests.differential.history import History
from tests.differential.layout_draws import Laid, lay_out
from tests.differential.plans import ColumnPlan, nullable
from tests.differential.step_draws import StepDraws
from tests.differential.value_draws import Dice, draw_key_type, draw_value
from tests.interop import values
from tests.interop.cases import PARTITIONS
from tests.interop.columns import Column, parse_type
from tests.interop.model import case

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.differential.plans import EnginePlan

FORMATS = ("parquet", "parquet", "orc", "avro")
# The share of tables to which rows are given of kinds that few of them take.
UNWELCOME = 0.06
# The share of tables that writes compact, whatever the sizes of files, which are each engine's own.
INLINE = 0.35
# The share of those that only Java writes.
FOREIGN = 0.2
# The share of tables with deletion vectors, of those that may have them.
VECTORS = 0.2
COMPACTING = {"num-sorted-run.compaction-trigger": "1", "num-levels": "4"}


def draw(seed: int, engine: str | None = None) -> History:
    """The history of a seed, of this merge engine if one is named."""
    chance = random.Random(seed)
    drawn = chance.choices(list(ENGINES), WEIGHTS)[0]
    engine = engine or drawn
    dice = Dice(chance, chance.choice(FORMATS))
    plan = ENGINES[engine](dice)
    if plan.keyed:
        keys = _keys(dice, binary=engine != "first-row")
        partition = _partition(chance, keys)
        bucketing = _buckets(chance)
    else:
        keys, partition, bucketing = _placing(dice)
    if not plan.retracts and plan.keyed and chance.random() < UNWELCOME:
        plan = replace(plan, retracts=0.1)
    inline = chance.random() < INLINE
    options = {
        **(COMPACTING if inline else {"write-only": "true"}),
        "file.format": dice.file_format,
        **bucketing,
        **_writing(dice),
        **plan.options,
    }
    columns = _placed(chance, keys, plan.columns)
    if plan.keyed:
        options |= draw_producer(seed, plan, keys, columns)
    if engine == "partial-update" and options.get("changelog-producer") == "input":
        # A verb tells there the parts that it sets; a plain rewriting tells whole rows.
        plan = replace(plan, verbs=())
    binary = any(key.column.type.root in values.BINARIES for key in keys)
    marked = _takes_vectors(plan, options) and not binary and chance.random() < VECTORS
    if marked:
        inline = True
        options = {key: text for key, text in options.items() if key != "write-only"}
        options |= {**COMPACTING, "deletion-vectors.enabled": "true"}
        # With more runs, a compaction takes level 0 alone and marks the rows above.
        options["num-sorted-run.compaction-trigger"] = chance.choice(("1", "3", "6"))
        if chance.random() < 0.3:
            options["deletion-vectors.bitmap64"] = "true"
    plain = Laid(layout="plain", columns=columns, partition=partition, options=options)
    laid = lay_out(seed, dice, plan, plain)
    table = case(
        f"seed {seed}: {engine}, {dice.file_format}, {laid.layout}",
        [column.column for column in laid.columns],
        [],
        primary_keys=[key.name for key in keys] if plan.keyed else [],
        partition_keys=laid.partition,
        options=laid.options,
    )
    drawing = StepDraws(dice, plan, table, keys, laid.columns, inline=inline, layout=laid.layout)
    history = History(
        seed=seed,
        table=table,
        steps=tuple(drawing.steps()),
        order_free=plan.order_free,
        tags=plan.tags,
        # What a commit of one engine differs in, a relay would carry into the other's table.
        relayed=not plan.pairs and chance.random() < 0.35,
        foreign=marked and chance.random() < FOREIGN and laid.layout not in ("postponed", "across"),
        layout=laid.layout,
    )
    history = with_extra_steps(history)
    if laid.layout == "postponed" and spoils_avro(history):
        # Java cannot write such rows to the postponed bucket: see `differences.NOT_DRAWN`.
        return replace(history, relayed=False)
    return history


def _buckets(chance: random.Random) -> dict[str, str]:
    count = chance.choice(("1", "1", "2", "4", "-1"))
    if count == "-1" and chance.random() < 0.7:
        return {"bucket": count, "dynamic-bucket.target-row-num": chance.choice(("2", "5"))}
    return {"bucket": count}


def _placing(dice: Dice) -> tuple[list[ColumnPlan], list[str], dict[str, str]]:
    """Columns by which rows without a key are placed: partition keys, options of buckets."""
    chance = dice.chance
    found: list[ColumnPlan] = []
    partition: list[str] = []
    if chance.random() < 0.5:
        (key,) = _keys(dice, binary=False, count=1)
        if _partitionable(key):
            nulls = chance.choice((0.0, 0.2))
            plan = replace(key, column=Column("p0", key.column.type), nulls=nulls)
            found.append(nullable(plan) if nulls else plan)
            partition = ["p0"]
    # Packing asks for several files.
    options = {"bucket": "-1", "compaction.min.file-num": chance.choice(("2", "3", "5"))}
    if chance.random() < 0.5:
        (key,) = _keys(dice, binary=True, count=1)
        found.append(replace(key, column=Column("b0", key.column.type)))
        options |= {"bucket": chance.choice(("1", "2", "4")), "bucket-key": "b0"}
    return found, partition, options


def _takes_vectors(plan: EnginePlan, options: Mapping[str, str]) -> bool:
    """Whether both engines write deletion vectors for such a table."""
    producer = options.get("changelog-producer", "none")
    if "aggregation.remove-record-on-delete" in options:
        # Java's compaction fails to write the null that its look-up leaves of a removed record.
        return False
    return plan.keyed and not plan.compacts_always and producer in ("none", "lookup")


def _keys(dice: Dice, *, binary: bool, count: int = 0) -> list[ColumnPlan]:
    """Key columns. Java's compaction of a first-row table cannot look binary ones up."""
    chance = dice.chance
    keys = []
    for index in range(count or chance.choice((1, 1, 2, 3))):
        kind = draw_key_type(dice)
        if kind.root in values.BINARIES and not binary:
            kind = parse_type("STRING NOT NULL")
        pool = tuple(draw_value(dice, kind, plain=True) for _ in range(chance.randint(1, 4)))
        keys.append(ColumnPlan(Column(f"k{index}", kind), pool))
    return keys


def _partition(chance: random.Random, keys: list[ColumnPlan]) -> list[str]:
    """A key column to partition by, if there are more; of the types that partitions may have."""
    able = [key.name for key in keys if _partitionable(key)]
    return [chance.choice(able)] if len(keys) > 1 and able and chance.random() < 0.4 else []


def _partitionable(key: ColumnPlan) -> bool:
    roots = {name.split("(")[0].split(" ")[0] for name in PARTITIONS} - {"FLOAT", "DOUBLE"}
    return key.column.type.root.removesuffix("_LTZ") in roots


def _writing(dice: Dice) -> dict[str, str]:
    """Options that change files, and no row."""
    chance = dice.chance
    options = {}
    if chance.random() < 0.1:
        options["data-file.thin-mode"] = "true"
    if chance.random() < 0.1:
        # Java hands the name to Avro, which knows no `none` and no `lz4`.
        codecs = ("snappy",) if dice.file_format == "avro" else ("none", "lz4", "snappy")
        options["file.compression"] = chance.choice(codecs)
    if chance.random() < 0.1:
        options["metadata.stats-mode"] = chance.choice(("none", "counts", "full"))
    return options


def _placed(
    chance: random.Random, keys: list[ColumnPlan], others: tuple[ColumnPlan, ...]
) -> list[ColumnPlan]:
    """The columns of the table: the keys first, or anywhere among the others, in any order."""
    if chance.random() < 0.6:
        return [*keys, *others]
    columns = list(others)
    for key in keys:
        columns.insert(chance.randint(0, len(columns)), key)
    return columns
