"""Computed columns: the expressions of `--computed_column`, by name, with their functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.cdc.types.mapping import STRING, atomic
from lakecore.cdc.types.texts import from_text
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.types import (
    INTEGERS,
    STRINGS,
    TIMESTAMPS,
    Atomic,
    DataType,
    Field,
    Root,
    arrow_type,
    parse_type,
    with_nullable,
)
from lakecore.rows.casts import cast

# --- date patterns -------------------------------------------------------------------------------
# Formats timestamps by patterns of Java's DateTimeFormatter, for the function `date_format`.
#
# Known letters: y u (year), M L (month), d, D (day of the year), E (weekday), Q (quarter), a, H, k,
# K, h, m, s, S (fraction), n (nanosecond of the second). Names are English. Text between single
# quotes, and every character that is not a letter, stands for itself. Any other letter raises
# Unsupported.

Printer: TypeAlias = Callable[[pa.Array], pa.Array]

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([a-zA-Z])\2*|[^a-zA-Z']", re.DOTALL)
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_NUMBERS: dict[str, tuple[int, Callable[[pa.Array], pa.Array]]] = {
    "M": (2, pc.month),
    "L": (2, pc.month),
    "d": (2, pc.day),
    "D": (3, pc.day_of_year),
    "Q": (2, pc.quarter),
    "H": (2, pc.hour),
    "k": (2, lambda times: _one_based(pc.hour(times), 24)),
    "K": (2, lambda times: _modulo(pc.hour(times), 12)),
    "h": (2, lambda times: _one_based(_modulo(pc.hour(times), 12), 12)),
    "m": (2, pc.minute),
    "s": (2, pc.second),
    "n": (9, lambda times: _nanoseconds(times)),  # noqa: PLW0108 - defined below
}
"""By letter: the most repetitions, which pad with zeros, and the number to print."""


def compile_pattern(pattern: str, column: str) -> Printer:
    """The function that formats an array of timestamps. Raises InvalidRequest or Unsupported."""
    parts: list[Printer] = []
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise InvalidRequest(
                "a date pattern has a quote that does not end", column=column, pattern=pattern
            )
        at = token.end()
        text = token.group()
        if text.startswith("'"):
            parts.append(_constant("'" if text == "''" else token[1].replace("''", "'")))
        elif token[2]:
            parts.append(_letter(token[2], len(text), column, pattern))
        else:
            parts.append(_constant(text))
    if not parts:
        raise InvalidRequest("a date pattern is empty", column=column)
    return lambda times: pc.binary_join_element_wise(*[part(times) for part in parts], "")


def _letter(letter: str, count: int, column: str, pattern: str) -> Printer:
    if letter in "yu" and count != 3:
        return lambda times: _year(times, count)
    if letter in "ML" and count in {3, 4}:
        names = _MONTHS if count == 4 else tuple(name[:3] for name in _MONTHS)
        return lambda times: _names(names, pc.subtract(pc.month(times), 1))
    if letter == "E" and count <= 4:
        names = _WEEKDAYS if count == 4 else tuple(name[:3] for name in _WEEKDAYS)
        return lambda times: _names(names, pc.day_of_week(times))
    if letter == "a" and count == 1:
        return lambda times: _names(("AM", "PM"), pc.divide(pc.hour(times), 12))
    if letter == "S" and count <= 9:
        return lambda times: pc.utf8_slice_codeunits(_padded(_nanoseconds(times), 9), 0, count)
    most, number = _NUMBERS.get(letter, (0, pc.year))
    if count <= most:
        return lambda times: _padded(number(times), count)
    raise Unsupported(
        "a letter of a date pattern is not supported",
        column=column,
        pattern=pattern,
        letters=letter * count,
    )


def _constant(text: str) -> Printer:
    return lambda times: pc.if_else(times.is_valid(), pa.scalar(text), pa.scalar(None, pa.string()))


def _year(times: pa.Array, count: int) -> pa.Array:
    years = pc.year(times)
    return _padded(_modulo(years, 100), 2) if count == 2 else _padded(years, count)


def _names(names: tuple[str, ...], numbers: pa.Array) -> pa.Array:
    return pa.array(names).take(numbers)


def _padded(numbers: pa.Array, width: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), width, "0")


def _modulo(numbers: pa.Array, divisor: int) -> pa.Array:
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, divisor), divisor))


def _one_based(numbers: pa.Array, highest: int) -> pa.Array:
    """Hours in a one-based form: 0 is written as the highest number (24 or 12)."""
    return pc.if_else(pc.equal(numbers, 0), pa.scalar(highest, numbers.type), numbers)


def _nanoseconds(times: pa.Array) -> pa.Array:
    milli = pc.multiply(pc.millisecond(times), 1_000_000)
    micro = pc.multiply(pc.microsecond(times), 1_000)
    return pc.add(pc.add(milli, micro), pc.nanosecond(times))


# --- functions -----------------------------------------------------------------------------------
# The functions of computed columns. Each function computes a whole column at once.
#
# Positions in a string count characters. Java counts UTF-16 code units, which could split a
# character. Timestamps with local time zone are taken in UTC.

Column: TypeAlias = "pa.Array | pa.ChunkedArray"

_UNITS = {0: "s", 3: "ms", 6: "us", 9: "ns"}
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_YEARS = (-62_135_596_800, 253_402_300_800)
"""The first second of the years 1 and 10000, since 1970.

