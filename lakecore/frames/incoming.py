"""Whatever a user hands to a write, as Arrow batches, one after another.

Taken: pyarrow tables, batches, readers, datasets and scanners; Polars frames, eager (without a
copy) and lazy (streamed); pandas frames; DuckDB relations (streamed); anything with
`__arrow_c_stream__` or `__arrow_c_array__`; dicts, one a row; and iterables of any of these.

pandas and DuckDB are recognised by their types' names, never imported. A named index of a pandas
frame is a column, an unnamed one is dropped; NaN in pandas means null.

INVARIANT: nothing is collected whole that can stream. A batch has at most `ROWS_MAX` rows and about
`BYTES_MAX` bytes: a larger one is cut without a copy; small ones are not put together.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Protocol, cast

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds

from lakecore.errors import InvalidRequest
from lakecore.model.arrow_arrays import with_offsets
from lakecore.model.types import check_no_objects

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS_MAX = 1 << 20
BYTES_MAX = 256 << 20
_STREAM_ROWS = 131_072
_DICTS_MAX = 65_536
_REFUSED_BY_ARROW = (TypeError, ValueError, OverflowError, pa.ArrowNotImplementedError)
"""What PyArrow raises for values it has no form for; its own errors are some of these."""
_TAKEN = (
    "pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner",
    "polars DataFrame or LazyFrame",
    "pandas DataFrame",
    "DuckDB relation",
    "object with __arrow_c_stream__ or __arrow_c_array__",
    "dicts, one a row",
    "iterable of these",
)


class _Relation(Protocol):
    """What is used of a DuckDB relation."""

    columns: list[str]
    types: list[object]

    def to_arrow_reader(self, batch_size: int) -> pa.RecordBatchReader: ...


class _Index(Protocol):
    names: list[object]


class _Places(Protocol):
    def __getitem__(self, at: object, /) -> object: ...


class _Types(Protocol):
    def __iter__(self) -> Iterator[object]: ...


class _PandasFrame(Protocol):
    """What is used of a pandas frame."""

    index: _Index
    iloc: _Places
    dtypes: _Types

    def reset_index(self, *, drop: bool) -> _PandasFrame: ...
    def droplevel(self, level: list[int]) -> _PandasFrame: ...
    def __len__(self) -> int: ...


def incoming_batches(data: object) -> Iterator[pa.RecordBatch]:
    """The rows of `data` in batches, in order; a source without rows gives one empty batch or none.

    Raises InvalidRequest, naming the type and what is taken, for anything else.
    """
    for batch in _batches(data):
        yield from _cut(with_offsets(batch))
        # A row may be large: the next is made without this beside it.
        del batch


def _batches(data: object) -> Iterator[pa.RecordBatch]:
    if isinstance(data, pa.RecordBatch):
        return iter((data,))
    if isinstance(data, pa.Table):
        return _of_table(data)
    if isinstance(data, pa.RecordBatchReader):
        return _of_reader(data)
    if isinstance(data, pl.DataFrame | pl.LazyFrame):
        return _of_polars(data)
    if isinstance(data, ds.Dataset):
        return _of_reader(data.scanner().to_reader())
    if isinstance(data, ds.Scanner):
        return _of_reader(data.to_reader())
    match _foreign_name(data):
        case "pandas.DataFrame":
            return _of_pandas(cast("_PandasFrame", data))
        case "duckdb.DuckDBPyRelation":
            return _of_relation(cast("_Relation", data))
    if hasattr(data, "__arrow_c_stream__"):
        return _of_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        return iter((_imported(pa.record_batch, data),))
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | dict | set | frozenset):
        return _of_iterable(data)
    raise _not_taken(data)


def _foreign_name(data: object) -> str:
    kind = type(data)
    return f"{kind.__module__.split('.')[0].lstrip('_')}.{kind.__name__}"


def _not_taken(data: object) -> InvalidRequest:
    kind = type(data)
    return InvalidRequest(
        "rows cannot be read from this object",
        type=f"{kind.__module__}.{kind.__qualname__}",
        taken=_TAKEN,
    )


def _of_table(table: pa.Table) -> Iterator[pa.RecordBatch]:
    batches = table.to_batches()
    return iter(batches or [_empty(table.schema)])


def _of_reader(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    seen = False
    for batch in reader:
        seen = True
        yield batch
    if not seen:
        yield _empty(reader.schema)


def _of_stream(data: object) -> Iterator[pa.RecordBatch]:
    reader = _imported(pa.RecordBatchReader.from_stream, data)
    try:
        yield from _of_reader(reader)
    except pa.ArrowInvalid as error:  # of a row that is null, for one
        raise InvalidRequest("the stream does not hold rows", cause=error) from error


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    """No rows, but the columns: they are looked at all the same."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)


def _of_polars(frame: pl.DataFrame | pl.LazyFrame) -> Iterator[pa.RecordBatch]:
    pieces = iter((frame,)) if isinstance(frame, pl.DataFrame) else _streamed(frame)
    seen = False
    for piece in pieces:
        seen = True
        check_no_objects(piece)
        yield from _of_reader(pa.RecordBatchReader.from_stream(piece))
    if not seen:
        yield from _of_polars(pl.DataFrame(schema=frame.collect_schema()))


