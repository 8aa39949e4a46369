"""What DELETE, UPDATE and MERGE mean, for an engine that has no such verbs: rows to write instead.

Java Paimon leaves the verbs to Flink and Spark. So its rows are read, changed here, and written: by
kind where there is a key, or all of them anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import polars as pl

from tests.differential.steps import Change, Delete, Update, Upsert, Where
from tests.interop import values

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from pathlib import Path

    from tests.differential.history import History
    from tests.differential.shape import Shape
    from tests.differential.steps import Verb
    from tests.interop.columns import Column
    from tests.interop.engines import PeerEngine
    from tests.interop.lakecore_engine import LakecoreEngine
    from tests.interop.values import Row


def play_by_lakecore(engine: LakecoreEngine, path: Path, step: Verb) -> None:
    """The verb itself."""
    match step:
        case Delete():
            engine.delete(path, expression(step.where))
        case Update():
            engine.update(path, {step.column: step.value}, expression(step.where))
        case Upsert():
            engine.upsert(path, step.rows, step.on)


def play_by_peer(
    engine: PeerEngine, path: Path, step: Verb, history: History, shape: Shape
) -> None:
    """The same by reading and writing; nothing if no row changes."""
    rows = engine.read(path)
    pairs, added = _changed(step, rows, shape)
    if not added and all(new is old for old, new in pairs):
        return
    if not history.table.primary_keys:
        kept = [("+I", new) for _, new in pairs if new is not None]
        if kept or added:
            engine.overwrite(path, (*kept, *(("+I", row) for row in added)))
        else:
            engine.clear(path)
        return
    changes: list[Change] = []
    for old, new in pairs:
        if new is None:
            changes.append(("-D", _deletion(old, history, shape)))
        elif new is not old:
            changes += [("-U", old)] if history.producer == "input" else []
            changes.append(("+U", new))
    engine.write(path, (*changes, *(("+I", row) for row in added)))


def _deletion(row: Row, history: History, shape: Shape) -> Row:
    """What a -D holds; as little as can be, where the next row of its key begins with that."""
    if history.engine == "deduplicate":
        return row
    order = history.table.options.get("sequence.field", "").split(",")
    kept = {*history.table.primary_keys, *order}
    columns = zip(shape.identities, shape.columns, row, strict=True)
    return [
        value if identity in kept or not column.type.nullable else None
        for identity, column, value in columns
    ]


def expression(where: Where) -> pl.Expr:
    """The condition as lakecore takes it."""
    column = pl.col(where.column)
    match where.operator:
        case "is null":
            return column.is_null()
        case "is not null":
            return column.is_not_null()
        case "=":
            return column == pl.lit(where.value)
        case "<":
            return column < pl.lit(where.value)
        case _:
            return column >= pl.lit(where.value)


def draw_condition(chance: random.Random, columns: Sequence[Column], rows: Sequence[Row]) -> Where:
    """A condition on one of the columns, by a value that it has in a row, if that is plain."""
    judge = chance.randrange(len(columns))
    held = [row[judge] for row in rows if row[judge] is not None]
    if columns[judge].type.root in {*values.INTEGERS, *values.TEXTS} and held:
        operator: Literal["=", "<", ">="] = chance.choice(("=", "<", ">="))
        return Where(columns[judge].name, operator, chance.choice(held))
    return Where(columns[judge].name, chance.choice(("is null", "is not null")))


def _changed(
    step: Verb, rows: Sequence[Row], shape: Shape
) -> tuple[list[tuple[Row, Row | None]], list[Row]]:
    """Each row and what becomes of it, None if it goes; and the rows that come."""
    names = shape.names
    if isinstance(step, Upsert):
        at = [names.index(name) for name in step.on]
        source = {repr([row[i] for i in at]): row for row in step.rows if _joins(row, at)}
        keys = [repr([row[i] for i in at]) for row in rows]
        pairs = [(row, source.get(key, row)) for key, row in zip(keys, rows, strict=True)]
        missing = set(source) - set(keys)
        added = [
            row for row in step.rows if not _joins(row, at) or repr([row[i] for i in at]) in missing
        ]
        return list(pairs), added
    judge = names.index(step.where.column)
    matched = [step.where.holds(row[judge]) for row in rows]
    if isinstance(step, Delete):
        return [(row, None if hit else row) for row, hit in zip(rows, matched, strict=True)], []
    at_set = names.index(step.column)
    return [
        (row, [*row[:at_set], step.value, *row[at_set + 1 :]] if hit else row)
        for row, hit in zip(rows, matched, strict=True)
    ], []


def _joins(row: Row, at: Sequence[int]) -> bool:
    return all(row[index] is not None for index in at)
