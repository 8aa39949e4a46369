"""Reads ORC data files through Arrow's adapter; memory depends on the batch, not on the stripe.

Stripes that fit into a batch are decoded completely. Larger ones, such as Java's of 64 MB and more,
are streamed. Arrow may take a column name with a dot for a field of another column, so files with
such names are decoded completely, with all columns.

NOTE: Arrow reads ORC timestamps as 64-bit nanoseconds, which cover only the years 1677 to 2262.
Other timestamps raise Unsupported.
"""

from __future__ import annotations

from collections import deque
from contextlib import closing, contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import orc

from lakecore.errors import LakecoreError, Unsupported
from lakecore.format.orc_tail import stripe_rows
from lakecore.io.files.checks import Checks
from lakecore.io.files.orc_checks import check_orc
from lakecore.io.freed_memory import release_freed
from lakecore.io.stores.store import damage_is_corrupt
from lakecore.memory import process_budget
from lakecore.model.arrow_arrays import inner_of, nested_like, size_of
from lakecore.model.types import Atomic, DataType, Field, Root, inner_types

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from lakecore.io.files.file_format import BatchSize
    from lakecore.io.stores.store import Store

_PROBE_ROWS = 1_024
_DECODED_RATIO = 4
_EXTRA_BATCHES = 3
"""Batches held while streaming: the current one, the pieces of the next, and what is read ahead."""
_PIECES = 16
"""The number of pieces that make up a streamed batch."""
_STRIPE_COPIES = 3
"""The memory for decoding a whole stripe, as a multiple of the memory of its rows."""


def orc_columns(store: Store, path: str) -> tuple[str, ...]:
    """The names of the file's top-level columns, in order."""
    check_orc(store, path)
    with _orc_errors(path), store.open_input(path) as source:
        return tuple(orc.ORCFile(source).schema.names)


def read_orc(
    store: Store,
    path: str,
    fields: Sequence[Field],
    batch: BatchSize,
    row_groups: Iterable[int] | None,
    checks: Checks = Checks.ONCE,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of these columns as stored, each with the file position of its first row."""
    if row_groups is not None:
        raise Unsupported("row groups are chosen in Parquet files only", path=path)
    check_orc(store, path, checks)
    with _orc_errors(path), store.open_input(path) as source:
        file = orc.ORCFile(source)
        stored = file.schema.names
        padded = [field for field in fields if _has_char(field.type)]
        columns = [field.name for field in fields if field.name in stored] or stored[:1]
        dotted = any("." in name for name in stored)
        stripe_rows_max = max(stripe_rows(file.reader.serialized_file_tail()), default=0)
        if dotted or stripe_rows_max <= 1:
            row_bytes = 0.0
        else:
            # The stored size is compressed: decode some rows to see how many bytes a row takes.
            row_bytes = max(1.0, _DECODED_RATIO * file.content_length / file.nrows)
            if batch.rows > 1:
                few = min(_PROBE_ROWS, _fitting(batch, row_bytes))
                with closing(_streamed(store, path, columns, few)) as probing:
                    probe = next(probing)
                    row_bytes = size_of(probe) / max(1, probe.num_rows)
                    del probe
        if dotted or stripe_rows_max * row_bytes * _STRIPE_COPIES <= batch.size_bytes:
            batches = _by_stripe(file, columns, batch.rows, by_name=not dotted)
        else:
            batches = _streamed(store, path, columns, _fitting(batch, row_bytes))
        at = 0
        with closing(batches):
            for rows in batches:
                if rows.num_rows:
                    yield at, _without_padding(rows, padded)
                at += rows.num_rows
                # A row may be large: free this one before the next one is read.
                del rows
                release_freed(process_budget().size_bytes)


def _fitting(batch: BatchSize, row_bytes: float) -> int:
    """How many rows a streamed batch may have, if each row takes `row_bytes`."""
    return max(1, min(batch.rows, int(batch.size_bytes / _EXTRA_BATCHES / row_bytes)))


def _by_stripe(
    file: orc.ORCFile, columns: Sequence[str], rows_max: int, *, by_name: bool
) -> Generator[pa.RecordBatch, None, None]:
    """The rows of a file; each stripe is decoded as a whole.

    Unless `by_name`, all columns are read.
    """
    for index in range(file.nstripes):
        stripe = file.read_stripe(index, columns=[*columns] if by_name else None)
        stripe = stripe.select([*columns])
        for start in range(0, stripe.num_rows, rows_max):
            rows = stripe.slice(start, rows_max)
            if start + rows_max >= stripe.num_rows:
                del stripe
            yield rows
            del rows


def _streamed(
    store: Store, path: str, columns: Sequence[str], rows_max: int
) -> Generator[pa.RecordBatch, None, None]:
    """The rows of a file in batches of that many rows, independent of its stripes.

    NOTE: Arrow reads ahead about sixteen batches (with threads, any number). This requests small
    batches without threads, and combines them.
    """
    piece_rows = max(1, rows_max // _PIECES)
    with store.open_input(path) as source:
        fragment = ds.OrcFileFormat().make_fragment(source)
        scanner = fragment.scanner(columns=[*columns], batch_size=piece_rows, use_threads=False)
        coming = iter(scanner.to_batches())
        try:
            while pieces := list(islice(coming, max(1, rows_max // piece_rows))):
                rows = pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)
                del pieces
                yield rows
                del rows
        finally:
            # Releasing a scan waits until it ends. Closing the source makes its next read fail.
            source.close()
            with suppress(pa.ArrowException, LakecoreError, OSError, ValueError):
                deque(coming, maxlen=0)


def _has_char(data_type: DataType) -> bool:
    """Whether the type contains CHAR, whose trailing blanks do not count.

    Java stores CHAR as ORC's CHAR, padded with blanks, and strips trailing blanks of any file.
    """
    if isinstance(data_type, Atomic):
        return data_type.root is Root.CHAR
    return any(_has_char(part) for part in inner_types(data_type))


def _without_padding(batch: pa.RecordBatch, padded: Sequence[Field]) -> pa.RecordBatch:
    for field in padded:
        at = batch.schema.get_field_index(field.name)
        if at >= 0:
            bare = _bare(batch.column(at), field.type)
            batch = batch.set_column(at, batch.schema.field(at), bare)
    return batch


def _bare(array: pa.Array, data_type: DataType) -> pa.Array:
    """The array without the trailing blanks of each CHAR in it."""
    if not _has_char(data_type):
        return array
    if not pa.types.is_nested(array.type):
        return pc.utf8_rtrim(array, characters=" ")
    pairs = zip(inner_of(array), inner_types(data_type), strict=True)
    return nested_like(array, array.type, [_bare(inner, part) for inner, part in pairs])


@contextmanager
def _orc_errors(path: str) -> Iterator[None]:
    """Translate Arrow's errors about the file's bytes into lakecore's errors."""
    with damage_is_corrupt(path, "ORC"):
        try:
            yield
        except pa.ArrowInvalid as error:
            if "nanosecond" not in str(error):
                raise
            raise Unsupported(
                "ORC timestamps outside the years 1677 to 2262 cannot be read", path=path
            ) from error