def _streamed(frame: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    return frame.collect_batches(chunk_size=_STREAM_ROWS, engine="streaming", lazy=True)


def _of_pandas(frame: _PandasFrame) -> Iterator[pa.RecordBatch]:
    whole = _with_named_index(frame)
    for start in range(0, max(1, len(whole)), ROWS_MAX):
        piece = whole.iloc[slice(start, start + ROWS_MAX)]
        try:
            table = pa.Table.from_pandas(piece, preserve_index=False)
        except _REFUSED_BY_ARROW as error:
            raise InvalidRequest("the pandas frame has no Arrow form", cause=error) from error
        for at, kind in enumerate(whole.dtypes):
            if str(kind).startswith("period["):
                raise InvalidRequest(
                    "a period has no type: make it a time or a text first",
                    column=table.field(at).name,
                    type=str(kind),
                )
            if str(kind) == "object":
                values = cast("_PandasFrame", piece).iloc[:, at]
                check_times(
                    table.field(at).name, table.column(at), cast("Iterable[object]", values)
                )
        yield from _of_table(table)


def _of_relation(relation: _Relation) -> Iterator[pa.RecordBatch]:
    for name, kind in zip(relation.columns, relation.types, strict=True):
        if "TIME WITH TIME ZONE" in str(kind):  # Arrow would give it without
            raise _zoned_time(name)
    return _of_reader(relation.to_arrow_reader(_STREAM_ROWS))


def _with_named_index(frame: _PandasFrame) -> _PandasFrame:
    """The frame with the named levels of its index as columns."""
    names = list(frame.index.names)
    unnamed = [level for level, name in enumerate(names) if name is None]
    if len(unnamed) == len(names):
        return frame
    try:
        return (frame.droplevel(unnamed) if unnamed else frame).reset_index(drop=False)
    except ValueError as error:
        raise InvalidRequest("an index has the name of a column", index=names) from error


def _of_iterable(items: Iterable[object]) -> Iterator[pa.RecordBatch]:
    """Each item's batches; dicts that follow each other are rows of one batch."""
    rows: list[dict[str, object]] = []
    for item in items:
        if isinstance(item, dict):
            rows.append(item)
            if len(rows) == _DICTS_MAX:
                yield _of_dicts(rows)
                rows = []
            continue
        if rows:
            yield _of_dicts(rows)
            rows = []
        yield from _batches(item)
        del item
    if rows:
        yield _of_dicts(rows)


def _of_dicts(rows: list[dict[str, object]]) -> pa.RecordBatch:
    """The rows with the names of all of them; what a row does not name is null."""
    names = list(dict.fromkeys(chain.from_iterable(rows)))
    columns = []
    for name in names:
        if not isinstance(name, str):
            raise InvalidRequest("the name of a column is a text", column=name)
        values = [row.get(name) for row in rows]
        try:
            columns.append(pa.array(values))
        except _REFUSED_BY_ARROW as error:
            raise _odd_one_out(name, values, error) from error
        check_times(name, columns[-1], values)
    if not names:
        raise InvalidRequest("the rows have no columns", rows=len(rows))
    try:
        return pa.RecordBatch.from_arrays(columns, names=names)
    except UnicodeEncodeError as error:
        raise InvalidRequest("the name of a column is no Unicode text", columns=names) from error


def _odd_one_out(name: str, values: list[object], error: Exception) -> InvalidRequest:
    """The error that names the first value which Arrow does not take, or not after the others."""
    fits, fails = 0, len(values)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if _is_taken(values[:middle]):
            fits = middle
        else:
            fails = middle
    value = values[fails - 1]
    if _is_taken([value]):
        message = "the values of a column have no common type: one does not go with those before"
    else:
        message = "a value has no Arrow type: it is too large, no valid text, or of a strange kind"
    return InvalidRequest(message, column=name, value=value, cause=error)


def _is_taken(values: list[object]) -> bool:
    try:
        pa.array(values)
    except _REFUSED_BY_ARROW:
        return False
    return True


def check_times(name: str, array: pa.Array | pa.ChunkedArray, values: Iterable[object]) -> None:
    """Raise InvalidRequest for times of several kinds, of which Arrow makes one all the same.

    A datetime among dates would lose its time of day, one without a zone among others be UTC.
    """
    if not pa.types.is_temporal(array.type):
        return
    there = array.is_valid().to_pylist()
    kinds = {_kind_of_time(each) for each, is_there in zip(values, there, strict=True) if is_there}
    kinds -= {""}
    if "time with a zone" in kinds:
        raise _zoned_time(name)
    if len(kinds) > 1:
        raise InvalidRequest(
            "the values of a column have no common type", column=name, kinds=sorted(kinds)
        )


def _zoned_time(name: str) -> InvalidRequest:
    return InvalidRequest("a time of day has no zone: take it off first", column=name)


def _kind_of_time(value: object) -> str:
    match value:
        case dt.datetime(tzinfo=None):
            return "datetime"
        case dt.datetime():
            return "datetime with a zone"
        case dt.date():
            return "date"
        case dt.time(tzinfo=zone) if zone is not None:
            return "time with a zone"
        case _:
            return ""


def _imported(take: object, data: object) -> pa.RecordBatch | pa.RecordBatchReader:
    assert callable(take)
    try:
        return take(data)
    except _REFUSED_BY_ARROW as error:
        raise _not_taken(data) from error


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in even slices within the limits; itself if it keeps them."""
    pieces = max(-(-batch.num_rows // ROWS_MAX), -(-batch.nbytes // BYTES_MAX))
    if pieces <= 1:
        yield batch
        return
    rows = max(1, -(-batch.num_rows // pieces))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
