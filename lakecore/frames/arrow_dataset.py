"""A batch source as a `pyarrow.dataset.Dataset`, which DuckDB can scan.

DuckDB calls `scanner(columns, filter)` and reads the returned stream. DuckDB does not apply the
filter again, so it is applied exactly here. The filter may use columns that are not requested.

pyarrow's own C++ functions (unions, joins, Acero, `Scanner.from_dataset`) do not call `scanner`.
Such functions read the C++ dataset inside the object: here one Parquet file that cannot be opened,
so that they raise an OSError that says what to do. Without a C++ dataset they would crash the
process.

NOTE: a `pyarrow.dataset.Scanner` reads up to 1 GiB ahead of its reader, and does not stop at a
LIMIT. `scanner` therefore returns an object of another class, which is also an Arrow stream. Only
pyarrow's writer, which accepts nothing else, gets a real Scanner; a call by the writer is
recognised by the argument `use_threads`.
"""

from __future__ import annotations

import atexit
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn
from weakref import WeakSet, finalize

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from lakecore.errors import InvalidRequest, LakecoreError, Unsupported
from lakecore.frames.engine_scan import EngineScan
from lakecore.frames.polars_source import engine_frames, to_batches
from lakecore.frames.source import (
    BatchSource,
    engine_files,
    needed,
    reading,
    tell_damage,
    whole_files,
)
from lakecore.io.files.parquet_read import NARROW_BYTES_MAX
from lakecore.io.stores.store import NO_FILE, NO_FILES
from lakecore.plan.predicate import (
    Predicate,
    arrow_columns,
    as_duckdb_1_means,
    columns_of,
    from_arrow,
    is_exact,
    to_polars,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


# --- engine batches ------------------------------------------------------------------------------
# Arrow batches of files that need no merge, read by Arrow or Polars instead of lakecore's reader.
#
# Arrow reads the files if all of their rows are returned. Otherwise Polars reads them, because
# Arrow cannot leave out rows by their numbers.
#
# INVARIANT: Arrow or Polars applies a condition only if the predicate language expresses it exactly
# and no column of it is a float. Both skip row groups by bounds, and Parquet's bounds contain no
# NaN and do not distinguish -0.0 from 0.0.

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
    files = engine_files(source, names, None if condition is None else condition.pruner)
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


# --- arrow dataset -------------------------------------------------------------------------------

_TUNING = {
    "batch_readahead",
    "batch_size",
    "cache_metadata",
    "fragment_readahead",
    "fragment_scan_options",
    "memory_pool",
    "use_threads",
}
"""The tuning arguments of pyarrow's scans, ignored here: the source has its own read-ahead."""
_PARQUET = ds.ParquetFileFormat()
_PULLED: WeakSet[_Pulled] = WeakSet()
_SECONDS_TO_END = 1.0


class SourceScanner:
    """One scan of a source with columns and a filter, which can be read more than once."""

    def __init__(
        self,
        source: BatchSource,
        columns: Sequence[str] | None,
        condition: pc.Expression | None,
        schema: pa.Schema,
        batch_size: int = BATCH_ROWS,
    ) -> None:
        self._source = source
        self._condition = condition
        self._batch_size = batch_size
        self._names = schema.names if columns is None else list(columns)
        for name in self._names:
            if name not in schema.names:
                raise InvalidRequest("unknown column", column=name, columns=schema.names)
        self.dataset_schema = schema
        self.projected_schema = pa.schema([schema.field(name) for name in self._names])

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream. Dropping the stream stops the reading."""
        batches = _of_one_frame(self.to_batches())
        return pa.RecordBatchReader.from_batches(self.projected_schema, batches)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow batches."""
        condition, schema = self._condition, self._source.schema
        others = [] if condition is None else arrow_columns(condition)
        names = needed(schema, self._names, others)
        pruner = None if condition is None else from_arrow(condition, schema)
        if condition is not None and set(others) <= set(schema.names):
            _check_filter(condition, pa.schema([schema.field(name) for name in others]))
        both = None if condition is None else Condition(arrow=condition, pruner=pruner)
        scanned = engine_batches(self._source, names, both)
        if scanned is None:
            scanned = Scanned(self._source.batches(names, pruner), condition is None)
        with reading(scanned.batches) as batches:
            for batch in batches:
                kept = batch if scanned.is_filtered else _matching(batch, condition)
                if kept.num_rows:
                    kept = kept.select(self._names)
                    shown = kept.schema.equals(self.projected_schema)
                    kept = kept if shown else kept.cast(self.projected_schema)
                    for start in range(0, kept.num_rows, self._batch_size):
                        yield kept.slice(start, self._batch_size)

    def to_table(self) -> pa.Table:
        """All rows."""
        return self.to_reader().read_all()

    def count_rows(self) -> int:
        """The number of rows."""
        return sum(batch.num_rows for batch in self.to_batches())

    def head(self, num_rows: int) -> pa.Table:
        """The first rows; reads no more than necessary."""
        kept: list[pa.RecordBatch] = []
        left = num_rows
        with reading(self.to_batches()) as batches:
            for batch in batches if left > 0 else ():
                kept.append(batch.slice(0, left))
                left -= kept[-1].num_rows
                if left == 0:
                    break
        return pa.Table.from_batches(kept, self.projected_schema)

    def take(self, *_arguments: object) -> NoReturn:
        """Unsupported: rows of a merged table have no numbers."""
        raise _unsupported("take")


class SourceDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow is published without types
    """The rows of a source as a dataset. Batches are cast to `schema`, if given."""

    def __init__(
        self,
        source: BatchSource,
        schema: pa.Schema | None = None,
        condition: pc.Expression | None = None,
    ) -> None:
        self._source = source
        self._shown = source.schema if schema is None else schema
        self._condition = condition
        file = _PARQUET.make_fragment(NO_FILE, NO_FILES)
        super().__init__([file], self._shown, _PARQUET, NO_FILES)

    def __reduce__(self) -> tuple[object, ...]:
        return SourceDataset, (self._source, self._shown, self._condition)

    def __repr__(self) -> str:
        return f"SourceDataset(columns={self._shown.names}, filter={self._condition})"

    @property
    def schema(self) -> pa.Schema:
        """The schema of all columns."""
        return self._shown

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002  pyarrow's name
        *,
        use_threads: bool | None = None,
        **tuning: object,
    ) -> SourceScanner | ds.Scanner:
        """A scan of these columns and of the rows that match the filter.

        With `use_threads` it returns a scanner of pyarrow, which can be read once and reads ahead.
        """
        scan = self._scan(columns, filter, tuning)
        if use_threads is None:
            return scan
        return ds.Scanner.from_batches(_Pulled(scan.to_batches()), schema=scan.projected_schema)

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002
        **tuning: object,
    ) -> Iterator[pa.RecordBatch]:
        """The matching rows in batches."""
        return self._scan(columns, filter, tuning).to_batches()

    def to_table(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002
        **tuning: object,
    ) -> pa.Table:
        """The matching rows."""
        return self._scan(columns, filter, tuning).to_table()

    def head(
        self,
        num_rows: int,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002
        **tuning: object,
    ) -> pa.Table:
        """The first matching rows; reads no more than necessary."""
        return self._scan(columns, filter, tuning).head(num_rows)

    def count_rows(
        self,
        filter: pc.Expression | None = None,  # noqa: A002
        **tuning: object,
    ) -> int:
        """The number of matching rows."""
        return self._scan([], filter, tuning).count_rows()

    def filter(self, expression: pc.Expression) -> SourceDataset:
        """The dataset of the matching rows."""
        return SourceDataset(self._source, self._shown, self._both(expression))

    @property
    def partition_expression(self) -> pc.Expression:
        """A condition that is true for each row: here always true."""
        return pc.scalar(True)

    def replace_schema(self, schema: pa.Schema) -> SourceDataset:
        """The dataset with its columns cast to this schema."""
        return SourceDataset(self._source, schema, self._condition)

    def get_fragments(self, *_arguments: object, **_options: object) -> NoReturn:
        """Unsupported: a merged row comes from several files."""
        raise _unsupported("get_fragments")

    def take(self, *_arguments: object, **_options: object) -> NoReturn:
        """Unsupported: rows of a merged table have no numbers."""
        raise _unsupported("take")

    def join(self, *_arguments: object, **_options: object) -> NoReturn:
        """Unsupported: join the result of `to_table` or DuckDB."""
        raise _unsupported("join")

    def join_asof(self, *_arguments: object, **_options: object) -> NoReturn:
        """Unsupported: join the result of `to_table` or DuckDB."""
        raise _unsupported("join_asof")

    def sort_by(self, *_arguments: object, **_options: object) -> NoReturn:
        """Unsupported: sort the result of `to_table` or DuckDB."""
        raise _unsupported("sort_by")

    @property
    def files(self) -> NoReturn:
        """Unsupported: the rows are merged from several files."""
        raise _unsupported("files")

    @property
    def filesystem(self) -> NoReturn:
        """Unsupported: the rows are merged from several files."""
        raise _unsupported("filesystem")

    @property
    def format(self) -> NoReturn:
        """Unsupported: the rows are merged from several files."""
        raise _unsupported("format")

    @property
    def partitioning(self) -> NoReturn:
        """Unsupported: the rows are merged from several files."""
        raise _unsupported("partitioning")

    def _scan(
        self,
        columns: Sequence[str] | None,
        condition: pc.Expression | None,
        tuning: Mapping[str, object],
    ) -> SourceScanner:
        unknown = sorted(tuning.keys() - _TUNING)
        if unknown:
            raise InvalidRequest("a scan has no such argument", arguments=unknown)
        if tuning.get("fragment_scan_options") is not None:
            raise Unsupported(
                "a dataset of merged rows has no fragments to set options of",
                fragment_scan_options=tuning["fragment_scan_options"],
            )
        size = tuning.get("batch_size", BATCH_ROWS)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InvalidRequest("batch_size must be a whole number above 0", batch_size=size)
        if isinstance(columns, dict):
            raise Unsupported("a scan accepts column names, not expressions", columns=columns)
        names = [columns] if isinstance(columns, str) else columns
        both = self._condition if condition is None else self._both(condition)
        return SourceScanner(self._source, names, both, self._shown, size)

    def _both(self, condition: pc.Expression) -> pc.Expression:
        """The conjunction of the scanner's own condition and another one."""
        if not isinstance(condition, pc.Expression):
            raise InvalidRequest(
                "a filter must be a pyarrow expression, such as pyarrow.compute.field('id') > 3",
                given=type(condition).__name__,
            )
        return condition if self._condition is None else self._condition & condition


