"""A batch source as a LazyFrame that reads nothing until it is collected.

Polars passes columns, a predicate and a row limit. The predicate is translated to lakecore's
predicate language for pruning; then the original expression filters the rows. NOTE: a limit that
comes with a predicate counts rows before the filter (`lf.head(5).filter(...)`), so nothing may be
pruned then.

A frame is never Polars' own `scan_parquet`. Polars evaluates a filter on the minimum and maximum of
a row group, and for some filters it skips rows that match (`engine_scan.py` lists them); a caller
may add any filter.
"""

from __future__ import annotations

import atexit
import re
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.frames.arrow_frames import to_frame
from lakecore.frames.engine_scan import EngineScan, named, of_columns, polars_schema
from lakecore.frames.polars_versions import frame_of
from lakecore.frames.source import (
    BatchSource,
    FrameSource,
    engine_files,
    needed,
    reading,
    tell_damage,
)
from lakecore.io.files.parquet_read import NARROW_BYTES_MAX
from lakecore.plan.predicate import Predicate, from_polars

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence


FAILURES = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""Polars' exceptions for a file that it cannot read."""

FOOTERS_MAX = 256
"""The most files whose footers an engine reads itself; more files are pruned by manifests first."""

_VALUE_BYTES = 8
"""The size of a number, or of the offset of a string."""
_VIEWS = pl.CompatLevel.newest()
"""The Arrow layout in which strings are not copied."""
_TWO_TIMES = re.compile(
    r"series '(?P<name>.*)' of dtype: Datetime\('..'(?:, '(?P<zone>[^']*)')?\) and "
    r"series '(?P<other>.*)' of dtype: Datetime\('..'(?:, '(?P<other_zone>[^']*)')?\)"
)
_EXIT_WAIT_SECONDS_MAX = 10.0


def scan(source: BatchSource) -> pl.LazyFrame:
    """The rows of the source as a lazy frame, with the Polars equivalents of the Arrow types."""

    def read(
        columns: list[str] | None,
        predicate: pl.Expr | None,
        row_limit: int | None,
        batch_rows: int | None,
    ) -> Iterator[pl.DataFrame]:
        for frame in _until_exit(_frames(source, columns, predicate, row_limit)):
            if batch_rows is None or frame.height <= batch_rows:
                yield frame
            else:
                yield from frame.iter_slices(batch_rows)

    return frame_of(read, polars_schema(source.schema))


def select(frame: pl.LazyFrame, names: list[str]) -> pl.LazyFrame:
    """The columns of a frame. Raises InvalidRequest for one that is named twice."""
    check_once(names)
    return frame.select(named(names))


def check_once(names: list[str]) -> None:
    """Raise InvalidRequest for a column that is named twice."""
    if len(set(names)) < len(names):
        raise InvalidRequest("a Polars frame cannot have a column twice", columns=names)


def collect(
    frame: pl.LazyFrame, source: Callable[[], BatchSource], where: pl.Expr | str | None
) -> pl.DataFrame:
    """Collect the rows of a frame over the source; `where` was applied before.

    Raises CorruptTable, with the path, for a damaged file; InvalidRequest for a condition that
    cannot be computed for some row.
    """
    try:
        return frame.collect()
    except FAILURES as error:
        if _is_of_a_file(error):
            tell_damage(source())
        elif where is not None:
            raise no_value(where, error) from error
        raise


def whole_frame(source: BatchSource, names: list[str]) -> pl.DataFrame | None:
    """All rows with these columns; None if Polars' own scan cannot read the files.

    Raises CorruptTable, with the path, for a damaged file.
    """
    files = engine_files(source, names) if names else None
    if not files:
        return None
    scan = EngineScan(schema=source.schema, files=files, names=names, wanted=names)
    try:
        return scan.frame()
    except FAILURES as error:
        if _is_of_a_file(error):
            tell_damage(source, names)
        raise


def no_value(where: pl.Expr | str, error: BaseException) -> InvalidRequest:
    """The error for a condition that Polars cannot compute."""
    return not_computed(error, "the condition cannot be computed for each row", condition=where)


def not_computed(error: BaseException, message: str, **facts: object) -> InvalidRequest:
    """The error for an expression that Polars cannot compute, with the cause in one line."""
    reason = str(error).splitlines()[0]
    match = _TWO_TIMES.search(reason)
    if match is None or bool(match["zone"]) == bool(match["other_zone"]):
        return InvalidRequest(message, **facts, reason=reason)
    zoned = (match["zone"] is not None) == (match["other"] == "literal")
    column = match["name"] if match["other"] == "literal" else match["other"]
    advice = (
        "a TIMESTAMP WITH LOCAL TIME ZONE is compared with a time that names its zone: add "
        "tzinfo, as in datetime(2026, 1, 1, tzinfo=timezone.utc)"
        if zoned
        else "a TIMESTAMP is compared with a time without a zone: leave tzinfo out"
    )
    return InvalidRequest(advice, column=column, **facts)


