"""What a query needs of each table: its columns and a condition, by Spark's own optimizer.

Spark passes neither columns nor conditions to a Python source. This module derives columns and
conditions from a plan:

1. Every mention of a table is a *probe*: a frame with the columns of the table, whose rows come
   from a Python function that has the name of the mention. Spark moves no condition below a probe.
2. Spark optimizes the query. A filter directly above a probe holds for every row of the table that
   the query needs, and a projection above that names every column.
3. The parts of the filter that compare a column with constants become a Polars expression. The
   other parts are left out: Spark applies the whole filter again.

INVARIANT: a condition is implied by the filter. If a probe is in the plan several times (a CTE, for
example), the conditions are joined by OR.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_bridge.worker import Batches

_CLOCK = ("CurrentDate", "CurrentTimestamp", "CurrentTime", "LocalTimestamp", "Now")
"""Expressions that Spark replaces by a constant at each action: a condition must not hold one."""
_EPOCH = dt.datetime(1970, 1, 1)
_COMPARISONS: Mapping[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "EqualTo": pl.Expr.eq,
    "EqualNullSafe": pl.Expr.eq_missing,
    "LessThan": pl.Expr.lt,
    "LessThanOrEqual": pl.Expr.le,
    "GreaterThan": pl.Expr.gt,
    "GreaterThanOrEqual": pl.Expr.ge,
}
_MIRRORED = {
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
}
_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double"})
_AS_THEY_ARE = frozenset({"boolean", "binary"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The positions of the columns that a query uses, and a condition on its rows; None for all."""

    columns: frozenset[int] | None = None
    where: pl.Expr | None = None

    def __or__(self, other: Need) -> Need:
        columns, where = self.columns, self.where
        return Need(
            columns=None if columns is None or other.columns is None else columns | other.columns,
            where=None if where is None or other.where is None else where | other.where,
        )


EVERYTHING = Need()
NOTHING = Need(columns=frozenset())


def probe(spark: SparkSession, name: str, schema: StructType) -> DataFrame:
    """A frame with these columns, for a plan only."""

    def nothing(batches: Batches) -> Batches:
        del batches
        yield from ()

    nothing.__name__ = name
    return spark.range(1).mapInArrow(nothing, schema)


def needs_of(df: DataFrame) -> dict[str, Need]:
    """The needs of a query by name of the probe; a probe whose rows are not needed is absent.

    Raises AttributeError or a PySparkException if the session shows no plan (Spark Connect).
    """
    execution = df._jdf.queryExecution()  # noqa: SLF001  Spark's only way
    timeless = not any(f'.{each}"' in execution.analyzed().toJSON() for each in _CLOCK)
    found: dict[str, Need] = {}
    for name, leaf, above in _leaves(execution.optimizedPlan(), []):
        need = _need(leaf, above, timeless=timeless)
        found[name] = need | found[name] if name in found else need
    return found


def _leaves(
    node: JavaObject, above: Sequence[JavaObject]
) -> Iterator[tuple[str, JavaObject, Sequence[JavaObject]]]:
    """Each frame of a Python function in a plan: its name, its node, and the nodes above it."""
    if node.nodeName() == "MapInArrow":
        yield node.functionExpr().name(), node, above
    for child in _list(node.children()):
        yield from _leaves(child, [*above, node])
    for query in _list(node.subqueries()):
        yield from _leaves(query, [])


def _need(leaf: JavaObject, above: Sequence[JavaObject], *, timeless: bool) -> Need:
    places = {
        each.exprId().id(): (place, each.name()) for place, each in enumerate(_list(leaf.output()))
    }
    nodes = list(reversed(above))
    where, used = None, set()
    if nodes and nodes[0].nodeName() == "Filter":
        condition = nodes.pop(0).condition()
        used |= _used(condition, places)
        if timeless:
            where = _translated(condition, {key: name for key, (_, name) in places.items()})
    if not nodes or nodes[0].nodeName() != "Project":
        return Need(where=where)
    return Need(columns=frozenset(used | _used(nodes[0], places)), where=where)


