"""Converts an Arrow array to the type of a table column, and checks its values and nulls.

All Arrow layouts of the same values are accepted: dictionaries, run-end encoding, extension types
(by their storage type), large, fixed-size and view lists, and lists of key-value structs for MAP
and MULTISET. Fields of a ROW are matched by name.

INVARIANT: an array that already has the type and is valid is returned unchanged. Values under a
null list or struct do not exist, and are never checked.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest
from lakecore.format.variant import variants_of_json
from lakecore.merge.aggregators.collections import equal_codes
from lakecore.model.arrow_arrays import struct_array, total_bytes
from lakecore.model.types import (
    BINARIES,
    LENGTH_MAX,
    Array,
    Atomic,
    DataType,
    Map,
    Multiset,
    Root,
    Row,
    Variant,
    Vector,
    arrow_type,
    inner_types,
    with_nullable,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


# --- fit values ----------------------------------------------------------------------------------
# Converts arrays of atomic values to a column's type, and finds the first value that does not fit.
#
# No value may lose information, with one exception: a wider float or a DECIMAL written to FLOAT or
# DOUBLE is rounded to the nearest value, because Python's floats are all DOUBLE. Accepted are:
# - for integer columns: integers, whole decimals, and whole floats below 2^53, since larger floats
#   may already have lost digits;
# - for DECIMAL: integers and decimals;
# - for DATE: dates, and timestamps at midnight;
# - for TIMESTAMP: dates, and timestamps without a zone;
# - for TIMESTAMP WITH LOCAL TIME ZONE: timestamps with a zone;
# - every layout of strings and of bytes; lengths count code points and bytes.
#
# An array with only nulls fits every type. Each check is one vector operation; the position of the
# first bad value is searched only after a check failed.

Fit: TypeAlias = Callable[[pa.Array, Atomic], pa.Array]

_t = pa.types
_UNIT_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_DAY_SECONDS = 86_400
_DAY_MS = 86_400_000
_INTEGER_DIGITS = 20
_WORD_DIGITS = 18
_EXACT_POWER_MAX = 22
_EXACT_INTEGER_MAX = 1 << 53
_EXACT_SINGLE_MAX = 1 << 24
_BYTES_MAX = (1 << 31) - 1
TOO_MANY_BYTES = "a batch holds at most 2 GiB of a column: write smaller batches"


class Misfit(ValueError):
    """A value that does not fit: the rule, and the position (None: the whole type is wrong)."""

    def __init__(self, rule: str, index: int | None = None) -> None:
        super().__init__(rule)
        self.rule = rule
        self.index = index


def fit_values(array: pa.Array, target: Atomic) -> pa.Array:
    """The values in the Arrow type of `target`. Raises Misfit for the first that does not fit."""
    nothing = len(array) > 0 and array.null_count == len(array)
    if _t.is_null(array.type) or (nothing and array.type != arrow_type(target)):
        return pa.nulls(len(array), arrow_type(target))
    return FITS[target.root](array, target)


def is_string(arrow: pa.DataType) -> bool:
    """Whether the type is text, in any layout."""
    return bool(_t.is_string(arrow) or _t.is_large_string(arrow) or _t.is_string_view(arrow))


# --- numbers --------------------------------------------------------------------------------------


def _boolean(array: pa.Array, target: Atomic) -> pa.Array:
    del target
    if not _t.is_boolean(array.type):
        raise _wrong_type()
    return array


def _integer(array: pa.Array, target: Atomic) -> pa.Array:
    wanted = arrow_type(target)
    rule = "the value is not a whole number in the range of the column's type"
    if array.type == wanted:
        return array
    if _t.is_decimal(array.type):
        array = _rescaled(array, pa.decimal128(_INTEGER_DIGITS, 0), rule)
    elif _t.is_floating(array.type):
        return _integer_of_float(array, wanted, rule)
    if not (_t.is_integer(array.type) or _t.is_decimal(array.type)):
        raise _wrong_type()
    return _cast(array, wanted, rule)


def _integer_of_float(array: pa.Array, wanted: pa.DataType, rule: str) -> pa.Array:
    """Convert whole floats below 2^53 to integers. Larger ones may be a rounded other integer."""
    if _t.is_float16(array.type):
        array = array.cast(pa.float32())
    out = _cast(array, wanted, rule)
    bound = float(_EXACT_INTEGER_MAX if array.type == pa.float64() else _EXACT_SINGLE_MAX)
    _check(
        pc.greater_equal(pc.abs(array), bound),
        "a float this large may have lost digits: give an integer column (in pandas, dtype Int64)",
    )
    return out


def _float(array: pa.Array, target: Atomic) -> pa.Array:
    wanted = arrow_type(target)
    if array.type == wanted:
        return array
    if _t.is_integer(array.type):
        return _cast(array, wanted, "the column's type has too few digits for the number")
    if _t.is_decimal(array.type):
        array = _float_of_decimal(array)
    elif not _t.is_floating(array.type):
        raise _wrong_type()
    out = array.cast(wanted)
    if wanted == pa.float32():
        extremes = pc.min_max(out)
        if any(abs(extremes[end].as_py() or 0) == math.inf for end in ("min", "max")):
            _check(
                pc.and_(pc.is_inf(out), pc.is_finite(array)),
                "the number is too large for the column's type",
            )
    return out


def _float_of_decimal(array: pa.Array) -> pa.Array:
    """The nearest float64 of each decimal. Arrow's own cast is often wrong in the last bit."""
    scale = array.type.scale
    if array.type.precision <= _WORD_DIGITS and 0 <= scale <= _EXACT_POWER_MAX:
        wide = array.cast(pa.decimal128(_WORD_DIGITS, scale))
        data, start = wide.buffers()[1] or b"", 16 * wide.offset
        numbers = np.frombuffer(data, np.int64, 2 * len(wide), start)[::2]
        if not (np.abs(numbers) > _EXACT_INTEGER_MAX).any():
            # Both operands are exact, so the single division rounds to the nearest value.
            nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
            return pa.array(numbers / 10.0**scale, mask=nulls)
    return array.cast(pa.string()).cast(pa.float64())


