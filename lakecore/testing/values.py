"""Rows as values that can be compared exactly, `assert_same_rows`, and `apply_changes`.

Values of Python are equal where stored values are not: NaN differs from itself, -0.0 equals 0.0,
and True equals 1. `plain` replaces each value by one that equals itself and nothing else.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import polars as pl
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.model.rows import ROW_KIND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Rows: TypeAlias = "Counter[tuple[Any, ...]]"
"""Rows without an order: the count of each row."""

_SHOWN_ROWS_MAX = 5


@runtime_checkable
class HasRows(Protocol):
    """An object with rows: a `Model`, or an expected state of a golden table."""

    def rows(self) -> pa.Table:
        """The rows."""


@runtime_checkable
class HasArrow(Protocol):
    """An object that returns its rows as Arrow: a table of lakecore or of another library."""

    def to_arrow(self) -> pa.Table:
        """The rows."""


def assert_same_rows(left: object, right: object, *, check_order: bool = False) -> None:
    """Raise AssertionError unless both sides hold the same rows, with equal counts.

    A side is a lakecore table, a `Model`, a Polars frame, an Arrow table, a list of dictionaries,
    or any object with `to_arrow()` or `__arrow_c_stream__`. Columns are compared by name and order,
    and their types are not compared. Values are compared exactly, also nested ones: NaN equals NaN,
    -0.0 differs from 0.0, an integer differs from a float. The order of rows matters only with
    `check_order`.

    The message names the number of rows that only one side holds, and shows the smallest
    difference: the two rows that differ in the fewest columns, and these columns.

        assert_same_rows(table, model)
        assert_same_rows(table.scan(where="id = 1"), [{"id": 1, "status": "paid"}])
    """
    ours, theirs = as_arrow(left), as_arrow(right)
    if ours.num_rows == theirs.num_rows == 0 and not (ours.num_columns and theirs.num_columns):
        return  # a list without rows has no columns
    if ours.column_names != theirs.column_names:
        raise AssertionError(
            f"the columns differ: left has {ours.column_names}, right has {theirs.column_names}"
        )
    a, b = _records(ours), _records(theirs)
    if check_order:
        for at, (one, other) in enumerate(zip(a, b, strict=False)):
            if plain(one) != plain(other):
                raise AssertionError(
                    f"row {at} differs:\n{_differing(ours.column_names, one, other)}"
                )
    only_a, only_b = counted(a) - counted(b), counted(b) - counted(a)
    if only_a or only_b:
        raise AssertionError(
            _difference(ours.column_names, _chosen(a, only_a), _chosen(b, only_b), len(a), len(b))
        )


def apply_changes(
    changes: object, primary_keys: Sequence[str] = (), rows: object = None, *, exact: bool = True
) -> pa.Table:
    """Apply changes to rows, in order, and return the new rows as an Arrow table.

    `changes` have the column `_row_kind`, as `table.changes` and `table.stream` return it; without
    the column, they are +I. Both arguments are whatever `assert_same_rows` takes. `rows` has the
    columns of the changes; None is no rows.

    Raises AssertionError for a change that does not fit: a +I or +U of a key that exists, or a -U
    or -D of a row that does not exist with exactly these values. With `exact=False`, +I and +U
    replace the row of their key; -U and -D remove it, if there is one, whatever its values.

        rows = apply_changes(table.changes(0, 1), table.schema.primary_keys)
        rows = apply_changes(table.changes(1, 2), table.schema.primary_keys, rows)
        assert_same_rows(rows, table.to_arrow(snapshot_id=2))
    """
    changed, kinds = without_kinds(as_arrow(changes))
    held, names = as_arrow([] if rows is None else rows), changed.column_names
    if not changed.num_rows:
        return held if held.num_columns else changed
    key = [names.index(name) for name in primary_keys] or range(len(names))
    left: dict[Any, list[tuple[Any, ...]]] = {}
    for row in _records(held.select(names) if held.num_rows else held):
        left.setdefault(plain([row[at] for at in key]), []).append(row)
    for kind, row in zip(kinds, _records(changed), strict=True):
        there = left.setdefault(plain([row[at] for at in key]), [])
        adds, same = kind in ("+I", "+U"), plain(there[-1:]) == plain([row])
        if exact and ((adds and primary_keys and there) or (not adds and not same)):
            raise AssertionError(
                f"a change does not fit the rows: {kind} {_shown(names, row)}\n"
                f"  the row there: {_shown(names, there[-1]) if there else None}"
            )
        if there and (primary_keys or not adds):
            there.pop()
        if adds:
            there.append(row)
    columns = [[*each] for each in zip(*chain.from_iterable(left.values()), strict=True)]
    arrays = map(pa.array, columns or [[]] * len(names), changed.schema.types)
    return pa.Table.from_arrays([*arrays], schema=changed.schema)


def as_arrow(rows: object) -> pa.Table:
    """The rows of whatever `assert_same_rows` takes. Raises InvalidRequest for anything else."""
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, list):
        return pa.Table.from_pylist(rows)
    if isinstance(rows, pl.LazyFrame):
        rows = rows.collect()
    for way in (HasRows, HasArrow):
        # A data frame of Polars has `rows`, too: as tuples.
        if isinstance(rows, way) and not isinstance(rows, pl.DataFrame):
            return as_arrow(rows.rows() if isinstance(rows, HasRows) else rows.to_arrow())
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.table(rows)
    raise InvalidRequest(
        "rows are a table, a model, a frame, an Arrow table or a list of dictionaries",
        given=type(rows).__name__,
    )


def plain(value: Any) -> Any:
    """The value as one that equals itself and nothing else: NaN is NaN, -0.0 is not 0.0."""
    match value:
        case float():
            return "float", "nan" if math.isnan(value) else struct.pack(">d", value)
        case list() if all(isinstance(item, tuple) and len(item) == 2 for item in value):
            # Arrow returns a map as a list of pairs, whose order means nothing.
            return tuple(sorted((tuple(map(plain, item)) for item in value), key=repr))
        case list() | tuple():
            return tuple(plain(item) for item in value)
        case dict():
            return tuple((name, plain(item)) for name, item in value.items())
        case bool():
            return "bool", str(value)
    return value


def counted(rows: Iterable[Sequence[Any]]) -> Rows:
    """The count of each row, for a comparison that ignores order."""
    return Counter(tuple(plain(value) for value in row) for row in rows)


def counted_arrow(table: pa.Table) -> Rows:
    """The rows of an Arrow table."""
    return counted(_records(table))


def without_kinds(table: pa.Table) -> tuple[pa.Table, list[str]]:
    """The rows without the column `_row_kind`, and their kinds; +I where there is no column."""
    if ROW_KIND not in table.column_names:
        return table, ["+I"] * table.num_rows
    return table.drop_columns([ROW_KIND]), table.column(ROW_KIND).to_pylist()


# --- the message ----------------------------------------------------------------------------------


def _records(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [_plain_times(column).to_pylist() for column in table.columns]
    return [*zip(*columns, strict=True)] if columns else [()] * table.num_rows


def _plain_times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with nanosecond times as microseconds if exact, else as integers.

    Python has no type for nanoseconds: Arrow would return pandas values, or fail without pandas.
    """
    if not has_nanoseconds(column.type):
        return column
    try:
        return column.cast(_replaced(column.type, "us"))
    except pa.ArrowInvalid:
        return column.cast(_replaced(column.type, "integer"))


