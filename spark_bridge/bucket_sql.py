"""The bucket of a row as a Spark SQL expression, for the key types that it supports.

Keys of integers are hashed by arithmetic, in steps. All other keys are hashed by one expression.
Paimon hashes a key with Murmur3 over its BinaryRow. Spark's `hash(binary)` is the same function
with the same seed if the length is a multiple of 4, and the length of a BinaryRow always is. The
expression builds the row's bytes as a hexadecimal string:

1. the header word: a bit for each null field, starting at bit 8;
2. a word of 8 bytes for each field. The word holds an integer (also BOOLEAN and DATE), least
   significant byte first; a string or bytes up to length 7, with the length in the last byte; or
   the offset and the length of a longer value;
3. the bytes of longer values, padded with zeros to whole words.

INVARIANT: an integer that is too large for the column's type gets an arbitrary bucket, not an
error. The task that gets the row raises an error with column and value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as s

from lakecore.distributed import BINARIES, STRINGS, Atomic, BucketFunction, Field, Root

if TYPE_CHECKING:
    from collections.abc import Sequence


# --- hash sql ------------------------------------------------------------------------------------
# Paimon's hash of a row of integers, as arithmetic in Spark SQL.
#
# Murmur3 over a BinaryRow adds its 32-bit words to a state, one after the other. In a single
# expression, each state would occur twice in the next one, so the text would double with every
# word. The hash is therefore computed in steps; each step reads the column of the step before.
#
# 1. The header word: a bit for each null field.
# 2. Two half words for each field. Nulls are zeros, and so is the upper half of fields of at most
#    32 bits.
# 3. The end: the length is added, and the state is mixed once more.
#
# INVARIANT: numbers stay within signed 32 bits, so a product fits into a BIGINT and never overflows
# in Spark's ANSI mode.

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

    `nulls`: the lower half of the header, an INT; None if no field is null. `numbers`: the fields
    as non-null BIGINTs, each with its width in bits, 32 or 64.
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


# --- bucket sql ----------------------------------------------------------------------------------

_WORD_BYTES = 8
_INLINE_MAX = 7
_FIELDS_MAX = 56
"""One header word has room for this many null bits."""
_DIGITS_MAX = 18
"""A DECIMAL with more digits is not stored in its word."""
_WORD_DIGITS = 16
_ZEROS = f"'{'0' * _WORD_DIGITS}'"
_STEPS_MAX = 8
"""The most fields of `bucket_steps`: more null bits do not fit in half a word."""
_WIDE = {Root.BIGINT, Root.DECIMAL}

_MASKS = {Root.TINYINT: 0xFF, Root.SMALLINT: 0xFFFF, Root.INT: 0xFFFFFFFF, Root.BIGINT: None}
_INTEGERS = (s.ByteType, s.ShortType, s.IntegerType, s.LongType)


def bucket_sql(
    fields: Sequence[Field],
    types: Sequence[s.DataType],
    buckets: int,
    function: BucketFunction = BucketFunction.DEFAULT,
    never_null: frozenset[str] = frozenset(),
) -> str | None:
    """The expression; None if the type of a field, in Paimon or Spark, is not supported.

    `never_null`: columns in which another check forbids nulls.
    """
    if not all(is_plain(field, given) for field, given in zip(fields, types, strict=True)):
        return None
    if buckets == 1:
        return "0"
    match function:
        case BucketFunction.DEFAULT if len(fields) <= _FIELDS_MAX:
            return f"abs(hash(unhex({_row(fields, never_null)})) % {buckets})"
        case BucketFunction.MOD if _is_whole(fields):
            return f"cast(pmod(coalesce({quoted(fields[0].name)}, 0), {buckets}L) as int)"
        case _:
            return None


def bucket_steps(
    fields: Sequence[Field],
    types: Sequence[s.DataType],
    buckets: int,
    function: BucketFunction = BucketFunction.DEFAULT,
    never_null: frozenset[str] = frozenset(),
) -> tuple[tuple[str, ...], str] | None:
    """The SQL steps that compute the hash, and the bucket from the last step.

    None unless all fields are integers. Takes a third of the time of `bucket_sql`.
    """
    plain = all(is_plain(field, given) for field, given in zip(fields, types, strict=True))
    if not plain or function is not BucketFunction.DEFAULT or buckets == 1 or not fields:
        return None
    nulls: list[str] = []
    numbers: list[tuple[str, int]] = []
    for index, field in enumerate(fields):
        assert isinstance(field.type, Atomic)
        if field.type.root in STRINGS | BINARIES or index >= _STEPS_MAX:
            return None
        bits = 64 if field.type.root in _WIDE else 32
        # Spark then knows that no null occurs, and skips its null checks.
        numbers.append((f"coalesce({_whole_number(quoted(field.name), field.type)}, 0L)", bits))
        if field.type.nullable and field.name not in never_null:
            nulls.append(f"if(isnull({quoted(field.name)}), {1 << (8 + index)}, 0)")
    steps = hash_steps(f"({' + '.join(nulls)})" if nulls else None, numbers)
    return tuple(steps), f"abs({hash_end(len(fields))} % {buckets})"


def is_plain(field: Field, given: s.DataType) -> bool:
    """Whether Spark and lakecore agree on which values of the column are equal."""
    if field.default_value is not None or not isinstance(field.type, Atomic):
        return False
    match field.type.root:
        case root if root in _MASKS:
            return isinstance(given, _INTEGERS)
        case Root.BOOLEAN:
            return isinstance(given, s.BooleanType)
        case Root.DATE:
            return isinstance(given, s.DateType)
        case Root.DECIMAL:
            return (
                isinstance(given, s.DecimalType)
                and max(given.precision, field.type.precision or 0) <= _DIGITS_MAX
                and given.scale == field.type.scale
            )
        case root if root in STRINGS:
            return given == s.StringType() or isinstance(given, s.CharType | s.VarcharType)
        case root if root in BINARIES:
            return isinstance(given, s.BinaryType)
        case _:
            return False


def quoted(name: str) -> str:
    """The column's name quoted for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def _is_whole(fields: Sequence[Field]) -> bool:
    match [field.type for field in fields]:
        case [Atomic(root=Root.INT | Root.BIGINT)]:
            return True
    return False


