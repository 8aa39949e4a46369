"""The closed predicate language, and functions that analyse predicates.

A predicate is a tree of frozen values in SQL's three-valued logic: a comparison with null is null,
and a row matches only where the whole is true. Values are `pa.Scalar`s of the column's own Arrow
type, never null and never NaN; `literals.py` makes them so.

`Unknown` stands for a condition that this language cannot express. `Unknown` and its negation may
be true, false or null for any row, so neither prunes anything. `And(Unknown, bound)` is an inexact
condition with a known bound, which can be true only where the bound is true, and false anywhere.

INVARIANT: NaN equals itself and is greater than every number, as in Polars, DuckDB and Java.
Binaries and strings compare by their (UTF-8) bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


class Op(StrEnum):
    """A comparison."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="

    @property
    def negated(self) -> Op:
        """The comparison that is true where this one is false."""
        return _NEGATED[self]

    @property
    def mirrored(self) -> Op:
        """The comparison with its sides exchanged."""
        return _MIRRORED[self]


_NEGATED = {
    Op.EQ: Op.NE,
    Op.NE: Op.EQ,
    Op.LT: Op.GE,
    Op.GE: Op.LT,
    Op.GT: Op.LE,
    Op.LE: Op.GT,
}
_MIRRORED = {
    Op.EQ: Op.EQ,
    Op.NE: Op.NE,
    Op.LT: Op.GT,
    Op.GT: Op.LT,
    Op.LE: Op.GE,
    Op.GE: Op.LE,
}


@dataclass(frozen=True, slots=True)
class Constant:
    """A condition with the same value for each row: true, false, or null (None)."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Unknown:
    """A condition about which nothing is known."""


@dataclass(frozen=True, slots=True)
class And:
    """True if all parts are true, false if one is false, otherwise null. Without parts: true."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True if one part is true, false if all are false, otherwise null. Without parts: false."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """True where the part is false, and vice versa; null stays null."""

    part: Predicate


