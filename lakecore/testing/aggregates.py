"""Aggregate functions one value at a time: from a state and a value to the next state.

Each class is one function of Paimon, as documented and as in its Java classes
(https://paimon.apache.org/docs/master/primary-key-table/merge-engine/aggregation/): `agg` adds a
value, `agg_reversed` adds a value that is older than the state, `retract` removes a value. Values
are plain Python as Arrow returns them: a map is a list of pairs, a row is a dict. Arrays whose
order Paimon does not define are in the order of a Python dict.

Differences from Paimon: a DECIMAL that exceeds its precision is null, also where Java's short
decimals keep it; `first_non_null_value` keeps its value when an older null arrives late.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from pyroaring import BitMap, BitMap64

from lakecore.merge.aggregators import sketches
from lakecore.model.types import Array, Atomic, DataType, Map, Root, Row
from lakecore.testing.values import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

BLANKS = {*"\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \u1680\u2028\u2029\u205f\u3000"} | {
    chr(code) for code in range(0x2000, 0x200B) if code != 0x2007
}
"""Java's white space, which excludes no-break spaces."""
INTEGER_BITS = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.BIGINT: 64}


class Refused(Exception):
    """The model cannot merge or delete the rows.

    Paimon raises an error too, and lakecore raises InvalidRequest or Unsupported.

        with pytest.raises(Refused):
            model.delete("id = 1")  # of a table with the merge engine first-row
    """


class Aggregator:
    """A function of one column. Null is None."""

    def __init__(self, data_type: DataType, options: Mapping[str, str]) -> None:
        self.type = data_type
        self.options = options
        self.reset()

    def reset(self) -> None:
        """Forget the state; the next value belongs to another key."""

    def agg(self, state: Any, value: Any, /) -> Any:
        """The state after a value."""
        raise NotImplementedError

    def agg_reversed(self, state: Any, value: Any, /) -> Any:
        """The state after a value that is older than all of the state."""
        return self.agg(value, state)

    def retract(self, state: Any, value: Any, /) -> Any:
        """The state without a value."""
        raise Refused(type(self).__name__, state, value)

    def finish(self, state: Any, /) -> Any:
        """The value of the state. Raises Refused if the type cannot hold the value."""
        return state

    def unfolded(self, given: Sequence[tuple[bool, Any]], /) -> set[int]:
        """The positions of the values that a result without older values loses.

        `given`: for each value, whether it is a retraction, and the value.
        """
        return {at for at, (back, value) in enumerate(given) if back and value is not None}

    def option(self, name: str, default: str = "") -> str:
        """An option of the column."""
        return self.options.get(name, default)


class PrimaryKey(Aggregator):
    """The key, which every row has."""

    def agg(self, _state: Any, value: Any, /) -> Any:
        return value

    def retract(self, _state: Any, value: Any, /) -> Any:
        return value

    def unfolded(self, _given: Sequence[tuple[bool, Any]], /) -> set[int]:
        return set()


class LastValue(Aggregator):
    """`last_value`: the newest value, null or not."""

    def agg(self, _state: Any, value: Any, /) -> Any:
        return value

    def retract(self, _state: Any, _value: Any, /) -> Any:
        return None

    def unfolded(self, _given: Sequence[tuple[bool, Any]], /) -> set[int]:
        return set()


class LastNonNullValue(Aggregator):
    """`last_non_null_value`: the newest value that is not null."""

    def agg(self, state: Any, value: Any, /) -> Any:
        return state if value is None else value

    def unfolded(self, given: Sequence[tuple[bool, Any]], /) -> set[int]:
        added = [at for at, (back, value) in enumerate(given) if not back and value is not None]
        return {at for at in super().unfolded(given) if at > max(added, default=-1)}

    def retract(self, state: Any, value: Any, /) -> Any:
        return state if value is None else None