def _row(fields: Sequence[Field], never_null: frozenset[str]) -> str:
    """The bytes of the BinaryRow as a hexadecimal string."""
    nulls: list[str] = []
    words: list[str] = []
    tails: list[str] = []
    offset = str(_WORD_BYTES * (1 + len(fields)))
    for index, field in enumerate(fields):
        column = quoted(field.name)
        assert isinstance(field.type, Atomic)
        if field.type.root in STRINGS or field.type.root in BINARIES:
            size = f"octet_length({column})"
            word, tail = _of_bytes(column, size, offset)
            padded = f"({size} + 7) div 8 * 8"
            offset = f"({offset} + if(coalesce({size}, 0) > {_INLINE_MAX}, {padded}, 0L))"
            tails.append(tail)
        else:
            number = _whole_number(column, field.type)
            word = _word(number)
        if field.type.nullable and field.name not in never_null:
            nulls.append(f"if(isnull({column}), {1 << (8 + index)}L, 0L)")
            word = f"if(isnull({column}), {_ZEROS}, {word})"
        words.append(word)
    if not nulls and not tails and len(words) == 1:
        # Padding both words at once costs half as much.
        return _word(number, zeros_before=1)
    header = _word(" + ".join(nulls)) if nulls else _ZEROS
    return f"concat({', '.join([header, *words, *tails])})"


def _whole_number(column: str, data_type: Atomic) -> str:
    """A BIGINT with the bytes of the field's word in order, most significant byte first."""
    match data_type.root:
        case Root.BOOLEAN:
            return f"cast({column} as bigint)"
        case Root.DATE:
            return f"(cast(unix_date({column}) as bigint) & {0xFFFFFFFF}L)"
        case Root.DECIMAL:
            return f"cast({column} * {10 ** (data_type.scale or 0)}BD as bigint)"
        case root:
            mask = _MASKS[root]
            number = f"cast({column} as bigint)"
            return number if mask is None else f"({number} & {mask}L)"


def _word(number: str, zeros_before: int = 0) -> str:
    """The 16 hexadecimal digits of a BIGINT, least significant byte first, after some zero words.

    Padding with a long string is faster than with single digits, which are copied one by one.
    """
    parts = []
    for byte in range(_WORD_BYTES):
        shifted = f"shiftrightunsigned({number}, {8 * byte})" if byte else number
        low = f"({shifted} & 255L)"
        parts.append(f"shiftleft({low}, {8 * (7 - byte)})" if byte < 7 else low)
    digits = _WORD_DIGITS * (1 + zeros_before)
    return f"lpad(hex({' | '.join(parts)}), {digits}, '{'0' * digits}')"


def _of_bytes(column: str, size: str, offset: str) -> tuple[str, str]:
    """The word of a string or bytes in the row, and the bytes stored after the words.

    A short value is stored in its word; the bytes after the words are then empty.
    """
    inline = f"concat(rpad(hex({column}), {2 * _INLINE_MAX}, {_ZEROS}), hex(128 + {size}))"
    place = _word(f"(shiftleft(cast({offset} as bigint), 32) | cast({size} as bigint))")
    digits = f"cast(({size} + 7) div 8 * 16 as int)"
    word = f"if({size} <= {_INLINE_MAX}, {inline}, {place})"
    tail = f"if(coalesce({size}, 0) <= {_INLINE_MAX}, '', rpad(hex({column}), {digits}, {_ZEROS}))"
    return word, tail
