"""Conditions and values that users state, evaluated on batches of rows.

A condition is a Polars expression or SQL text. A value is a Polars expression, SQL (`sql_expr`), or
a plain Python value that stands for itself: a text is a text, never SQL.

SQL that the closed predicate language says exactly becomes a Polars expression, which engines
evaluate as they read; DuckDB evaluates any other (`lakecore.scalar`).

INVARIANT: an expression looks at one row at a time. Rows come in batches, so what looks at several
(a sum, a rank, the row before) would depend on where a batch ends: it is refused. Polars itself
says which they are: it never filters before it computes such a thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from lakecore.errors import InvalidRequest
from lakecore.frames.filtered import FilteredSource
from lakecore.frames.polars_source import not_computed, polars_schema, to_frame
from lakecore.frames.python_leaves import Column
from lakecore.frames.python_values import array_of
from lakecore.model.types import from_arrow
from lakecore.plan.fit import Place, fit
from lakecore.plan.predicate import compares_with_null, from_polars, is_exact, operands, to_polars
from lakecore.scalar import values as scalar
from lakecore.scalar.syntax import bound, parse_sql
from lakecore.scalar.values import LOCAL, Setting, Sql, SqlExpression

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.frames.source import BatchSource
    from lakecore.model.schema import TableSchema
    from lakecore.plan.predicate import Predicate
    from lakecore.scalar.names import Find
    from lakecore.table.context import TableContext

_PROBE = "_lakecore_row"
_VALUE = "_lakecore_value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Which rows are meant; `predicate` says of the condition what pruning understands."""

    expression: pl.Expr | Sql
    predicate: Predicate
    columns: tuple[str, ...]

    def mask(self, rows: pa.Table) -> pa.ChunkedArray:
        """For each row whether the condition is true; null is not."""
        return holds(rows, self.expression)


def setting_of(context: TableContext) -> Setting:
    """The time of a statement and the table's name, for the SQL texts in it."""
    now = context.ambient.now_ms()
    return Setting(now_ms=lambda: now, table=context.identifier)


def local_setting() -> Setting:
    """The time of a statement, without a table."""
    now = LOCAL.now_ms()
    return Setting(now_ms=lambda: now)


def parse_condition(
    where: pl.Expr | str, schema: TableSchema, setting: Setting = LOCAL
) -> Condition:
    """The condition on rows of a table, checked."""
    if isinstance(where, str):
        return sql_condition(where, schema, setting)
    check_expression(where, schema.arrow, "a condition", boolean=True)
    return Condition(
        expression=where,
        predicate=from_polars(where, schema),
        columns=tuple(dict.fromkeys(where.meta.root_names())),
    )


def sql_condition(where: str, schema: TableSchema, setting: Setting) -> Condition:
    """A condition of SQL text: as Polars reads it where that is certain, else for DuckDB."""
    sql, predicate = scalar.parse_where(where, schema, setting)
    exact = to_polars(predicate) if is_exact(predicate) else None
    return Condition(
        expression=sql if exact is None else exact, predicate=predicate, columns=sql.columns
    )


def filtered(
    source: BatchSource, where: pl.Expr | str | None, schema: TableSchema, setting: Setting
) -> tuple[BatchSource, pl.Expr | None]:
    """The source and the expression by which a face is to filter it; the source may do it all."""
    if where is None:
        return source, None
    if not isinstance(where, str):
        return source, as_filter(where, schema)
    condition = sql_condition(where, schema, setting)
    if isinstance(condition.expression, pl.Expr):
        return source, condition.expression
    return FilteredSource(source, condition), None


def row_filtered(
    source: BatchSource, where: pl.Expr | str | None, schema: TableSchema, setting: Setting
) -> tuple[BatchSource, pl.Expr | None]:
    """As `filtered`, for a stream of batches: a condition looks at one row at a time."""
    if where is None or isinstance(where, str):
        return filtered(source, where, schema, setting)
    return source, as_row_filter(where, schema)


