"""Reads data files with Polars' own scan, without the rows that deletion vectors mark.

- Without a filter, the bitmap of each file with a vector becomes a column, which selects the rows.
- With a filter, Polars skips row groups, so rows are numbered while they are read. The bitmap then
  selects the rows by their numbers.
- A limit without a filter reads each file up to the row at which the limit is reached.

INVARIANT: Polars' own scan of files gets only those parts of a predicate that lakecore's language
expresses exactly, and none on floats. Polars evaluates any expression on the minimum and maximum of
a row group and skips the row group, even where the two results do not bound the results for other
values: `n + 100 > 0` on a TINYINT overflows.

INVARIANT: in a file with a vector, no other part of a predicate is computed on a marked row,
because the computation could fail, such as a cast of a string that is invalid in the deleted row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from polars.selectors import Selector, by_name

from lakecore.frames.arrow_frames import to_frame
from lakecore.frames.polars_versions import beside
from lakecore.model.rows import KEY_PREFIX
from lakecore.plan.predicate import Predicate, all_of, columns_of, conjuncts, is_exact, to_polars

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.frames.source import EngineFile

_MARK, _NUMBER = f"{KEY_PREFIX}MARK", f"{KEY_PREFIX}NUMBER"
"""No column of a table has such names."""
_CHUNK_BYTES = 16 << 20
"""The size of a chunk of narrow rows: smaller chunks cost up to a third of the time of a scan."""
_BITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineScan:
    """A scan of files by Polars: the columns to read and to return, and the rows to leave out.

    `pruner` is the part of `predicate` that lakecore's predicate language expresses. With a
    `row_limit`, the predicate applies after the limit.
    """

    schema: pa.Schema
    files: Sequence[EngineFile]
    names: list[str]
    wanted: list[str]
    predicate: pl.Expr | None = None
    pruner: Predicate | None = None
    row_limit: int | None = None

    def frames(self) -> Iterator[pl.DataFrame]:
        """The matching rows that are not marked."""
        whole = [file for file in self.files if file.mask is None]
        marked = [file for file in self.files if file.mask is not None]
        if self.predicate is None and not self.wanted and self.row_limit is None:
            count = self._bare(whole).select(pl.len()).collect().item() if whole else 0
            yield pl.DataFrame(height=count + sum(file.returned_count for file in marked))
        elif self.row_limit is not None:
            rows = pl.concat(self._limited(self.row_limit)).head(self.row_limit)
            yield from self._filtered(rows, self.predicate)
        elif self.predicate is None:
            yield from self._filtered(self._all(), None)
        else:
            yield from self._matching(whole)
            yield from self._matching_of_marked(marked)

    def frame(self) -> pl.DataFrame:
        """All rows that are not marked, in one frame, which is faster than joining frames later."""
        assert self.predicate is None
        assert self.row_limit is None
        return self._all().select(named(self.wanted)).collect()

    def _all(self) -> pl.LazyFrame:
        """The rows that are not marked."""
        whole = [file for file in self.files if file.mask is None]
        bare = [self._bare(whole)] if whole else []
        marked = [file for file in self.files if file.mask is not None]
        return pl.concat([*bare, *map(self._unmarked, marked)])

    def _bare(self, files: Sequence[EngineFile], *, statistics: bool = True) -> pl.LazyFrame:
        paths = [file.path for file in files]
        return parquet_scan(self.schema, paths, self.names, statistics=statistics)

    def _numbered(self, file: EngineFile, first: int) -> pl.LazyFrame:
        """The rows of a file, numbered from `first`."""
        rows = pl.scan_parquet(
            [file.path],
            glob=False,
            extra_columns="ignore",
            row_index_name=_NUMBER,
            row_index_offset=first,
        )
        return _typed(rows.select(named([*self.names, _NUMBER])), self.schema, self.names)

    def _unmarked(self, file: EngineFile, row_count: int | None = None) -> pl.LazyFrame:
        """The rows that are not marked among the first `row_count` rows of a file."""
        rows, bits = self._bare([file]), _flags(file)
        if row_count is not None:
            rows, bits = rows.head(row_count), bits.head(row_count)
        both = beside([rows, bits.to_frame().lazy()])
        return both.filter(pl.col(_MARK)).select(named(self.names))

    def _limited(self, left: int) -> list[pl.LazyFrame]:
        """Frames with at least the first `left` rows, or with all rows if there are fewer.

        Only a few more rows than `left` are read.
        """
        frames: list[pl.LazyFrame] = []
        for file in self.files:
            if file.mask is None:
                frames.append(self._bare([file]).head(left))
            else:
                frames.append(self._unmarked(file, file.mask.rows_with(left)))
            left -= file.returned_count
            if left <= 0:
                break
        return frames

    def _matching(self, files: Sequence[EngineFile]) -> Iterator[pl.DataFrame]:
        """The matching rows of files without vectors."""
        if not files:
            return
        skipping = _skipping(self.pruner, self.schema)
        rows = self._bare(files, statistics=skipping.filter is not None)
        # Without a safe part the scan uses no statistics, so it may get the whole predicate.
        if skipping.filter is None or skipping.is_all:
            assert self.predicate is not None
            yield from self._filtered(rows.filter(self.predicate), None)
        else:
            yield from self._filtered(rows.filter(skipping.filter), self.predicate)

    def _matching_of_marked(self, files: Sequence[EngineFile]) -> Iterator[pl.DataFrame]:
        skipping = _skipping(self.pruner, self.schema)
        if not files:
            return
        scans, bits, start = [], [], 0
        for file in files:
            rows = self._numbered(file, start)
            scans.append(rows if skipping.filter is None else rows.filter(skipping.filter))
            bits.append(_flags(file))
            start += file.row_count
        marks = pl.concat(bits)
        for frame in pl.concat(scans).collect_batches(maintain_order=False):
            kept = frame.filter(marks.gather(frame[_NUMBER]))
            if self.predicate is not None and not skipping.is_all:
                kept = kept.filter(self.predicate)
            if kept.height:
                yield of_columns(kept, self.wanted)

    def _filtered(self, rows: pl.LazyFrame, condition: pl.Expr | None) -> Iterator[pl.DataFrame]:
        """The rows that match a condition which Polars must not push into the scan."""
        if condition is None:
            rows = rows.select(named(self.wanted or self.names[:1]))
        chunk = _chunk_rows(self.schema, self.names)
        for each in rows.collect_batches(maintain_order=False, chunk_size=chunk):
            frame = each if condition is None else each.filter(condition)
            if frame.height:
                yield of_columns(frame, self.wanted)


@dataclass(frozen=True, slots=True)
class _Skipping:
    """The filter that a scan of files may use, and whether it is the whole predicate."""

    filter: pl.Expr | None = None
    is_all: bool = False


def _skipping(pruner: Predicate | None, schema: pa.Schema) -> _Skipping:
    """The parts of a predicate by which a scan of files may skip row groups.

    Such a part compares a column with values, and the bounds of the type cover every value. Bounds
    of FLOAT and DOUBLE do not: they exclude NaN, and engines disagree on -0.0.
    """
    if pruner is None:
        return _Skipping()
    floats = {field.name for field in schema if pa.types.is_floating(field.type)}
    parts = conjuncts(pruner)
    sound = [each for each in parts if is_exact(each) and floats.isdisjoint(columns_of(each))]
    if not sound:
        return _Skipping()
    return _Skipping(to_polars(all_of(sound)), len(sound) == len(parts))


def parquet_scan(
    schema: pa.Schema,
    files: list[str],
    names: list[str],
    *,
    casts: bool = True,
    by_row_groups: bool = False,
    statistics: bool = True,
) -> pl.LazyFrame:
    """Polars' scan of files with these columns, in the Polars equivalents of their Arrow types.

    With `by_row_groups`, whole row groups are decoded and none is skipped. Without `statistics`, no
    row group is skipped either. Without `casts`, a file whose types differ raises SchemaError.
    """
    rows = pl.scan_parquet(
        files,
        parallel="row_groups" if by_row_groups else "auto",
        use_statistics=statistics and not by_row_groups,
        glob=False,
        extra_columns="ignore",
    ).select(named(names))
    return _typed(rows, schema, names, casts=casts)


def _typed(
    rows: pl.LazyFrame, schema: pa.Schema, names: list[str], *, casts: bool = True
) -> pl.LazyFrame:
    """The rows with these columns in the Polars equivalents of their Arrow types."""
    types = polars_schema(pa.schema([schema.field(name) for name in names]))
    stored = rows.collect_schema()
    changed = {name: kind for name, kind in types.items() if stored[name] != kind}
    if changed and not casts:
        raise pl.exceptions.SchemaError(f"columns of other types: {[*changed]}")
    return rows.with_columns(named([name]).cast(kind) for name, kind in changed.items())


def polars_schema(schema: pa.Schema) -> pl.Schema:
    """The Polars equivalent of an Arrow schema."""
    return to_frame(pa.Table.from_batches([], schema)).schema


def of_columns(frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """The columns of these names. Without names, the frame keeps its number of rows."""
    return frame.select(named(names)) if names else pl.DataFrame(height=frame.height)


def named(names: list[str]) -> Selector:
    """A selector of exactly these columns, in this order.

    Plain names would be expanded at a `*`.
    """
    return by_name(*names)


def _flags(file: EngineFile) -> pl.Series:
    """For each row of a file, whether it is returned."""
    assert file.mask is not None
    return pl.Series(_MARK, file.mask.array)


def _chunk_rows(schema: pa.Schema, names: list[str]) -> int | None:
    """The number of rows to decode together; None (Polars chooses) if a column is not a number."""
    types = [schema.field(name).type for name in names]
    if not all(map(pa.types.is_primitive, types)):
        return None
    width = int(sum(kind.bit_width for kind in types))
    return _CHUNK_BYTES * _BITS // width
