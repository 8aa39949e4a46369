"""Column statistics: minima, maxima and null counts, collected and read back.

Bounds are used to prune files, so they may be too wide but never too narrow; an unknown bound is
null. Rules of the modes (https://paimon.apache.org/docs/master/maintenance/configurations/):

- `none`: no statistics; `counts`: the null count; `full`: null count and bounds; `truncate(n)`:
  null count and bounds, with strings cut to n characters. A cut upper bound is raised so that it
  stays an upper bound; if it cannot be raised, there are no bounds.
- Binary and nested columns have only a null count. The same holds for TIMESTAMP(7..9) in Parquet:
  it is stored as INT96, and readers disagree on the order of INT96.
- A float column with a NaN has no bounds. A lower bound of zero is -0.0, an upper bound +0.0.
- Java's ORC files have bounds of CHAR values padded with blanks. When such a lower bound is read,
  it is changed to hold for the values without padding.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.format.binary_row import decode_rows, serialize_row
from lakecore.model.arrow_arrays import CODED, conform
from lakecore.model.files import EMPTY_ROW, DataFile, Stats
from lakecore.model.rows import TRACKING_FIELDS
from lakecore.model.types import BINARIES, TIMESTAMPS, Atomic, DataType, Field, Root, arrow_type

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from lakecore.model.schema import TableSchema

_SURROGATES = range(0xD800, 0xE000)
_CODE_POINT_MAX = 0x10FFFF
_BOUNDS_MAX = 8
_LONG_TEXT_BYTES = 64 << 10
_BELOW_BLANK = r"(?s)[\x00-\x1f].*"


class StatsKind(StrEnum):
    """How many statistics are kept for a column."""

    NONE = "none"
    COUNTS = "counts"
    TRUNCATE = "truncate"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class StatsMode:
    """The statistics kept for a column. `length` is the number of characters for `truncate`."""

    kind: StatsKind
    length: int | None = None


def parse_stats_mode(text: str) -> StatsMode:
    """Parse the mode of an option, such as `truncate(16)`."""
    match = re.fullmatch(r"(none|counts|full)|truncate\(0*([1-9]\d*)\)", text.strip().lower())
    if match is None:
        known = ["none", "counts", "full", "truncate(N)"]
        raise InvalidRequest("unknown statistics mode", mode=text, known=known)
    if match[1]:
        return StatsMode(StatsKind(match[1]))
    return StatsMode(StatsKind.TRUNCATE, int(match[2]))


def stats_modes(
    fields: Sequence[Field], default: str, by_column: Mapping[str, str]
) -> tuple[StatsMode, ...]:
    """The mode of each field: its own if it has one, else the default."""
    return tuple(parse_stats_mode(by_column.get(column.name, default)) for column in fields)


@dataclass(slots=True, eq=False)
class _Bounds:
    """The bounds of one column so far. The arrays have one value for one or several batches."""

    lows: list[pa.Array] = field(default_factory=list)
    highs: list[pa.Array] = field(default_factory=list)
    null_count: int = 0
    unknown: bool = False

    def widen(self, low: pa.Array, high: pa.Array) -> None:
        self.lows.append(low)
        self.highs.append(high)
        # With thousands of columns, keeping the bounds of each batch would take much memory.
        if len(self.lows) >= _BOUNDS_MAX and (widest := self.widest()) is not None:
            self.lows, self.highs = [widest[0]], [widest[1]]

    def widest(self) -> tuple[pa.Array, pa.Array] | None:
        """The bounds over all batches; None if there are none."""
        if self.unknown or not self.lows:
            return None
        low, high = pc.min(pa.concat_arrays(self.lows)), pc.max(pa.concat_arrays(self.highs))
        return pa.array([low], low.type), pa.array([high], high.type)


@dataclass(slots=True, eq=False)
class StatsCollector:
    """Statistics of the rows of one file, collected while they are written.

    `modes`: one mode for each field, in the order of `fields`. `supplied`: columns whose bounds the
    caller passes to `supply`. Batches may have more columns.
    """

    fields: Sequence[Field]
    modes: Sequence[StatsMode]
    file_format: str = "parquet"
    supplied: Container[str] = ()
    _bounds: list[_Bounds] = field(init=False)
    _places: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        assert len(self.fields) == len(self.modes), "a mode for each field"
        self._bounds = [_Bounds() for _ in self.fields]
        self._places = {column.name: place for place, column in enumerate(self.fields)}

    def update(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Add rows to the statistics; columns are matched by name."""
        for column, mode, bounds in zip(self.fields, self.modes, self._bounds, strict=True):
            if mode.kind is StatsKind.NONE:
                continue
            values = rows.column(column.name)
            unseen = mode.kind is StatsKind.COUNTS or column.name in self.supplied
            if not (unseen and values.type == CODED) and (
                pa.types.is_dictionary(values.type) or pa.types.is_string_view(values.type)
            ):
                values = conform(values, column.type)
            bounds.null_count += values.null_count
            if (
                mode.kind is not StatsKind.COUNTS
                and column.name not in self.supplied
                and not bounds.unknown
                and has_bounds(column.type, self.file_format)
                and values.null_count < len(values)
            ):
                found = _min_max(cut_texts(values, mode.length), column.type)
                if found is None:
                    bounds.unknown = True
                else:
                    bounds.widen(*found)

    def supply(self, name: str, low: str, high: str) -> None:
        """Add the bounds of a string column."""
        bounds = self._bounds[self._places[name]]
        bounds.widen(pa.array([low], pa.string()), pa.array([high], pa.string()))

    def finish(self, names: Sequence[str] | None = None) -> Stats:
        """The statistics of all rows, for these columns in this order (None: for all columns)."""
        places = self._places.values() if names is None else [self._places[n] for n in names]
        lows: list[pa.Array] = []
        highs: list[pa.Array] = []
        counts: list[int | None] = []
        for at in places:
            column, mode, bounds = self.fields[at], self.modes[at], self._bounds[at]
            nothing = pa.nulls(1, arrow_type(column.type))
            low, high = bounds.widest() or (nothing, nothing)
            if (
                low is not nothing
                and mode.length is not None
                and pa.types.is_string(arrow_type(column.type))
            ):
                least, greatest = _truncated(low[0].as_py(), high[0].as_py(), mode.length)
                low, high = pa.array([least], pa.string()), pa.array([greatest], pa.string())
            lows.append(low)
            highs.append(high)
            counts.append(None if mode.kind is StatsKind.NONE else bounds.null_count)
        types = [self.fields[at].type for at in places]
        return Stats(
            min_values=serialize_row(lows, types),
            max_values=serialize_row(highs, types),
            null_counts=tuple(counts),
        )