Outside of this range, Arrow computes wrong parts (year, month, ...) of a timestamp.
"""
_CONTROL_AND_BLANK = "".join(map(chr, range(0x21)))
"""The characters that Java's `trim` removes at both ends."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function bound to a column of a known type, with its result type."""

    type: DataType
    values: Callable[[pa.Array, int, int], Column]

    def evaluate(self, given: Column | None, count: int, now_ms: int) -> Column:
        """The results for a column, or for `count` rows if the function takes no column."""
        array = pa.nulls(count) if given is None else _one_chunk(given)
        return self.values(array, count, now_ms)


def call_of(function: str, given: DataType | None, literals: Sequence[str], column: str) -> Call:
    """The call for a column of type `given` (None for `cast` and `now`).

    Raises InvalidRequest for a wrong number or kind of arguments.
    """
    try:
        least, most, build = FUNCTIONS[function]
        if not least <= len(literals) <= most:
            raise InvalidRequest(
                "a function of a computed column has a wrong number of arguments",
                column=column,
                function=function,
                arguments=list(literals),
            )
        return build(function, given, literals, column)
    except ValueError as error:
        if isinstance(error, InvalidRequest):
            raise
        raise InvalidRequest(
            "a function of a computed column needs whole numbers here",
            column=column,
            function=function,
            arguments=list(literals),
        ) from error


def _one_chunk(column: Column) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(column.chunks)


# --- time -----------------------------------------------------------------------------------------


def _part(function: str, given: DataType | None, literals: Sequence[str], column: str) -> Call:
    times = _times(given, literals[0] if literals else None, column)
    part = getattr(pc, function)
    return Call(atomic(Root.INT), lambda array, _n, _now: part(times(array)).cast(pa.int32()))


def _date_format(
    function: str,  # noqa: ARG001
    given: DataType | None,
    literals: Sequence[str],
    column: str,
) -> Call:
    times = _times(given, literals[1] if len(literals) > 1 else None, column)
    print_times = compile_pattern(literals[0], column)
    return Call(STRING, lambda array, _n, _now: print_times(times(array)))


