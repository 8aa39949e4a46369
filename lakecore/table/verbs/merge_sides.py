"""The two sides of a MERGE, as conditions and values name them.

`source.x` is a column of the source, `target.x` one of the table. `x` alone names the column of the
only side that has a column `x`; if both sides have one, `x` must be qualified.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.scalar.names import find_name, unknown_column
from lakecore.scalar.values import LOCAL, Setting, Sql, parse_where, types_of
from lakecore.table.reads.row_values import (
    bound_values,
    check_expression,
    names_in,
    plain_value,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import numpy as np

    from lakecore.model.schema import TableSchema

SOURCE, TARGET = "source.", "target."


@dataclass(frozen=True, slots=True)
class Picked:
    """Rows of a table, selected by position. Each column is taken when it is first used."""

    rows: pa.Table
    at: np.ndarray

    def column(self, name: str) -> pa.ChunkedArray:
        """The values of one column."""
        return self.rows.column(name).take(pa.array(self.at))

    def table(self, names: Sequence[str]) -> pa.Table:
        """Columns of the rows."""
        return self.rows.select(list(names)).take(pa.array(self.at))

    def of(self, chosen: np.ndarray) -> Picked:
        """A subset of the rows."""
        return Picked(self.rows, self.at[chosen])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The columns that an expression may name.

    A side is None if its rows do not exist in this clause.
    """

    source: pa.Schema | None = None
    target: pa.Schema | None = None
    setting: Setting = LOCAL

    @property
    def schema(self) -> pa.Schema:
        """Every unambiguous column name, with its type."""
        return pa.schema(
            [pa.field(name, column.type) for name, (_, column) in self._names().items()]
        )

    def condition(self, condition: pl.Expr | str | None, what: str) -> pl.Expr | Sql | None:
        """The checked condition of the user; None if there is none."""
        if condition is None:
            return None
        if isinstance(condition, str):
            sql, _ = parse_where(condition, self.schema, self.setting, self._find)
            return sql
        if isinstance(condition, pl.Expr):
            self._check_names(condition)
        check_expression(condition, self.schema, what, boolean=True)
        return condition

    def values(self, values: Mapping[str, object], target: TableSchema) -> dict[str, object]:
        """The checked values.

        Raises InvalidRequest for a value that cannot be computed and for an unknown column.
        """
        for name in values:
            if name not in target.names:
                raise InvalidRequest("unknown column", column=name, columns=list(target.names))
        bound = bound_values(values, types_of(self.schema), target, self.setting, self._find)
        for name, value in bound.items():
            if isinstance(value, pl.Expr):
                self._check_names(value)
                check_expression(value, self.schema, f"the value of {name}")
            elif not isinstance(value, Sql):
                plain_value(target.arrow.field(name), value)
        return bound

    def target_columns(self, expressions: Iterable[object]) -> tuple[str, ...]:
        """The columns of the table that these expressions read."""
        return tuple(dict.fromkeys(self.of_side(expressions, TARGET).values()))

    def of_side(self, expressions: Iterable[object], side: str) -> dict[str, str]:
        """For each name in the expressions that refers to this side, the column that it means."""
        names = self._names()
        found = {root: names[root] for root in _roots(expressions)}
        return {root: column.name for root, (own, column) in found.items() if own == side}

    def rows(
        self, expressions: Collection[object], source: Picked | None, target: Picked | None
    ) -> pa.Table:
        """The rows of both sides joined horizontally, with the columns that expressions name."""
        columns: dict[str, pa.ChunkedArray] = {}
        for side, picked in ((SOURCE, source), (TARGET, target)):
            for name, column in self.of_side(expressions, side).items():
                assert picked is not None
                columns[name] = picked.column(column)
        if not columns:
            # Keep one column, so that the table knows its number of rows.
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

    def _find(self, parts: list[str]) -> tuple[str, list[str]]:
        """The column that a dotted SQL name refers to, and the parts that name its fields."""
        types = types_of(self.schema)
        for side, schema in ((SOURCE, self.source), (TARGET, self.target)):
            if len(parts) == 1 or parts[0].lower() != side[:-1]:
                continue
            if schema is None:
                raise InvalidRequest(
                    f"there is no row of the {side[:-1]} here", column=".".join(parts)
                )
            own = find_name(parts[1], types_of(schema))
            if own is not None:
                return side + own, parts[2:]
            raise unknown_column(parts[1], types_of(schema))
        bare = {name: kind for name, kind in types.items() if not _is_qualified(name, self)}
        found = find_name(parts[0], bare)
        if found is not None:
            return found, parts[1:]
        if self.source is not None and self.target is not None:
            both = {*self.source.names} & {*self.target.names}
            meant = find_name(parts[0], dict.fromkeys(both))
            if meant is not None:
                raise _on_both_sides(meant)
        meant_by = [
            side + parts[1]
            for side, own in ((SOURCE, self.source), (TARGET, self.target))
            if own is not None and len(parts) > 1 and parts[1] in own.names
        ]
        if meant_by:
            raise InvalidRequest(
                "the two sides of a merge are source and target: other names of tables are unknown",
                column=".".join(parts),
                did_you_mean=" or ".join(meant_by),
            )
        raise unknown_column(parts[0], bare)

    def _check_names(self, expression: pl.Expr) -> None:
        for name in expression.meta.root_names():
            if self.source is None or self.target is None:
                absent = SOURCE if self.source is None else TARGET
                if name.startswith(absent):
                    raise InvalidRequest(f"there is no row of the {absent[:-1]} here", column=name)
            elif name in self.source.names and name in self.target.names:
                raise _on_both_sides(name)


def _is_qualified(name: str, sides: Sides) -> bool:
    """Whether the name consists of the name of a side and of one of its columns."""
    for side, schema in ((SOURCE, sides.source), (TARGET, sides.target)):
        if name.startswith(side) and schema is not None and name[len(side) :] in schema.names:
            return True
    return False


def _on_both_sides(name: str) -> InvalidRequest:
    return InvalidRequest(
        "both sides have this column: say which is meant",
        column=name,
        columns=(SOURCE + name, TARGET + name),
    )


def _roots(expressions: Iterable[object]) -> list[str]:
    return list(dict.fromkeys(name for each in expressions for name in names_in(each)))