def _is_of_a_file(error: BaseException) -> bool:
    """Whether the error comes from reading a file, not from computing an expression."""
    return not isinstance(error, pl.exceptions.PolarsError) or "parquet" in str(error).lower()


def engine_frames(source: BatchSource, scan: EngineScan) -> Generator[pl.DataFrame, None, None]:
    """The rows of a scan of the source's files. Raises CorruptTable for a damaged file."""
    if not scan.files:
        return
    try:
        yield from scan.frames()
    except FAILURES as error:
        if _is_of_a_file(error):
            tell_damage(source, scan.names)
        raise


def to_batches(frame: pl.DataFrame, schema: pa.Schema, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The rows of a frame in batches of an Arrow schema with the same columns.

    A batch has at most about `bytes_max` bytes in Arrow, unless one row has more. The bytes in
    Arrow can be more than the frame's own, because rows of a frame may share a string.
    """
    if frame.height > 1 and bytes_in_arrow(frame) > min(bytes_max, NARROW_BYTES_MAX):
        half = frame.height // 2
        yield from to_batches(frame[:half], schema, bytes_max)
        yield from to_batches(frame[half:], schema, bytes_max)
        return
    for batch in frame.to_arrow(compat_level=_VIEWS).to_batches():
        columns = zip(batch.columns, schema.types, strict=True)
        # Casting from views is faster than from 64-bit offsets.
        arrays = [each if each.type == kind else each.cast(kind) for each, kind in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def bytes_in_arrow(frame: pl.DataFrame) -> int:
    """The approximate bytes of a frame's values in Arrow, where strings are not shared."""
    texts = [column.str.len_bytes() for column in frame.select(pl.col(pl.String))]
    texts += [column.bin.size() for column in frame.select(pl.col(pl.Binary))]
    return _VALUE_BYTES * frame.width * frame.height + sum(int(each.sum()) for each in texts)


def frames_of(
    source: BatchSource,
    columns: Sequence[str],
    predicate: Predicate | None = None,
    limit: int | None = None,
) -> Iterator[pl.DataFrame]:
    """The rows of `batches` as Polars frames."""
    if isinstance(source, FrameSource):
        return source.frames(columns, predicate, limit)
    return to_frames(source.batches(columns, predicate, limit))


def to_frames(batches: Iterator[pa.RecordBatch]) -> Generator[pl.DataFrame, None, None]:
    """The batches as Polars frames. Closes the iterator of batches at the end."""
    with reading(batches):
        for batch in batches:
            yield to_frame(batch)
            # A row may be large: free this one before the next one is read.
            del batch


class _Pulls:
    """Counts the running calls for a next frame, so that the exit can wait for them.

    NOTE: Polars reads ahead in its own threads and does not wait for them. If such a thread is
    inside Python when the interpreter exits, the process aborts, even though all results were
    returned.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._ended = False

    def pull(self, frames: Iterator[pl.DataFrame]) -> pl.DataFrame | None:
        """The next frame; None if there is none, or the interpreter is exiting."""
        with self._changed:
            if self._ended:
                return None
            self._running += 1
        try:
            return next(frames, None)
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def end(self) -> None:
        """Return no more frames, and wait for running calls."""
        with self._changed:
            self._ended = True
            self._changed.wait_for(lambda: self._running == 0, _EXIT_WAIT_SECONDS_MAX)


_PULLS = _Pulls()
atexit.register(_PULLS.end)


def _until_exit(frames: Generator[pl.DataFrame, None, None]) -> Iterator[pl.DataFrame]:
    with closing(frames):
        while (frame := _PULLS.pull(frames)) is not None:
            yield frame


def _frames(
    source: BatchSource, columns: list[str] | None, predicate: pl.Expr | None, row_limit: int | None
) -> Generator[pl.DataFrame, None, None]:
    if predicate is not None:
        _check(predicate, source.schema)
    filtered = [] if predicate is None else predicate.meta.root_names()
    wanted = source.schema.names if columns is None else columns
    names = needed(source.schema, wanted, filtered)
    prune = predicate is not None and row_limit is None
    pruner = from_polars(predicate, source.schema) if prune and predicate is not None else None
    files = engine_files(source, names, pruner)
    if files is not None:
        scan = EngineScan(
            schema=source.schema,
            files=files,
            names=names,
            wanted=wanted,
            predicate=predicate,
            pruner=pruner,
            row_limit=row_limit,
        )
        yield from engine_frames(source, scan)
        return
    left = row_limit
    with reading(frames_of(source, names, pruner, row_limit)) as frames:
        for each in frames:
            frame = each if left is None else each.head(left)
            if left is not None:
                left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            if frame.height:
                yield of_columns(frame, wanted)
            if left == 0:
                return


def _check(predicate: pl.Expr, schema: pa.Schema) -> None:
    """Raise InvalidRequest for a filter that cannot be computed from columns of these types."""
    try:
        pl.DataFrame(schema=polars_schema(schema)).filter(predicate)
    except pl.exceptions.PolarsError as error:
        raise not_computed(
            error, "the filter does not fit the types of its columns", filter=predicate
        ) from error