class FirstValue(Aggregator):
    """`first_value`: the oldest value, null or not."""

    def reset(self) -> None:
        self.begun = False

    def agg(self, state: Any, value: Any, /) -> Any:
        if self.begun:
            return state
        self.begun = True
        return value

    def agg_reversed(self, _state: Any, value: Any, /) -> Any:
        self.begun = True
        return value


class FirstNonNullValue(Aggregator):
    """`first_non_null_value`: the oldest value that is not null."""

    def reset(self) -> None:
        self.begun = False

    def agg(self, state: Any, value: Any, /) -> Any:
        if self.begun or value is None:
            return state
        self.begun = True
        return value

    def agg_reversed(self, state: Any, value: Any, /) -> Any:
        if value is None:
            return state
        self.begun = True
        return value


class BoolAnd(Aggregator):
    """`bool_and`: whether all values are true."""

    def agg(self, state: Any, value: Any, /) -> Any:
        if state is None or value is None:
            return value if state is None else state
        return state and value


class BoolOr(Aggregator):
    """`bool_or`: whether a value is true."""

    def agg(self, state: Any, value: Any, /) -> Any:
        if state is None or value is None:
            return value if state is None else state
        return state or value


class Max(Aggregator):
    """`max`: the greatest value."""

    def agg(self, state: Any, value: Any, /) -> Any:
        if state is None or value is None:
            return value if state is None else state
        return value if ordered(state) < ordered(value) else state


class Min(Aggregator):
    """`min`: the least value."""

    def agg(self, state: Any, value: Any, /) -> Any:
        if state is None or value is None:
            return value if state is None else state
        return state if ordered(state) < ordered(value) else value


class Sum(Aggregator):
    """`sum`: the sum; a retracted value is subtracted."""

    def agg(self, state: Any, value: Any, /) -> Any:
        if state is None or value is None:
            return value if state is None else state
        return self._calculated(lambda left, right: left + right, state, value)

    def retract(self, state: Any, value: Any, /) -> Any:
        if value is None:
            return state
        if state is None:
            return self._calculated(lambda only: -only, value)
        return self._calculated(lambda left, right: left - right, state, value)

    def unfolded(self, _given: Sequence[tuple[bool, Any]], /) -> set[int]:
        return set()

    def finish(self, state: Any, /) -> Any:
        is_number = isinstance(state, int)
        return calculated(self.type, lambda only: only, state) if is_number else state

    def _calculated(self, operation: Callable[..., Any], *values: Any) -> Any:
        """Only the whole sum of integers must fit the type."""
        if isinstance(values[0], int):
            return operation(*values)
        return calculated(self.type, operation, *values)


class Product(Aggregator):
    """`product`: the product, divided by retracted values."""

    def agg(self, state: Any, value: Any, /) -> Any:
        if state is None or value is None:
            return value if state is None else state
        return calculated(self.type, lambda left, right: left * right, state, value)

    def retract(self, state: Any, value: Any, /) -> Any:
        if state is None or value is None:
            return state
        if isinstance(value, int | Decimal) and value == 0:
            raise Refused("division by 0")
        divide = _divide_integers if isinstance(value, int) else lambda left, right: left / right
        return calculated(self.type, divide, state, value)


class ListAgg(Aggregator):
    """`listagg`: strings joined by a delimiter."""

    def agg(self, state: Any, value: Any, /) -> Any:
        if is_blank(value):
            return state
        if is_blank(state):
            return value
        delimiter = self.option("list-agg-delimiter", ",")
        if self.option("distinct") != "true":
            return state + delimiter + value
        seen = set(_tokens(state, delimiter))
        for token in _tokens(value, delimiter):
            if not is_blank(token) and token not in seen:
                seen.add(token)
                state += delimiter + token
        return state

    def unfolded(self, given: Sequence[tuple[bool, Any]], /) -> set[int]:
        """Each step splits the joined string of earlier steps: a delimiter may overlap itself."""
        delimiter = self.option("list-agg-delimiter", ",")
        overlaps = any(delimiter.startswith(delimiter[at:]) for at in range(1, len(delimiter)))
        spoken = {at for at, (_, value) in enumerate(given) if not is_blank(value)}
        splits = self.option("distinct") == "true" and (overlaps or not delimiter)
        return spoken if splits and len(spoken) > 1 else set()