def _decimal(array: pa.Array, target: Atomic) -> pa.Array:
    wanted = arrow_type(target)
    rule = "the number has more digits than the column's type"
    if _t.is_integer(array.type):
        array = array.cast(pa.decimal128(_INTEGER_DIGITS, 0))
    elif not _t.is_decimal(array.type):
        raise _wrong_type(
            "a float is not an exact decimal: cast it first" if _t.is_floating(array.type) else ""
        )
    else:
        # DuckDB gives a HUGEINT of 39 digits as a DECIMAL(38, 0).
        _check_valid(array, rule)
    return array if array.type == wanted else _rescaled(array, wanted, rule)


def _rescaled(array: pa.Array, wanted: pa.DataType, rule: str) -> pa.Array:
    """The same decimals with the precision and scale of the type.

    NOTE: Arrow multiplies first and misses some overflows. Therefore the number of integer digits
    is checked before the cast.
    """
    source = array.type
    digits = wanted.precision - (wanted.scale - source.scale)
    if digits < 1:
        _check(pc.not_equal(array, pa.scalar(Decimal(0), source)), rule)
    elif source.scale < wanted.scale and digits < source.precision:
        array = _cast(array, pa.decimal128(digits, source.scale), rule)
    return _cast(array, wanted, rule)


# --- days and times -------------------------------------------------------------------------------


