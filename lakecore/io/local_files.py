"""Files of any storage as files on the local disk, for engines that open files by their path.

A remote file is copied to the directory of temporary files, and the copy is deleted afterwards.
`spill.py` deletes copies that a killed process left behind.
"""

from __future__ import annotations

import codecs
import csv
import shutil
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import StorageError
from lakecore.io.parallel import read_all
from lakecore.io.spill import SpillDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.io.stores.store import Store

_COPIED_BYTES = 1 << 20
_ENDING_MAX = 16


@contextmanager
def local_files(store: Store, paths: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The local path of each file, or of its copy, which is deleted when the block ends.

    A copy has the ending of its file, by which engines know the compression. Raises StorageError
    if the local disk has no room.
    """
    with closing(SpillDirectory()) as directory:
        local = [store.local_path(path) or directory.next_path(_ending(path)) for path in paths]
        copies = [
            pair for pair in zip(paths, local, strict=True) if store.local_path(pair[0]) is None
        ]
        read_all(lambda pair: _download(store, *pair), copies)
        yield tuple(local)


@contextmanager
def local_output(store: Store, path: str) -> Iterator[str]:
    """A local path to write a new file to. When the block ends, the file is complete at `path`."""
    local = store.local_path(path)
    if local is not None:
        yield local
        return
    with closing(SpillDirectory()) as directory:
        local = directory.next_path(_ending(path))
        yield local
        with Path(local).open("rb") as source, store.open_output(path) as sink:
            shutil.copyfileobj(source, sink, _COPIED_BYTES)


def _download(store: Store, path: str, local: str) -> None:
    with store.open_input(path) as source:
        try:
            with Path(local).open("wb") as sink:
                while data := source.read(_COPIED_BYTES):
                    sink.write(data)
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(
                "the file cannot be copied to the local disk", path=path, cause=error
            ) from error


def _ending(path: str) -> str:
    _, dot, ending = path.rpartition("/")[2].rpartition(".")
    return ending if dot and ending.isalnum() and len(ending) <= _ENDING_MAX else "copy"


# --- file starts ---------------------------------------------------------------------------------
# The first bytes of files that users name, of any storage, plain or compressed.

_START_BYTES = 256
_COMPRESSED = {".gz": "gzip", ".zst": "zstd"}


def array_start(file: pa.NativeFile | str, name: str) -> tuple[bool, bool]:
    """Whether a file begins as a JSON array, and with the byte order mark of UTF-8.

    The end of `name` says how the file is compressed. Both are False for a file that cannot be
    read.
    """
    compressed = next((how for end, how in _COMPRESSED.items() if name.endswith(end)), None)
    try:
        with pa.input_stream(file, compression=compressed) as stream:
            start: bytes = stream.read(_START_BYTES)
    except (OSError, pa.ArrowException):
        return False, False
    rest = start.removeprefix(codecs.BOM_UTF8)
    return rest.lstrip()[:1] == b"[", rest != start


# --- csv lines -----------------------------------------------------------------------------------
# Lines of CSV files as a person sees them: for notes and errors, where DuckDB names no line.
#
# Only errors read a whole file; notes read its first lines. Compressed files are not examined.

_DELIMITERS = ",;|\t"
_LINES_MAX = 10_000
_CSV_COMPRESSED = (".gz", ".zst")


def remarks(path: str, shown: str) -> list[str]:
    """Notes about first lines that do not look like rows, but are read as rows."""
    lines = _lines(path)
    first = next(lines, "")
    comments = int(first.startswith("#"))
    ended = 0
    for line in islice(lines, _LINES_MAX):
        comments += line.startswith("#")
        ended += line[-1:] in {*_DELIMITERS} and not first.endswith(line[-1])
    found = []
    if comments:
        found.append(
            f"{comments} of the first lines of {shown} begin with # and are read like the others: "
            "a CSV file has no comments"
        )
    if ended:
        found.append(
            f"{ended} of the first lines of {shown} end with a delimiter that the names of the "
            "columns do not end with; the empty value after it is left out"
        )
    return found


def uneven_line(path: str, delimiter: str | None) -> dict[str, object]:
    """The first line with another number of values than the first one, as facts of an error."""
    first = next(_lines(path), "")
    counts = {each: first.count(each) for each in _DELIMITERS}
    by = delimiter or max(counts, key=lambda each: counts[each])
    with suppress(csv.Error):
        reader = csv.reader((f"{line}\n" for line in _lines(path)), delimiter=by)
        wanted, line = len(next(reader, [])), 2
        for values in reader:
            if len(values) != wanted:
                return {"line": line, "values": len(values), "values_of_first_line": wanted}
            line = reader.line_num + 1
    return {}


def line_of_row(path: str, row: int, delimiter: str | None, *, header: bool) -> dict[str, object]:
    """The number of the line at which a row begins, from 1, as a fact of an error."""
    line = 1
    with suppress(csv.Error):
        reader = csv.reader((f"{each}\n" for each in _lines(path)), delimiter=delimiter or ",")
        for number, _ in enumerate(reader):
            if number == row + header:
                return {"line": line}
            line = reader.line_num + 1
    return {}


def undecodable(path: str) -> dict[str, object]:
    """Where a file is not UTF-8: the line and the position in it, as facts of an error."""
    with suppress(OSError), Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return {
                    "line": number,
                    "column": error.start + 1,
                    "byte": f"0x{line[error.start]:02x}",
                }
    return {}


def _lines(path: str) -> Iterator[str]:
    if path.endswith(_CSV_COMPRESSED):
        return
    with suppress(OSError), Path(path).open(encoding="utf-8-sig", errors="replace") as file:
        for line in file:
            yield line.rstrip("\r\n")
