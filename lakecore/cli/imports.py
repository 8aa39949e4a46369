"""Reads the rows of files for the commands that write.

CSV and JSON files are read in the types of the table's columns; for a new table the types are
inferred. Rows stream within the memory budget. A terminal shows how many rows are read.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.cli.arguments import STDIN, Reading
from lakecore.cli.printing import note
from lakecore.errors import InvalidRequest, NotFound
from lakecore.io.local_files import local_files
from lakecore.io.progress import WorkBar
from lakecore.io.spill import SpillDirectory
from lakecore.io.stores.open import locate, open_store
from lakecore.model.types import DataType, Field, arrow_field, fields_from_arrow, with_nullable
from lakecore.sql.file_rows import KINDS, FileFormat, FileRows, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore.model.schema import TableSchema


@contextmanager
def opened(
    files: Sequence[str],
    reading: Reading,
    schema: TableSchema | None,
    types: Mapping[str, DataType] | None = None,
    *,
    storage: Mapping[str, str],
) -> Iterator[FileRows]:
    """The rows of files. Their types are stated, or else those of a table's schema.

    `storage`: the options of the storage of remote files.
    """
    arrow = {} if schema is None else {field.name: field.type for field in schema.arrow}
    arrow |= {key: _arrow(key, each) for key, each in (types or {}).items()}
    header = (
        tuple(each.strip() for each in reading.header_names.split(","))
        if reading.header_names
        else ()
    )
    if reading.no_header and not header and schema is not None:
        header = tuple(schema.arrow.names)
    if reading.no_header and not header:
        raise InvalidRequest("--no-header needs the names of the columns: --names a,b,c")
    if files.count(STDIN) > 1:
        raise InvalidRequest("standard input can be read once")
    with ExitStack() as kept:
        paths = tuple(kept.enter_context(_local(each, storage, reading.encoding)) for each in files)
        found = FileFormat(
            kind=_kind(files, reading.kind),
            delimiter=reading.delimiter,
            names=header,
            header=not reading.no_header,
            null=reading.null,
            date_format=reading.date_format,
            timestamp_format=reading.timestamp_format,
        )
        shown = {
            path: _shown(given) for given, path in zip(files, paths, strict=True) if given != path
        }
        rows = FileRows(paths=paths, format=found, types=arrow, shown=shown)
        for each in rows.notes:
            note(f"note: {each}")
        try:
            yield rows
        finally:
            rows.close()


def _arrow(name: str, kind: DataType) -> pa.DataType:
    return arrow_field(Field(id=0, name=name, type=kind)).type


def _kind(files: Sequence[str], kind: str | None) -> str:
    """The format of all files."""
    if kind is not None:
        if kind not in KINDS:
            raise InvalidRequest("unknown format of files", format=kind, known=list(KINDS))
        return kind
    found = {kind_of(each) for each in files}
    if len(found) != 1 or None in found:
        raise InvalidRequest(
            "say the format of the files: --format csv, json or parquet", files=list(files)
        )
    return str(found.pop())


@contextmanager
def _local(file: str, storage: Mapping[str, str], encoding: str | None) -> Iterator[str]:
    """The path of a file that exists and is not empty, in UTF-8.

    Standard input and a remote file are copied first; the copy is deleted afterwards.
    """
    with ExitStack() as kept:
        path = file
        if file == STDIN:
            with tempfile.NamedTemporaryFile("wb", prefix="lakecore-", delete=False) as copy:
                path = copy.name
                kept.callback(Path(path).unlink, missing_ok=True)
                shutil.copyfileobj(sys.stdin.buffer, copy)
        elif "://" in file:
            uri = locate(file)
            (path,) = kept.enter_context(local_files(open_store(uri, storage), [uri]))
        found = Path(path)
        if not found.is_file():
            raise NotFound("no such file", file=file)
        if not found.stat().st_size:
            raise InvalidRequest("the file is empty: it has no columns", file=_shown(file))
        yield (
            path if encoding is None else kept.enter_context(_as_utf8(path, _shown(file), encoding))
        )


@contextmanager
def _as_utf8(path: str, shown: str, encoding: str) -> Iterator[str]:
    """A copy of the file in UTF-8, with its ending; it is deleted afterwards."""
    with closing(SpillDirectory()) as directory:
        copy, line = directory.next_path(Path(path).suffix.lstrip(".") or "csv"), 0
        try:
            with (
                Path(path).open(encoding=encoding, newline="") as source,
                Path(copy).open("w", encoding="utf-8", newline="") as target,
            ):
                for line, text in enumerate(source, 1):
                    target.write(text.removeprefix("\ufeff") if line == 1 else text)
        except LookupError as error:
            raise InvalidRequest("no such encoding", encoding=encoding) from error
        except UnicodeError as error:
            raise InvalidRequest(
                "the file is not in this encoding",
                file=shown,
                encoding=encoding,
                after_line=line,
                reason=error,
            ) from error
        yield copy


def _shown(file: str) -> str:
    return "standard input" if file == STDIN else file


def fields_of(
    rows: FileRows, types: Mapping[str, DataType], keys: Sequence[str] = ()
) -> tuple[Field, ...]:
    """The columns of a new table: stated types, and inferred ones."""
    inferred = fields_from_arrow([rows.schema.field(place) for place in range(len(rows.schema))])
    found = []
    for field in inferred:
        kind = types.get(field.name, field.type)
        if field.name in keys:
            kind = with_nullable(kind, nullable=False)
        found.append(Field(id=field.id, name=field.name, type=kind))
    return tuple(found)


def counted(rows: FileRows) -> Iterator[pa.RecordBatch]:
    """The batches of `rows`. Shows the number of rows read so far in a terminal."""
    total, count, some = rows.rows_if_known(), 0, False
    with WorkBar() as bar:
        for batch in rows.batches():
            count, some = count + batch.num_rows, True
            bar.at(f"{count:,} rows read", count, total)
            yield batch
        if not some:
            yield pa.RecordBatch.from_pylist([], rows.schema)
