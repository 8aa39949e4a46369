"""A seed becomes a history; the same seed, the same history."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.differential.changelog_draws import draw_producer
from tests.differential.engine_draws import ENGINES, WEIGHTS
from tests.differential.history import Compact, History, Write
from tests.differential.plans import ADDS, RETRACTS, ColumnPlan, EnginePlan
from tests.differential.value_draws import Dice, draw_key_type, draw_value
from tests.interop import values
from tests.interop.cases import PARTITIONS
from tests.interop.columns import Column, parse_type
from tests.interop.model import case

if TYPE_CHECKING:
    from tests.differential.history import Step
    from tests.interop.columns import Json
    from tests.interop.values import Row

FORMATS = ("parquet", "parquet", "orc", "avro")
STEPS_MAX = 6
ROWS_MAX = 30
# The share of tables to which rows are given of kinds that few of them take.
UNWELCOME = 0.06
# The share of tables that writes compact, whatever the sizes of files, which are each engine's own.
INLINE = 0.35
COMPACTING = {"num-sorted-run.compaction-trigger": "1", "num-levels": "4"}


def draw(seed: int, engine: str | None = None) -> History:
    """The history of a seed, of this merge engine if one is named."""
    chance = random.Random(seed)
    drawn = chance.choices(list(ENGINES), WEIGHTS)[0]
    engine = engine or drawn
    file_format = chance.choice(FORMATS)
    dice = Dice(chance, file_format)
    keys = _keys(dice, binary=engine != "first-row")
    partition = _partition(chance, keys)
    plan = ENGINES[engine](dice)
    if not plan.retracts and chance.random() < UNWELCOME:
        plan = replace(plan, retracts=0.1)
    # Its own dice: what else a seed draws stays as it is.
    inline = random.Random(f"{seed} inline").random() < INLINE
    options = {
        **(COMPACTING if inline else {"write-only": "true"}),
        "file.format": file_format,
        "bucket": chance.choice(("1", "1", "2", "4")),
        **_writing(dice),
        **plan.options,
    }
    columns = _placed(chance, keys, plan.columns)
    options |= draw_producer(seed, plan, keys, columns)
    table = case(
        f"seed {seed}: {engine}, {file_format}",
        [column.column for column in columns],
        [],
        primary_keys=[key.name for key in keys],
        partition_keys=partition,
        options=options,
    )
    return History(
        seed=seed,
        table=table,
        steps=tuple(_steps(chance, plan, keys, columns, inline=inline)),
        order_free=plan.order_free,
        tags=plan.tags,
        # What a commit of one engine differs in, a relay would carry into the other's table.
        relayed=not plan.pairs and chance.random() < 0.35,
    )


def _keys(dice: Dice, *, binary: bool) -> list[ColumnPlan]:
    """Key columns. Java's compaction of a first-row table cannot look binary ones up."""
    chance = dice.chance
    keys = []
    for index in range(chance.choice((1, 1, 2, 3))):
        kind = draw_key_type(dice)
        if kind.root in values.BINARIES and not binary:
            kind = parse_type("STRING NOT NULL")
        pool = tuple(draw_value(dice, kind, plain=True) for _ in range(chance.randint(1, 4)))
        keys.append(ColumnPlan(Column(f"k{index}", kind), pool))
    return keys


def _partition(chance: random.Random, keys: list[ColumnPlan]) -> list[str]:
    """A key column to partition by, if there are more; of the types that partitions may have."""
    roots = {name.split("(")[0].split(" ")[0] for name in PARTITIONS} - {"FLOAT", "DOUBLE"}
    able = [key.name for key in keys if key.column.type.root.removesuffix("_LTZ") in roots]
    return [chance.choice(able)] if len(keys) > 1 and able and chance.random() < 0.4 else []


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


def _steps(
    chance: random.Random,
    plan: EnginePlan,
    keys: list[ColumnPlan],
    columns: list[ColumnPlan],
    *,
    inline: bool,
) -> list[Step]:
    names = [column.name for column in columns]
    held = [[key.draw(chance) for key in keys] for _ in range(chance.randint(1, 8))]
    # Keys that a merge of all files begins with a row that adds.
    begun: set[str] = set()
    deleted: set[str] = set()
    compacting = plan.compacts_always or chance.random() < 0.25
    steps: list[Step] = []
    for _ in range(chance.randint(1, STEPS_MAX)):
        changes = []
        drawn = [chance.choice(held) for _ in range(chance.choice((1, 3, 8, 15, ROWS_MAX)))]
        if "descending" in plan.tags:
            drawn = [list(key) for key in {repr(key): key for key in drawn}.values()]
        for key, drawn_kind in _kinds(chance, plan, drawn, begun):
            kind = drawn_kind
            if plan.deletes_stay and kind == "-U" and repr(key) in deleted:
                kind = "-D"
            deleted = deleted | {repr(key)} if kind == "-D" else deleted - {repr(key)}
            row = [column.draw(chance) for column in columns]
            for column, value in zip(keys, key, strict=True):
                row[names.index(column.name)] = value
            if kind == "-D":
                row = _held_on_delete(row, plan, columns)
            changes.append((kind, row))
        steps.append(Write(tuple(changes)))
        if inline:
            begun.clear()
        if plan.compacts_always or (compacting and chance.random() < 0.4):
            steps.append(Compact(full=chance.random() < 0.5))
            # A full compaction drops deletions, so the next row of a key may be its first.
            begun.clear()
    return steps


def _kinds(
    chance: random.Random, plan: EnginePlan, drawn: list[list[Json]], begun: set[str]
) -> list[tuple[list[Json], str]]:
    """The keys of a commit, each with the kind of its row."""
    if "rowkind.field" in plan.options:
        return [(key, "+I") for key in drawn]
    found = []
    for key in drawn:
        retracts = chance.random() < plan.retracts
        found.append((key, chance.choice(RETRACTS if retracts else ADDS)))
    if plan.pairs:
        # Changes as a database tells them: the row before, the row after.
        known = [key for key in drawn if repr(key) in begun]
        found = [pair for key in known for pair in ((key, "-U"), (key, "+U"))] + found
    if plan.adds_first:
        found = _adds_first(found, begun, pairs=plan.pairs)
    begun |= {repr(key) for key in drawn}
    return found


def _adds_first(
    found: list[tuple[list[Json], str]], begun: set[str], *, pairs: bool
) -> list[tuple[list[Json], str]]:
    """The same, but a key's first row adds, unless it is the only one and older ones are there."""
    often: dict[str, int] = {}
    for key, _ in found:
        often[repr(key)] = often.get(repr(key), 0) + 1
    seen: set[str] = set()
    out = []
    for key, kind in found:
        first = repr(key) not in seen
        seen.add(repr(key))
        fine = repr(key) in begun and (pairs or often[repr(key)] == 1)
        out.append((key, "+I" if first and kind in RETRACTS and not fine else kind))
    return out


def _held_on_delete(row: Row, plan: EnginePlan, columns: list[ColumnPlan]) -> Row:
    """The row with the columns filled that a -D must hold to remove a record."""
    return [
        column.pool[0] if value is None and column.name in plan.on_delete else value
        for column, value in zip(columns, row, strict=True)
    ]
