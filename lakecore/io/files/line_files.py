"""Data files of lines: CSV, JSON and text, without compression. All columns are strings.

A file has no footer, checksum or row groups; the manifest says how many rows it has. Lines end with
a line feed, a carriage return, or both, in any file.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from lakecore.format.text_lines import csv_columns, csv_header, csv_text, json_columns, json_text
from lakecore.io.files.file_format import OutputFile, RowFile
from lakecore.io.stores.store import plain_errors
from lakecore.model.arrow_arrays import rows_only

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.io.files.file_format import BatchSize, WriteFormat
    from lakecore.io.stores.store import Store
    from lakecore.model.line_format import LineFormat

_READ_BYTES = 1 << 20
_CHUNK_ROWS = 16_384
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LineWriter(RowFile):
    """A CSV, JSON or text file being written. All columns are strings."""

    def __init__(
        self, store: Store, path: str, lines: LineFormat, write_format: WriteFormat
    ) -> None:
        if write_format.codec != "none":
            raise Unsupported(
                "files of lines are not compressed: set file.compression=none",
                format=lines.kind, compression=write_format.compression, path=path,
            )  # fmt: skip
        self._lines = lines
        head = csv_header(lines).encode() if lines.header else b""
        super().__init__(OutputFile(store, path, head=head))

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        table = pa.table(rows) if isinstance(rows, pa.RecordBatch) else rows
        for start in range(0, table.num_rows, _CHUNK_ROWS):
            part = table.slice(start, _CHUNK_ROWS)
            self._file.write(_text_of(part, self._lines).encode())
            self._row_count += part.num_rows


def read_lines(
    store: Store, path: str, lines: LineFormat, wanted: Sequence[pa.Field], size: BatchSize
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of these columns as strings, each with the position of its first row (from 0)."""
    at, left = 0, 1 if lines.header else 0
    with _opened(store, path) as file:
        for texts in _texts(file, min(_READ_BYTES, size.size_bytes)):
            if left:
                texts, left = texts[left:], max(0, left - len(texts))  # noqa: PLW2901
            for start in range(0, len(texts), size.rows):
                part = texts[start : start + size.rows]
                columns = _columns_of(part, lines, wanted, path)
                batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(wanted))
                yield at, batch if wanted else rows_only(len(part))
                at += len(part)
                del batch, columns


def _text_of(rows: pa.Table, lines: LineFormat) -> str:
    if lines.kind == "csv":
        return csv_text(rows, lines)
    if lines.kind == "json":
        return json_text(rows, lines.line_end)
    (column,) = rows.columns
    wrong = pc.or_(
        pc.match_substring_regex(column, "[\r\n]"), pc.starts_with(column, "\ufeff")
    ).fill_null(True)
    if pc.any(wrong).as_py():
        (value, *_) = pc.filter(column, wrong).to_pylist()
        raise InvalidRequest(
            "a text file holds no nulls, line breaks and byte order marks",
            column=rows.schema.names[0], value=value,
        )  # fmt: skip
    return "".join(f"{value}{lines.line_end}" for value in column.to_pylist())


def _columns_of(
    texts: Sequence[str], lines: LineFormat, wanted: Sequence[pa.Field], path: str
) -> list[pa.Array]:
    if lines.kind == "csv":
        lacking = [field.name for field in wanted if field.name not in lines.columns]
        if lacking:
            raise CorruptTable(
                "the data file lacks a column", path=path, column=lacking[0], columns=lines.columns
            )
        return csv_columns(texts, lines, [field.name for field in wanted])
    if lines.kind == "json":
        return json_columns(texts, wanted, path)
    return [pa.array(texts, pa.string()) for _ in wanted]


def _texts(file: pa.NativeFile, read_bytes: int) -> Iterator[list[str]]:
    """The lines of a file, as lists of some lines."""
    rest = bytes(file.read(len(_BYTE_ORDER_MARK))).removeprefix(_BYTE_ORDER_MARK)
    ended = False
    while not ended:
        data = bytes(file.read(max(1, read_bytes)))
        ended = not data
        rest += data
        # A carriage return at the end may be half of the end of a line.
        held = rest.endswith(b"\r") and not ended
        whole = (rest[:-1] if held else rest).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        head, found, tail = whole.rpartition(b"\n")
        rest = tail + (b"\r" if held else b"")
        if found:
            yield head.decode(errors="replace").split("\n")
    if rest:
        yield [rest.decode(errors="replace")]


@contextmanager
def _opened(store: Store, path: str) -> Iterator[pa.NativeFile]:
    """Open a file for reading forwards.

    A remote file is fetched at once, because each call is slow.
    """
    if store.local_path(path) is None:
        yield pa.BufferReader(store.read(path))
        return
    with plain_errors(path), store.open_input(path) as file:
        yield file