def has_bounds(data_type: DataType, file_format: str) -> bool:
    """Whether statistics have bounds for a column of this type."""
    match data_type:
        case Atomic(root=root) if root in BINARIES:
            return False
        case Atomic(root=root, precision=precision) if root in TIMESTAMPS:
            return file_format != "parquet" or (precision or 0) <= 6
        case Atomic():
            return True
        case _:
            return False


def are_bounded_texts(data_type: DataType, mode: StatsMode) -> bool:
    """Whether the column has strings, and the mode keeps bounds for them."""
    keeps = mode.kind in {StatsKind.TRUNCATE, StatsKind.FULL}
    return keeps and pa.types.is_string(arrow_type(data_type))


def cut_texts(values: pa.ChunkedArray, length: int | None) -> pa.ChunkedArray:
    """The strings, cut to what is needed for bounds of `length` characters (None: not cut)."""
    if length is None or not _are_long_texts(values):
        return values
    return pc.utf8_slice_codeunits(values, 0, length + 1)


def _are_long_texts(values: pa.ChunkedArray) -> bool:
    """Whether the strings are so long that comparing whole strings is slow."""
    text: bool = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    return text and values.nbytes >= _LONG_TEXT_BYTES * max(1, len(values))


def _min_max(values: pa.Array, data_type: DataType) -> tuple[pa.Array, pa.Array] | None:
    """The minimum and maximum of values that are not all null; None if there is a NaN."""
    if pa.types.is_floating(values.type):
        numbers = values.drop_null().to_numpy()
        low, high = numbers.min(), numbers.max()
        if np.isnan(low):
            return None
        # Zeros of both signs are equal here, and Java's order puts -0.0 first.
        low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
    else:
        found = pc.min_max(values)
        low, high = found["min"], found["max"]
    # A single string always fits narrow offsets.
    kind = arrow_type(data_type)
    return pa.array([low], values.type).cast(kind), pa.array([high], values.type).cast(kind)


def _truncated(low: str, high: str, length: int) -> tuple[str | None, str | None]:
    """Bounds of at most `length` code points; (None, None) if there is no such upper bound."""
    if len(high) <= length:
        return low[:length], high
    for place in range(length - 1, -1, -1):
        raised = ord(high[place]) + 1
        if raised in _SURROGATES:
            raised = _SURROGATES.stop
        if raised <= _CODE_POINT_MAX:
            return low[:length], high[:place] + chr(raised)
    return None, None


# --- reading ------------------------------------------------------------------------------------


class StatsFrame(NamedTuple):
    """Statistics of many files as a frame: a row for each file, a column for each schema column.

    An unknown value is null.

    NOTE: the bounds of other writers ignore NaN, so a file may hold a NaN, which sorts above its
    maximum.
    """

    min_values: pa.RecordBatch
    max_values: pa.RecordBatch
    null_counts: pa.RecordBatch


