"""Paimon's hash of a row of integers, as arithmetic in Spark SQL.

Murmur3 over a BinaryRow adds its 32-bit words to a state, one after the other. In a single
expression, each state would occur twice in the next one, so the text would double with every word.
The hash is therefore computed in steps; each step reads the column of the step before.

1. The header word: a bit for each null field.
2. Two half words for each field. Nulls are zeros, and so is the upper half of fields of at most 32
   bits.
3. The end: the length is added, and the state is mixed once more.

INVARIANT: numbers stay within signed 32 bits, so a product fits into a BIGINT and never overflows
in Spark's ANSI mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HASH", "hash_end", "hash_steps"]

HASH = "__lakecore_hash"
"""The name of the column that the steps compute."""
_SEED = 42
_HALF_BITS = 32
_HALF_BYTES = 4
_KEY_FACTORS = (-862_048_943, 461_845_907)
_END_FACTORS = (-2_048_144_789, -1_028_477_387)
_ADDEND = -430_675_100


def hash_steps(nulls: str | None, numbers: Sequence[tuple[str, int]]) -> list[str]:
    """The expressions of the column `HASH`, in order; `hash_end` follows them.

    `nulls` is the lower half of the header, an INT; None if no field is null. `numbers` are the
    fields as non-null BIGINTs, each with its width in bits, 32 or 64.
    """
    steps: list[str] = []
    state: int | str = _mixed(_mixed(_SEED, nulls or 0), 0)
    if nulls is not None:
        steps.append(str(state))
        state = HASH
    for number, bits in numbers:
        upper = f"cast(shiftright({number}, {_HALF_BITS}) as int)" if bits > _HALF_BITS else 0
        steps.append(str(_mixed(_mixed(state, _half(number)), upper)))
        state = HASH
    return steps


def hash_end(fields: int) -> str:
    """The hash of a row with that many fields, as INT, after the steps."""
    length = 2 * _HALF_BYTES * (1 + fields)
    first, second = _END_FACTORS
    state = _times(_stirred(f"({HASH} ^ {length})", 16), first)
    return _stirred(_times(_stirred(state, 13), second), 16)


def _mixed(state: int | str, half: int | str) -> int | str:
    """The state with another half word mixed in; a plain number if both are constants."""
    if half == 0:
        mixed = state
    else:
        first, second = _KEY_FACTORS
        key = _times(_turned(_times(str(half), first), 15), second)
        mixed = f"({state} ^ {key})"
    if isinstance(mixed, int):
        return _signed(_signed_turned(mixed, 13) * 5 + _ADDEND)
    return _times(_turned(mixed, 13), 5, _ADDEND)


def _times(number: str, factor: int, addend: int = 0) -> str:
    more = f" + {addend}L" if addend else ""
    return _half(f"({number} * {factor}L{more})")


def _half(number: str) -> str:
    """The lower 32 bits of a BIGINT, as INT."""
    return f"cast(shiftright(shiftleft({number}, {_HALF_BITS}), {_HALF_BITS}) as int)"


def _turned(number: str, bits: int) -> str:
    return f"(shiftleft({number}, {bits}) | shiftrightunsigned({number}, {_HALF_BITS - bits}))"


def _stirred(number: str, bits: int) -> str:
    return f"({number} ^ shiftrightunsigned({number}, {bits}))"


def _signed(number: int) -> int:
    return ((number + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def _signed_turned(number: int, bits: int) -> int:
    whole = number & 0xFFFFFFFF
    return _signed(whole << bits | whole >> (_HALF_BITS - bits))
