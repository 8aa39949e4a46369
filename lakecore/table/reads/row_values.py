"""Conditions and values that users pass in, evaluated on batches of rows.

A condition is a Polars expression or SQL text. A value is a Polars expression, SQL (`sql_expr`), or
a plain Python value; a string is a plain value, never SQL.

SQL that the closed predicate language can express exactly becomes a Polars expression, which
engines evaluate while they read. DuckDB evaluates all other SQL (`lakecore.scalar`).

INVARIANT: an expression is evaluated for each row alone. Sums, ranks and shifts raise an error,
because their results would depend on where a batch ends. Polars' optimiser detects them: it never
moves a filter below such an expression.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.frames.arrow_frames import to_frame
from lakecore.frames.engine_scan import polars_schema
from lakecore.frames.filtered import FilteredSource
from lakecore.frames.polars_source import not_computed
from lakecore.frames.polars_versions import frame_of
from lakecore.frames.python_values import Column, array_of
from lakecore.model.types import INTEGERS, Atomic, Root, from_arrow
from lakecore.plan.predicate import (
    Predicate,
    compares_with_null,
    from_polars,
    is_and_with_null,
    is_exact,
    operands,
    to_polars,
)
from lakecore.rows.fit import Place, fit
from lakecore.scalar import values as scalar
from lakecore.scalar.syntax import Find, bound, check_fields, parse_sql
from lakecore.scalar.values import LOCAL, Setting, Sql, SqlExpression, cut_value

if TYPE_CHECKING:
    from lakecore.frames.source import BatchSource
    from lakecore.model.schema import TableSchema
    from lakecore.table.context import TableContext

_PROBE = "_lakecore_row"
_VALUE = "_lakecore_value"

_NO_STRINGS = (*INTEGERS, Root.FLOAT, Root.DOUBLE, Root.DECIMAL, Root.BOOLEAN)
"""The types of columns that take no string: a string is probably meant as an expression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition on rows; `predicate` is the part of it that pruning can use."""

    expression: pl.Expr | Sql
    predicate: Predicate
    columns: tuple[str, ...]

    def mask(self, rows: pa.Table) -> pa.ChunkedArray:
        """For each row, whether the condition is true; False where it is null."""
        return holds(rows, self.expression)


def setting_of(context: TableContext) -> Setting:
    """The time, the zone and the table name, which SQL in a statement needs."""
    stated = context.statement_ms
    now = context.ambient.now_ms() if stated is None else stated
    return Setting(now_ms=lambda: now, zone=context.zone, table=context.identifier)


def local_setting() -> Setting:
    """The time and the zone of a statement that begins now, without a table name."""
    now = LOCAL.now_ms()
    return Setting(now_ms=lambda: now)


def parse_condition(
    where: pl.Expr | str, schema: TableSchema, setting: Setting = LOCAL
) -> Condition:
    """The checked condition on rows of a table."""
    if isinstance(where, str):
        return sql_condition(where, schema, setting)
    check_expression(where, schema.arrow, "a condition", boolean=True)
    return Condition(
        expression=where,
        predicate=from_polars(where, schema),
        columns=tuple(dict.fromkeys(where.meta.root_names())),
    )


def sql_condition(where: str, schema: TableSchema, setting: Setting) -> Condition:
    """The SQL condition; a Polars expression if an exact one exists, else DuckDB evaluates it."""
    sql, predicate = scalar.parse_where(where, schema, setting)
    exact = to_polars(predicate) if is_exact(predicate) else None
    return Condition(
        expression=sql if exact is None else exact, predicate=predicate, columns=sql.columns
    )


def filtered(
    source: BatchSource, where: pl.Expr | str, schema: TableSchema, setting: Setting
) -> tuple[BatchSource, pl.Expr | None]:
    """The source, and the expression by which the caller must still filter its rows.

    The expression is None if nothing is left to filter.
    """
    if not isinstance(where, str):
        return source, as_filter(where, schema)
    condition = sql_condition(where, schema, setting)
    if isinstance(condition.expression, pl.Expr):
        return source, condition.expression
    return FilteredSource(source, condition), None


def row_filtered(
    source: BatchSource, where: pl.Expr | str, schema: TableSchema, setting: Setting
) -> tuple[BatchSource, pl.Expr | None]:
    """Like `filtered`, for a stream of batches: the condition must apply to each row alone."""
    if isinstance(where, str):
        return filtered(source, where, schema, setting)
    return source, as_row_filter(where, schema)


def check_expression(
    expression: object, schema: pa.Schema, what: str, *, boolean: bool = False
) -> None:
    """Raise InvalidRequest unless the expression gives one value per row, from known columns."""
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
    """The condition of a scan; it may look at several rows.

    Raises InvalidRequest if it cannot be computed or is not boolean.
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
    if compares_with_null(expression):
        raise _compares_with_null("a condition", expression)
    # Polars filters by a single expression whose type it knows, and by each side of an `and`.
    if len(kinds) != 1:
        return pl.all_horizontal(expression)
    untyped = kinds[0] == pl.Null or is_and_with_null(expression)
    return expression.cast(pl.Boolean) if untyped else expression


def as_row_filter(where: pl.Expr, schema: TableSchema) -> pl.Expr:
    """The condition of a stream of batches, where each batch is filtered alone.

    Raises InvalidRequest as `as_filter` does, and if the condition looks at several rows.
    """
    expression = as_filter(where, schema)
    if not _is_row_by_row(pl.all_horizontal(expression), schema.arrow):
        raise _not_row_by_row("a condition on batches", "take a scan", expression)
    return expression