def _times(
    given: DataType | None, precision: str | None, column: str
) -> Callable[[pa.Array], pa.Array]:
    """The function that converts values to timestamps: strings, dates, or numbers since 1970."""
    digits = None if precision is None else int(precision)
    root = given.root if isinstance(given, Atomic) else None
    if root in INTEGERS and digits is None:
        digits = 0
    if digits is not None and digits not in _UNITS:
        raise InvalidRequest(
            "the precision of a time must be 0, 3, 6 or 9", column=column, precision=precision
        )
    if root not in {*INTEGERS, *STRINGS, *TIMESTAMPS, Root.DATE}:
        raise InvalidRequest(
            "a part of a time needs a timestamp, a date, a string or a number",
            column=column,
            type=given,
        )
    unit = None if digits is None else _UNITS[digits]

    def convert(array: pa.Array) -> pa.Array:
        if unit is not None:
            numbers = from_text(array, atomic(Root.BIGINT), column) if root in STRINGS else array
            return _epoch(numbers, unit, column)
        if root in STRINGS:
            return from_text(array, atomic(Root.TIMESTAMP, precision=_digits(array)), column)
        if root is Root.TIMESTAMP_LTZ:
            return array.cast(pa.timestamp(array.type.unit, tz="UTC")).view(
                pa.timestamp(array.type.unit)
            )
        return array.cast(pa.timestamp("ms")) if root is Root.DATE else array

    return convert


def _epoch(numbers: pa.Array, unit: str, column: str) -> pa.Array:
    if not (pa.types.is_integer(numbers.type)):
        raise InvalidRequest("a precision is only for numbers", column=column, type=numbers.type)
    whole = numbers.cast(pa.int64())
    per_second = _PER_SECOND[unit]
    least, past = (each * per_second for each in _YEARS)
    if unit != "ns":  # every 64-bit number of nanoseconds is within these years
        outside = pc.or_(pc.less(whole, least), pc.greater_equal(whole, past))
        _refuse_any(whole, outside, "a number is not a time of the years 1 to 9999", column)
    return whole.cast(pa.timestamp(unit))


def _digits(texts: pa.Array) -> int:
    """The fraction digits to parse: 9 if any string has more than 6, otherwise 6.

    With 9 digits, only the years 1678 to 2261 can be represented.
    """
    fine = pc.match_substring_regex(texts, r"\.\d{7}")
    return 9 if pc.any(fine).as_py() else 6


# --- text -----------------------------------------------------------------------------------------


def _substring(
    function: str,  # noqa: ARG001
    given: DataType | None,
    literals: Sequence[str],
    column: str,
) -> Call:
    begin = int(literals[0])
    end = int(literals[1]) if len(literals) > 1 else None
    if begin < 0 or (end is not None and end <= begin):
        raise InvalidRequest(
            "substring needs 0 <= begin < end", column=column, begin=begin, end=end
        )

    def values(array: pa.Array, _count: int, _now_ms: int) -> pa.Array:
        texts = _texts(array, given, column)
        short = pc.less(pc.utf8_length(texts), begin if end is None else end)
        _refuse_any(texts, short, "a text is too short for substring", column)
        return pc.utf8_slice_codeunits(texts, begin, end)

    return Call(STRING, values)


def _changed_text(
    function: str,
    given: DataType | None,
    literals: Sequence[str],  # noqa: ARG001
    column: str,
) -> Call:
    if not (isinstance(given, Atomic) and given.root is Root.VARCHAR):
        raise InvalidRequest(
            "the function needs a column of type STRING or VARCHAR",
            column=column,
            function=function,
            type=given,
        )
    change = {
        "upper": pc.utf8_upper,
        "lower": pc.utf8_lower,
        "trim": lambda array: pc.utf8_trim(array, characters=_CONTROL_AND_BLANK),
    }[function]
    return Call(STRING, lambda array, _n, _now: change(array))


def _texts(array: pa.Array, given: DataType | None, column: str) -> pa.Array:
    """The values as strings, as Paimon prints them."""
    assert isinstance(given, Atomic)
    return array if given.root in STRINGS else cast(array, given, STRING, column)


# --- numbers and constants ------------------------------------------------------------------------


def _truncate(
    function: str,  # noqa: ARG001
    given: DataType | None,
    literals: Sequence[str],
    column: str,
) -> Call:
    width = int(literals[0])
    root = given.root if isinstance(given, Atomic) else None
    if width < 1 or root not in {*INTEGERS, *STRINGS, Root.DECIMAL}:
        raise InvalidRequest(
            "truncate needs an integer, a decimal or a string, and a width of at least 1",
            column=column,
            type=given,
            width=width,
        )
    assert isinstance(given, Atomic)

    def values(array: pa.Array, _count: int, _now_ms: int) -> Column:
        if root in STRINGS:
            short = pc.less(pc.utf8_length(array), width)
            _refuse_any(array, short, "a text is too short for truncate", column)
            return pc.utf8_slice_codeunits(array, 0, width)
        if root is Root.DECIMAL:
            return _truncated_decimals(array, given, width, column)
        return _truncated_integers(array, width, column)

    return Call(with_nullable(given, nullable=True), values)


