"""Paimon's hash of a row of whole numbers, as arithmetic in Spark SQL.

Murmur3 over a BinaryRow takes its 32-bit words into a state, one after the other. As one expression
that would name each state twice in the next, and so double with every word. So it goes in steps,
each over the column that the step before has left.

1. The header word: a bit for each field that is null.
2. A word of two halves for each field: nulls are zeros, and so is the upper half of what is not
   wider than 32 bits.
3. The end: the length goes in, and the state is stirred.

INVARIANT: numbers stay in 32 bits with sign, so no product is larger than a BIGINT, and Spark's
ANSI mode has nothing to refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HASH", "hash_end", "hash_steps"]

HASH = "__lakecore_hash"
"""The column that the steps make."""
_SEED = 42
_HALF_BITS = 32
_HALF_BYTES = 4
_KEY_FACTORS = (-862_048_943, 461_845_907)
_END_FACTORS = (-2_048_144_789, -1_028_477_387)
_ADDEND = -430_675_100


def hash_steps(nulls: str | None, numbers: Sequence[tuple[str, int]]) -> list[str]:
    """The expressions of the column `HASH`, one after the other; `hash_end` comes after them.

    `nulls` is the header's lower half, an INT; None: no field is null. `numbers` are the fields as
    BIGINT that are not null, each with its bits, 32 or 64.
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
    """The hash of a row of so many fields, as INT, after its steps."""
    length = 2 * _HALF_BYTES * (1 + fields)
    first, second = _END_FACTORS
    state = _times(_stirred(f"({HASH} ^ {length})", 16), first)
    return _stirred(_times(_stirred(state, 13), second), 16)


def _mixed(state: int | str, half: int | str) -> int | str:
    """The state with one more half word in it; numbers as far as all is known."""
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
