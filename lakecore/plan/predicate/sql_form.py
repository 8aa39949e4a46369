"""SQL text as predicates and as exact Polars filters, in DuckDB's dialect.

Column names are found as SQL finds them: as written, else without regard to case. A string beside
a DATE, TIME or TIMESTAMP column is read as that type (`sql_literals.py`).

INVARIANT: `sql_to_polars` keeps exactly the rows that DuckDB would. What the predicate language
says exactly goes through it, with typed literals; of the rest, Polars' own SQL translates the
constructs that mean the same in both (`_ALIKE`), and any other is Unsupported. (Arithmetic is not
among them: Polars wraps integers where DuckDB stops. Nor is `lower`: they differ outside ASCII.)
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import sqlglot
from sqlglot import exp

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.plan.predicate.language import (
    NULL,
    UNKNOWN,
    Constant,
    IsNotNull,
    IsNull,
    Op,
    Predicate,
    all_of,
    any_of,
    at_most,
    is_exact,
    negate,
)
from lakecore.plan.predicate.literals import Column, columns, compare, one_of, starts_with
from lakecore.plan.predicate.polars_form import to_polars
from lakecore.plan.predicate.sql_literals import literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.plan.predicate.literals import Schema

_OPS: dict[type[exp.Expr], Op] = {
    exp.EQ: Op.EQ,
    exp.NEQ: Op.NE,
    exp.LT: Op.LT,
    exp.LTE: Op.LE,
    exp.GT: Op.GT,
    exp.GTE: Op.GE,
}
_ALIKE = (
    *_OPS,
    exp.And,
    exp.Between,
    exp.Boolean,
    exp.Coalesce,
    exp.Column,
    exp.Identifier,
    exp.In,
    exp.Is,
    exp.Like,
    exp.Literal,
    exp.Not,
    exp.Null,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
    exp.Or,
    exp.Paren,
)


def from_sql(text: str, schema: Schema) -> Predicate:
    """What a SQL condition says of the rows it keeps; InvalidRequest for bad SQL or columns."""
    known = columns(schema)
    with _deep_enough():
        return _predicate(_parse(text, known), known)


def sql_to_polars(text: str, schema: Schema) -> pl.Expr:
    """The filter that keeps exactly the rows of a SQL condition.

    InvalidRequest for bad SQL or columns, Unsupported for what has no equal in Polars.
    """
    known = columns(schema)
    with _deep_enough():
        return _filter(_parse(text, known), known)


@contextmanager
def _deep_enough() -> Iterator[None]:
    try:
        yield
    except RecursionError as error:
        raise InvalidRequest(
            "the SQL condition is nested too deeply; name many values by IN (...)"
        ) from error


def _filter(tree: exp.Expr, known: dict[str, Column]) -> pl.Expr:
    predicate = _predicate(tree, known)
    exact = to_polars(predicate) if is_exact(predicate) else None
    if exact is not None:
        return exact
    match tree:
        case exp.Paren(this=inner):
            return _filter(inner, known)
        case exp.And():
            return _filter(tree.left, known) & _filter(tree.right, known)
        case exp.Or():
            return _filter(tree.left, known) | _filter(tree.right, known)
        case exp.Not(this=inner):
            return ~_filter(inner, known)
        case exp.Is(this=inner, expression=exp.Boolean(this=wanted)) if _is_condition(inner):
            found = _filter(inner, known)
            return (found if wanted else ~found).fill_null(value=False)
        case _:
            return _by_polars(tree, known)


def _is_condition(tree: exp.Expr) -> bool:
    """Whether an expression is true or false by its form, rather than by the type of a column."""
    return isinstance(tree.unnest(), exp.Predicate | exp.Connector | exp.Not)


def _parse(text: str, known: dict[str, Column]) -> exp.Expr:
    """The condition with each column under its true, quoted name."""
    try:
        text.encode()
        statements = sqlglot.parse(text, read="duckdb")
    except UnicodeEncodeError as error:
        raise InvalidRequest("the SQL condition is not Unicode text", text=repr(text)) from error
    except sqlglot.errors.SqlglotError as error:
        reason = str(error).splitlines()[0]
        raise InvalidRequest("bad SQL condition", text=text, reason=reason) from error
    tree = statements[0] if len(statements) == 1 else None
    if tree is None or not isinstance(tree, exp.Condition) or isinstance(tree, exp.Query):
        raise InvalidRequest("not a SQL condition", text=text)
    if tree.find(exp.Query, exp.AggFunc, exp.Window) is not None:
        raise Unsupported("a condition cannot hold a query, aggregate or window", text=text)
    for column in tree.find_all(exp.Column):
        _name_truly(column, known, text)
    return tree


def _name_truly(column: exp.Column, known: dict[str, Column], text: str) -> None:
    """Give a column its true name. A qualifier that is a column holds the field named after it."""
    first, *_ = (part.name for part in column.parts)
    if len(column.parts) > 1 and _matches(first, known):
        return  # a field of a ROW column
    found = _matches(column.name, known)
    if not found:
        raise InvalidRequest("unknown column", column=column.name, columns=list(known), text=text)
    if len(found) > 1:
        raise InvalidRequest("ambiguous column", column=column.name, columns=found, text=text)
    column.set("this", exp.to_identifier(found[0], quoted=True))
    for qualifier in ("table", "db", "catalog"):
        column.set(qualifier, None)


def _matches(name: str, known: dict[str, Column]) -> list[str]:
    if name in known:
        return [name]
    return [other for other in known if other.lower() == name.lower()]


def _by_polars(tree: exp.Expr, known: dict[str, Column]) -> pl.Expr:
    if not all(map(_is_alike, tree.walk())) or not _types_agree(tree, known):
        part = tree.sql(dialect="duckdb")
        raise Unsupported(
            "this SQL condition is not supported; pass it as a Polars expression", sql=part
        )
    try:
        return pl.sql_expr(tree.sql(dialect="duckdb"))
    except pl.exceptions.PolarsError as error:
        part = tree.sql(dialect="duckdb")
        raise Unsupported("this SQL condition is not supported", sql=part) from error


def _is_alike(node: exp.Expr) -> bool:
    """Whether the node means the same to DuckDB and Polars, given operands that do."""
    if isinstance(node, exp.Column):
        return not node.table
    if isinstance(node, exp.Like):
        return isinstance(node.expression, exp.Literal)
    if isinstance(node, exp.Is):  # of null, Polars says neither IS TRUE nor IS NOT TRUE
        return isinstance(node.expression, exp.Null)
    if isinstance(node, exp.Between):  # DuckDB brings all three to one type
        numbers = [each.name for each in node.find_all(exp.Literal) if not each.is_string]
        return len({"e" in number.lower() for number in numbers}) < 2
    if isinstance(node, exp.Neg):  # of the least integer, which has no opposite in Polars
        return isinstance(node.this, exp.Literal)
    return isinstance(node, _ALIKE)


def _types_agree(tree: exp.Expr, known: dict[str, Column]) -> bool:
    """Whether no operand must be cast, but a number to another kind of number.

    Beside a FLOAT only floats are cast alike: DuckDB rounds other numbers to it, Polars widens it.
    """
    types = [known[column.name].type for column in tree.find_all(exp.Column)]
    literals = list(tree.find_all(exp.Literal))
    if any(map(pa.types.is_float32, types)):
        return not literals and all(map(pa.types.is_floating, types))
    kinds = set(map(_family, types)) | {
        "string" if value.is_string else "number" for value in literals
    }
    return len(kinds) <= 1


def _family(kind: pa.DataType) -> str:
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return "number" if number else str(kind)


# --- predicates ---------------------------------------------------------------------------------


def _predicate(tree: exp.Expr, known: dict[str, Column]) -> Predicate:
    match tree:
        case exp.Paren(this=inner):
            return _predicate(inner, known)
        case exp.And():
            return all_of((_predicate(tree.left, known), _predicate(tree.right, known)))
        case exp.Or():
            return any_of((_predicate(tree.left, known), _predicate(tree.right, known)))
        case exp.Not(this=inner):
            return negate(_predicate(inner, known))
        case exp.Boolean(this=value):
            return Constant(bool(value))
        case exp.Null():
            return NULL
        case exp.Is():
            return _is(tree, known)
        case exp.NullSafeEQ():
            return _null_safe(tree, known)
        case exp.NullSafeNEQ():
            return negate(_null_safe(tree, known))
        case exp.Binary() if type(tree) in _OPS:
            return _comparison(tree, known)
        case _:
            return _of_column(tree, known)


def _of_column(tree: exp.Expr, known: dict[str, Column]) -> Predicate:
    """What a condition says that has its column first."""
    column = _column(tree.this if isinstance(tree.this, exp.Condition) else tree, known)
    if column is None:
        return _call(tree, known)
    match tree:
        case exp.Column() if pa.types.is_boolean(column.type):
            return compare(column, Op.EQ, pa.scalar(True))
        case exp.Between():
            bounds = (literal(tree.args[key], column.type) for key in ("low", "high"))
            low, high = _of_one_type(column, list(bounds))
            if low is None or high is None:
                return UNKNOWN
            return all_of((compare(column, Op.GE, low), compare(column, Op.LE, high)))
        case exp.In() if tree.expressions and not tree.args.get("query"):
            return _in(column, tree.expressions)
        case exp.Like():
            found = _like(column, tree.expression)
            return negate(found) if tree.args.get("negate") else found
        case exp.StartsWith():
            return _starts_with(column, tree.expression)
    return UNKNOWN


def _comparison(tree: exp.Binary, known: dict[str, Column]) -> Predicate:
    op = _OPS[type(tree)]
    left, right = _column(tree.left, known), _column(tree.right, known)
    if left is not None and right is None:
        return _against(left, op, tree.right)
    if right is not None and left is None:
        return _against(right, op.mirrored, tree.left)
    return UNKNOWN


def _against(column: Column, op: Op, tree: exp.Expr) -> Predicate:
    value = literal(tree, column.type)
    return UNKNOWN if value is None else compare(column, op, value)


def _in(column: Column, trees: list[exp.Expr]) -> Predicate:
    values = _of_one_type(column, [literal(one, column.type) for one in trees])
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return UNKNOWN
    return one_of(column, known)


def _of_one_type(column: Column, values: list[pa.Scalar | None]) -> list[pa.Scalar | None]:
    """Literals that are compared with a column together: beside a double, numbers are doubles.

    None where one of those beside it is no number.
    """
    kinds = [value.type for value in values if value is not None]
    if pa.types.is_floating(column.type) or not any(map(pa.types.is_floating, kinds)):
        return values
    return [
        value
        if value is None or not value.is_valid or pa.types.is_floating(value.type)
        else pa.scalar(float(value.as_py()))
        if pa.types.is_integer(value.type) or pa.types.is_decimal(value.type)
        else None
        for value in values
    ]


def _is(tree: exp.Is, known: dict[str, Column]) -> Predicate:
    column = _column(tree.this, known)
    if isinstance(tree.expression, exp.Null):
        return UNKNOWN if column is None else IsNull(column.name)
    if isinstance(tree.expression, exp.Boolean):
        wanted = bool(tree.expression.this)
        if column is not None and pa.types.is_boolean(column.type):
            is_value = compare(column, Op.EQ, pa.scalar(wanted))
            return all_of((is_value, IsNotNull(column.name)))
        inner = _predicate(tree.this, known)
        return at_most(inner if wanted else negate(inner))
    return UNKNOWN


def _null_safe(tree: exp.Binary, known: dict[str, Column]) -> Predicate:
    """Whether both sides are equal, nulls to nulls: never null itself."""
    column, other = _column(tree.left, known), tree.right
    if column is None:
        column, other = _column(tree.right, known), tree.left
    value = None if column is None else literal(other, column.type)
    if column is None or value is None:
        return UNKNOWN
    if not value.is_valid:
        return IsNull(column.name)
    return all_of((compare(column, Op.EQ, value), IsNotNull(column.name)))


def _like(column: Column, pattern: exp.Expr) -> Predicate:
    """A pattern without `_` that ends with its only `%` is a prefix; others begin with one."""
    if not (isinstance(pattern, exp.Literal) and pattern.is_string):
        return UNKNOWN
    text = pattern.name
    stop = min((at for at in (text.find("%"), text.find("_")) if at >= 0), default=len(text))
    if stop == len(text):
        return compare(column, Op.EQ, pa.scalar(text))
    found = starts_with(column, pa.scalar(text[:stop]))
    return found if text[stop:] == "%" else at_most(found)


def _starts_with(column: Column, prefix: exp.Expr) -> Predicate:
    value = literal(prefix, column.type)
    return UNKNOWN if value is None else starts_with(column, value)


def _call(tree: exp.Expr, known: dict[str, Column]) -> Predicate:
    """DuckDB's other names of `starts_with`."""
    if isinstance(tree, exp.Anonymous) and tree.name.lower() == "prefix":
        match tree.expressions:
            case [first, prefix] if (column := _column(first, known)) is not None:
                return _starts_with(column, prefix)
    return UNKNOWN


def _column(tree: exp.Expr, known: dict[str, Column]) -> Column | None:
    inner = tree.unnest()
    if isinstance(inner, exp.Column) and not inner.table:
        return known.get(inner.name)
    return None