def has_nanoseconds(kind: pa.DataType) -> bool:
    """Whether a type is, or contains, a time in nanoseconds."""
    if pa.types.is_nested(kind):
        return any(has_nanoseconds(kind.field(at).type) for at in range(kind.num_fields))
    return getattr(kind, "unit", "") == "ns"


def _replaced(kind: pa.DataType, unit: str) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.map_(_replaced(kind.key_type, unit), _replaced(kind.item_type, unit))
    if pa.types.is_nested(kind):
        parts = [kind.field(at) for at in range(kind.num_fields)]
        fields = [part.with_type(_replaced(part.type, unit)) for part in parts]
        if pa.types.is_struct(kind):
            return pa.struct(fields)
        return pa.large_list(fields[0]) if pa.types.is_large_list(kind) else pa.list_(fields[0])
    if not has_nanoseconds(kind):
        return kind
    if unit == "integer":
        return pa.int64()
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.time64("us")


def _chosen(rows: Sequence[tuple[Any, ...]], wanted: Rows) -> list[tuple[Any, ...]]:
    left, found = Counter(wanted), []
    for row in rows:
        if left[key := plain(row)] > 0:
            left[key] -= 1
            found.append(row)
    return found


def _difference(
    names: Sequence[str],
    only_left: Sequence[tuple[Any, ...]],
    only_right: Sequence[tuple[Any, ...]],
    left_count: int,
    right_count: int,
) -> str:
    lines = [
        (
            f"the rows differ: {len(only_left)} of {left_count} rows are only on the left, "
            f"{len(only_right)} of {right_count} only on the right"
        )
    ]
    pairs = [(a, b) for a in only_left[:100] for b in only_right[:100]]
    if pairs and len(names) > 1:
        closest = min(pairs, key=lambda pair: len(_unequal(*pair)))
        if len(_unequal(*closest)) < len(names):
            return "\n".join([*lines, "the smallest difference:", _differing(names, *closest)])
    for side, rows in (("left", only_left), ("right", only_right)):
        lines += [f"  only {side}: {_shown(names, row)}" for row in rows[:_SHOWN_ROWS_MAX]]
        if len(rows) > _SHOWN_ROWS_MAX:
            lines.append(f"  ... and {len(rows) - _SHOWN_ROWS_MAX} more")
    return "\n".join(lines)


def _differing(names: Sequence[str], left: Sequence[Any], right: Sequence[Any]) -> str:
    differing = [f"{names[at]}: {left[at]!r} != {right[at]!r}" for at in _unequal(left, right)]
    return "\n".join(
        [
            f"  left:  {_shown(names, left)}",
            f"  right: {_shown(names, right)}",
            f"  {'; '.join(differing)}",
        ]
    )


def _unequal(left: Sequence[Any], right: Sequence[Any]) -> list[int]:
    return [at for at, value in enumerate(left) if plain(value) != plain(right[at])]


def _shown(names: Sequence[str], row: Sequence[Any]) -> str:
    pairs: Mapping[str, Any] = dict(zip(names, row, strict=True))
    return ", ".join(f"{name}={value!r}" for name, value in pairs.items())
