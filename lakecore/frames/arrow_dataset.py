"""The dataset face: a batch source as a `pyarrow.dataset.Dataset`, which DuckDB scans.

DuckDB asks for `scanner(columns, filter)` and reads the stream it gives; the filter is not applied
again, so it is applied exactly here. Filtering columns need not be among the columns asked for.

NOTE: the parent's constructor is not called, so there is no C++ dataset behind this object. What
pyarrow's own methods build on `scanner` works; the methods that would reach for the C++ side are
replaced here, each by one that works or that says it does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.frames.source import needed, reading, tell_damage
from lakecore.plan.predicate import arrow_columns, from_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.frames.source import BatchSource

_BATCH_ROWS = 131_072
_BATCHES_AHEAD = 2


class SourceScanner:
    """One scan of a source: columns and filter, ready to be read once or more."""

    def __init__(
        self,
        source: BatchSource,
        columns: Sequence[str] | None,
        condition: pc.Expression | None,
        schema: pa.Schema,
    ) -> None:
        self._source = source
        self._condition = condition
        self._names = schema.names if columns is None else list(columns)
        for name in self._names:
            if name not in schema.names:
                raise InvalidRequest("unknown column", column=name, columns=schema.names)
        self.dataset_schema = schema
        self.projected_schema = pa.schema([schema.field(name) for name in self._names])

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream; dropping it stops the reading."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches."""
        condition, schema = self._condition, self._source.schema
        others = [] if condition is None else arrow_columns(condition)
        names = needed(schema, self._names, others)
        pruner = None if condition is None else from_arrow(condition, schema)
        if condition is not None and set(others) <= set(schema.names):
            _check_filter(condition, pa.schema([schema.field(name) for name in others]))
        files = self._source.native_files(names, pruner)
        pushed = None if any(map(_is_floating, map(schema.field, others))) else condition
        with reading(
            self._source.batches(names, pruner)
            if files is None
            else self._native(pa.schema([schema.field(name) for name in names]), files, pushed)
        ) as batches:
            for batch in batches:
                is_done = condition is None or (files is not None and pushed is not None)
                kept = batch if is_done else batch.filter(condition)
                if kept.num_rows:
                    kept = kept.select(self._names)
                    shown = kept.schema.equals(self.projected_schema)
                    yield kept if shown else kept.cast(self.projected_schema)

    def _native(
        self, schema: pa.Schema, files: list[str], condition: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        """The matching rows as Arrow itself reads them from the files.

        A condition on floats is not Arrow's to apply: it leaves out row groups by bounds, in which
        Parquet has no NaN and but one zero.
        """
        if not files:
            return
        # Java writes checksums of pages.
        checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        parquet = ds.ParquetFileFormat(default_fragment_scan_options=checked)
        try:
            yield from (
                ds.dataset(
                    files,
                    schema=schema,
                    format=parquet,
                )
                .scanner(
                    filter=condition,
                    batch_size=_BATCH_ROWS,
                    batch_readahead=_BATCHES_AHEAD,
                    fragment_readahead=1,
                )
                .to_batches()
            )
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            tell_damage(self._source, schema.names)
            raise

    def to_table(self) -> pa.Table:
        """All rows."""
        return self.to_reader().read_all()

    def count_rows(self) -> int:
        """The number of rows."""
        return sum(batch.num_rows for batch in self.to_batches())

    def head(self, num_rows: int) -> pa.Table:
        """The first rows, and no more reading than they take."""
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


class SourceDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow is published without types
    """The rows of a source as a dataset. `schema`, if given, is what batches are cast to."""

    def __init__(
        self,
        source: BatchSource,
        schema: pa.Schema | None = None,
        condition: pc.Expression | None = None,
    ) -> None:
        self._source = source
        self._shown = source.schema if schema is None else schema
        self._condition = condition

    def __reduce__(self) -> tuple[object, ...]:
        return SourceDataset, (self._source, self._shown, self._condition)

    @property
    def schema(self) -> pa.Schema:
        """The schema of all columns."""
        return self._shown

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002  pyarrow's name
        **_tuning: object,  # batch sizes, threads, read-ahead: the source has its own
    ) -> SourceScanner:
        """A scan of these columns and of the rows that match the filter."""
        if isinstance(columns, dict):
            raise Unsupported("a scan takes columns by name, not expressions", columns=columns)
        both = [one for one in (self._condition, filter) if one is not None]
        condition = both[0] & both[1] if len(both) > 1 else both[0] if both else None
        return SourceScanner(self._source, columns, condition, self._shown)

    def filter(self, expression: pc.Expression) -> SourceDataset:
        """The dataset of the matching rows."""
        both = expression if self._condition is None else self._condition & expression
        return SourceDataset(self._source, self._shown, both)

    @property
    def partition_expression(self) -> pc.Expression:
        """What holds for each row; nothing that one could tell."""
        return pc.scalar(True)

    def get_fragments(self, *_arguments: object, **_options: object) -> NoReturn:
        """Unsupported: a merged row comes from several files."""
        raise _unsupported("get_fragments")

    def replace_schema(self, schema: pa.Schema) -> SourceDataset:
        """The dataset with its columns cast to this schema."""
        return SourceDataset(self._source, schema, self._condition)

    def join(self, *_arguments: object, **_options: object) -> NoReturn:
        """Unsupported: join what `to_table` or DuckDB gives."""
        raise _unsupported("join")

    def join_asof(self, *_arguments: object, **_options: object) -> NoReturn:
        """Unsupported: join what `to_table` or DuckDB gives."""
        raise _unsupported("join_asof")

    def sort_by(self, *_arguments: object, **_options: object) -> NoReturn:
        """Unsupported: sort what `to_table` or DuckDB gives."""
        raise _unsupported("sort_by")


def _check_filter(condition: pc.Expression, schema: pa.Schema) -> None:
    """Raise InvalidRequest if Arrow cannot compute the filter from columns of these types."""
    try:
        schema.empty_table().filter(condition)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidRequest(
            "the filter does not fit the types of its columns", filter=str(condition), cause=error
        ) from error


def _is_floating(field: pa.Field) -> bool:
    return bool(pa.types.is_floating(field.type))


def _unsupported(method: str) -> Unsupported:
    return Unsupported("a dataset of merged rows cannot do this; read it first", method=method)