def check_expression(
    expression: object, schema: pa.Schema, what: str, *, boolean: bool = False
) -> None:
    """Raise InvalidRequest if it is not one value for each row, of columns that are there."""
    if not isinstance(expression, pl.Expr):
        raise InvalidRequest(
            f"{what} is a Polars expression or SQL text", given=type(expression).__name__
        )
    for name in expression.meta.root_names():
        if name not in schema.names:
            raise InvalidRequest("unknown column", column=name, columns=schema.names)
    with said_plainly(expression):
        if expression.meta.has_multiple_outputs():
            raise InvalidRequest(f"{what} is one expression, not several", expression=expression)
        kind, row_by_row = _probe(expression, schema)
    if not row_by_row and not _is_row_by_row(expression, schema):
        raise _not_row_by_row(what, "compute the rest before, with a scan", expression)
    if kind == pl.Object:
        raise InvalidRequest(f"{what} is a Python object", expression=expression, type=kind)
    if boolean and kind not in (pl.Boolean, pl.Null):
        raise InvalidRequest(f"{what} is true or false", expression=expression, type=kind)


def as_filter(expression: pl.Expr, schema: TableSchema) -> pl.Expr:
    """The condition of a scan, which may look at many rows.

    Raises InvalidRequest if it cannot be computed, or is a number, text or such.
    """
    given: object = expression
    if not isinstance(given, pl.Expr):
        raise InvalidRequest(
            "a condition is a Polars expression or SQL text", given=type(given).__name__
        )
    for name in expression.meta.root_names():
        schema.field(name)
    with said_plainly(expression):
        kinds = pl.DataFrame(schema=polars_schema(schema.arrow)).select(expression).dtypes
    for kind in kinds:
        if kind not in (pl.Boolean, pl.Null):
            raise InvalidRequest("a condition is true or false", expression=expression, type=kind)
    if not kinds:
        raise InvalidRequest(
            "a condition selects no column", condition=expression, columns=schema.names
        )
    # Polars filters by one expression, of a type that it knows.
    if len(kinds) != 1:
        return pl.all_horizontal(expression)
    return expression.cast(pl.Boolean) if kinds[0] == pl.Null else expression


def as_row_filter(where: pl.Expr, schema: TableSchema) -> pl.Expr:
    """The condition of a stream of batches, each of which is filtered by itself.

    Raises InvalidRequest as `as_filter` does, and if it looks at several rows.
    """
    expression = as_filter(where, schema)
    if not _is_row_by_row(pl.all_horizontal(expression), schema.arrow):
        raise _not_row_by_row("a condition on batches", "take a scan", expression)
    return expression


def _is_row_by_row(expression: pl.Expr, schema: pa.Schema) -> bool:
    """Whether each part of an expression, as Polars evaluates it, looks at one row at a time.

    Polars folds some comparisons with a value beyond the type of the column to a constant, and then
    filters after it; each operand by itself says better what it looks at.
    """
    with said_plainly(expression):
        if _probe(expression, schema)[1]:
            return True
    parts = None if compares_with_null(expression) else operands(expression)
    return parts is not None and all(_is_row_by_row(part, schema) for part in parts)


def _not_row_by_row(what: str, instead: str, expression: pl.Expr) -> InvalidRequest:
    # Polars makes of such a comparison as many nulls as there are rows.
    if compares_with_null(expression):
        return InvalidRequest(
            f"{what} compares with null, which is true of no row: use is_null() or is_not_null()",
            expression=expression,
        )
    return InvalidRequest(
        f"{what} must look at one row at a time: {instead}", expression=expression
    )


def _probe(expression: pl.Expr, schema: pa.Schema) -> tuple[pl.DataType, bool]:
    """The type of the expression's value, and whether Polars would compute it after a filter."""
    columns = {**polars_schema(schema), _PROBE: pl.Int8()}
    filtered = False

    def read(
        names: list[str] | None, predicate: pl.Expr | None, _rows: int | None, _batch: int | None
    ) -> Iterator[pl.DataFrame]:
        nonlocal filtered
        filtered = predicate is not None
        wanted = list(columns) if names is None else names
        yield pl.DataFrame(schema={name: columns[name] for name in wanted})

    rows = register_io_source(read, schema=columns, is_pure=True)
    computed = rows.with_columns(expression.alias(_VALUE)).filter(pl.col(_PROBE) > 0)
    return computed.collect().schema[_VALUE], filtered


