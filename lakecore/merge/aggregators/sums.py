"""Sums: one reduction over all rows of each key.

- Integers: an error if the total exceeds the range of the type; intermediate sums may exceed it.
- DECIMAL: if an intermediate sum may leave the type, values are added rank by rank, because an
  overflow makes the sum null and the next value starts a new sum.
- Floating point: added in row order, because another order would round differently.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest
from lakecore.merge.aggregators.fold import Aggregate, Fold, Step
from lakecore.merge.keys import Groups, is_valid, spread
from lakecore.model.types import INTEGERS, Atomic, Root, arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


# --- overflow ------------------------------------------------------------------------------------
# The error for an aggregate that is outside the range of its type.


def overflow(aggregate: Aggregate) -> InvalidRequest:
    """The error for a result that the column's type cannot hold."""
    return InvalidRequest(
        "the aggregate of a column leaves the range of its type; widen the type",
        column=aggregate.column,
        function=aggregate.function,
        type=aggregate.type,
    )


# --- sums ----------------------------------------------------------------------------------------

LONG_GROUP_ROWS = 64
"""Floating-point groups with more rows are added one group at a time."""
_SPARE_DIGITS = 20
_WORD = 32
_LOW_WORD = np.int64((1 << _WORD) - 1)


def sum_of(aggregate: Aggregate) -> Fold:
    """The sum of the values minus the retracted values; nulls are ignored."""
    return Fold(
        fold=partial(_sum, aggregate),
        step=_sum_step(aggregate),
        retracts=True,
        keeps=None,
        commutes=True,
    )


def _sum_step(aggregate: Aggregate) -> Step | None:
    root = aggregate.type.root if isinstance(aggregate.type, Atomic) else None
    if root not in {Root.FLOAT, Root.DOUBLE, *INTEGERS}:
        return None
    # -0.0 is the neutral element: adding 0.0 would turn -0.0 into 0.0.
    neutral = np.dtype(arrow_type(aggregate.type).to_pandas_dtype()).type(-0.0)
    fits = _sum_fits if root in INTEGERS else lambda _: True
    return Step(neutral=neutral, join=np.add, fits=fits)


def _sum_fits(runs: Sequence[np.ndarray]) -> bool:
    furthest = sum(max(int(run.max()), -int(run.min())) for run in runs if len(run))
    return bool(furthest <= np.iinfo(runs[0].dtype).max)


def _sum(
    aggregate: Aggregate, values: pa.Array, groups: Groups, retract: np.ndarray | None
) -> pa.Array:
    if not groups.count:
        return values
    if pa.types.is_integer(values.type):
        return _sum_integers(aggregate, values, groups, retract)
    rows, numbers, left = groups.only(is_valid(values))
    if retract is not None:
        retract = retract[rows]
    given = values if left.length == len(values) else values.take(pa.array(rows))
    if pa.types.is_decimal(values.type):
        sums = _sum_decimals(given, left, retract)
    else:
        sums = _sum_floats(given, left, retract)
    return spread(sums, numbers, groups.count)


def _sum_integers(
    aggregate: Aggregate, values: pa.Array, groups: Groups, retract: np.ndarray | None
) -> pa.Array:
    known = is_valid(values)
    numbers = values.fill_null(0).to_numpy()
    limits = np.iinfo(numbers.dtype)
    wide = np.asarray(numbers, np.int64)
    # In any order, the absolute value of a sum is at most the sum of absolute values.
    furthest = max(int(wide.max()), -int(wide.min())) * int(groups.sizes.max())
    if furthest > limits.max:
        _check_integers(aggregate, wide, groups, retract, limits)
    if retract is not None:
        wide = np.where(retract, -wide, wide)
    sums = np.asarray(np.add.reduceat(wide, groups.starts), numbers.dtype)
    return pa.array(sums) if known.all() else pa.array(sums, mask=~groups.any(known))


def _check_integers(
    aggregate: Aggregate,
    values: np.ndarray,
    groups: Groups,
    retract: np.ndarray | None,
    limits: np.iinfo,
) -> None:
    """Raise InvalidRequest if a total leaves the type. Intermediate sums may leave it.

    The low and high halves of each word are summed separately, so that many rows cannot overflow.
    """
    halves = [values & _LOW_WORD, values >> _WORD]
    if retract is not None:
        halves = [np.where(retract, -half, half) for half in halves]
    low, high = (np.add.reduceat(half, groups.starts) for half in halves)
    high += low >> _WORD
    wraps = (high < -(1 << (_WORD - 1))) | (high >= 1 << (_WORD - 1))
    sums = (high << _WORD) | (low & _LOW_WORD)
    if (wraps | (sums > limits.max) | (sums < limits.min)).any():
        raise overflow(aggregate)


