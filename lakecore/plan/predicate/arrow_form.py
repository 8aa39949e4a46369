"""Converts pyarrow compute expressions to predicates, and back.

`from_arrow` reads the serialized form of an expression: an Arrow IPC file. The single row of the
file holds the literals (and the options of calls) with their exact types; the schema metadata hold
the tree in prefix order: `call`, `field_ref`, `literal`, `options`, `end`. Unlike Substrait, this
form is not bound to a schema and accepts implicit casts (a TIME column compared with DuckDB's TIME
literal). If a call is not known, only this part of the predicate becomes Unknown.

In Arrow, NaN is not greater than any number; in the predicate language it is greater than all
numbers. Therefore `>` and `>=` on floats are read as upper bounds (at most these rows), and are
written with an additional `is_nan`. Arrow's `is_in` distinguishes -0.0 from 0.0, and the predicate
language does not; `is_in` with a zero in its list is also read as an upper bound.
"""

from __future__ import annotations

import ctypes
import operator
import struct
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import Unsupported
from lakecore.plan.predicate.language import (
    UNKNOWN,
    And,
    Compare,
    Constant,
    In,
    IsNotNull,
    IsNull,
    Not,
    Op,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    all_of,
    any_of,
    at_most,
    negate,
)
from lakecore.plan.predicate.literals import (
    Column,
    Schema,
    check_columns,
    columns,
    compare,
    is_in,
    starts_with,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_OPS = {
    "equal": Op.EQ,
    "not_equal": Op.NE,
    "less": Op.LT,
    "less_equal": Op.LE,
    "greater": Op.GT,
    "greater_equal": Op.GE,
}
_NULL_MATCHES = 0  # PyArrow makes two of the four null behaviours of `is_in`: this one, and false


@dataclass(frozen=True, slots=True)
class _Reference:
    """A column, or a nested field of one: the names down to it."""

    name: str
    part: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Call:
    function: str
    arguments: tuple[_Tree, ...]
    options: pa.Scalar | None


_Tree: TypeAlias = _Reference | _Call | pa.Scalar


def from_arrow(expression: pc.Expression, schema: Schema) -> Predicate:
    """The predicate for an Arrow expression.

    Raises InvalidRequest for an unknown column, Unsupported for an expression that PyArrow cannot
    write.
    """
    known = columns(schema)
    tree = _tree(expression)
    check_columns(_names(tree), known)
    return _predicate(tree, known)


def arrow_columns(expression: pc.Expression) -> list[str]:
    """The columns that an expression reads."""
    return list(dict.fromkeys(_names(_tree(expression))))


def to_arrow(predicate: Predicate) -> pc.Expression | None:
    """The Arrow expression that matches the same rows; None if part of the predicate is Unknown."""
    match predicate:
        case And(parts=parts) | Or(parts=parts):
            found = [to_arrow(part) for part in parts]
            joined: pc.Expression = pc.scalar(isinstance(predicate, And))
            for one in found:
                if one is None:
                    return None
                joined = joined & one if isinstance(predicate, And) else joined | one
            return joined
        case Not(part=part):
            negated = to_arrow(part)
            return None if negated is None else ~negated
        case Unknown():
            return None
        case Constant(value=value):
            return pc.scalar(pa.scalar(value, pa.bool_()))
        case Compare(column=column, op=op, value=value):
            return _compared(pc.field(column), op, value)
        case In(column=column, values=values):
            field = pc.field(column)
            null = pc.scalar(pa.scalar(None, pa.bool_()))
            return pc.if_else(field.is_valid(), field.isin(values), null)
        case IsNull(column=column):
            return pc.field(column).is_null()
        case IsNotNull(column=column):
            return pc.field(column).is_valid()
        case StartsWith(column=column, prefix=prefix):
            return pc.starts_with(pc.field(column), pattern=prefix.as_py())


def _compared(field: pc.Expression, op: Op, value: pa.Scalar) -> pc.Expression:
    right = pc.scalar(value)
    match op:
        case Op.EQ:
            return field == right
        case Op.NE:
            return field != right
        case Op.LT:
            return field < right
        case Op.LE:
            return field <= right
        case Op.GT | Op.GE:
            above = field > right if op is Op.GT else field >= right
            return above | pc.is_nan(field) if pa.types.is_floating(value.type) else above


# --- from Arrow ---------------------------------------------------------------------------------


def _predicate(tree: _Tree, known: dict[str, Column]) -> Predicate:
    if isinstance(tree, pa.Scalar):
        truth = pa.types.is_boolean(tree.type) or pa.types.is_null(tree.type)
        return Constant(tree.as_py()) if truth else UNKNOWN
    if isinstance(tree, _Reference):
        column = _column(tree, known)
        truth = column is not None and pa.types.is_boolean(column.type)
        return compare(column, Op.EQ, pa.scalar(True)) if column and truth else UNKNOWN
    match tree.function, tree.arguments:
        case "and_kleene", (left, right):
            return all_of((_predicate(left, known), _predicate(right, known)))
        case "or_kleene", (left, right):
            return any_of((_predicate(left, known), _predicate(right, known)))
        case "invert", (inner,):
            return negate(_predicate(inner, known))
        case "if_else", (
            _Call(function="is_valid", arguments=(_Reference(name=name, part=()),)),
            _Call(function="is_in", arguments=(_Reference(name=inner, part=()),)) as call,
            pa.Scalar(is_valid=False),
        ) if name == inner:
            return _is_in(call, known[name])
        case _, (_Reference(name=name, part=()),):
            return _of_column(tree, known[name])
        case function, (left, right) if function in _OPS:
            return _comparison(_OPS[function], left, right, known)
    return UNKNOWN


def _of_column(call: _Call, column: Column) -> Predicate:
    """The predicate for a function with one column as its input."""
    match call.function:
        case "is_valid":
            return IsNotNull(column.name)
        case "is_null":
            nan_too = pa.types.is_floating(column.type) and _option(call, "nan_is_null")
            return UNKNOWN if nan_too else IsNull(column.name)
        case "is_in":
            found = _is_in(call, column)
            null, value = IsNull(column.name), IsNotNull(column.name)
            return any_of((found, null)) if _finds_null(call) else all_of((found, value))
        case "starts_with":
            if _option(call, "ignore_case") is False:
                return _starts_with(call, column)
    return UNKNOWN


def _comparison(op: Op, left: _Tree, right: _Tree, known: dict[str, Column]) -> Predicate:
    if isinstance(left, pa.Scalar):
        left, op, right = right, op.mirrored, left
    column = _column(left, known)
    if column is None or not isinstance(right, pa.Scalar):
        return UNKNOWN
    found = compare(column, op, right)
    beyond_nan = op in (Op.GT, Op.GE) and pa.types.is_floating(column.type)
    return at_most(found) if beyond_nan else found


def _is_in(call: _Call, column: Column) -> Predicate:
    """The predicate of `is_in` for rows that are not null."""
    assert call.options is not None
    values = call.options["value_set"].values.drop_null()
    found = is_in(column, values)
    one_zero = pa.types.is_floating(column.type) and 0 in values.to_pylist()
    return at_most(found) if one_zero else found


def _finds_null(call: _Call) -> bool:
    """Whether `is_in` is true for null (otherwise false). The result of `is_in` is never null."""
    assert call.options is not None
    matches = _option(call, "null_matching_behavior") == _NULL_MATCHES
    return matches and call.options["value_set"].values.null_count > 0


def _starts_with(call: _Call, column: Column) -> Predicate:
    """The predicate of `starts_with`; its pattern may be any bytes."""
    assert call.options is not None
    pattern = call.options["pattern"].as_buffer().to_pybytes()
    try:
        return starts_with(column, pa.scalar(pattern).cast(column.type))
    except pa.ArrowInvalid:
        return UNKNOWN


def _option(call: _Call, name: str) -> object:
    """An option of a call; None if the call has no such option."""
    if call.options is None or call.options.type.get_field_index(name) < 0:
        return None
    return call.options[name].as_py()


def _column(tree: _Tree, known: dict[str, Column]) -> Column | None:
    return known.get(tree.name) if isinstance(tree, _Reference) and not tree.part else None


def _names(tree: _Tree) -> Iterator[str]:
    if isinstance(tree, _Call):
        for argument in tree.arguments:
            yield from _names(argument)
    elif isinstance(tree, _Reference):
        yield tree.name


# --- filters of DuckDB 1 -------------------------------------------------------------------------
# The filters that DuckDB 1 hands to an Arrow dataset and does not apply again.
#
# DuckDB has its own order of floats: NaN equals NaN and is greater than all numbers. DuckDB 1
# writes the comparisons with Arrow's operators, which find no NaN, and IN with `is_in`, which
# distinguishes the two zeros. It writes `x <= NaN` as `true`, without the column. The values of IN
# pass through Python, where infinite dates are the first and the last date, times have
# microseconds, and times with a zone have none. DuckDB 2 does not push such filters.

_PYTHON_LIMITS = frozenset({date.min, date.max, datetime.min, datetime.max})  # noqa: DTZ901


def as_duckdb_1_means(expression: pc.Expression, schema: pa.Schema) -> pc.Expression:
    """The expression with the meaning that it has in DuckDB. `schema`: the columns of the scan.

    Raises Unsupported if the expression no longer states what the query states.
    """
    return _meant(_tree(expression), schema)


def _meant(tree: _Tree, schema: pa.Schema) -> pc.Expression:
    if isinstance(tree, pa.Scalar):
        if not (pa.types.is_boolean(tree.type) and tree.as_py()):
            return pc.scalar(tree)
        compared = [field for field in schema if pa.types.is_floating(field.type)]
        if len(compared) != 1 or any(map(pa.types.is_nested, schema.types)):
            raise _inexact("a comparison with NaN by <=")
        return pc.field(compared[0].name).is_valid()
    if isinstance(tree, _Reference):
        return pc.field(tree.name, *tree.part)
    arguments = [_meant(argument, schema) for argument in tree.arguments]
    if tree.function in _LOGIC:
        return _LOGIC[tree.function](*arguments)
    column = tree.arguments[0]
    if not isinstance(column, _Reference):
        raise _inexact(f"the filter {tree.function}")
    field, kind = arguments[0], _type_of(column, schema)
    match tree.function:
        case "is_valid" | "is_null" | "is_nan":
            return getattr(pc, tree.function)(field)
        case "is_in" if tree.options is not None:
            return _is_one_of(field, kind, tree.options["value_set"].values)
        case function if function in _OPS:
            found = _COMPARISONS[function](*arguments)
            above = pa.types.is_floating(kind) and _OPS[function] in (Op.GT, Op.GE)
            return found | pc.is_nan(field) if above else found
    raise _inexact(f"the filter {tree.function}")


def _is_one_of(field: pc.Expression, kind: pa.DataType, values: pa.Array) -> pc.Expression:
    given = values.to_pylist()
    if pa.types.is_temporal(kind):
        if not values.type.equals(kind):
            raise _inexact(f"IN with values of type {kind}")
        if _PYTHON_LIMITS.intersection(given):
            raise _inexact("IN with 0001-01-01, 9999-12-31 or an infinite date")
    found = field.isin(values)
    return found | (field == 0) if pa.types.is_floating(kind) and 0 in given else found


_LOGIC: dict[str, Callable[..., pc.Expression]] = {
    "and_kleene": operator.and_,
    "or_kleene": operator.or_,
    "invert": operator.invert,
}
_COMPARISONS = {name: getattr(operator, op.name.lower()) for name, op in _OPS.items()}


def _type_of(reference: _Reference, schema: pa.Schema) -> pa.DataType:
    kind = schema.field(reference.name).type
    for name in reference.part:
        kind = kind.field(name).type
    return kind


def _inexact(what: str) -> Unsupported:
    return Unsupported(
        f"DuckDB 1 does not pass on {what} exactly; install DuckDB 2, or compare in another way"
    )


# --- the serialized form of an expression -------------------------------------------------------


def _tree(expression: pc.Expression) -> _Tree:
    try:
        _, (data, *_) = expression.__reduce__()
    except pa.ArrowNotImplementedError as error:
        raise Unsupported(
            "Arrow does not pass on this filter: give `pc.is_in` an array of one chunk, by "
            "`values.combine_chunks()`, or use `pc.field(...).isin(values)`",
            cause=error,
        ) from error
    row = pa.ipc.open_file(data).read_all()
    words = iter(_metadata(row.schema))
    return _read(next(words), words, [column[0] for column in row.columns])


def _read(word: tuple[str, str], words: Iterator[tuple[str, str]], row: list[pa.Scalar]) -> _Tree:
    kind, value = word
    if kind == "literal":
        return row[int(value)]
    if kind == "field_ref":
        return _Reference(value)
    if kind == "nested_field_ref":
        name, *part = [next(words)[1] for _ in range(int(value))]
        return _Reference(name, tuple(part))
    assert kind == "call", kind
    arguments: list[_Tree] = []
    options: pa.Scalar | None = None
    for kind, inner in words:
        if kind == "end":
            break
        if kind == "options":
            options = row[int(inner)]
        else:
            arguments.append(_read((kind, inner), words, row))
    return _Call(value, tuple(arguments), options)


def _metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """The metadata in order, with duplicate keys, which `schema.metadata` would drop."""
    capsule = schema.__arrow_c_schema__()  # Arrow's C data interface
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    members = ctypes.cast(pointer(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_void_p))
    address = members[2]
    assert address, "no metadata"

    def number() -> int:
        nonlocal address
        (value,) = struct.unpack("=i", ctypes.string_at(address, 4))
        address += 4
        return int(value)

    def text() -> str:
        nonlocal address
        size = number()
        value = ctypes.string_at(address, size).decode()
        address += size
        return value

    return [(text(), text()) for _ in range(number())]
