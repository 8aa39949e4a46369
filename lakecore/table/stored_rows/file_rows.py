"""The stored rows of one data file, in any format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import Unsupported
from lakecore.io.files.data_files import read_positions
from lakecore.model.line_format import line_format
from lakecore.options import LINE_FORMATS
from lakecore.rows.line_texts import from_texts, text_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakecore.io.files.data_files import BatchSize
    from lakecore.io.stores.store import Store
    from lakecore.model.files import DataFile
    from lakecore.model.types import Field
    from lakecore.table.stored_rows.read_plan import ReadPlan


def file_rows(  # noqa: PLR0913  what is read, how, and what stands for columns
    store: Store,
    path: str,
    file: DataFile,
    plan: ReadPlan,
    size: BatchSize,
    *,
    fields: Sequence[Field],
    row_groups: Iterable[int] | None,
    known: Mapping[str, pa.Scalar],
    coded: frozenset[str],
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of these columns, each with the position of its first row; see `read_positions`."""
    if file.format in LINE_FORMATS:
        yield from _line_rows(store, path, file, plan, fields, size)
        return
    yield from read_positions(
        store,
        path,
        fields=fields,
        batch_rows=size.rows,
        batch_bytes=size.size_bytes,
        row_groups=row_groups,
        checks=plan.checks,
        known=known,
        coded=coded,
    )


def _line_rows(
    store: Store,
    path: str,
    file: DataFile,
    plan: ReadPlan,
    fields: Sequence[Field],
    size: BatchSize,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of a file of lines (CSV, JSON, text). Raises Unsupported if the table has a key.

    In a table with a key, Java reads the columns of such files by position, and gets other values
    than it wrote.
    """
    if plan.schema.primary_keys:
        raise Unsupported(
            "files of lines are read in tables without a primary key", format=file.format, path=path
        )
    names = file.write_columns or plan.schemas[file.schema_id].names
    lines = line_format(file.format, names, plan.options)
    assert lines is not None, "a file of lines"
    texts = text_fields(fields, lines.kind) if fields else ()
    for position, batch in read_positions(
        store,
        path,
        fields=texts,
        batch_rows=size.rows,
        batch_bytes=size.size_bytes,
        lines=lines,
    ):
        yield position, from_texts(batch, fields, path) if fields else batch
        del batch