def _date(array: pa.Array, target: Atomic) -> pa.Array:
    del target
    if array.type == pa.date32():
        return array
    if _t.is_date64(array.type):
        _check_multiple(array, _DAY_MS, _NOT_MIDNIGHT)
    elif _t.is_timestamp(array.type):
        if array.type.tz:
            raise _wrong_type("the date of an instant depends on the zone: cast it first")
        _check_multiple(array, _DAY_SECONDS * 10 ** _UNIT_DIGITS[array.type.unit], _NOT_MIDNIGHT)
    else:
        raise _wrong_type()
    return array.cast(pa.date32())


_NOT_MIDNIGHT = "a date cannot hold the time of day"


def _time(array: pa.Array, target: Atomic) -> pa.Array:
    if not _t.is_time(array.type):
        raise _wrong_type()
    digits = min(target.digits, 3)
    out = array
    if array.type != pa.time32("ms"):
        out = _cast(array, pa.time32("ms"), "TIME is stored in milliseconds: the value is finer")
    numbers = _numbers(out)
    if numbers.size and (numbers.min() < 0 or numbers.max() >= _DAY_MS):
        _check_numbers(out, (numbers < 0) | (numbers >= _DAY_MS), "the value is not a time of day")
    _check_multiple(out, 10 ** (3 - digits), _TOO_FINE)
    return out


_TOO_FINE = "the value has more fraction digits than the column's type"


def _timestamp(array: pa.Array, target: Atomic) -> pa.Array:
    if _t.is_date(array.type):
        return _fine(_date(array, target).cast(pa.timestamp("s")), target)
    if not _t.is_timestamp(array.type):
        raise _wrong_type()
    if array.type.tz:
        raise _wrong_type("a timestamp with a zone is not a local time: remove the zone first")
    return _fine(array, target)


def _timestamp_ltz(array: pa.Array, target: Atomic) -> pa.Array:
    if not _t.is_timestamp(array.type):
        raise _wrong_type()
    if not array.type.tz:
        raise _wrong_type("a timestamp without a zone is not an instant: add a zone first")
    return _fine(array, target)


def _fine(array: pa.Array, target: Atomic) -> pa.Array:
    """The timestamps in the unit of the type. Raises Misfit for digits beyond its precision."""
    wanted = arrow_type(target)
    given, kept = _UNIT_DIGITS[array.type.unit], _UNIT_DIGITS[wanted.unit]
    if given > kept:
        _check_multiple(array, 10 ** (given - target.digits), _TOO_FINE)
    if array.type != wanted:
        array = _cast(array, wanted, "the timestamp is out of the range of the column's type")
    if given <= kept:
        _check_multiple(array, 10 ** (kept - target.digits), _TOO_FINE)
    return array


# --- texts and bytes ------------------------------------------------------------------------------


def _string(array: pa.Array, target: Atomic) -> pa.Array:
    if not is_string(array.type):
        raise _wrong_type()
    out = _compact(array, pa.string())
    _check_utf8(out)
    length = target.length or LENGTH_MAX
    # The byte length is an upper bound of the number of code points, and much faster to compute.
    if length < LENGTH_MAX and _longest(out) > length:
        _check(
            pc.greater(pc.utf8_length(out), length),
            "the text has more characters than the column's type",
        )
    return out


def _binary(array: pa.Array, target: Atomic) -> pa.Array:
    source = array.type
    if not (
        _t.is_binary(source)
        or _t.is_large_binary(source)
        or _t.is_binary_view(source)
        or _t.is_fixed_size_binary(source)
    ):
        raise _wrong_type()
    out = _compact(array, pa.binary())
    length = target.length or LENGTH_MAX
    if length < LENGTH_MAX and _longest(out) > length:
        _check(
            pc.greater(pc.binary_length(out), length),
            "the value has more bytes than the column's type",
        )
    return out