def _truncated_integers(array: pa.Array, width: int, column: str) -> pa.Array:
    """Integers rounded down to a multiple of the width."""
    wide = array.cast(pa.int64())
    numbers = wide.fill_null(0).to_numpy(zero_copy_only=False)
    remainder = pa.array(np.mod(numbers, np.int64(width)))
    try:
        lower = pc.subtract_checked(wide, remainder)
        return lower.cast(array.type)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(
            "a truncated number is below the range of its type", column=column, width=width
        ) from error


def _truncated_decimals(array: pa.Array, given: Atomic, width: int, column: str) -> pa.Array:
    """Decimals rounded down to a multiple of the width, which counts units of the last digit."""
    scale = given.scale or 0
    step = Decimal(width).scaleb(-scale)
    kept = [None if each is None else (each // step) * step for each in _floor_ready(array, step)]
    try:
        return pa.array(kept, arrow_type(given))
    except pa.ArrowInvalid as error:
        raise InvalidRequest(
            "a truncated number is below the range of its type", column=column, width=width
        ) from error


def _floor_ready(array: pa.Array, step: Decimal) -> list[Decimal | None]:
    """The numbers, lowered if negative, so that `//`, which rounds towards zero, rounds down."""
    numbers: list[Decimal | None] = array.to_pylist()
    return [
        each if each is None or each >= 0 or each % step == 0 else each - step for each in numbers
    ]


def _cast(
    function: str,  # noqa: ARG001
    given: DataType | None,  # noqa: ARG001
    literals: Sequence[str],
    column: str,
) -> Call:
    data_type = parse_type(literals[1].strip()) if len(literals) > 1 else STRING
    constant = from_text(pa.array([literals[0]]), data_type, column)[0]
    return Call(data_type, lambda _array, count, _now: pa.repeat(constant, count))


def _now(
    function: str,  # noqa: ARG001
    given: DataType | None,  # noqa: ARG001
    literals: Sequence[str],
    column: str,
) -> Call:
    if literals and literals[0].strip():
        raise InvalidRequest("now() takes no argument", column=column, arguments=list(literals))
    kind = pa.timestamp("ms")
    return Call(
        atomic(Root.TIMESTAMP, precision=3),
        lambda _array, count, now_ms: pa.repeat(pa.scalar(now_ms, kind), count),
    )


def _refuse_any(values: pa.Array, bad: pa.Array, message: str, column: str) -> None:
    if pc.any(bad).as_py():
        value = pc.filter(values, bad.fill_null(False))[0].as_py()
        raise InvalidRequest(message, column=column, value=value)


Build: TypeAlias = Callable[[str, "DataType | None", "Sequence[str]", str], Call]

FUNCTIONS: dict[str, tuple[int, int, Build]] = {
    **dict.fromkeys(("year", "month", "day", "hour", "minute", "second"), (0, 1, _part)),
    "date_format": (1, 2, _date_format),
    "substring": (1, 2, _substring),
    "truncate": (1, 1, _truncate),
    "cast": (1, 2, _cast),
    "now": (0, 1, _now),
    **dict.fromkeys(("upper", "lower", "trim"), (0, 0, _changed_text)),
}
"""The least and most arguments after the column, and the function that builds the call."""


# --- computed ------------------------------------------------------------------------------------
# The definitions `--computed_column name=function(arguments)`, in order of computation.
#
# The first argument of a definition may name another computed column. Commas separate the
# arguments; blanks around them are ignored. Every function that takes a column maps null to null.
#
# Paimon's page: https://paimon.apache.org/docs/master/cdc-ingestion/overview/#computed-functions


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """One definition. The name of its function is in lower case."""

    name: str
    function: str
    arguments: tuple[str, ...]

    @property
    def reference(self) -> str | None:
        """The column that the definition refers to; None for `cast` and `now`."""
        return None if self.function in {"cast", "now"} else self.arguments[0].strip()


def parse_computed_columns(texts: Sequence[str]) -> tuple[ComputedColumn, ...]:
    """The definitions, ordered so that each comes after the definitions that it refers to.

    Raises InvalidRequest for a string that is not a definition, an unknown function, two
    definitions of one name, and cyclic references.
    """
    columns = [_parsed(text) for text in texts]
    by_name = {column.name: column for column in columns}
    if len(by_name) < len(columns):
        raise InvalidRequest(
            "a computed column is defined twice", columns=[each.name for each in columns]
        )
    order: TopologicalSorter[str] = TopologicalSorter()
    for each in columns:
        order.add(each.name, *({each.reference or ""} & by_name.keys()))
    try:
        return tuple(by_name[name] for name in order.static_order())
    except CycleError as error:
        raise InvalidRequest(
            "computed columns refer to each other in a circle", columns=error.args[1]
        ) from error


def computed_fields(
    columns: Sequence[ComputedColumn], fields: Sequence[Field], *, lenient: bool = False
) -> tuple[Field, ...]:
    """The fields of the computed columns, for a table with these fields.

    If the table lacks the column that a definition refers to: with `lenient`, the computed column
    is a STRING that is always null; otherwise raises InvalidRequest.
    """
    types: dict[str, DataType] = {field.name: field.type for field in fields}
    added: list[Field] = []
    for column in columns:
        call = _call(column, types, lenient=lenient)
        types[column.name] = STRING if call is None else call.type
        added.append(Field(id=len(fields) + len(added), name=column.name, type=types[column.name]))
    return tuple(added)


def append_computed(
    rows: pa.Table,
    columns: Sequence[ComputedColumn],
    fields: Sequence[Field],
    *,
    now_ms: int,
    lenient: bool = False,
) -> pa.Table:
    """The rows, with the computed columns after their own columns. `fields` describes the rows.

    `now_ms` is the local time as if it were UTC, for `now()`. Raises InvalidRequest for a value
    that a function does not accept.
    """
    types: dict[str, DataType] = {field.name: field.type for field in fields}
    for column in columns:
        call = _call(column, types, lenient=lenient)
        types[column.name] = STRING if call is None else call.type
        values: pa.Array | pa.ChunkedArray
        if call is None:
            values = _nulls(rows.num_rows)
        else:
            given = None if column.reference is None else rows.column(column.reference)
            values = call.evaluate(given, rows.num_rows, now_ms)
        rows = rows.append_column(column.name, values.cast(arrow_type(types[column.name])))
    return rows


def _nulls(count: int) -> pa.Array:
    return pa.nulls(count, arrow_type(STRING))


def _call(column: ComputedColumn, types: dict[str, DataType], *, lenient: bool) -> Call | None:
    reference = column.reference
    if reference is None:
        return call_of(column.function, None, column.arguments, column.name)
    if reference not in types:
        if lenient:
            return None
        raise InvalidRequest(
            "a computed column refers to a column that the source does not have",
            column=column.name,
            reference=reference,
            columns=list(types),
        )
    literals = tuple(each.strip() for each in column.arguments[1:])
    return call_of(column.function, types[reference], literals, column.name)


def _parsed(text: str) -> ComputedColumn:
    name, _, expression = text.partition("=")
    function, opening, rest = expression.strip().partition("(")
    inside, closing, more = rest.partition(")")
    function = function.strip().lower()
    well_formed = name.strip() and function and opening and closing and not more.strip()
    if not well_formed or "=" in expression:
        raise InvalidRequest(
            "not a computed column: write name=function(arguments, ...)", computed_column=text
        )
    if function not in FUNCTIONS:
        raise InvalidRequest(
            "unknown function of a computed column", function=function, known=sorted(FUNCTIONS)
        )
    return ComputedColumn(name.strip(), function, tuple(inside.split(",")))
