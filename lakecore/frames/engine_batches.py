"""Arrow batches of files that need no merge, read by Arrow or Polars instead of lakecore's reader.

Arrow reads the files if all of their rows are returned. Otherwise Polars reads them, because Arrow
cannot leave out rows by their numbers.

INVARIANT: Arrow or Polars applies a condition only if the predicate language expresses it exactly
and no column of it is a float. They skip row groups by their bounds, and Parquet's bounds contain
no NaN and do not distinguish -0.0 from 0.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

from lakecore.frames.engine_scan import EngineScan
from lakecore.frames.polars_source import engine_frames, to_batches
from lakecore.frames.source import tell_damage, whole_files
from lakecore.io.files.parquet_read import NARROW_BYTES_MAX
from lakecore.plan.predicate import columns_of, is_exact, to_polars

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.compute as pc

    from lakecore.frames.source import BatchSource
    from lakecore.plan.predicate import Predicate

BATCH_ROWS = 131_072
_BATCHES_AHEAD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition on Arrow data, and the part of it that the predicate language expresses."""

    arrow: pc.Expression
    pruner: Predicate | None

    def exact(self, schema: pa.Schema) -> Predicate | None:
        """The condition as a predicate that engines may apply; None: they must not."""
        if self.pruner is None or not is_exact(self.pruner):
            return None
        columns = map(schema.field, columns_of(self.pruner))
        return None if any(pa.types.is_floating(each.type) for each in columns) else self.pruner


@dataclass(frozen=True, slots=True)
class Scanned:
    """The batches of a scan, and whether they are filtered by the condition already."""

    batches: Iterator[pa.RecordBatch]
    is_filtered: bool


def engine_batches(
    source: BatchSource, names: list[str], condition: Condition | None
) -> Scanned | None:
    """The columns of the rows that may match, in any order; None: no engine may read the files.

    Reading raises CorruptTable for a damaged file.
    """
    files = source.engine_files(names, None if condition is None else condition.pruner)
    if files is None:
        return None
    exact = None if condition is None else condition.exact(source.schema)
    is_filtered = condition is None or exact is not None
    paths = whole_files(files)
    if paths is not None:
        pushed = None if condition is None or exact is None else condition.arrow
        return Scanned(_by_arrow(source, names, paths, pushed), is_filtered)
    schema = pa.schema([source.schema.field(name) for name in names])
    if not is_filtered or (exact is None and not all(map(pa.types.is_primitive, schema.types))):
        # lakecore's own reader skips row groups by any part that the predicate language expresses.
        # Without a condition, it converts Polars strings to Arrow in larger pieces, which is
        # faster.
        return None
    scan = EngineScan(
        schema=source.schema,
        files=files,
        names=names,
        wanted=names,
        predicate=None if exact is None else to_polars(exact),
        pruner=exact,
    )
    batches = (
        batch
        for frame in engine_frames(source, scan)
        for batch in to_batches(frame, schema, NARROW_BYTES_MAX)
    )
    return Scanned(batches, is_filtered)


def _by_arrow(
    source: BatchSource, names: list[str], paths: list[str], condition: pc.Expression | None
) -> Iterator[pa.RecordBatch]:
    if not paths:
        return
    schema = pa.schema([source.schema.field(name) for name in names])
    try:
        yield from (
            ds.dataset(paths, schema=schema, format="parquet")
            .scanner(
                filter=condition,
                batch_size=BATCH_ROWS,
                batch_readahead=_BATCHES_AHEAD,
                fragment_readahead=1,
            )
            .to_batches()
        )
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        tell_damage(source, names)
        raise
