"""The two sides of a MERGE, as conditions and values name them.

`source.x` is a column of the source, `target.x` one of the table. `x` alone is the column of the
side that has one; where both have it, the expression must say which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.plan.predicate import sql_to_polars
from lakecore.plan.predicate.qualified import join_qualifiers
from lakecore.table.reads.row_values import check_expression, plain_value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import numpy as np

SOURCE, TARGET = "source.", "target."


@dataclass(frozen=True, slots=True)
class Picked:
    """Some rows of a table, by position; a column of them is taken when it is asked for."""

    rows: pa.Table
    at: np.ndarray

    def column(self, name: str) -> pa.ChunkedArray:
        """The values of one column."""
        return self.rows.column(name).take(pa.array(self.at))

    def table(self, names: Sequence[str]) -> pa.Table:
        """Columns of the rows."""
        return self.rows.select(list(names)).take(pa.array(self.at))

    def of(self, chosen: np.ndarray) -> Picked:
        """Some of them."""
        return Picked(self.rows, self.at[chosen])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The columns that an expression may name; None is a side that has no row there."""

    source: pa.Schema | None = None
    target: pa.Schema | None = None

    @property
    def schema(self) -> pa.Schema:
        """Every name that means one column, with its type."""
        return pa.schema(
            [pa.field(name, column.type) for name, (_, column) in self._names().items()]
        )

    def condition(self, condition: pl.Expr | str | None, what: str) -> pl.Expr | None:
        """A condition of the user, checked; None if there is none."""
        if condition is None:
            return None
        if isinstance(condition, str):
            prefixes = (SOURCE[:-1], TARGET[:-1])
            plain = pa.schema([each.with_type(_plain(each.type)) for each in self.schema])
            return sql_to_polars(join_qualifiers(condition, prefixes), plain)
        if isinstance(condition, pl.Expr):
            self._check_names(condition)
        check_expression(condition, self.schema, what, boolean=True)
        return condition

    def check_values(self, values: Mapping[str, object], target: pa.Schema) -> None:
        """Raise InvalidRequest for a value that cannot be computed, or an unknown column."""
        for name, value in values.items():
            if name not in target.names:
                raise InvalidRequest("unknown column", column=name, columns=target.names)
            if isinstance(value, pl.Expr):
                self._check_names(value)
                check_expression(value, self.schema, f"the value of {name}")
            else:
                plain_value(target.field(name), value)

    def target_columns(self, expressions: Iterable[object]) -> tuple[str, ...]:
        """The columns of the table that these expressions look at."""
        return tuple(dict.fromkeys(self.of_side(expressions, TARGET).values()))

    def of_side(self, expressions: Iterable[object], side: str) -> dict[str, str]:
        """The names in the expressions that mean columns of a side, and those columns."""
        names = self._names()
        found = {root: names[root] for root in _roots(expressions)}
        return {root: column.name for root, (own, column) in found.items() if own == side}

    def rows(
        self, expressions: Collection[object], source: Picked | None, target: Picked | None
    ) -> pa.Table:
        """The rows of both sides, next to each other, as the columns that expressions name."""
        columns: dict[str, pa.ChunkedArray] = {}
        for side, picked in ((SOURCE, source), (TARGET, target)):
            for name, column in self.of_side(expressions, side).items():
                assert picked is not None
                columns[name] = picked.column(column)
        if not columns:
            # Some column is needed, or nothing says how many rows there are.
            picked = source if source is not None else target
            assert picked is not None
            columns[""] = pa.chunked_array([pa.nulls(len(picked.at))])
        return pa.table(columns)

    def _names(self) -> dict[str, tuple[str, pa.Field]]:
        found: dict[str, tuple[str, pa.Field]] = {}
        bare: dict[str, list[tuple[str, pa.Field]]] = {}
        for side, schema in ((SOURCE, self.source), (TARGET, self.target)):
            for column in schema or ():
                found[side + column.name] = (side, column)
                bare.setdefault(column.name, []).append((side, column))
        alone = {name: each[0] for name, each in bare.items() if len(each) == 1}
        return {**alone, **found}

    def _check_names(self, expression: pl.Expr) -> None:
        for name in expression.meta.root_names():
            if self.source is None or self.target is None:
                absent = SOURCE if self.source is None else TARGET
                if name.startswith(absent):
                    raise InvalidRequest(f"there is no row of the {absent[:-1]} here", column=name)
            elif name in self.source.names and name in self.target.names:
                raise InvalidRequest(
                    "both sides have this column: say which is meant",
                    column=name,
                    columns=(SOURCE + name, TARGET + name),
                )


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type that SQL knows, of a text or binary laid out otherwise."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind


def _roots(expressions: Iterable[object]) -> list[str]:
    return list(
        dict.fromkeys(
            name
            for each in expressions
            if isinstance(each, pl.Expr)
            for name in each.meta.root_names()
        )
    )
