"""The Polars face: a batch source as a LazyFrame that reads nothing until it is collected.

Polars hands over columns, predicate and row limit. A predicate prunes through lakecore's own form
of it, and filters exactly as the expression it is. NOTE: a limit that comes with a predicate counts
rows before the filter (`lf.head(5).filter(...)`), so then nothing may be pruned.
"""

from __future__ import annotations

import atexit
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source
from polars.selectors import Selector, by_name

from lakecore.errors import InvalidRequest
from lakecore.frames.source import FrameSource, needed, reading, tell_damage
from lakecore.io.parquet_read import NARROW_BYTES_MAX
from lakecore.plan.predicate import from_polars

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from lakecore.frames.source import BatchSource

FAILURES = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""What Polars raises where it cannot read a file."""

FOOTERS_MAX = 256
"""Files whose footers an engine may open for itself; more are pruned by the manifest first."""

_UNCHECKED_BYTES_MAX = 64 << 20
"""What a scan looks at before it is asked for rows: some 30 ms."""
_VALUE_BYTES = 8
"""Of a number, or where a text is."""
_VIEWS = pl.CompatLevel.newest()
"""Of layouts of Arrow arrays, the one that leaves texts where they are."""
_EXIT_WAIT_SECONDS_MAX = 10.0


def scan(source: BatchSource) -> pl.LazyFrame:
    """The rows of the source as a lazy frame, in the Polars twins of its Arrow types.

    Where all files can be read as they are, and are few, it is Polars' own scan of them, unless
    many bytes have yet to be compared with their checksums: then those of the columns that a query
    takes are, as it runs.
    """
    names = source.schema.names
    files = source.native_files(names, unchecked_bytes_max=_UNCHECKED_BYTES_MAX)
    if files and len(files) <= FOOTERS_MAX:
        # What Polars cannot even open, lakecore's own reader names once it is read.
        with suppress(*FAILURES):
            return native_scan(source.schema, files, names)

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

    return register_io_source(
        read, schema=polars_schema(source.schema), is_pure=True, explain_name="lakecore"
    )


def select(frame: pl.LazyFrame, names: list[str]) -> pl.LazyFrame:
    """The columns of a frame. Raises InvalidRequest for one that is named twice."""
    if len(set(names)) < len(names):
        raise InvalidRequest("a Polars frame has a column once", columns=names)
    return frame.select(_named(names))


def collect(
    frame: pl.LazyFrame, source: Callable[[], BatchSource], where: pl.Expr | str | None
) -> pl.DataFrame:
    """The rows of a frame of the source, to which a condition was put.

    Raises CorruptTable, naming it, for a damaged file, InvalidRequest for a condition that some row
    has no value of.
    """
    try:
        return frame.collect()
    except FAILURES as error:
        if _is_of_a_file(error):
            tell_damage(source())
        elif where is not None:
            raise no_value(where, error) from error
        raise


def no_value(where: pl.Expr | str, error: BaseException) -> InvalidRequest:
    """What is raised where Polars cannot compute a condition."""
    return InvalidRequest(
        "the condition cannot be computed of each row",
        condition=where,
        reason=str(error).splitlines()[0],
    )


def _is_of_a_file(error: BaseException) -> bool:
    """Whether a file could not be read, rather than an expression not be computed."""
    return not isinstance(error, pl.exceptions.PolarsError) or "parquet" in str(error).lower()


def polars_schema(schema: pa.Schema) -> pl.Schema:
    """The Polars twin of an Arrow schema."""
    return to_frame(schema.empty_table()).schema


def to_frame(rows: pa.RecordBatch | pa.Table) -> pl.DataFrame:
    """The rows as a Polars frame, values shared where both lay them out alike."""
    frame = pl.from_arrow(rows, rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame


def to_batches(frame: pl.DataFrame, schema: pa.Schema, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The rows of a frame in batches of an Arrow schema of the same columns.

    A batch has about so many bytes at most: in a frame many rows may share a text, in Arrow none.
    """
    if frame.height > 1 and bytes_in_arrow(frame) > min(bytes_max, NARROW_BYTES_MAX):
        half = frame.height // 2
        yield from to_batches(frame[:half], schema, bytes_max)
        yield from to_batches(frame[half:], schema, bytes_max)
        return
    for batch in frame.to_arrow(compat_level=_VIEWS).to_batches():
        columns = zip(batch.columns, schema.types, strict=True)
        # From where they are texts are cast at less than from wide offsets.
        arrays = [each if each.type == kind else each.cast(kind) for each, kind in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def bytes_in_arrow(frame: pl.DataFrame) -> int:
    """What the values of a frame take, about, once no text is shared."""
    texts = [column.str.len_bytes() for column in frame.select(pl.col(pl.String))]
    texts += [column.bin.size() for column in frame.select(pl.col(pl.Binary))]
    return _VALUE_BYTES * frame.width * frame.height + sum(int(each.sum()) for each in texts)


def to_frames(batches: Iterator[pa.RecordBatch]) -> Generator[pl.DataFrame, None, None]:
    """The batches as frames; closes their iterator at the end."""
    with reading(batches):
        for batch in batches:
            yield to_frame(batch)
            # A row may be large: what comes next is read without this beside it.
            del batch


class _Pulls:
    """The frames that Polars is just waiting for, in threads of its own.

    NOTE: Polars runs ahead of what it needs, and does not wait for its threads. One that is inside
    Python when the interpreter goes away aborts the process, after all results are out.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._ended = False

    def pull(self, frames: Iterator[pl.DataFrame]) -> pl.DataFrame | None:
        """The next frame; None if there is none, or the interpreter is about to exit."""
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
        """Give out no more frames, and wait for those on their way."""
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
    source: BatchSource,
    columns: list[str] | None,
    predicate: pl.Expr | None,
    row_limit: int | None,
) -> Generator[pl.DataFrame, None, None]:
    filtered = [] if predicate is None else predicate.meta.root_names()
    wanted = source.schema.names if columns is None else columns
    names = needed(source.schema, wanted, filtered)
    prune = predicate is not None and row_limit is None
    pruner = from_polars(predicate, source.schema) if prune and predicate is not None else None
    files = source.native_files(names, pruner)
    if files is not None:
        try:
            yield from _native(source.schema, files, names, wanted, predicate, row_limit)
        except FAILURES as error:
            if _is_of_a_file(error):
                tell_damage(source, names)
            raise
        return
    left = row_limit
    with reading(
        source.frames(names, pruner, row_limit)
        if isinstance(source, FrameSource)
        else to_frames(source.batches(names, pruner, row_limit))
    ) as frames:
        for each in frames:
            frame = each if left is None else each.head(left)
            if left is not None:
                left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            if frame.height:
                yield _of_columns(frame, wanted)
            if left == 0:
                return


def _native(
    schema: pa.Schema,
    files: list[str],
    names: list[str],
    wanted: list[str],
    predicate: pl.Expr | None,
    row_limit: int | None,
) -> Iterator[pl.DataFrame]:
    """The rows as Polars itself reads them from the files."""
    if not files:
        return
    rows = native_scan(schema, files, names)
    if row_limit is not None:
        rows = rows.head(row_limit)
    if predicate is not None:
        rows = rows.filter(predicate)
    kept = rows.select(_named(wanted or names[:1]))
    for frame in kept.collect_batches(maintain_order=False):
        yield _of_columns(frame, wanted)


def native_scan(
    schema: pa.Schema,
    files: list[str],
    names: list[str],
    *,
    casts: bool = True,
    by_row_groups: bool = False,
) -> pl.LazyFrame:
    """Polars' scan of files that hold these columns, in the twins of their Arrow types.

    With `by_row_groups` these are decoded whole, and no statistics believed. Without `casts` it
    raises SchemaError where files of another program hold them in other types.
    """
    types = polars_schema(pa.schema([schema.field(name) for name in names]))
    rows = pl.scan_parquet(
        files,
        parallel="row_groups" if by_row_groups else "auto",
        use_statistics=not by_row_groups,
        glob=False,
        extra_columns="ignore",
    ).select(_named(names))
    stored = rows.collect_schema()
    changed = {name: kind for name, kind in types.items() if stored[name] != kind}
    if changed and not casts:
        raise pl.exceptions.SchemaError(f"columns of other types: {[*changed]}")
    return rows.with_columns(_named([name]).cast(kind) for name, kind in changed.items())


def _of_columns(frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """The columns of these names; of none, the rows all the same, as whoever numbers them needs."""
    return frame.select(_named(names)) if names else frame.drop(_named(frame.columns))


def _named(names: list[str]) -> Selector:
    """The columns of these very names, in this order; elsewhere Polars takes `*` for a pattern."""
    return by_name(*names)
