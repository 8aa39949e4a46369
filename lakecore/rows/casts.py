"""Paimon's casts from one atomic type to another, one column at a time.

If the type of a column was changed, its old files keep the old type and their values are cast when
they are read. The rules are those of Java, so that every engine reads the same values:

- integers narrow by dropping high bits; floats are truncated and saturate at the range of INT or
  BIGINT, and NaN becomes 0;
- decimals round half up; a result with too many digits becomes null;
- text is cut to its length, and CHAR is padded with blanks; text that cannot be parsed raises an
  error, as in Java;
- a timestamp with local time zone is cast as in the zone UTC.

Which pairs have a cast is decided by `may_cast`, as for ALTER TABLE; `CASTS` says how each is done.
Any other pair raises Unsupported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.casts import may_cast
from lakecore.model.types import (
    BINARIES,
    INTEGERS,
    LENGTH_MAX,
    STRINGS,
    Atomic,
    Root,
    arrow_type,
    string_array,
)
from lakecore.rows.utf8 import decode_text

if TYPE_CHECKING:
    from numpy.typing import NDArray


# --- cast text -----------------------------------------------------------------------------------
# Casts from and to text, one column at a time, by the rules of Java's printing and parsing.
#
# Text that cannot be parsed raises NoCast with the first such value. A regular expression matches
# the whole column at once; numbers are then computed from its groups.

_TRUE_TEXTS = string_array(["t", "true", "y", "yes", "1"])
_FALSE_TEXTS = string_array(["f", "false", "n", "no", "0"])

_INTEGER = r"^[+-]?(?:\d+\.?\d*|\.\d*)$"
_FLOAT = (
    r"^\s*(?P<sign>[+-]?)"
    r"(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[dDfF]?|(?P<name>NaN|Infinity))\s*$"
)
_DECIMAL = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$"
_DAY_NUMBER = r"^-?\d+$"
_DATE = r"^\s*(?P<y>\d{1,9})(?:-(?P<m>\d{1,9})(?:-(?P<d>\d{1,9}))?)?(?:\s*| .*)$"
_BLANK_DATE_AND_MORE = r"^ .*\S +\S"
_TIME = (
    r"^\s*(?P<h>\d{1,3})\s*(?::\s*(?P<m>\d{1,9})\s*"
    r"(?::\s*(?P<s>\d{1,9})\s*(?:\.\s*(?P<f>\d*)\s*)?)?)?$"
)
_TIMESTAMP = (
    r"^(?P<y>\d{4,6})-(?P<mo>\d{1,2})-(?P<d>\d{1,2})"
    r"(?:[ T](?P<h>\d{1,2}):(?P<mi>\d{1,2})(?P<sec>:(?P<s>\d{1,2})(?:\.(?P<f>\d{0,9}))?)?)?$"
)
_BLANK_TIME_WITHOUT_SECONDS = r" \d{1,2}:\d{1,2}$"
_WIDE_DECIMAL = pa.decimal256(76, 38)
_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class NoCast(ValueError):
    """Raised for a value that cannot be cast. The message is the value."""


# --- to text --------------------------------------------------------------------------------------


def string_to_string(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    """Cast text to text: cut to the target's length in characters; CHAR is padded with blanks."""
    length = target.length or LENGTH_MAX
    if length < LENGTH_MAX:
        array = pc.utf8_slice_codeunits(array, 0, length)
    return pc.utf8_rpad(array, length) if target.root is Root.CHAR else array