def stats_columns(file: DataFile, schema: TableSchema) -> tuple[Field, ...]:
    """The fields that a file's value statistics cover, in order.

    `schema` is the schema of the file.
    """
    if file.value_stats.min_values == EMPTY_ROW:
        return ()
    names = file.value_stats_columns
    if names is None:
        names = file.write_columns
    if names is None:
        return schema.fields
    # With row tracking, a file may also have columns with the ids of its rows.
    known = {**schema.by_name, **{field.name: field for field in TRACKING_FIELDS}}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise CorruptTable("statistics of unknown columns", file=file.name, columns=unknown)
    return tuple(known[name] for name in names)


def stats_frame(
    files: Sequence[DataFile], schema: TableSchema, columns: Sequence[str]
) -> StatsFrame:
    """The value statistics of files of one schema, as a frame for pruning many at once."""
    assert all(file.schema_id == schema.id for file in files), "files of one schema"
    for name in columns:
        schema.field(name)
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, file in enumerate(files):
        empty = file.value_stats.min_values == EMPTY_ROW
        groups[file.value_stats_columns, file.write_columns, empty].append(index)
    frames = [
        _group_frame([files[index] for index in inside], schema, columns)
        for inside in groups.values()
    ]
    if len(frames) == 1:
        return frames[0]
    if not frames:
        return _group_frame([], schema, columns)
    order = np.argsort(np.concatenate([np.array(inside) for inside in groups.values()]))
    rows = pa.array(order)
    parts = zip(*frames, strict=True)
    return StatsFrame(*(pa.concat_batches(batches).take(rows) for batches in parts))


def key_bounds(
    files: Sequence[DataFile], fields: Sequence[Field]
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The minimum and maximum of the key columns, a row for each file, for pruning."""
    low = decode_rows([file.key_stats.min_values for file in files], fields)
    high = decode_rows([file.key_stats.max_values for file in files], fields)
    least = [
        _unpadded(column, field.type) for column, field in zip(low.columns, fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(least, schema=low.schema), high


def _group_frame(
    files: Sequence[DataFile], schema: TableSchema, columns: Sequence[str]
) -> StatsFrame:
    """The statistics of files that cover the same columns."""
    covered = stats_columns(files[0], schema) if files else ()
    place = {column.name: index for index, column in enumerate(covered)}
    known = [name for name in columns if name in place]
    stats = [file.value_stats for file in files]
    low = decode_rows([one.min_values for one in stats], covered, known) if known else None
    high = decode_rows([one.max_values for one in stats], covered, known) if known else None
    counts = [one.null_counts or (None,) * len(covered) for one in stats]
    if any(len(count) != len(covered) for count in counts):
        raise CorruptTable("null counts do not fit their columns", columns=len(covered))
    lows: list[pa.Array] = []
    highs: list[pa.Array] = []
    nulls: list[pa.Array] = []
    for name in columns:
        if low is None or high is None or name not in place:
            data_type = arrow_type(schema.by_name[name].type)
            least = greatest = pa.nulls(len(files), data_type)
            null_counts = pa.nulls(len(files), pa.int64())
        else:
            least, greatest = _without_nan(low.column(name), high.column(name))
            least = _unpadded(least, schema.by_name[name].type)
            null_counts = pa.array([count[place[name]] for count in counts], pa.int64())
        lows.append(least)
        highs.append(greatest)
        nulls.append(null_counts)
    names = list(columns)
    return StatsFrame(
        *(pa.RecordBatch.from_arrays(arrays, names=names) for arrays in (lows, highs, nulls))
    )


def _unpadded(low: pa.Array, data_type: DataType) -> pa.Array:
    """Convert lower bounds of padded CHAR values to lower bounds of the values without padding.

    Trailing blanks are removed. A character that sorts below a blank is removed, with all following
    characters: padded, `a` followed by a tab sorts below `a` followed by a blank, but without
    padding, it sorts above `a`.
    """
    if not isinstance(data_type, Atomic) or data_type.root is not Root.CHAR:
        return low
    return pc.utf8_rtrim(pc.replace_substring_regex(low, _BELOW_BLANK, ""), " ")


def _without_nan(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The bounds; both are null if one of them is NaN, because NaN is not a bound."""
    if not pa.types.is_floating(low.type):
        return low, high
    no_bound = pc.or_kleene(pc.is_nan(low), pc.is_nan(high)).fill_null(False)
    unknown = pa.scalar(None, low.type)
    return pc.if_else(no_bound, unknown, low), pc.if_else(no_bound, unknown, high)