class Collect(Aggregator):
    """`collect`: the elements of all arrays."""

    def agg(self, state: Any, value: Any, /) -> Any:
        distinct = self.option("distinct") == "true"
        if state is None and value is None:
            return None
        if not distinct and (state is None or value is None):
            return value if state is None else state
        found = [*(state or ()), *(value or ())]
        return list({plain(each): each for each in reversed(found)}.values()) if distinct else found

    def agg_reversed(self, state: Any, value: Any, /) -> Any:
        return self.agg(state, value)

    def retract(self, state: Any, value: Any, /) -> Any:
        if not state or not value:
            return state
        taken = [plain(each) for each in value]
        left = []
        for each in state:
            if plain(each) in taken:
                taken.remove(plain(each))
            else:
                left.append(each)
        return left


class MergeMap(Aggregator):
    """`merge_map`: the entries of all maps; the newest of a key."""

    def agg(self, state: Any, value: Any, /) -> Any:
        if state is None or value is None:
            return value if state is None else state
        return list({plain(key): (key, each) for key, each in [*state, *value]}.values())

    def retract(self, state: Any, value: Any, /) -> Any:
        if state is None or not value:
            return state
        taken = {plain(key) for key, _ in value}
        return [(key, each) for key, each in state if plain(key) not in taken]


class MergeMapWithKeyTime(Aggregator):
    """`merge_map_with_keytime`: the entry of the greatest time of each key."""

    def agg(self, state: Any, value: Any, /) -> Any:
        if state is None or value is None:
            return value if state is None else state
        assert isinstance(self.type, Map)
        assert isinstance(self.type.value, Row)
        time = self.option("ts-field", self.type.value.fields[-1].name)
        found = {plain(key): (key, row) for key, row in state}
        for key, row in value:
            _, held = found.get(plain(key), (key, None))
            if row is None:
                found.pop(plain(key), None)
            elif row[time] is None:
                continue
            elif held is None or held[time] is None or ordered(row[time]) > ordered(held[time]):
                found[plain(key)] = (key, row)
        return list(found.values())

    def unfolded(self, given: Sequence[tuple[bool, Any]], /) -> set[int]:
        """An entry without a row removes an older entry of its key."""
        removes = (any(row is None for _, row in value or ()) for _, value in given)
        return {at for at, does in enumerate(removes) if does}


class Nested(Aggregator):
    """The common part of the two functions of an array of rows."""

    def keyed(self, row: Mapping[str, Any]) -> Any:
        """The nested key of a row; None if the row does not count."""
        names = _names(self.option("nested-key"))
        key = tuple(plain(row[name]) for name in names)
        if None in key:
            match self.option("nested-key-null-strategy", "merge"):
                case "ignore":
                    return None
                case "error":
                    raise Refused("nested key is null")
        return key