def _is_row_by_row(expression: pl.Expr, schema: pa.Schema) -> bool:
    """Whether Polars evaluates each part of an expression for each row alone.

    Polars folds a comparison with a value outside the column's type to a constant, and then does
    not move a filter below it. Therefore each operand is checked, too.
    """
    with said_plainly(expression):
        if _probe(expression, schema)[1]:
            return True
    parts = None if compares_with_null(expression) else operands(expression)
    return parts is not None and all(_is_row_by_row(part, schema) for part in parts)


def _not_row_by_row(what: str, instead: str, expression: pl.Expr) -> InvalidRequest:
    if compares_with_null(expression):
        return _compares_with_null(what, expression)
    return InvalidRequest(
        f"{what} must look at one row at a time: {instead}", expression=expression
    )


def _compares_with_null(what: str, expression: pl.Expr) -> InvalidRequest:
    # Polars evaluates such a comparison to a null for each row.
    return InvalidRequest(
        f"{what} compares with null, which is true of no row: use is_null() or is_not_null()",
        expression=expression,
    )


def _probe(expression: pl.Expr, schema: pa.Schema) -> tuple[pl.DataType, bool]:
    """The type of the expression's value, and whether Polars moves filters below the expression."""
    columns = {**polars_schema(schema), _PROBE: pl.Int8()}
    filtered = False

    def read(
        names: list[str] | None, predicate: pl.Expr | None, _rows: int | None, _batch: int | None
    ) -> Iterator[pl.DataFrame]:
        nonlocal filtered
        filtered = predicate is not None
        wanted = list(columns) if names is None else names
        yield pl.DataFrame(schema={name: columns[name] for name in wanted})

    computed = (
        frame_of(read, columns).with_columns(expression.alias(_VALUE)).filter(pl.col(_PROBE) > 0)
    )
    return computed.collect().schema[_VALUE], filtered


def holds(rows: pa.Table, expression: pl.Expr | Sql) -> pa.ChunkedArray:
    """For each row, whether the condition is true; False where it is null."""
    if isinstance(expression, Sql):
        return pa.chunked_array([scalar.matches(expression, rows)])
    frame = _computed(rows, [expression])
    return pa.chunked_array([frame[_VALUE + "0"].fill_null(value=False).to_arrow()])


def values_of(
    rows: pa.Table, values: Mapping[str, object], schema: pa.Schema
) -> dict[str, pa.ChunkedArray]:
    """Each value, computed for each row, but not yet cast to the type of its column."""
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
    target: TableSchema,
    setting: Setting,
    find: Find | None = None,
) -> dict[str, object]:
    """The values for columns of `target`, with SQL parsed and its columns resolved.

    SQL cuts times to the digits of the column.

    Raises InvalidRequest if the value of a ROW column has a field that the column lacks.
    """
    found = {
        name: bound(parse_sql(each.text, types, setting, find), types)
        if isinstance(each, SqlExpression)
        else each
        for name, each in values.items()
    }
    for name, value in found.items():
        if isinstance(value, Sql):
            check_fields(name, value.type, target.arrow.field(name).type)
            found[name] = cut_value(value, target.field(name).type)
    return found


def names_in(expression: object) -> tuple[str, ...]:
    """The columns that a value or condition reads; none for a plain value."""
    if isinstance(expression, Sql):
        return expression.columns
    return tuple(expression.meta.root_names()) if isinstance(expression, pl.Expr) else ()


def named_values(values: Mapping[str, object]) -> Mapping[str, object]:
    """The values by column. Raises InvalidRequest if `values` is no mapping."""
    given: object = values
    if not isinstance(given, Mapping):
        raise InvalidRequest(
            "values are a mapping of columns to their values", given=type(given).__name__
        )
    return values


def plain_value(column: pa.Field, value: object) -> pa.Scalar:
    """A Python value as an Arrow scalar for a column. Raises InvalidRequest if Arrow has no type.

    The scalar has the type of the same value in a written row, and is cast to the column likewise.
    The elements of a list, dict or pair take the column's element types, because Python values do
    not determine them.
    """
    kind = from_arrow(column.type)
    if isinstance(value, str) and isinstance(kind, Atomic) and kind.root in _NO_STRINGS:
        raise InvalidRequest(
            f"a string is a plain value, and the column holds none; an expression of SQL is "
            f"lc.sql_expr({value!r})",
            column=column.name,
            type=kind,
        )
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
    """The columns that the expressions read, and one for each expression, named by its index."""
    roots = dict.fromkeys(name for each in expressions for name in each.meta.root_names())
    # A Polars frame without columns has no rows, so keep at least one column.
    frame = to_frame(rows.select(list(roots) or rows.schema.names[:1]))
    named = [each.alias(f"{_VALUE}{index}") for index, each in enumerate(expressions)]
    if not named:
        return frame
    with said_plainly(*expressions):
        return frame.with_columns(named)


@contextmanager
def said_plainly(*expressions: pl.Expr) -> Iterator[None]:
    """Translate errors that Polars raises while it evaluates expressions into InvalidRequest."""
    try:
        yield
    except (pl.exceptions.PolarsError, TypeError) as error:
        texts = [str(each) for each in expressions]
        raise not_computed(error, "the expression cannot be computed", expression=texts) from error
