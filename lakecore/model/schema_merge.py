"""Schema changes that a write makes with Paimon's option `write.merge-schema`.

- A column that the table does not have is added after the others, and is nullable; so is a new
  field of a ROW.
- If types may widen, a column gets the type of the incoming values if that type holds every value
  of the old one exactly. If all casts are allowed, it gets every type that an explicit cast leads
  to; stored values that do not fit are then read as after an `ALTER TABLE`. Otherwise the column
  keeps its type, and the incoming values must fit it.
- Keys keep their types. So do array elements, map keys and map values. Strings and bytes keep their
  lengths, because Arrow types have none.

See https://paimon.apache.org/docs/master/spark/sql-write/#write-merge-schema
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.model.casts import may_cast
from lakecore.model.rows import ROW_KIND
from lakecore.model.schema_change import Change, SchemaChange
from lakecore.model.types import (
    BINARIES,
    INTEGERS,
    STRINGS,
    TIMESTAMPS,
    Array,
    Atomic,
    DataType,
    Map,
    Root,
    Row,
    from_arrow,
    plain_type,
    with_nullable,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lakecore.model.types import Field

_t = pa.types
_DIGITS = dict(zip(INTEGERS, (3, 5, 10, 19), strict=True))
_EXACT = {
    Root.FLOAT: frozenset(INTEGERS[:2]),
    Root.DOUBLE: frozenset({*INTEGERS[:3], Root.FLOAT}),
}


class TypeChanges(Enum):
    """Which types of columns a write may change."""

    NONE = auto()
    WIDENING = auto()
    CASTS = auto()


def merge_changes(
    fields: Sequence[Field], given: pa.Schema, *, types: TypeChanges, fixed: Collection[str]
) -> list[Change]:
    """The schema changes by which the table gets the given columns; empty if it has them already.

    Columns in `fixed` keep their type. Raises InvalidRequest for a new column whose name differs
    from another's only by case, or whose type is unknown.
    """
    columns = [each for each in given if each.name != ROW_KIND]
    return list(_merged(fields, columns, (), types, fixed))


def _merged(
    fields: Sequence[Field],
    given: Sequence[pa.Field],
    path: tuple[str, ...],
    types: TypeChanges,
    fixed: Collection[str] = (),
) -> Iterator[Change]:
    known = {each.name: each.type for each in fields}
    for each in given:
        here = (*path, each.name)
        if each.name in known:
            own = TypeChanges.NONE if each.name in fixed else types
            yield from _changed(known[each.name], plain_type(each.type), here, own)
            continue
        _check_new(each, here, [*known, *(() if path else (ROW_KIND,))])
        kind = from_arrow(plain_type(each.type), context=".".join(here))
        yield SchemaChange.add_column(list(here), with_nullable(kind, nullable=True))


def _changed(
    old: DataType, given: pa.DataType, path: tuple[str, ...], types: TypeChanges
) -> Iterator[Change]:
    """The changes of one column, or of a nested field."""
    if isinstance(old, Row) and _t.is_struct(given):
        yield from _merged(old.fields, list(given), path, types)
    elif isinstance(old, Array) and (_t.is_list(given) or _t.is_large_list(given)):
        yield from _changed(old.element, given.value_type, (*path, "element"), TypeChanges.NONE)
    elif isinstance(old, Map) and _t.is_map(given):
        yield from _changed(old.value, given.item_type, (*path, "value"), TypeChanges.NONE)
    elif isinstance(old, Atomic) and not _t.is_nested(given) and _is_known(given):
        new = from_arrow(given, nullable=old.nullable, context=".".join(path))
        assert isinstance(new, Atomic), "the Arrow type is not nested"
        if types is not TypeChanges.NONE and (
            _is_wider(old, new) or (types is TypeChanges.CASTS and _is_cast(old, new))
        ):
            yield SchemaChange.update_column_type(list(path), new)


def _is_known(given: pa.DataType) -> bool:
    """Whether the Arrow type has a Paimon type; writing values of other types fails later."""
    others = (_t.is_null, _t.is_duration, _t.is_interval)
    return not any(is_other(given) for is_other in others) and not (
        _t.is_decimal(given) and (given.precision > 38 or given.scale < 0)
    )


def _is_wider(old: Atomic, new: Atomic) -> bool:
    """Whether the new type is a different one that holds every value of the old type."""
    if new.root in INTEGERS:
        return old.root in INTEGERS and INTEGERS.index(new.root) > INTEGERS.index(old.root)
    if new.root in _EXACT:
        return old.root in _EXACT[new.root]
    if new.root is Root.DECIMAL:
        digits, scale = (new.precision or 0) - (new.scale or 0), new.scale or 0
        if old.root is Root.DECIMAL:
            before = old.scale or 0
            whole = (old.precision or 0) - before
            return (digits, scale) != (whole, before) and digits >= whole and scale >= before
        return digits >= _DIGITS.get(old.root, 39)
    return (
        new.root in TIMESTAMPS
        and new.root is old.root
        and (new.precision or 0) > (old.precision or 0)
    )


def _is_cast(old: Atomic, new: Atomic) -> bool:
    """Whether a column's type may change by a cast that can lose values."""
    alike = (STRINGS, BINARIES, frozenset({Root.DECIMAL}))
    if old == new or any(old.root in kinds and new.root in kinds for kinds in alike):
        return False
    return may_cast(old, new, explicit=True)


def _check_new(column: pa.Field, path: tuple[str, ...], known: Sequence[str]) -> None:
    like = [name for name in known if name.lower() == column.name.lower()]
    if like:
        raise InvalidRequest(
            "a new column differs from another column only by upper and lower case",
            column=".".join(path),
            did_you_mean=like,
        )
    if _t.is_null(column.type):
        raise InvalidRequest(
            "a new column has only nulls, so its type is unknown: leave it out, or cast it",
            column=".".join(path),
        )