def _used(node: JavaObject, places: Mapping[int, tuple[int, str]]) -> set[int]:
    ids = [each.exprId().id() for each in _list(node.references().toSeq())]
    return {places[each][0] for each in ids if each in places}


def _translated(
    node: JavaObject, names: Mapping[int, str], *, exact: bool = False
) -> pl.Expr | None:
    """The condition as a Polars expression; None if there is none.

    Unless `exact`, the expression may be weaker: true wherever the condition is true.
    """
    kind = node.nodeName()
    parts = _list(node.children())
    if kind in {"And", "Or"}:
        one, two = (_translated(each, names, exact=exact) for each in parts)
        if one is None or two is None:
            return None if exact or kind == "Or" else one if two is None else two
        return one & two if kind == "And" else one | two
    if kind == "Not":
        inner = _translated(parts[0], names, exact=True)
        return None if inner is None else ~inner
    column = _column(node if kind == "AttributeReference" else parts[0] if parts else node, names)
    if kind == "AttributeReference":
        return column if node.dataType().simpleString() == "boolean" else None
    if column is None and kind in _COMPARISONS:
        kind, parts = _MIRRORED.get(kind, kind), parts[::-1]
        column = _column(parts[0], names)
    if column is None:
        return None
    return _of_column(kind, column, node, parts)


def _of_column(
    kind: str, column: pl.Expr, node: JavaObject, parts: Sequence[JavaObject]
) -> pl.Expr | None:
    """The condition `kind` on a column, the first of `parts`."""
    if kind == "IsNull":
        return column.is_null()
    if kind == "IsNotNull":
        return column.is_not_null()
    stored = parts[0].dataType().simpleString()
    if kind in {"In", "InSet"}:
        given = parts[1:] if kind == "In" else _list(node.hset().toSeq())
        raws = (
            [each.value() if _is_literal(each) else None for each in given]
            if kind == "In"
            else given
        )
        values = [_value(raw, stored) for raw in raws]
        if any(each is None for each in values):
            return None
        return reduce(or_, (column == each for each in values))
    if len(parts) != 2 or not _is_literal(parts[1]):
        return None
    value = _value(parts[1].value(), stored)
    if value is None:
        return None
    if kind == "StartsWith":
        return column.str.starts_with(value)
    compare = _COMPARISONS.get(kind)
    return None if compare is None else compare(column, value)


def _column(node: JavaObject, names: Mapping[int, str]) -> pl.Expr | None:
    if node.nodeName() != "AttributeReference":
        return None
    name = names.get(node.exprId().id())
    return None if name is None else pl.col(name)


def _is_literal(node: JavaObject) -> bool:
    return bool(node.nodeName() == "Literal")


def _value(raw: JavaObject, kind: str) -> pl.Expr | None:
    """A constant of Spark as a value for Polars; None for a null, and for values without one."""
    if raw is None:
        return None
    if kind in _NUMBERS:
        number = float(raw) if kind in {"float", "double"} else int(raw)
        return pl.lit(number) if math.isfinite(number) else None
    if kind in _AS_THEY_ARE:
        return pl.lit(raw)
    if kind == "string":
        return pl.lit(raw.toString())
    if kind.startswith("decimal"):
        return pl.lit(Decimal(raw.toString()))
    try:
        if kind == "date":
            return pl.lit((_EPOCH + dt.timedelta(days=raw)).date())
        moment = _EPOCH + dt.timedelta(microseconds=raw)
    except OverflowError:
        return None
    if kind == "timestamp_ntz":
        return pl.lit(moment)
    return pl.lit(moment.replace(tzinfo=dt.UTC)) if kind == "timestamp" else None


def _list(values: JavaObject) -> list[JavaObject]:
    return [values.apply(place) for place in range(values.size())]