class NestedUpdate(Nested):
    """`nested_update`: rows of an array, one for each nested key."""

    def agg(self, state: Any, value: Any, /) -> Any:
        if value is None:
            return state
        limit = int(self.option("count-limit", str(2**31 - 1)))
        if not self.option("nested-key"):
            if state is not None and len(state) >= limit:
                return state
            held = _rows(state)
            room = limit - len(state or ())
            return held + _rows(value)[:room]
        found: dict[Any, Any] = {}
        self._take(found, state, 2**31)
        self._take(found, value, limit)
        return list(found.values())

    def agg_reversed(self, state: Any, value: Any, /) -> Any:
        return state if value is None else self.agg(self.agg(None, value), state)

    def unfolded(self, given: Sequence[tuple[bool, Any]], /) -> set[int]:
        """A row beyond the limit may still replace a row of an older list."""
        counted = sum(self.keyed(row) is not None for _, rows in given for row in _rows(rows))
        if self.option("nested-key") and counted > int(self.option("count-limit", str(2**31))):
            return set(range(len(given)))
        return super().unfolded(given)

    def _take(self, found: dict[Any, Any], rows: Any, limit: int) -> None:
        for row in _rows(rows):
            key = self.keyed(row)
            if key is None:
                continue
            if key in found:
                if not self._is_older(row, found[key]):
                    found[key] = row
            elif len(found) < limit:
                found[key] = row

    def _is_older(self, row: Mapping[str, Any], held: Mapping[str, Any]) -> bool:
        names = _names(self.option("nested-sequence-field"))
        return sequence_of(row, names) < sequence_of(held, names)

    def retract(self, state: Any, value: Any, /) -> Any:
        if state is None or value is None:
            return state
        if not self.option("nested-key"):
            taken = {plain(row) for row in _rows(value)}
            return [row for row in _rows(state) if plain(row) not in taken]
        found = {self.keyed(row): row for row in _rows(state)}
        for row in _rows(value):
            found.pop(self.keyed(row), None)
        found.pop(None, None)
        return list(found.values())


class NestedPartialUpdate(Nested):
    """`nested_partial_update`: rows of an array, merged by nested key."""

    def agg(self, state: Any, value: Any, /) -> Any:
        if value is None:
            return state
        found: dict[Any, dict[str, Any]] = {}
        for row in [*_rows(state), *_rows(value)]:
            key = self.keyed(row)
            if key is None:
                continue
            held = found.setdefault(key, dict.fromkeys(row))
            held.update({name: each for name, each in row.items() if each is not None})
        return list(found.values())


class Roaring32(Aggregator):
    """`rbm32`: the union of bitmaps of 32 bits."""

    def agg(self, state: Any, value: Any, /) -> Any:
        if state is None or value is None:
            return value if state is None else state
        return BitMap(members("rbm32", state) | members("rbm32", value)).serialize()


class Roaring64(Aggregator):
    """`rbm64`: the union of bitmaps of 64 bits."""

    def agg(self, state: Any, value: Any, /) -> Any:
        if state is None or value is None:
            return value if state is None else state
        return sketches.encode(BitMap64(members("rbm64", state) | members("rbm64", value)))


class IgnoringRetracts(Aggregator):
    """A function of a column with `ignore-retract`."""

    def __init__(self, inner: Aggregator) -> None:
        self.inner = inner
        super().__init__(inner.type, inner.options)

    def reset(self) -> None:
        self.inner.reset()

    def agg(self, state: Any, value: Any, /) -> Any:
        return self.inner.agg(state, value)

    def agg_reversed(self, state: Any, value: Any, /) -> Any:
        return self.inner.agg_reversed(state, value)

    def retract(self, state: Any, _value: Any, /) -> Any:
        return state

    def finish(self, state: Any, /) -> Any:
        return self.inner.finish(state)

    def unfolded(self, given: Sequence[tuple[bool, Any]], /) -> set[int]:
        return self.inner.unfolded([(False, value) for _, value in given])


FUNCTIONS: dict[str, type[Aggregator]] = {
    "primary-key": PrimaryKey,
    "sum": Sum,
    "product": Product,
    "max": Max,
    "min": Min,
    "last_value": LastValue,
    "last_non_null_value": LastNonNullValue,
    "first_value": FirstValue,
    "first_non_null_value": FirstNonNullValue,
    "first_not_null_value": FirstNonNullValue,
    "listagg": ListAgg,
    "bool_and": BoolAnd,
    "bool_or": BoolOr,
    "collect": Collect,
    "merge_map": MergeMap,
    "merge_map_with_keytime": MergeMapWithKeyTime,
    "nested_update": NestedUpdate,
    "nested_partial_update": NestedPartialUpdate,
    "rbm32": Roaring32,
    "rbm64": Roaring64,
}
RETRACTING = {
    "sum",
    "product",
    "last_value",
    "last_non_null_value",
    "collect",
    "merge_map",
    "nested_update",
}