def _compact(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The same strings or bytes with 32-bit offsets."""
    if array.type == wanted:
        return array
    if _t.is_string_view(array.type) or _t.is_binary_view(array.type):
        # Arrow's cast of views does not check that 32-bit offsets are enough.
        if total_bytes(array) > _BYTES_MAX:
            raise Misfit(TOO_MANY_BYTES)
        return array.cast(wanted)
    with suppress(pa.ArrowInvalid):
        return array.cast(wanted)
    try:  # For a slice near the end of a large array: the offsets of a copy start at 0.
        return pa.concat_arrays([array, array.slice(0, 0)]).cast(wanted)
    except pa.ArrowInvalid as error:
        raise Misfit(TOO_MANY_BYTES) from error


def _longest(array: pa.Array) -> int:
    return pc.max(pc.binary_length(array)).as_py() or 0


def _check_utf8(array: pa.Array) -> None:
    """Raise Misfit for a string that is not UTF-8. Pure ASCII is recognised quickly."""
    offsets, content = array.buffers()[1:]
    if not len(array) or content is None:
        return
    ends = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset)
    used = np.frombuffer(content, np.int8)[ends[0] : ends[-1]]
    if not used.size or used.min() >= 0:
        return
    _check_valid(array, "the text is not valid UTF-8")


# --- finding the value at fault -------------------------------------------------------------------


def first_failing(array: pa.Array, operation: Callable[[pa.Array], object]) -> int:
    """The position of the first value for which the operation raises, found by bisection.

    The operation must fail on an array exactly if it fails on one of its values.
    """
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            operation(array.slice(low, middle - low))
        except pa.ArrowInvalid:
            high = middle
        else:
            low = middle
    return low


def _cast(array: pa.Array, wanted: pa.DataType, rule: str) -> pa.Array:
    """Arrow's checked cast; raises Misfit with the position of the first value that fails."""
    try:
        return array.cast(wanted)
    except pa.ArrowInvalid as error:
        raise Misfit(rule, first_failing(array, lambda part: part.cast(wanted))) from error


def _check_valid(array: pa.Array, rule: str) -> None:
    """Raise Misfit for a value that is invalid for the array's own type."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        index = first_failing(array, lambda part: part.validate(full=True))
        raise Misfit(rule, index) from error


def _check(wrong: pa.Array, rule: str) -> None:
    """Raise Misfit at the first true value of the mask; null counts as false."""
    index = pc.index(wrong, pa.scalar(True)).as_py()
    if index >= 0:
        raise Misfit(rule, index)


def _check_multiple(array: pa.Array, unit: int, rule: str) -> None:
    """Raise Misfit unless every number is a multiple of `unit`."""
    if unit > 1:
        rests = _numbers(array) % unit
        if rests.any():
            _check_numbers(array, rests != 0, rule)


def _check_numbers(array: pa.Array, wrong: NDArray[np.bool_], rule: str) -> None:
    """Like `_check`, for a mask computed from raw values. Positions of nulls are excluded."""
    _check(pc.and_(pa.array(wrong), array.is_valid()), rule)


def _numbers(array: pa.Array) -> NDArray[np.signedinteger]:
    """The raw numbers of the array. In the positions of nulls, they are arbitrary."""
    data, width = array.buffers()[1], array.type.bit_width // 8
    # A buffer may be longer than its values by any number of bytes.
    return np.frombuffer(data or b"", f"i{width}", len(array), width * array.offset)


def _wrong_type(hint: str = "") -> Misfit:
    return Misfit("the values are not of the column's type" + (f": {hint}" if hint else ""))


FITS: Mapping[Root, Fit] = {
    Root.BOOLEAN: _boolean,
    Root.TINYINT: _integer,
    Root.SMALLINT: _integer,
    Root.INT: _integer,
    Root.BIGINT: _integer,
    Root.FLOAT: _float,
    Root.DOUBLE: _float,
    Root.DECIMAL: _decimal,
    Root.DATE: _date,
    Root.TIME: _time,
    Root.TIMESTAMP: _timestamp,
    Root.TIMESTAMP_LTZ: _timestamp_ltz,
    Root.CHAR: _string,
    Root.VARCHAR: _string,
    **dict.fromkeys(BINARIES, _binary),
}


# --- fit -----------------------------------------------------------------------------------------

_VALUE_SHOWN_MAX = 120
_INT32_MAX = 2_147_483_647


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The origin of an array's values: the dotted column name, and the row number of each value."""

    column: str
    first_row: int = 0
    above: Place | None = None
    lists: pa.Array | None = None

    def inside(self, part: str, lists: pa.Array | None = None) -> Place:
        """The origin of a nested part.

        With `lists`, each element has the row number of its list.
        """
        return Place(column=f"{self.column}.{part}", above=self, lists=lists)

    def row(self, index: int) -> int:
        """The row that holds the value at this position, numbered over the whole write."""
        if self.above is None:
            return self.first_row + index
        if self.lists is not None:
            index = int(np.searchsorted(_offsets(self.lists), index, side="right")) - 1
        return self.above.row(index)

    def refusal(self, misfit: Misfit, array: pa.Array, data_type: DataType) -> InvalidRequest:
        """The error for a value that does not fit: it names column, value, row and rule."""
        if misfit.index is None:
            return InvalidRequest(misfit.rule, column=self.column, type=data_type, given=array.type)
        return InvalidRequest(
            misfit.rule,
            column=self.column,
            value=show(array[misfit.index]),
            row=self.row(misfit.index),
            type=data_type,
        )


def fit(
    array: pa.Array, data_type: DataType, place: Place, alive: pa.Array | None = None
) -> pa.Array:
    """The array in the Arrow type of `data_type`.

    Raises InvalidRequest for the first value that does not fit the type.

    `alive` is a mask of the positions where the surrounding struct is not null; only such positions
    count.
    """
    array = _plain(array)
    try:
        if not data_type.nullable:
            _check_not_null(array, alive)
        match data_type:
            case Atomic():
                return fit_values(array, data_type)
            case Variant() if is_string(array.type):
                return _fit_json(array)
            case Row():
                return _fit_row(array, data_type, place)
            case Array():
                return _fit_list(array, data_type, place)
            case Map():
                return _fit_map(array, data_type, place)
            case Multiset():
                keys, counts = inner_types(data_type)
                as_map = Map(key=keys, value=counts, nullable=data_type.nullable)
                return _fit_map(array, as_map, place)
    except Misfit as misfit:
        raise place.refusal(misfit, array, data_type) from misfit


def show(value: pa.Scalar) -> str:
    """The value as text for an error message, cut if it is long."""
    if not value.is_valid:
        return "null"
    if _t.is_timestamp(value.type) and value.type.tz:
        value = value.cast(pa.timestamp(value.type.unit, "UTC"))
    if _t.is_temporal(value.type):
        text = str(value.cast(pa.string()).as_py())
    elif is_string(value.type):
        text = value.as_buffer().to_pybytes().decode(errors="backslashreplace")
    else:
        text = str(value.as_py())
    return text if len(text) <= _VALUE_SHOWN_MAX else text[:_VALUE_SHOWN_MAX] + "..."


def _plain(array: pa.Array) -> pa.Array:
    """The plain array inside dictionary, run-end and extension types."""
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif isinstance(array, pa.DictionaryArray):
            array = _decoded(array)
        elif _t.is_run_end_encoded(array.type):
            array = _repeated(array)
        else:
            return array


def _decoded(array: pa.DictionaryArray) -> pa.Array:
    return _taken(array.dictionary, array.indices)


def _repeated(array: pa.RunEndEncodedArray) -> pa.Array:
    """The value of each row of a run-end encoded array.

    This function exists because Arrow decodes only some value types.
    """
    places = np.arange(len(array)) + array.offset
    runs = np.searchsorted(array.run_ends.to_numpy(), places, side="right")
    return _taken(_plain(array.values), pa.array(runs))


def _taken(values: pa.Array, indices: pa.Array) -> pa.Array:
    """The values at these positions. Works for views too, which PyArrow's `take` refuses."""
    kind = values.type
    if _t.is_string_view(kind):
        values = values.cast(pa.large_string())
    elif _t.is_binary_view(kind):
        values = values.cast(pa.large_binary())
    elif (_t.is_string(kind) or _t.is_binary(kind)) and _is_wide(values, indices):
        values = values.cast(pa.large_string() if _t.is_string(kind) else pa.large_binary())
    try:
        return values.take(indices)
    except pa.ArrowInvalid as error:
        raise Misfit(TOO_MANY_BYTES) from error


def _is_wide(values: pa.Array, indices: pa.Array) -> bool:
    """Whether the values at these positions may need more bytes than 32-bit offsets can count."""
    longest = pc.max(pc.binary_length(values)).as_py() or 0
    return int(longest) * len(indices) > _INT32_MAX


def _check_not_null(array: pa.Array, alive: pa.Array | None) -> None:
    if not array.null_count:
        return
    missing = array.is_null()
    if alive is not None:
        missing = pc.and_(missing, alive)
    index = pc.index(missing, pa.scalar(True)).as_py()
    if index >= 0:
        raise Misfit("null in a column that is NOT NULL", index)


def _fit_row(array: pa.Array, data_type: Row, place: Place) -> pa.Array:
    wanted = arrow_type(data_type)
    if _is_empty(array):
        return pa.nulls(len(array), wanted)
    if not _t.is_struct(array.type):
        raise Misfit("the values are not of the column's type")
    given = [field.name for field in array.type]
    known = [field.name for field in data_type.fields]
    check_names(given, known, inside=f"{place.column}.")
    alive = array.is_valid() if array.null_count else None
    parts = dict(zip(given, array.flatten(), strict=True))
    fitted = [
        fit(
            parts[field.name] if field.name in parts else pa.nulls(len(array)),
            field.type,
            place.inside(field.name),
            alive,
        )
        for field in data_type.fields
    ]
    same = all(parts.get(name) is part for name, part in zip(known, fitted, strict=True))
    if same and array.type == wanted:
        return array
    return struct_array(array, fitted, list(wanted))


def _fit_json(array: pa.Array) -> pa.Array:
    try:
        return variants_of_json(array)
    except ValueError as error:
        rule, *at = error.args
        raise Misfit(f"the text is not JSON: {rule}", *at) from error


def _fit_list(array: pa.Array, data_type: Array, place: Place) -> pa.Array:
    wanted = arrow_type(data_type)
    if _is_empty(array):
        return pa.nulls(len(array), wanted)
    if not _is_list(array.type):
        raise Misfit("the values are not of the column's type")
    values = array.flatten()
    fitted = fit(values, data_type.element, place.inside("element", array))
    if isinstance(data_type, Vector):
        _check_vectors(array, data_type)
    if fitted is values and array.type == wanted:
        return array
    return pa.ListArray.from_arrays(
        pa.array(_offsets(array)), fitted, type=wanted, mask=array.is_null()
    )


def _check_vectors(array: pa.Array, data_type: Vector) -> None:
    """Raise Misfit for the first list of another length, or with a null element."""
    wrong = pc.not_equal(pc.list_value_length(array), data_type.length)
    index = pc.index(wrong, pa.scalar(True)).as_py()
    if index >= 0:
        raise Misfit(f"a VECTOR of this type has {data_type.length} elements", index)
    values = array.flatten()
    if values.null_count:
        parents = pc.list_parent_indices(array).filter(values.is_null())
        raise Misfit("an element of a VECTOR is null", parents[0].as_py())


def _fit_map(array: pa.Array, data_type: Map, place: Place) -> pa.Array:
    wanted = arrow_type(data_type)
    if _is_empty(array):
        return pa.nulls(len(array), wanted)
    lists = _entry_lists(array)
    entries = lists.flatten()
    if entries.null_count:
        index = pc.index(entries.is_null(), pa.scalar(True)).as_py()
        row = place.inside("key", lists).row(index)
        raise InvalidRequest("an entry of a map is null", column=place.column, row=row)
    keys, values = entries.field("key"), entries.field("value")
    key_type = with_nullable(data_type.key, nullable=False)
    fitted_keys = fit(keys, key_type, place.inside("key", lists))
    fitted_values = fit(values, data_type.value, place.inside("value", lists))
    _check_keys(fitted_keys, place.inside("key", lists))
    if fitted_keys is keys and fitted_values is values and array.type == wanted:
        return array
    return pa.MapArray.from_arrays(
        pa.array(_offsets(lists)), fitted_keys, fitted_values, type=wanted, mask=lists.is_null()
    )


def _check_keys(keys: pa.Array, place: Place) -> None:
    """Raise InvalidRequest for a key that occurs twice in a map."""
    if not len(keys):
        return
    rows = np.searchsorted(_offsets(place.lists), np.arange(len(keys)), side="right")
    repeats = equal_codes([rows, keys]) != np.arange(len(keys))
    if repeats.any():
        index = int(repeats.argmax())
        raise InvalidRequest(
            "a map has the same key twice",
            column=place.column,
            value=show(keys[index]),
            row=place.row(index),
        )


def _entry_lists(array: pa.Array) -> pa.Array:
    """The maps as lists of structs `key`, `value`; a list of such structs is returned unchanged."""
    if _t.is_map(array.type):
        entries = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
        validity, offsets = array.buffers()[:2]
        return pa.Array.from_buffers(
            pa.list_(entries.type),
            len(array),
            [validity, offsets],
            array.null_count,
            array.offset,
            children=[entries],
        )
    if _is_list(array.type) and _t.is_struct(array.type.value_type):
        parts = [field.name for field in array.type.value_type]
        if sorted(parts) == ["key", "value"]:
            return array
    raise Misfit("the values are not of the column's type: a map, or a list of structs key, value")


def check_names(given: list[str], known: list[str], *, inside: str = "", also: str = "") -> None:
    """Raise InvalidRequest for a name that is unknown or occurs twice.

    `also` is a further valid name that is not a column; it is suggested for misspelt names.
    """
    strange = next((name for name in given if name not in known), None)
    if strange is not None:
        raise InvalidRequest(
            "unknown column",
            column=inside + strange,
            **_near(strange, [*known, also]),
            columns=known,
        )
    check_once(given, inside=inside)


def check_once(names: list[str], *, inside: str = "") -> None:
    """Raise InvalidRequest if two columns have the same name."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest("two columns have the same name", column=inside + twice)


def _near(name: str, known: list[str]) -> dict[str, list[str]]:
    lowered = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), lowered, n=3)
    return {"did_you_mean": [lowered[one] for one in near]} if near else {}


def _is_empty(array: pa.Array) -> bool:
    """Whether the array has only nulls, so that its type is irrelevant."""
    return _t.is_null(array.type) or (
        len(array) > 0 and array.null_count == len(array) and not _t.is_nested(array.type)
    )


def _is_list(arrow: pa.DataType) -> bool:
    return bool(
        _t.is_list(arrow)
        or _t.is_large_list(arrow)
        or _t.is_fixed_size_list(arrow)
        or _t.is_list_view(arrow)
        or _t.is_large_list_view(arrow)
    )


def _offsets(lists: pa.Array) -> NDArray[np.int32]:
    """The start of each list in the flattened values, and the end of the last list."""
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
    ends = np.cumsum(lengths, dtype=np.int64)
    if ends.size and ends[-1] > _INT32_MAX:
        raise Misfit("a batch holds at most 2 G elements of a column: write smaller batches")
    return np.concatenate([[0], ends]).astype(np.int32)