def _sum_floats(values: pa.Array, groups: Groups, retract: np.ndarray | None) -> pa.Array:
    numbers = values.to_numpy(zero_copy_only=False)
    signed = numbers if retract is None else np.where(retract, -numbers, numbers)
    sizes = groups.sizes
    is_long = sizes > LONG_GROUP_ROWS
    sums = np.empty(groups.count, numbers.dtype)
    for number in np.flatnonzero(is_long):
        start = groups.starts[number]
        sums[number] = np.add.accumulate(signed[start : start + sizes[number]])[-1]
    short = np.flatnonzero(~is_long)
    if len(short):
        rows = np.flatnonzero(np.repeat(~is_long, sizes))
        starts = np.cumsum(sizes[short]) - sizes[short]
        part = np.empty(len(short), numbers.dtype)
        with np.errstate(all="ignore"):  # infinities and NaN are values
            for rank, (group, row) in enumerate(Groups(starts, len(rows)).ranks()):
                part[group] = signed[rows[row]] if rank == 0 else part[group] + signed[rows[row]]
        sums[short] = part
    return pa.array(sums)


def _sum_decimals(values: pa.Array, groups: Groups, retract: np.ndarray | None) -> pa.Array:
    if not len(values):
        return values
    precision = values.type.precision
    about = pc.cast(values, pa.float64()).to_numpy(zero_copy_only=False)
    reach = np.add.reduceat(np.abs(about), groups.starts) * 10.0**values.type.scale
    if (reach >= 10.0**precision * (1 - 1e-9)).any():
        return _by_rank(values, groups, retract, partial(_add_decimals, values.type))
    words = _decimal_words(values)
    high, low = words[:, 1], words[:, 0]
    parts = [low & _LOW_WORD, (low >> _WORD) & _LOW_WORD, high]
    if retract is not None:
        parts = [np.where(retract, -part, part) for part in parts]
    sums = np.stack([np.add.reduceat(part, groups.starts) for part in parts])
    least, middle, most = sums
    middle += least >> _WORD
    most += middle >> _WORD
    out = np.empty((groups.count, 2), np.int64)
    out[:, 0] = (middle << _WORD) | (least & _LOW_WORD)
    out[:, 1] = most
    return pa.Array.from_buffers(values.type, len(out), [None, pa.py_buffer(out.tobytes())])


def _add_decimals(
    kind: pa.Decimal128Type, left: pa.Array, right: pa.Array, back: np.ndarray
) -> pa.Array:
    """The sums, or with `back` the differences; null for a result with too many digits."""
    # Java does not check sums of up to 18 digits: a stored value may have more digits than its
    # type.
    wide = pa.decimal256(kind.precision + _SPARE_DIGITS, kind.scale)
    left, right = left.cast(wide), right.cast(wide)
    after = pc.if_else(pa.array(back), pc.subtract(left, right), pc.add(left, right))
    limit = Decimal(1).scaleb(kind.precision - kind.scale)
    fits = pc.less(pc.abs(after), pa.scalar(limit, wide))
    return pc.if_else(fits, after, pa.scalar(None, after.type)).cast(kind)


def _by_rank(
    values: pa.Array,
    groups: Groups,
    retract: np.ndarray | None,
    step: Callable[[pa.Array, pa.Array, np.ndarray], pa.Array],
) -> pa.Array:
    """Fold values without nulls rank by rank; `step` computes the next state.

    `step` gets the state, the value, and whether it is retracted. If the state is null, the value
    becomes the state, negated if it is retracted.
    """
    state = pa.nulls(groups.count, values.type)
    for number, row in groups.ranks():
        value, before = values.take(pa.array(row)), state.take(pa.array(number))
        back = np.zeros(len(row), bool) if retract is None else retract[row]
        begun = value
        if back.any():
            begun = pc.if_else(pa.array(back), pc.negate(value).cast(values.type), value)
        known = pa.array(is_valid(before))
        after = pc.if_else(known, step(before, value, back), begun)
        at = np.arange(groups.count)
        at[number] = groups.count + np.arange(len(number))
        state = pa.concat_arrays([state, after]).take(pa.array(at))
    return state


def _decimal_words(values: pa.Array) -> np.ndarray:
    """The low and the high 64 bits of each decimal."""
    data, start = values.buffers()[1], 16 * values.offset
    return np.frombuffer(data, np.int64, 2 * len(values), start).reshape(-1, 2)


# --- products ------------------------------------------------------------------------------------
# Products, computed value by value in merge order, because an overflow depends on that order.
#
# An integer overflow raises an error. A DECIMAL overflow makes the product null, and the next value
# starts a new product.

_DIGITS = 100
"""Enough for the product of two DECIMALs of 38 digits."""


