"""Random conditions on the columns of a table, in Polars, in Arrow and in SQL.

A condition is a tree: ("and" | "or", left, right), ("not", inner), or a leaf whose column is a
field.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from lakecore.model.types import Atomic, Field, Root, arrow_type, with_nullable
from lakecore.sql.tokens import quoted, quoted_text
from lakecore.testing.table_draws import Shape, values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakecore.model.schema import TableSchema

Tree: TypeAlias = "tuple[Any, ...]"

COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@st.composite
def leaves(draw: st.DrawFn, fields: Sequence[Field]) -> Tree:
    """A condition on one column, with values that the column may hold."""
    field = draw(st.sampled_from(fields))
    if not isinstance(field.type, Atomic):
        return (draw(st.sampled_from(["null", "not null"])), field)
    literal = values(with_nullable(field.type, nullable=False))
    is_text = field.type.root is Root.VARCHAR
    kinds = ["compare", "compare", "compare", "in", "null", "not null", "between"]
    match draw(st.sampled_from(kinds + ["starts"] * 2 * is_text)):
        case "compare":
            return ("compare", field, draw(st.sampled_from([*COMPARISONS])), draw(literal))
        case "in":
            return ("in", field, draw(st.lists(literal, min_size=1, max_size=3)))
        case "between":
            return ("between", field, draw(literal), draw(literal))
        case "starts":
            return ("starts", field, draw(literal)[: draw(st.integers(0, 3))])
        case kind:
            return (kind, field)


@dataclass(frozen=True)
class Condition:
    """A condition on the rows of a table, as a Polars or Arrow expression and as SQL.

    A comparison with NaN is false in Arrow, except `!=`. The sets of IN contain no null: Polars and
    SQL treat such a null differently.

        table.scan(where=condition.as_polars())
        table.scan(where=condition.as_sql())
    """

    tree: Tree

    def as_polars(self) -> pl.Expr:
        """The condition as a user of Polars writes it."""
        return _as_polars(self.tree)

    def as_arrow(self) -> pc.Expression:
        """The condition as a filter of an Arrow dataset or table."""
        return _as_arrow(self.tree)

    def as_sql(self) -> str:
        """The condition in SQL, as DuckDB reads it."""
        return _as_sql(self.tree)

    def __repr__(self) -> str:
        return f"Condition({self.as_sql()})"


def conditions(schema: TableSchema | Shape) -> st.SearchStrategy[Condition]:
    """Conditions on the columns of a table; half of the comparisons are on keys and partitions.

    The conditions compare with values that `rows` also draws. `as_polars()` and `as_sql()` of a
    `Condition` select the same rows.

        @given(condition=conditions(shape))
        def test_filters_agree(condition): ...
    """
    schema = schema.schema if isinstance(schema, Shape) else schema
    keyed = {*schema.primary_keys, *schema.partition_keys}
    held = [field for field in schema.fields if field.name in keyed]
    leaf = leaves(schema.fields)
    trees = st.recursive(
        st.one_of(leaf, leaves(held)) if held else leaf,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["and", "or"]), inner, inner),
            st.tuples(st.just("not"), inner),
        ),
        max_leaves=4,
    )
    return trees.map(Condition)


def _as_polars(tree: Tree) -> pl.Expr:
    match tree:
        case ("and", left, right):
            return _as_polars(left) & _as_polars(right)
        case ("or", left, right):
            return _as_polars(left) | _as_polars(right)
        case ("not", inner):
            return ~_as_polars(inner)
        case ("compare", field, op, value):
            compared: pl.Expr = COMPARISONS[op](pl.col(field.name), _literal(field, value))
            return compared
        case ("between", field, low, high):
            return pl.col(field.name).is_between(_literal(field, low), _literal(field, high))
        case ("in", field, some):
            held = pl.Series(pa.array(some, arrow_type(field.type)))
            return pl.col(field.name).is_in(held.implode())
        case ("starts", field, prefix):
            return pl.col(field.name).str.starts_with(pl.lit(prefix))
        case ("null", field):
            return pl.col(field.name).is_null()
        case ("not null", field):
            return pl.col(field.name).is_not_null()
    raise AssertionError(tree)


def _as_arrow(tree: Tree) -> pc.Expression:
    match tree:
        case ("and", left, right):
            return _as_arrow(left) & _as_arrow(right)
        case ("or", left, right):
            return _as_arrow(left) | _as_arrow(right)
        case ("not", inner):
            return ~_as_arrow(inner)
        case ("between", field, low, high):
            both = ("compare", field, ">=", low), ("compare", field, "<=", high)
            return _as_arrow(("and", *both))
        case ("compare", field, op, value):
            literal = pa.scalar(value, arrow_type(field.type))
            compared: pc.Expression = COMPARISONS[op](pc.field(field.name), literal)
            return compared
        case ("in", field, some):
            return pc.field(field.name).isin(pa.array(some, arrow_type(field.type)))
        case ("starts", field, prefix):
            return pc.starts_with(pc.field(field.name), prefix)
        case ("null", field):
            return pc.field(field.name).is_null()
        case ("not null", field):
            return pc.field(field.name).is_valid()
    raise AssertionError(tree)


def _as_sql(tree: Tree) -> str:
    match tree:
        case ("and" | "or" as word, left, right):
            return f"({_as_sql(left)} {word} {_as_sql(right)})"
        case ("not", inner):
            return f"(not {_as_sql(inner)})"
        case ("compare", field, op, value):
            return f"{quoted(field.name)} {op} {_sql(value)}"
        case ("between", field, low, high):
            return f"{quoted(field.name)} between {_sql(low)} and {_sql(high)}"
        case ("in", field, some):
            return f"{quoted(field.name)} in ({', '.join(map(_sql, some))})"
        case ("starts", field, prefix):
            return f"starts_with({quoted(field.name)}, {_sql(prefix)})"
        case ("null", field):
            return f"{quoted(field.name)} is null"
        case ("not null", field):
            return f"{quoted(field.name)} is not null"
    raise AssertionError(tree)


def _literal(field: Field, value: Any) -> pl.Expr:
    """The value as a literal of Polars, whose times of day are in nanoseconds."""
    return pl.lit(pl.Series(pa.array([value], arrow_type(field.type))).item())


def _sql(value: Any) -> str:
    match value:
        case bool():
            return str(value)
        case float():
            return f"{value!r}::double" if math.isfinite(value) else f"'{value}'::double"
        case bytes():
            return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::blob"
        case datetime() if value.tzinfo is not None:
            return f"timestamptz '{value:%Y-%m-%d %H:%M:%S.%f}+00'"
        case datetime():
            return f"timestamp '{value:%Y-%m-%d %H:%M:%S.%f}'"
        case date():
            return f"date '{value}'"
        case time():
            return f"time '{value:%H:%M:%S.%f}'"
        case str():
            return quoted_text(value)
        case int() | Decimal():
            return f"{value}"
    raise AssertionError(value)