def integer_to_string(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:
    """Cast integers to their decimal digits."""
    return string_to_string(array.cast(pa.string()), source, target)


def boolean_to_string(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:
    """Cast booleans to `true` or `false`."""
    return string_to_string(array.cast(pa.string()), source, target)


def float_to_string(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:
    """Cast floats to the fewest digits that identify the value, with or without an exponent.

    The form is `1.5` if the absolute value is at least 0.001 and below 10^7, else `1.5E-4`.
    """
    plain = array.cast(pa.string())
    size = pc.abs(array)
    decimal = pc.or_(pc.equal(size, 0.0), pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 1e7)))
    whole = pc.invert(pc.match_substring_regex(plain, r"[.eE]"))
    out = pc.if_else(whole, pc.binary_join_element_wise(plain, ".0", ""), plain)
    out = pc.if_else(pc.is_finite(array), out, _special_floats(array))
    scientific = pc.and_(pc.is_finite(array), pc.invert(decimal)).fill_null(False)
    if pc.any(scientific).as_py():
        out = pc.replace_with_mask(out, scientific, _scientific(pc.filter(plain, scientific)))
    return string_to_string(out, source, target)


def decimal_to_string(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:
    """Cast decimals to text with all digits of the scale, without an exponent."""
    scale = source.decimals
    digits = pa.Array.from_buffers(
        pa.decimal128(38, 0), len(array), array.buffers(), array.null_count, array.offset
    ).cast(pa.string())
    if scale:
        sign = pc.if_else(pc.starts_with(digits, "-"), "-", "")
        digits = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
        whole = pc.utf8_slice_codeunits(digits, 0, -scale)
        fraction = pc.utf8_slice_codeunits(digits, -scale)
        digits = pc.binary_join_element_wise(
            pc.binary_join_element_wise(sign, whole, ""), fraction, "."
        )
    return string_to_string(digits, source, target)


def date_to_string(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    """Cast dates to the form `2024-01-31`."""
    return array.cast(pa.string())


def time_to_string(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    """Cast times to the form `12:34:05.12`.

    At most 3 fraction digits; trailing zeros after the first are cut.
    """
    digits = min(source.digits, 3)
    full = array.cast(pa.string())
    if not digits:
        return pc.utf8_slice_codeunits(full, 0, 8)
    return pc.replace_substring_regex(
        pc.utf8_slice_codeunits(full, 0, 9 + digits), r"(\.\d\d*?)0+$", r"\1"
    )


def timestamp_to_string(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    """Cast timestamps to the form `2024-01-31 12:34:05.120`, with the digits of the precision.

    Timestamps with a zone are shown in UTC.
    """
    digits = source.digits
    bare = array.cast(pa.timestamp(array.type.unit)) if array.type.tz else array
    shown = pc.replace_substring_regex(bare.cast(pa.string()), rf"(\.\d{{{digits}}}\d*?)0+$", r"\1")
    return pc.replace_substring_regex(shown, r"\.$", "")


def binary_to_string(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    """Cast bytes to text as UTF-8. As in Java, the text is not cut to the target's length."""
    return decode_text(array)


def binary_to_binary(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    """Cast bytes to bytes: cut to the target's length; BINARY is padded with zero bytes."""
    length = target.length or LENGTH_MAX
    sizes = pc.binary_length(array)
    if pc.any(pc.greater(sizes, length)).as_py():
        array = pc.binary_slice(array, 0, length)
    if target.root is Root.BINARY and pc.any(pc.less(sizes, length)).as_py():
        array = _zero_filled(array, length)
    return array


def string_to_binary(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:
    """Cast text to its UTF-8 bytes, cut or padded to the target's length."""
    return binary_to_binary(array.cast(pa.binary()), source, target)


# --- from text ------------------------------------------------------------------------------------


def string_to_boolean(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    """Cast text to booleans, in any case: t, true, y, yes, 1 and f, false, n, no, 0."""
    lower = pc.utf8_lower(array)
    true = pc.is_in(lower, _TRUE_TEXTS)
    _check(array, pc.or_(true, pc.is_in(lower, _FALSE_TEXTS)))
    return pc.if_else(array.is_valid(), true, pa.scalar(None, pa.bool_()))


def string_to_integer(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    """Cast text to integers: the part before the point.

    Raises InvalidRequest if the number does not fit.
    """
    _check(array, pc.match_substring_regex(array, _INTEGER))
    whole = pc.replace_substring_regex(array, r"^\+|\..*$", "")
    return pc.replace_substring_regex(whole, r"^(-?)$", r"\10").cast(arrow_type(target))


def string_to_float(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    """Cast text to floats, as Java's parser does.

    Surrounding blanks, an exponent, a final d or f, NaN and Infinity are accepted.
    """
    parts = pc.extract_regex(array, _FLOAT)
    _check(array, parts.is_valid())
    sign = pc.replace_substring(pc.struct_field(parts, "sign"), "+", "")
    name = pc.utf8_lower(pc.struct_field(parts, "name"))
    number = pc.if_else(pc.equal(name, ""), pc.struct_field(parts, "number"), name)
    return pc.binary_join_element_wise(sign, number, "").cast(arrow_type(target))


def to_wide_decimal(array: pa.Array) -> pa.Array:
    """Convert text to decimals with up to 38 digits before and 38 after the point."""
    _check(array, pc.match_substring_regex(array, _DECIMAL))
    return pc.replace_substring_regex(array, r"^\+", "").cast(_WIDE_DECIMAL)


def string_to_date(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    """Cast text to dates: a day number, `2024-01-31` or `2024-01`.

    Text after a blank is ignored.
    """
    numbers = _matches(array, _DAY_NUMBER)
    parts = pc.extract_regex(array, _DATE)
    days, valid = _days(
        _group(parts, "y"), _group(parts, "m", default=1), _group(parts, "d", default=1)
    )
    years = _group(parts, "y")
    valid &= parts.is_valid().to_numpy(zero_copy_only=False) & (years <= 9_999)
    valid &= ~_matches(array, _BLANK_DATE_AND_MORE)
    _check(array, pa.array(valid | numbers))
    return _joined(array, days, numbers).cast(pa.int32()).cast(pa.date32())


def string_to_time(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    """Cast text to times: a number of milliseconds, or `12:34`, `12:34:05`, `12:34:05.678`.

    More digits are rounded. Blanks around the parts are ignored.
    """
    numbers = _matches(array, _DAY_NUMBER)
    parts = pc.extract_regex(array, _TIME)
    _check(array, pa.array(parts.is_valid().to_numpy(zero_copy_only=False) | numbers))
    fraction = _digits(pc.struct_field(parts, "f"), 4)
    ms = fraction // 10 + (fraction % 10 >= 5)
    minutes = _group(parts, "h") * 60 + _group(parts, "m")
    values = (minutes * 60 + _group(parts, "s")) * 1_000 + ms
    return _joined(array, values, numbers).cast(pa.int32()).cast(arrow_type(target))


def string_to_timestamp(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    """Cast text to timestamps: `2024-01-31` or `2024-01-31 12:34:05.678` (also with a T).

    For types with a zone, the text is in UTC. Digits beyond the precision are dropped. For a type
    without a zone, a plain number counts units of the precision (0, 3, 6 or 9 digits).
    """
    wanted = arrow_type(target)
    precision = target.digits
    per_second = _PER_SECOND[wanted.unit]
    plain = target.root is Root.TIMESTAMP and precision % 3 == 0
    numbers = _matches(array, _DAY_NUMBER) if plain else np.zeros(len(array), np.bool_)
    parts = pc.extract_regex(array, _TIMESTAMP)
    days, valid = _days(
        _group(parts, "y"), _group(parts, "mo"), _group(parts, "d", default=1), clamp=True
    )
    hours, minutes, seconds = (_group(parts, name) for name in ("h", "mi", "s"))
    valid &= (hours < 24) & (minutes < 60) & (seconds < 60)
    valid &= ~_matches(array, _BLANK_TIME_WITHOUT_SECONDS)
    _check(array, pa.array(valid | numbers))
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    step = 10 ** (9 - precision)
    nanos = _digits(pc.struct_field(parts, "f"), 9) // step * step
    values = whole * per_second + nanos // (10**9 // per_second)
    unit_step = per_second // 10**precision
    return _joined(array, values, numbers, unit_step).cast(pa.timestamp(wanted.unit)).view(wanted)


# --- parts ----------------------------------------------------------------------------------------


def _check(array: pa.Array, valid: pa.Array) -> None:
    """Raise NoCast with the first value that is not null and not valid."""
    bad = pc.and_(array.is_valid(), pc.invert(valid))
    if pc.any(bad).as_py():
        raise NoCast(repr(pc.filter(array, bad)[0].as_py()))


def _matches(array: pa.Array, pattern: str) -> NDArray[np.bool_]:
    found = pc.match_substring_regex(array, pattern).fill_null(False)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _group(parts: pa.Array, name: str, default: int = 0) -> NDArray[np.int64]:
    """The numbers that a group of the regular expression matched.

    `default`: the number of a group that is absent or empty.
    """
    texts = pc.struct_field(parts, name)
    numbers = pc.if_else(pc.equal(texts, ""), str(default), texts).fill_null(str(default))
    return np.asarray(numbers.cast(pa.int64()))


def _digits(texts: pa.Array, count: int) -> NDArray[np.int64]:
    """The fraction digits as an integer of `count` digits: padded or cut."""
    padded = pc.utf8_slice_codeunits(pc.utf8_rpad(texts.fill_null(""), count, "0"), 0, count)
    return np.asarray(padded.cast(pa.int64()))


def _days(
    years: NDArray[np.int64],
    months: NDArray[np.int64],
    days: NDArray[np.int64],
    *,
    clamp: bool = False,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Days since the epoch, and a mask of valid dates.

    `clamp` replaces a day past the end of its month by the last day.
    """
    valid = (months >= 1) & (months <= 12) & (days >= 1) & (days <= 31) & (years < 300_000)
    index = np.where(valid, (years - 1970) * 12 + months - 1, 0)
    first = index.astype("M8[M]").astype("M8[D]").astype(np.int64)
    after = (index + 1).astype("M8[M]").astype("M8[D]").astype(np.int64)
    last = after - first
    if clamp:
        days = np.minimum(days, last)
    else:
        valid &= days <= last
    return first + days - 1, valid


def _joined(
    array: pa.Array, values: NDArray[np.int64], numbers: NDArray[np.bool_], step: int = 1
) -> pa.Array:
    """The values; where the text is a plain number (`numbers`), that number times `step` instead.

    Nulls are those of `array`.
    """
    if numbers.any():
        own = pc.if_else(pa.array(numbers), array, "0").fill_null("0").cast(pa.int64())
        values = np.where(numbers, np.asarray(own) * step, values)
    mask = array.is_null().to_numpy(zero_copy_only=False)
    return pa.array(values, pa.int64(), mask=mask)


def _special_floats(array: pa.Array) -> pa.Array:
    infinite = pc.if_else(pc.less(array, 0.0), "-Infinity", "Infinity")
    return pc.if_else(pc.is_nan(array), "NaN", infinite)


def _scientific(texts: pa.Array) -> pa.Array:
    """Converts Arrow's shortest form, `0.00015` or `1e+20`, to Java's form: `1.5E-4`, `1.0E20`."""
    parts = pc.extract_regex(
        texts, r"^(?P<sign>-?)(?P<whole>\d+)(?:\.(?P<fraction>\d+))?(?:e(?P<exponent>[+-]?\d+))?$"
    )
    whole = pc.utf8_ltrim(pc.struct_field(parts, "whole"), "0")
    fraction = pc.struct_field(parts, "fraction")
    digits = pc.binary_join_element_wise(whole, fraction, "")
    significant = pc.utf8_ltrim(digits, "0")
    leading = np.asarray(pc.utf8_length(digits)) - np.asarray(pc.utf8_length(significant))
    exponent = _group_signed(pc.struct_field(parts, "exponent"))
    exponent = exponent + np.asarray(pc.utf8_length(whole)) - 1 - leading
    rest = pc.utf8_rtrim(pc.utf8_slice_codeunits(significant, 1), "0")
    rest = pc.if_else(pc.equal(rest, ""), "0", rest)
    head = pc.binary_join_element_wise(
        pc.struct_field(parts, "sign"), pc.utf8_slice_codeunits(significant, 0, 1), ""
    )
    mantissa = pc.binary_join_element_wise(head, rest, ".")
    return pc.binary_join_element_wise(mantissa, pa.array(exponent).cast(pa.string()), "E")


def _group_signed(texts: pa.Array) -> NDArray[np.int64]:
    bare = pc.utf8_ltrim(texts, "+")
    return np.asarray(pc.if_else(pc.equal(bare, ""), "0", bare).cast(pa.int64()))


def _zero_filled(array: pa.Array, length: int) -> pa.Array:
    """Values of at most `length` bytes, padded with zero bytes."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset :][: len(array) + 1]
    sizes = np.diff(offsets)
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    out = np.zeros((len(array), length), np.uint8)
    rows = np.repeat(np.arange(len(array)), sizes)
    out[rows, np.arange(len(data)) - np.repeat(offsets[:-1] - offsets[0], sizes)] = data
    validity = array.is_valid().buffers()[1] if array.null_count else None
    fixed = pa.Array.from_buffers(pa.binary(length), len(array), [validity, pa.py_buffer(out)])
    return fixed.cast(pa.binary())


# --- casts ---------------------------------------------------------------------------------------

Cast: TypeAlias = Callable[[pa.Array, Atomic, Atomic], pa.Array]

_DAY_MS = 86_400_000
_DIGITS_MAX = 38
_WIDE_DIGITS = 76
_COMPACT_DIGITS = 18


def cast(array: pa.Array, source: Atomic, target: Atomic, column: str = "") -> pa.Array:
    """The values of type `source` cast to type `target`, in its Arrow type.

    Raises Unsupported if Paimon has no such cast, and InvalidRequest if a value cannot be cast.
    """
    if replace(source, nullable=True) == replace(target, nullable=True):
        return array
    rule = rule_of(source, target, column)
    try:
        return rule(array, source, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, NoCast) as error:
        known = isinstance(error, NoCast)
        raise InvalidRequest(
            "a stored value cannot be cast to the column's type",
            column=column,
            stored=source,
            wanted=target,
            **{"value" if known else "cause": error},
        ) from error


def rule_of(source: Atomic, target: Atomic, column: str = "") -> Cast:
    """The cast between two types. Raises Unsupported, naming both, if there is none."""
    known = may_cast(source, replace(target, nullable=True), explicit=True)
    rule = CASTS.get((_family(source), _family(target))) if known else None
    if rule is None:
        raise Unsupported("no cast between the types", column=column, stored=source, wanted=target)
    return rule


def cast_may_fail(source: Atomic, target: Atomic) -> bool:
    """Whether casting a value of `source` to `target` may raise an error.

    Casts to timestamps count only if the target has nanoseconds, because int64 nanoseconds end in
    2262. The range of microseconds is far larger than any date in use.
    """
    if replace(source, nullable=True) == replace(target, nullable=True):
        return False
    families = (_family(source), _family(target))
    return families in _MAY_FAIL or (
        families in _OF_MANY_DAYS and _precision(target) > _MICROSECONDS
    )


def _family(data_type: Atomic) -> str:
    root = data_type.root
    if root in INTEGERS:
        return "integer"
    if root in STRINGS:
        return "string"
    if root in BINARIES:
        return "binary"
    return {Root.FLOAT: "float", Root.DOUBLE: "float", Root.TIMESTAMP_LTZ: "timestamp"}.get(
        root, root.lower()
    )


# --- numbers --------------------------------------------------------------------------------------


def _numbers(array: pa.Array) -> NDArray[np.generic]:
    """The values as a NumPy array, with 0 in place of nulls."""
    filled = array.fill_null(pa.scalar(0, array.type)) if array.null_count else array
    values: NDArray[np.generic] = filled.to_numpy()
    return values


def _int64s(array: pa.Array) -> NDArray[np.int64]:
    return np.asarray(_numbers(array.cast(pa.int64())), np.int64)


def _array(like: pa.Array, values: NDArray[np.generic], target: pa.DataType) -> pa.Array:
    """The values as an Arrow array of type `target`, null where `like` is null."""
    mask = like.is_null().to_numpy(zero_copy_only=False) if like.null_count else None
    return pa.array(values, mask=mask).cast(target)


def _integer_to_integer(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    return array.cast(arrow_type(target), safe=False)


def _to_float(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    return array.cast(arrow_type(target), safe=False)


def _float_to_integer(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    bits = 64 if target.root is Root.BIGINT else 32
    bound = 2.0 ** (bits - 1)
    values = _numbers(array).astype(np.float64)
    values = np.where(np.isnan(values), 0.0, values)
    fits = values < bound
    whole = np.where(fits, np.maximum(values, -bound), 0.0).astype(np.int64)
    whole[~fits] = 2 ** (bits - 1) - 1
    wide = _array(array, whole, pa.int64())
    return wide.cast(arrow_type(target), safe=False)


def _boolean_to_number(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:
    integers = array.cast(pa.int8())
    if target.root is Root.DECIMAL:
        return _integer_to_decimal(integers, source, target)
    return integers.cast(arrow_type(target))


def _integer_to_boolean(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    return pc.not_equal(array, pa.scalar(0, array.type))


def _integer_to_decimal(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    return fit(array.cast(pa.int64()).cast(pa.decimal256(_WIDE_DIGITS, 0)), target)


def _decimal_to_decimal(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:
    whole = _precision(source) - _scale(source)
    if _scale(target) >= _scale(source) and _precision(target) - _scale(target) >= whole:
        return array.cast(arrow_type(target))
    return fit(array.cast(pa.decimal256(_WIDE_DIGITS, _scale(source))), target)


def _float_to_decimal(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    """Cast floats to decimals through the shortest text of the double, as Java does.

    A FLOAT is widened first.
    """
    doubles = array.cast(pa.float64())
    finite = pc.is_finite(doubles)
    if pc.any(pc.invert(finite)).as_py():
        raise NoCast(pc.filter(doubles, pc.invert(finite))[0])
    size = pc.abs(doubles)
    null = pa.scalar(None, pa.float64())
    large = pc.if_else(
        pc.and_(pc.greater_equal(size, 1.0), pc.less(size, 10.0**_DIGITS_MAX)), doubles, null
    )
    tiny = 10.0 ** -(_scale(target) + 2)
    small = pc.if_else(pc.and_(pc.less(size, 1.0), pc.greater_equal(size, tiny)), doubles, null)
    zero = pc.if_else(pc.less(size, tiny), pa.scalar(0.0), null)
    parts = [
        fit(part.cast(pa.string()).cast(pa.decimal256(_WIDE_DIGITS, scale)), target)
        for part, scale in ((large, 20), (small, 60), (zero, 0))
    ]
    return pc.coalesce(*parts)


def _decimal_to_integer(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:
    """Cast decimals to integers: the fraction is cut, then the high bits are dropped."""
    # A decimal type with scale = precision has no digit for the 0 before the point.
    wide = array.cast(pa.decimal256(_WIDE_DIGITS, _scale(source)))
    whole = pc.round(wide, ndigits=0, round_mode="towards_zero")
    unscaled = whole.cast(pa.decimal128(_DIGITS_MAX, 0))
    words = np.frombuffer(unscaled.buffers()[1], np.int64)[2 * unscaled.offset :: 2]
    low = _array(array, words[: len(array)], pa.int64())
    return low.cast(arrow_type(target), safe=False)


def _decimal_to_float(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:
    if _precision(source) <= _COMPACT_DIGITS:
        words = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset :: 2][: len(array)]
        doubles = _array(array, words / 10.0 ** _scale(source), pa.float64())
    else:
        doubles = array.cast(pa.string()).cast(pa.float64())
    return doubles.cast(arrow_type(target), safe=False)


def fit(array: pa.Array, target: Atomic) -> pa.Array:
    """Decimals of any width, rounded half up to the target type.

    Null if there are too many digits.
    """
    precision, scale = _precision(target), _scale(target)
    if scale < array.type.scale:
        array = pc.round(array, ndigits=scale, round_mode="half_towards_infinity")
    whole_digits = precision - scale
    if whole_digits + array.type.scale < _WIDE_DIGITS:
        limit = pa.scalar(Decimal(10) ** whole_digits).cast(array.type)
        fits = pc.less(pc.abs(array), limit)
        array = pc.if_else(fits, array, pa.scalar(None, array.type))
    return array.cast(arrow_type(target))


def _precision(data_type: Atomic) -> int:
    assert data_type.precision is not None
    return data_type.precision


def _scale(data_type: Atomic) -> int:
    assert data_type.scale is not None
    return data_type.scale


# --- dates and times ------------------------------------------------------------------------------


def _bare(array: pa.Array) -> pa.Array:
    """Timestamps in UTC as timestamps without a zone; the stored numbers are unchanged."""
    return array.cast(pa.timestamp(array.type.unit)) if array.type.tz else array


def _per_second(array: pa.Array) -> int:
    return _PER_SECOND[array.type.unit]


def _timestamp_to_timestamp(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:
    wanted = arrow_type(target)
    if _precision(target) < _precision(source):
        array = _truncated(_bare(array), _precision(target))
    numbers = _bare(array)
    unit = pa.timestamp(wanted.unit)
    return numbers.cast(unit).view(wanted)


def _truncated(array: pa.Array, digits: int) -> pa.Array:
    """Timestamps with the fraction cut to `digits` digits, fewer than they have, as Java does it.

    Times are rounded down to milliseconds or, if `digits` is above 3, to these digits. Below 3,
    milliseconds are then rounded towards zero.
    """
    per_second = _per_second(array)
    fine, step = per_second // 10 ** max(digits, 3), per_second // 10**digits
    counts = _int64s(array) // fine
    if step > fine:
        counts -= np.fmod(counts, step // fine)
    return _array(array, counts * fine, pa.int64()).cast(array.type)


def _timestamp_to_date(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    days = _int64s(_bare(array)) // (86_400 * _per_second(array))
    return _array(array, days.astype(np.int32), pa.int32()).cast(pa.date32())


def _timestamp_to_time(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    per_ms = _per_second(array) // 1_000
    ms = _int64s(_bare(array)) // per_ms % _DAY_MS
    return _array(array, ms.astype(np.int32), pa.int32()).cast(pa.time32("ms"))


def _timestamp_to_integer(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    ms = _int64s(_bare(array)) // (_per_second(array) // 1_000)
    seconds = np.where(ms < 0, -(-ms // 1_000), ms // 1_000)
    return _array(array, seconds, pa.int64()).cast(arrow_type(target), safe=False)


def _integer_to_timestamp(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    seconds = array.cast(pa.int64()).cast(pa.timestamp("s"))
    wanted = arrow_type(target)
    return seconds.cast(pa.timestamp(wanted.unit)).view(wanted)


def _date_to_timestamp(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    wanted = arrow_type(target)
    return array.cast(pa.timestamp(wanted.unit)).view(wanted)


def _time_to_timestamp(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    ms = array.cast(pa.int32()).cast(pa.int64()).cast(pa.timestamp("ms"))
    wanted = arrow_type(target)
    return ms.cast(pa.timestamp(wanted.unit)).view(wanted)


def _string_to_decimal(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    return fit(to_wide_decimal(array), target)


# --- the table ------------------------------------------------------------------------------------

CASTS: dict[tuple[str, str], Cast] = {
    ("integer", "integer"): _integer_to_integer,
    ("integer", "float"): _to_float,
    ("integer", "decimal"): _integer_to_decimal,
    ("integer", "boolean"): _integer_to_boolean,
    ("integer", "timestamp"): _integer_to_timestamp,
    ("integer", "string"): integer_to_string,
    ("float", "float"): _to_float,
    ("float", "integer"): _float_to_integer,
    ("float", "decimal"): _float_to_decimal,
    ("float", "string"): float_to_string,
    ("decimal", "decimal"): _decimal_to_decimal,
    ("decimal", "integer"): _decimal_to_integer,
    ("decimal", "float"): _decimal_to_float,
    ("decimal", "string"): decimal_to_string,
    ("boolean", "integer"): _boolean_to_number,
    ("boolean", "float"): _boolean_to_number,
    ("boolean", "decimal"): _boolean_to_number,
    ("boolean", "string"): boolean_to_string,
    ("string", "string"): string_to_string,
    ("string", "binary"): string_to_binary,
    ("string", "boolean"): string_to_boolean,
    ("string", "integer"): string_to_integer,
    ("string", "float"): string_to_float,
    ("string", "decimal"): _string_to_decimal,
    ("string", "date"): string_to_date,
    ("string", "time"): string_to_time,
    ("string", "timestamp"): string_to_timestamp,
    ("binary", "binary"): binary_to_binary,
    ("binary", "string"): binary_to_string,
    ("date", "string"): date_to_string,
    ("date", "timestamp"): _date_to_timestamp,
    ("time", "string"): time_to_string,
    ("time", "timestamp"): _time_to_timestamp,
    ("timestamp", "string"): timestamp_to_string,
    ("timestamp", "timestamp"): _timestamp_to_timestamp,
    ("timestamp", "date"): _timestamp_to_date,
    ("timestamp", "time"): _timestamp_to_time,
    ("timestamp", "integer"): _timestamp_to_integer,
}
"""The cast from one family of types to another."""

_TOTAL_FROM_TEXT = {"string", "binary"}
_MAY_FAIL = {
    *(
        families
        for families in CASTS
        if families[0] == "string" and families[1] not in _TOTAL_FROM_TEXT
    ),
    ("float", "decimal"),
    ("integer", "timestamp"),
}
_OF_MANY_DAYS = {("date", "timestamp"), ("timestamp", "timestamp")}
_MICROSECONDS = 6
