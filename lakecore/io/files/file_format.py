"""Common parts of the three file formats: writing a run, and the facts of a row group.

A *run writer* accepts Arrow tables or batches with the physical columns of the file, in order,
encodes incrementally, and knows whether the encoded file has reached a size, so that the caller can
close it at the target file size.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from lakecore.errors import LakecoreError, Unsupported
from lakecore.io.stores.store import Store, discard

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from lakecore.model.line_format import LineFormat

CODECS = ("zstd", "none", "snappy", "gzip", "lz4", "brotli")
ROW_GROUP_ROWS = 131_072
ROW_GROUP_BYTES = 8 << 20
ROW_GROUP_BYTES_MIN = 1 << 20
COLUMN_CHUNK_BYTES = 6 << 10
BATCH_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class BatchSize:
    """The limits of a batch: rows, and approximate bytes in memory, whichever is reached first.

    `few`: the reader wants the first rows only, and may stop after the first batch.
    """

    rows: int
    size_bytes: int = BATCH_BYTES
    few: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFormat:
    """How data files are encoded. A row group ends at its row or byte limit.

    Row groups are small, because look-ups skip row groups by their bounds, and several are encoded
    at once. `row_group_bytes` counts bytes in memory, before encoding, and grows with the number of
    columns (`row_group_bytes_of`), because the footer stores metadata for each column of a row
    group.

    `copies`: pairs of column names; both columns of a pair have the same type and always the same
    values. The pairs are the first columns of the file.

    `text_bounds`: string columns whose minimum and maximum the Parquet writer reports, because it
    computes them anyway; for each, the length in characters above which the bounds may be truncated
    (None: never).

    `bare_milliseconds`: times in milliseconds get neither bounds nor a dictionary in Parquet.

    `lines` is set for CSV, JSON and text, whose columns are strings.
    """

    format: str = "parquet"
    compression: str = "zstd"
    zstd_level: int = 1
    row_group_rows: int = ROW_GROUP_ROWS
    row_group_bytes: int = ROW_GROUP_BYTES
    copies: tuple[tuple[str, str], ...] = ()
    text_bounds: tuple[tuple[str, int | None], ...] = ()
    bare_milliseconds: bool = False
    lines: LineFormat | None = None

    @property
    def codec(self) -> str:
        """The normalised name of the compression. Raises Unsupported if it is unknown."""
        codec = {"zstandard": "zstd", "uncompressed": "none", "null": "none", "": "none"}.get(
            self.compression.lower(), self.compression.lower()
        )
        if codec not in CODECS:
            raise Unsupported("unknown file.compression", codec=self.compression, known=CODECS)
        return codec


def row_group_bytes_of(columns: int, target_bytes: int) -> int:
    """The bytes of a row group with that many columns, in a file of the target size."""
    usual = min(ROW_GROUP_BYTES, max(ROW_GROUP_BYTES_MIN, 2 * target_bytes))
    return max(usual, columns * COLUMN_CHUNK_BYTES)


class Abandoned(Exception):
    """Tells a store's output that the file is abandoned. Callers of writers never see it."""


def abandon(output: ExitStack, store: Store, path: str) -> None:
    """Abandon an open file and remove it. Raises no error of the store, as `discard`."""
    with suppress(LakecoreError, OSError):
        output.__exit__(Abandoned, Abandoned(), None)
    discard(store, path)


class RunWriter(Protocol):
    """One data file being written."""

    def holds(self, size_bytes: int) -> bool:
        """Whether the encoded rows, and so the file, have at least that many bytes.

        An estimate decides only when to check. For the check, rows are encoded and their bytes
        counted, because estimates can be far too large.
        """

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Append rows: the file's columns, in order."""

    def flush(self) -> None:
        """Write the buffered rows, except those that the format needs for its open row group."""

    def close(self) -> tuple[int, int]:
        """Close the file, so that it can be read. Returns its size in bytes and its row count."""

    @property
    def text_bounds(self) -> Mapping[str, tuple[str, str]]:
        """The bounds of the non-empty columns of `WriteFormat.text_bounds`, after `close`.

        Empty for formats other than Parquet.
        """

    def abort(self) -> None:
        """Abandon the file and remove it; may also be called after `close` failed.

        If the store cannot remove the file, it remains as an orphan.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """One row group of a file: the positions of its rows, its size, and bounds of some columns.

    - `size_bytes`: the stored size;
    - `decoded_bytes`: the size of the encoded values without compression;
    - `column_bytes`: the same for each requested column; 0 if unknown;
    - `bounds`: (minimum, maximum) of each requested column, as Python values; None if unknown or if
      there is no value. No value is outside the bounds, but a bound may be a value that does not
      occur;
    - `null_counts`: None where unknown;
    - `codecs`: the compressions, as Parquet names them.
    """

    index: int
    first_row: int
    row_count: int
    size_bytes: int
    decoded_bytes: int
    bounds: Mapping[str, tuple[object, object] | None]
    null_counts: Mapping[str, int | None]
    column_bytes: Mapping[str, int]
    codecs: frozenset[str] = frozenset()


# --- checks --------------------------------------------------------------------------------------
# How often the checksums of a data file are compared with its bytes.


class Checks(Enum):
    """How often checksums are verified: NEVER, ONCE in this process for each file, or ALWAYS."""

    NEVER = "never"
    ONCE = "once"
    ALWAYS = "always"


# --- output file ---------------------------------------------------------------------------------
# A file that is written by appending bytes: it is either closed, or abandoned and removed.


class OutputFile:
    """An open file. `head` are its first bytes; if their write fails, the file is removed."""

    def __init__(self, store: Store, path: str, *, head: bytes = b"") -> None:
        self._store = store
        self._path = path
        self.size_bytes = len(head)
        with ExitStack() as opening:
            self._out = opening.enter_context(store.open_output(path))
            if head:
                self._out.write(head)
            self._closing = opening.pop_all()

    def write(self, data: bytes) -> None:
        self._out.write(data)
        self.size_bytes += len(data)

    def close(self) -> None:
        """End the file, which is then visible."""
        self._closing.close()

    def abort(self) -> None:
        """Abandon the file and remove it."""
        abandon(self._closing, self._store, self._path)


class RowFile:
    """The methods of `RunWriter` for formats that write rows immediately and have no bounds."""

    def __init__(self, file: OutputFile) -> None:
        self._file = file
        self._row_count = 0

    def holds(self, size_bytes: int) -> bool:
        return self._file.size_bytes >= size_bytes

    def flush(self) -> None:
        """Does nothing: rows are written immediately."""

    def close(self) -> tuple[int, int]:
        try:
            self._file.close()
        except BaseException:
            self.abort()
            raise
        return self._file.size_bytes, self._row_count

    @property
    def text_bounds(self) -> Mapping[str, tuple[str, str]]:
        """Always empty: the format has no bounds."""
        return {}

    def abort(self) -> None:
        self._file.abort()