def aggregator(name: str, data_type: DataType, options: Mapping[str, str]) -> Aggregator:
    """The function of a column, by the column's own options (`distinct`, `nested-key` ...)."""
    made = FUNCTIONS[name](data_type, options)
    return IgnoringRetracts(made) if options.get("ignore-retract") == "true" else made


def calculated(data_type: DataType, operation: Callable[..., Any], *values: Any) -> Any:
    """The result of an operation on numbers of a type. Raises Refused where integers overflow."""
    assert isinstance(data_type, Atomic)
    if data_type.root in INTEGER_BITS:
        found = operation(*values)
        limit = 1 << (INTEGER_BITS[data_type.root] - 1)
        if not -limit <= found < limit:
            raise Refused(f"{data_type} overflows")
        return found
    if data_type.root is Root.DECIMAL:
        return _decimal(data_type, operation, values)
    width = np.float32 if data_type.root is Root.FLOAT else np.float64
    with np.errstate(all="ignore"):
        return float(operation(*map(width, values)))


def ordered(value: Any) -> Any:
    """The value as one that Python sorts as Java does: NaN above all, -0.0 below 0.0."""
    if isinstance(value, float):
        is_nan = math.isnan(value)
        return (is_nan, 0.0 if is_nan else value, 1.0 if is_nan else math.copysign(1, value))
    return value.encode() if isinstance(value, str) else value


def sequence_of(row: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    """The sort key of a row: its fields one after another, null below every value."""
    return tuple((False, 0) if row[name] is None else (True, ordered(row[name])) for name in names)


def members(function: str, bitmap: bytes) -> set[int]:
    """The members of a bitmap. The bytes of `rbm64` are in Java's format."""
    return {*(BitMap.deserialize(bitmap) if function == "rbm32" else sketches.decode(bitmap))}


def same_values(function: str, data_type: DataType, options: Mapping[str, str], value: Any) -> Any:
    """A result in normal form: results that Paimon's rules do not distinguish become equal."""
    if value is None or not function.startswith("rbm"):
        is_open = value is not None and not same_order(function, data_type, options)
        return sorted(map(plain, value), key=repr) if is_open else plain(value)
    return members(function, value)


def is_blank(text: str | None) -> bool:
    """Whether the string is null or only white space."""
    return text is None or set(text) <= BLANKS


def same_order(name: str, data_type: DataType, options: Mapping[str, str]) -> bool:
    """Whether Paimon defines the order of the elements of a result."""
    if isinstance(data_type, Array):
        keyed = bool(options.get("nested-key")) and name.startswith("nested")
        return not keyed and not (name == "collect" and options.get("distinct") == "true")
    return not isinstance(data_type, Map)


def _decimal(data_type: Atomic, operation: Callable[..., Any], values: Sequence[Any]) -> Any:
    precision, scale = data_type.precision, data_type.scale
    assert precision is not None
    assert scale is not None
    with localcontext() as context:
        context.prec = 200
        found = operation(*values)
        rounded = found.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP) + 0  # no -0
        return rounded if abs(rounded) < Decimal(10) ** (precision - scale) else None


def _divide_integers(left: int, right: int) -> int:
    found = abs(left) // abs(right)
    return found if (left < 0) == (right < 0) else -found


def _tokens(text: str, delimiter: str) -> list[str]:
    """Java's pieces: an empty string has none, and a final delimiter begins no other piece."""
    pieces = text.split(delimiter or " ")
    return pieces[:-1] if pieces[-1] == "" else pieces


def _rows(rows: Any) -> list[Any]:
    return [row for row in rows or () if row is not None]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")] if text else []