def holds(rows: pa.Table, expression: pl.Expr | Sql) -> pa.ChunkedArray:
    """For each row whether the condition is true; null is not."""
    if isinstance(expression, Sql):
        return pa.chunked_array([scalar.matches(expression, rows)])
    frame = _computed(rows, [expression])
    return pa.chunked_array([frame[_VALUE + "0"].fill_null(value=False).to_arrow()])


def values_of(
    rows: pa.Table, values: Mapping[str, object], schema: pa.Schema
) -> dict[str, pa.ChunkedArray]:
    """Each value, for each of the rows, on its way to a column of the schema."""
    expressions = {name: each for name, each in values.items() if isinstance(each, pl.Expr)}
    frame = _computed(rows, list(expressions.values()))
    computed = {
        name: pa.chunked_array([frame[f"{_VALUE}{index}"].to_arrow()])
        for index, name in enumerate(expressions)
    }
    plain = {
        name: pa.chunked_array([pa.repeat(plain_value(schema.field(name), each), rows.num_rows)])
        for name, each in values.items()
        if not isinstance(each, pl.Expr | Sql)
    }
    by_sql = {
        name: scalar.value_of(each, rows, schema.field(name))
        for name, each in values.items()
        if isinstance(each, Sql)
    }
    return {**computed, **plain, **by_sql}


def bound_values(
    values: Mapping[str, object],
    types: Mapping[str, pa.DataType],
    setting: Setting,
    find: Find | None = None,
) -> dict[str, object]:
    """The values, with SQL parsed and its columns found."""
    return {
        name: bound(parse_sql(each.text, types, setting, find), types)
        if isinstance(each, SqlExpression)
        else each
        for name, each in values.items()
    }


def names_in(expression: object) -> tuple[str, ...]:
    """The columns that a value or condition looks at; none for a plain value."""
    if isinstance(expression, Sql):
        return expression.columns
    return tuple(expression.meta.root_names()) if isinstance(expression, pl.Expr) else ()


def named_values(values: Mapping[str, object]) -> Mapping[str, object]:
    """The values, by column. Raises InvalidRequest for what is no mapping."""
    given: object = values
    if not isinstance(given, Mapping):
        raise InvalidRequest(
            "values are a mapping of columns to their values", given=type(given).__name__
        )
    return values


def plain_value(column: pa.Field, value: object) -> pa.Scalar:
    """A Python value as a value for a column; InvalidRequest if Arrow has none like it.

    It has the type that it would have in a row of a write, and is fitted to the column's like one.
    The parts of a list, dict or pair do not say enough: they take the types of the column's.
    """
    kind = from_arrow(column.type)
    try:
        array = array_of([value], Column(name=column.name, type=kind))
    except InvalidRequest as error:
        if error.facts.get("value") is not value:
            raise
        raise InvalidRequest(
            "a value is a Polars expression or a plain value",
            column=column.name,
            value=value,
            type=type(value).__name__,
        ) from error
    if pa.types.is_nested(array.type):
        array = fit(array, kind, Place(column=column.name))
    return array[0]


def _computed(rows: pa.Table, expressions: Sequence[pl.Expr]) -> pl.DataFrame:
    """The rows with the value of each expression beside them, as columns by its number."""
    roots = dict.fromkeys(name for each in expressions for name in each.meta.root_names())
    # A frame without columns has no rows either.
    frame = to_frame(rows.select(list(roots) or rows.schema.names[:1]))
    named = [each.alias(f"{_VALUE}{index}") for index, each in enumerate(expressions)]
    if not named:
        return frame
    with said_plainly(*expressions):
        return frame.with_columns(named)


@contextmanager
def said_plainly(*expressions: pl.Expr) -> Iterator[None]:
    """Computing expressions: what Polars cannot compute is an InvalidRequest."""
    try:
        yield
    except (pl.exceptions.PolarsError, TypeError) as error:
        texts = [str(each) for each in expressions]
        raise not_computed(error, "the expression cannot be computed", expression=texts) from error
