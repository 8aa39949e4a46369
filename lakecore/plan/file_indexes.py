"""Which rows of a data file may match a predicate, according to its file indexes.

Each leaf of the predicate looks into every index of its column; a row must pass all of them. `And`
intersects, `Or` unites, and a negation asks for the rows where the part may be false.

INVARIANT: a row that matches is never left out. Any row may match (None) if an index cannot tell:
- a Bloom filter answers only whether a value may occur;
- a value with the Unicode replacement character may be invalid UTF-8 in the file;
- blanks at the end of a CHAR are not the same in all formats;
- -0.0 equals 0.0, but an index distinguishes them, so both are looked up;
- digits of a timestamp beyond microseconds are not in an index.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeAlias

import pyarrow as pa
from pyroaring import BitMap

from lakecore.format.file_index.bitmap import BitmapIndex
from lakecore.format.file_index.bloom_filter import may_hold
from lakecore.format.file_index.coded import Key, ValueForm, stored_values, value_form
from lakecore.format.file_index.range_bitmap import BsiIndex, RangeBitmapIndex
from lakecore.model.file_indexes import BITMAP, BLOOM_FILTER, BSI, RANGE_BITMAP
from lakecore.model.types import Field, Root, with_nullable
from lakecore.plan.predicate import (
    And,
    Compare,
    Constant,
    In,
    IsNotNull,
    IsNull,
    Not,
    Op,
    Or,
    Predicate,
    columns_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakecore.format.file_index.container import StoredIndex
    from lakecore.model.schema import TableSchema

Rows: TypeAlias = "BitMap | None"
"""Positions of rows; None means that any row may match."""

_REPLACEMENT = "�".encode()
_ZEROS = (-1, 0)
"""-0.0 and 0.0, as `stored_values` orders floats."""


@dataclass(frozen=True, slots=True)
class ColumnIndex:
    """An index of a column that has the same type in the file and in the table."""

    index_type: str
    body: bytes
    form: ValueForm


def column_indexes(
    stored: Iterable[StoredIndex],
    file_schema: TableSchema,
    schema: TableSchema,
    predicate: Predicate,
) -> dict[str, list[ColumnIndex]]:
    """The indexes that can answer the predicate, by the name of the column in `schema`."""
    names: dict[str, Field] = {}
    for name in columns_of(predicate):
        field = schema.field(name)
        twin = file_schema.by_id.get(field.id)
        if twin is not None and with_nullable(twin.type, nullable=True) == with_nullable(
            field.type, nullable=True
        ):
            names[twin.name] = field
    found: dict[str, list[ColumnIndex]] = defaultdict(list)
    for index in stored:
        own = names.get(index.column)
        form = None if own is None else value_form(own.type)
        if own is None or form is None or index.body is None or form.root is Root.CHAR:
            continue
        found[own.name].append(ColumnIndex(index.index_type, index.body, form))
    return dict(found)


def rows_that_may_match(
    predicate: Predicate, indexes: dict[str, list[ColumnIndex]]
) -> BitMap | None:
    """The rows of a file that may match; None: all rows."""
    return _rows(predicate, _Readers(indexes), wanted=True)


class _Index(Protocol):
    """Protocol of an index that maps values to rows."""

    def nulls(self) -> BitMap: ...

    def not_null(self) -> BitMap: ...

    def rows_of(self, keys: Iterable[Key]) -> BitMap: ...


class _Ranged(_Index, Protocol):
    def below(self, key: Key, *, included: bool) -> BitMap: ...


class _Readers:
    """The indexes of one column of a file. Each is opened once, when a leaf needs it."""

    def __init__(self, indexes: dict[str, list[ColumnIndex]]) -> None:
        self._indexes = indexes
        self._open: dict[int, _Reader] = {}

    def of(self, column: str) -> list[_Reader]:
        own = self._indexes.get(column, ())
        return [self._open.setdefault(id(index), _Reader(index)) for index in own]


class _Reader:
    def __init__(self, index: ColumnIndex) -> None:
        self._index = index

    @property
    def form(self) -> ValueForm:
        return self._index.form

    @cached_property
    def bitmaps(self) -> _Index | None:
        """An index that finds the rows with a value; None if there is none."""
        if self._index.index_type == BITMAP:
            return BitmapIndex(self._index.body, self.form)
        return self.ranges

    @cached_property
    def ranges(self) -> _Ranged | None:
        """An index that finds the rows with a value in a range; None if there is none."""
        if self._index.index_type == RANGE_BITMAP:
            return RangeBitmapIndex(self._index.body, self.form)
        return BsiIndex(self._index.body) if self._index.index_type == BSI else None

    def excludes(self, values: pa.Array) -> bool:
        """Whether a Bloom filter rules out all of the values."""
        if self._index.index_type != BLOOM_FILTER:
            return False
        if self.form.is_float:
            zero = values.type.to_pandas_dtype()(0.0)
            zeros = pa.array([zero, -zero], values.type)
            values = pa.concat_arrays([values, zeros]) if 0.0 in values.to_pylist() else values
        return not may_hold(self._index.body, values, self.form).any()


def _rows(predicate: Predicate, readers: _Readers, *, wanted: bool) -> Rows:
    """The rows for which the predicate may be true. Without `wanted`, for which it may be false."""
    match predicate:
        case And(parts=parts) | Or(parts=parts):
            both = (_rows(part, readers, wanted=wanted) for part in parts)
            return _every(both) if isinstance(predicate, And) is wanted else _some(both)
        case Not(part=part):
            return _rows(part, readers, wanted=not wanted)
        case Constant(value=value):
            return None if value is wanted else BitMap()
        case Compare() | In() | IsNull() | IsNotNull():
            own = readers.of(predicate.column)
            return _every(_leaf(predicate, reader, wanted=wanted) for reader in own)
        case _:
            return None


def _every(found: Iterable[Rows]) -> Rows:
    rows: Rows = None
    for each in found:
        if each is not None:
            rows = each if rows is None else rows & each
            if not rows:
                break
    return rows


def _some(found: Iterable[Rows]) -> Rows:
    rows = BitMap()
    for each in found:
        if each is None:
            return None
        rows |= each
    return rows


def _leaf(part: Compare | In | IsNull | IsNotNull, reader: _Reader, *, wanted: bool) -> Rows:
    if isinstance(part, IsNull | IsNotNull):
        index = reader.bitmaps
        if index is None:
            return None
        return index.nulls() if isinstance(part, IsNull) is wanted else index.not_null()
    if isinstance(part, In):
        return _among(part.values, reader, wanted=wanted)
    op = part.op if wanted else part.op.negated
    values = pa.array([part.value], part.value.type)
    if op in (Op.EQ, Op.NE):
        return _among(values, reader, wanted=op is Op.EQ)
    return _compared(op, values, reader)


def _among(values: pa.Array, reader: _Reader, *, wanted: bool) -> Rows:
    """The rows with one of the values. Without `wanted`, the rows with any other value."""
    keys = _keys(values, reader.form)
    if keys is None:
        return None
    index = reader.bitmaps
    if index is None:
        return BitMap() if wanted and reader.excludes(values) else None
    if reader.form.is_float and not {*_ZEROS}.isdisjoint(keys):
        keys = [*keys, *_ZEROS]
    if wanted:
        return index.rows_of(keys)
    return index.not_null() - index.rows_of(keys) if reader.form.exact else None


def _compared(op: Op, values: pa.Array, reader: _Reader) -> Rows:
    index, keys = reader.ranges, _keys(values, reader.form)
    if index is None or keys is None:
        return None
    (key,) = keys
    included = op in (Op.LE, Op.GT)
    if not reader.form.exact:
        included = op in (Op.LT, Op.LE)
    elif reader.form.is_float and key in _ZEROS:
        key = _ZEROS[included]
    below = index.below(key, included=included)
    return below if op in (Op.LT, Op.LE) else index.not_null() - below


def _keys(values: pa.Array, form: ValueForm) -> list[Key] | None:
    """The values in their stored form.

    None if a value may have several stored forms in the file.
    """
    keys: list[Key] = stored_values(values, form).to_pylist()
    if any(isinstance(key, bytes) and _REPLACEMENT in key for key in keys):
        return None
    return keys