def product_of(aggregate: Aggregate) -> Fold:
    """The product of the values, divided by retracted values; nulls are ignored."""
    return Fold(fold=partial(_product, aggregate), retracts=True, commutes=True)


def _product(
    aggregate: Aggregate, values: pa.Array, groups: Groups, retract: np.ndarray | None
) -> pa.Array:
    rows, numbers, left = groups.only(is_valid(values))
    back = np.zeros(len(rows), bool) if retract is None else retract[rows]
    given = values if left.length == len(values) else values.take(pa.array(rows))
    if pa.types.is_decimal(values.type):
        products = _multiply_decimals(aggregate, given, left, back)
    else:
        products = _multiply_numbers(aggregate, given, left, back)
    return spread(products, numbers, groups.count)


def _multiply_numbers(
    aggregate: Aggregate, values: pa.Array, groups: Groups, retract: np.ndarray
) -> pa.Array:
    numbers = values.to_numpy(zero_copy_only=False)
    state = np.ones(groups.count, numbers.dtype)
    known = np.zeros(groups.count, bool)
    with np.errstate(all="ignore"):  # infinities and NaN are values; integers are checked
        for number, row in groups.ranks():
            before, value = state[number], numbers[row]
            # Retracting from an empty product leaves it empty.
            counts = known[number] | ~retract[row]
            over = retract[row] & counts
            value = np.where(counts, value, before.dtype.type(1))
            if numbers.dtype.kind == "i":
                state[number] = _multiply_integers(aggregate, before, value, over)
            else:
                state[number] = np.where(over, before / value, before * value)
            known[number] |= counts
    return pa.array(state, mask=~known)


def _multiply_integers(
    aggregate: Aggregate, left: np.ndarray, right: np.ndarray, back: np.ndarray
) -> np.ndarray:
    """Products, or with `back` quotients truncated towards 0. Raises InvalidRequest on overflow."""
    limits = np.iinfo(left.dtype)
    if (back & (right == 0)).any():
        raise _no_division(aggregate)
    divisor = np.where(right == 0, 1, right)
    product = left * right
    about = left.astype(np.float64) * right.astype(np.float64)
    wrapped = (np.abs(about) > limits.max * 1.5) | ((right != 0) & (product // divisor != left))
    lowest = (left == limits.min) & (right == -1)
    if (np.where(back, lowest, wrapped | lowest)).any():
        raise overflow(aggregate)
    quotient = left // divisor
    quotient += (quotient < 0) & (quotient * divisor != left)
    return np.where(back, quotient, product)


def _multiply_decimals(
    aggregate: Aggregate, values: pa.Array, groups: Groups, retract: np.ndarray
) -> pa.Array:
    """Products of DECIMALs, rounded half up to the scale.

    NumPy computes them with Python integers, because a product may have 76 digits, too many for any
    Arrow type. A product with too many digits is null, and the next value starts a new one.
    """
    kind = values.type
    unit, limit = 10**kind.scale, 10**kind.precision
    with localcontext(prec=_DIGITS):
        numbers = np.array(
            [int(value.scaleb(kind.scale)) for value in values.to_pylist()], dtype=object
        )
    state = np.zeros(groups.count, object)
    known = np.zeros(groups.count, bool)
    for number, row in groups.ranks():
        before, value = state[number], numbers[row]
        times = known[number] & ~retract[row]
        over = known[number] & retract[row]
        after = value.copy()
        after[times] = _rounded(before[times] * value[times], unit)
        after[over] = _quotients(aggregate, before[over] * unit, value[over])
        state[number] = after
        # Retracting from an empty product leaves it empty.
        known[number] = (np.abs(after) < limit).astype(bool) & (known[number] | ~retract[row])
    scale = Decimal(1).scaleb(-kind.scale)
    with localcontext(prec=_DIGITS):
        return pa.array(
            [
                each * scale if is_known else None
                for each, is_known in zip(state, known, strict=True)
            ],
            kind,
        )


def _rounded(numbers: np.ndarray, unit: int) -> np.ndarray:
    """The numbers divided by the unit, rounded half away from 0."""
    rounded: np.ndarray = (np.abs(numbers) * 2 + unit) // (2 * unit) * np.sign(numbers)
    return rounded


def _quotients(aggregate: Aggregate, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The quotients, rounded half away from 0."""
    if (right == 0).any():
        raise _no_division(aggregate)
    signs = np.sign(left) * np.sign(right)
    quotients: np.ndarray = (np.abs(left) * 2 + np.abs(right)) // (2 * np.abs(right)) * signs
    return quotients


def _no_division(aggregate: Aggregate) -> InvalidRequest:
    return InvalidRequest(
        "a product cannot retract the factor 0",
        column=aggregate.column,
        function=aggregate.function,
    )