@dataclass(frozen=True, slots=True)
class Compare:
    """The comparison of the column with a value; null where the column is null."""

    column: str
    op: Op
    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class In:
    """Whether the column has one of the values; null where the column is null.

    The values are distinct, without nulls, and sorted where Arrow can sort the type.
    """

    column: str
    values: pa.Array

    def __hash__(self) -> int:
        return hash((self.column, len(self.values)))


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether the column is null; never null itself."""

    column: str


@dataclass(frozen=True, slots=True)
class IsNotNull:
    """Whether the column has a value; never null itself."""

    column: str


@dataclass(frozen=True, slots=True)
class StartsWith:
    """Whether a string or binary column begins with the prefix; null where the column is null."""

    column: str
    prefix: pa.Scalar


Leaf: TypeAlias = Compare | In | IsNull | IsNotNull | StartsWith
Predicate: TypeAlias = Constant | Unknown | And | Or | Not | Leaf
Key: TypeAlias = tuple[pa.Scalar, ...]

TRUE = Constant(value=True)
FALSE = Constant(value=False)
NULL = Constant(value=None)
UNKNOWN = Unknown()


def all_of(parts: Iterable[Predicate]) -> Predicate:
    """The conjunction of the parts, flattened and without redundant parts."""
    flat: dict[Predicate, None] = {}
    for part in parts:
        for inner in part.parts if isinstance(part, And) else (part,):
            if inner == FALSE:
                return FALSE
            if inner != TRUE:
                flat[inner] = None
    return next(iter(flat)) if len(flat) == 1 else And(tuple(flat)) if flat else TRUE


def any_of(parts: Iterable[Predicate]) -> Predicate:
    """The disjunction of the parts, flattened and without redundant parts."""
    flat: dict[Predicate, None] = {}
    for part in parts:
        for inner in part.parts if isinstance(part, Or) else (part,):
            if inner == TRUE:
                return TRUE
            if inner != FALSE:
                flat[inner] = None
    return next(iter(flat)) if len(flat) == 1 else Or(tuple(flat)) if flat else FALSE


def negate(part: Predicate) -> Predicate:
    """The negation of a predicate. The negation of Unknown is Unknown."""
    match part:
        case Constant(value=None) | Unknown():
            return part
        case Constant(value=value):
            return Constant(not value)
        case Not(part=inner):
            return inner
        case IsNull(column=column):
            return IsNotNull(column)
        case IsNotNull(column=column):
            return IsNull(column)
        case Compare(column=column, op=op, value=value):
            return Compare(column, op.negated, value)
        case _:
            return Not(part)


def at_most(bound: Predicate) -> Predicate:
    """A condition that may be true only where `bound` is true. Nothing else is known about it."""
    return all_of((UNKNOWN, bound))


def columns_of(predicate: Predicate) -> frozenset[str]:
    """The columns that the predicate names; an Unknown part may need more."""
    match predicate:
        case And(parts=parts) | Or(parts=parts):
            return frozenset().union(*map(columns_of, parts))
        case Not(part=part):
            return columns_of(part)
        case Constant() | Unknown():
            return frozenset()
        case _:
            return frozenset((predicate.column,))


def is_exact(predicate: Predicate) -> bool:
    """Whether no part of the predicate is Unknown, so that it is not only an upper bound."""
    match predicate:
        case And(parts=parts) | Or(parts=parts):
            return all(map(is_exact, parts))
        case Not(part=part):
            return is_exact(part)
        case _:
            return not isinstance(predicate, Unknown)


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """The predicates whose conjunction is this one."""
    match predicate:
        case And(parts=parts):
            return tuple(inner for part in parts for inner in conjuncts(part))
        case Not(part=Or(parts=parts)):
            return tuple(inner for part in parts for inner in conjuncts(negate(part)))
        case Constant(value=True):
            return ()
        case _:
            return (predicate,)


def split_by_columns(predicate: Predicate, columns: Collection[str]) -> tuple[Predicate, Predicate]:
    """Split a predicate: the known conjuncts on only these columns, and the other conjuncts.

    Key and partition predicates may be pushed below a merge, value predicates never: dropping the
    newest row of a key would revive an older one. This function separates the two.
    """
    within: list[Predicate] = []
    rest: list[Predicate] = []
    for part in conjuncts(predicate):
        fits = is_exact(part) and columns_of(part) <= set(columns)
        (within if fits else rest).append(part)
    return all_of(within), all_of(rest)


def condition_on(predicate: Predicate | None, columns: Collection[str]) -> Predicate | None:
    """The part of a predicate that needs only these columns; None if there is none."""
    if predicate is None:
        return None
    within, _ = split_by_columns(predicate, columns)
    return None if within == TRUE else within


def fixed_values(
    predicate: Predicate, schema: pa.Schema, columns: Sequence[str], limit: int
) -> pa.RecordBatch | None:
    """The tuples of values that the columns can have where the predicate is true.

    The columns are in the given order; there is no row if nothing can match. None if there are
    more than `limit` tuples, or infinitely many. Floats always give None: 0.0 equals -0.0, but
    their buckets differ.
    """
    sets: list[pa.Array] = []
    size = 1
    for column in columns:
        values = (
            None if pa.types.is_floating(schema.field(column).type) else _values(predicate, column)
        )
        if values is None:
            return None
        sets.append(values)
        size *= len(values)
    if size > limit:
        return None
    shape = [range(len(values)) for values in sets]
    picks = np.array(list(product(*shape)), dtype=np.int64).reshape(size, len(sets))
    fields = [schema.field(column) for column in columns]
    return pa.RecordBatch.from_arrays(
        [values.take(pa.array(picks[:, index])) for index, values in enumerate(sets)],
        schema=pa.schema(fields),
    )


def _values(predicate: Predicate, column: str) -> pa.Array | None:
    """The values that the column may have where the predicate is true; None if not a finite set."""
    match predicate:
        case Compare(column=name, op=Op.EQ, value=value) if name == column:
            return pa.array([value], value.type)
        case In(column=name, values=values) if name == column:
            return values
        case And(parts=parts):
            known = [found for part in parts if (found := _values(part, column)) is not None]
            if not known:
                return None
            least = min(known, key=len)
            for other in known:
                least = least.filter(pc.is_in(least, value_set=other))
            return least
        case Or(parts=parts):
            found = [_values(part, column) for part in parts]
            sets = [values for values in found if values is not None]
            if not sets or len(sets) < len(found):
                return None
            return pc.unique(pa.concat_arrays(sets))
        case _:
            return None


def keys_between(names: Sequence[str], first: Key | None, end: Key | None) -> Predicate:
    """The condition that a row's key is at or after `first` and before `end`; None is no bound."""
    parts = (
        [] if first is None else [any_of((_is_beyond(names, first, Op.GT), _equals(names, first)))]
    )
    return all_of(parts if end is None else [*parts, _is_beyond(names, end, Op.LT)])


def _is_beyond(names: Sequence[str], key: Key, op: Op) -> Predicate:
    """The condition that a row's key is after this one (`op` GT) or before it (LT)."""
    return any_of(
        all_of((_equals(names[:place], key[:place]), Compare(name, op, key[place])))
        for place, name in enumerate(names)
    )


def _equals(names: Sequence[str], key: Key) -> Predicate:
    return all_of(Compare(name, Op.EQ, value) for name, value in zip(names, key, strict=True))