class DatasetOfDuckDB1(SourceDataset):
    """The dataset that DuckDB 1 reads: its filters are read as DuckDB means them."""

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002
        **tuning: object,
    ) -> SourceScanner | ds.Scanner:
        """As `SourceDataset.scanner`. Raises Unsupported for what DuckDB 1 would change."""
        read = self.schema if columns is None else pa.schema(map(self.schema.field, columns))
        for field in read:
            if pa.types.is_timestamp(field.type) and field.type.unit == "ns" and field.type.tz:
                raise Unsupported(
                    "DuckDB 1 has no times with a zone and nanoseconds; install DuckDB 2",
                    column=field.name,
                )
        meant = None if filter is None else as_duckdb_1_means(filter, read)
        return super().scanner(columns, meant, **tuning)  # type: ignore[arg-type]


class _Pulled:
    """Batches for threads of pyarrow. No Python code is called while the interpreter exits.

    Such a thread continues after its reader was dropped, and would abort the process at exit. At
    exit the batches end, and the exit waits until the thread has released them.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches: Iterator[pa.RecordBatch] | None = batches
        self._one_by_one = threading.Lock()
        self._begun = False
        self._gone = threading.Event()
        finalize(self, self._gone.set).atexit = False
        _PULLED.add(self)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._one_by_one:
            self._begun = True
            if self._batches is None:
                raise StopIteration
            try:
                return next(self._batches)
            except BaseException:
                self._batches = None
                raise

    def stop(self) -> threading.Event | None:
        """End before the next batch.

        If a thread is reading, returns an event that is set when it has released the batches.
        """
        with self._one_by_one:
            pulling = self._begun and self._batches is not None
            self._batches = None
        return self._gone if pulling else None


@atexit.register
def _stop_pulling() -> None:
    stopped = [each.stop() for each in list(_PULLED)]
    for gone in filter(None, stopped):
        gone.wait(_SECONDS_TO_END)


def _of_one_frame(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches. An error of lakecore is raised from this frame alone.

    An engine shows the whole traceback of an error, and of its causes, as the text of its own.
    """
    try:
        yield from batches
    except LakecoreError as error:
        failure = error.with_traceback(None)
    else:
        return
    raise failure from None


def _matching(batch: pa.RecordBatch, condition: pc.Expression) -> pa.RecordBatch:
    try:
        return batch.filter(condition)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(
            "the filter cannot be computed for each row", filter=str(condition), cause=error
        ) from error


def _check_filter(condition: pc.Expression, schema: pa.Schema) -> None:
    """Raise InvalidRequest if Arrow cannot compute the filter from columns of these types."""
    try:
        schema.empty_table().filter(condition)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidRequest(
            "the filter does not fit the types of its columns", filter=str(condition), cause=error
        ) from error


def _unsupported(method: str) -> Unsupported:
    return Unsupported("a dataset of merged rows cannot do this; read it first", method=method)
