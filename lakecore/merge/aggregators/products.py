"""Products, computed value by value in merge order, because an overflow depends on that order.

An integer overflow raises an error. A DECIMAL overflow makes the product null, and the next value
starts a new product.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import partial

import numpy as np
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.merge.aggregators.fold import Aggregate, Fold
from lakecore.merge.aggregators.overflow import overflow
from lakecore.merge.groups import Groups, is_valid, spread

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
    signs = np.where(numbers < 0, -1, 1)
    rounded: np.ndarray = (np.abs(numbers) * 2 + unit) // (2 * unit) * signs
    return rounded


def _quotients(aggregate: Aggregate, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The quotients, rounded half away from 0."""
    if (right == 0).any():
        raise _no_division(aggregate)
    signs = np.where((left < 0) != (right < 0), -1, 1)
    quotients: np.ndarray = (np.abs(left) * 2 + np.abs(right)) // (2 * np.abs(right)) * signs
    return quotients


def _no_division(aggregate: Aggregate) -> InvalidRequest:
    return InvalidRequest(
        "a product cannot retract the factor 0",
        column=aggregate.column,
        function=aggregate.function,
    )
