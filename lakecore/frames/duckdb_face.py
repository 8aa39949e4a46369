"""A batch source as a DuckDB relation, through the Arrow dataset.

DuckDB pushes columns and filters into the dataset, reads it as a stream, and stops at a LIMIT.
DuckDB pushes no filter on a TIMESTAMP_MS column, so millisecond timestamps are presented as
microseconds, DuckDB's own TIMESTAMP, with the same values.

The relation is DuckDB's own scan of the files if no file needs a merge, there are at most
`FOOTERS_MAX` files, and DuckDB's Parquet reader returns the dataset's types. In a file with a
deletion vector, a bitmap selects the rows to return. A bitmap is also used for overlapping files,
if it is already known which rows survive their merge. The scan is not used where it would return
wrong rows: DuckDB interprets some paths as glob patterns and the name `*` as all columns, and
matches column names case-insensitively.

NOTE: DuckDB turns every error during a read into its own InvalidInputException and keeps only the
text. All files are therefore checked before the relation is created. Damage that is visible then
raises CorruptTable: missing or truncated files, wrong checksums, broken structure.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

import duckdb
import pyarrow as pa

from lakecore.deferred import deferred
from lakecore.errors import InvalidRequest
from lakecore.frames.polars_source import FOOTERS_MAX
from lakecore.frames.source import (
    BatchSource,
    CheckedSource,
    EngineFile,
    SurvivingSource,
    engine_files,
)
from lakecore.scalar.syntax_trees import IS_DUCKDB_1

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.frames.arrow_dataset import DatasetOfDuckDB1, SourceDataset
else:
    DatasetOfDuckDB1 = deferred("lakecore.frames.arrow_dataset", "DatasetOfDuckDB1")
    SourceDataset = deferred("lakecore.frames.arrow_dataset", "SourceDataset")

DuckDBConnection: TypeAlias = duckdb.DuckDBPyConnection
DuckDBRelation: TypeAlias = duckdb.DuckDBPyRelation

_MARKED_MAX = 64
"""The largest number of files with deletion vectors that DuckDB scans: each takes time to plan."""
_ROW_NUMBER = "file_row_number"
"""DuckDB's name for the position of a row in its file."""
_CONSTANT_ROWS_MAX = 1 << 22
"""The bitmap of a file with more rows is joined in blocks: copying a constant takes longer."""
_BLOCK_ROWS = 1 << 16
_ONE_BIT = "'1'::BIT"
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
"""Each byte with its bits reversed: DuckDB counts the bits of a byte from the highest one."""
_PATTERN = re.compile(r"[*?\[\]{}\\]")


class Merges(Enum):
    """Whether DuckDB may scan overlapping files, with bitmaps of the rows that survive."""

    KNOWN = "only if an earlier read has computed the bits"
    COMPUTED = "the bits are computed now, from the key columns of all rows"


def dataset(source: BatchSource) -> SourceDataset:
    """The source as the Arrow dataset that DuckDB reads best."""
    made = DatasetOfDuckDB1 if IS_DUCKDB_1 else SourceDataset
    return made(source, shown_schema(source.schema))


def shown_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with the types in which DuckDB reads the columns best."""
    return pa.schema([field.with_type(_shown(field.type)) for field in schema])


def relation(source: BatchSource, connection: DuckDBConnection | None = None) -> DuckDBRelation:
    """The source as a relation, on the given connection or on DuckDB's default one."""
    owner = duckdb.default_connection() if connection is None else connection
    if not isinstance(owner, duckdb.DuckDBPyConnection):
        raise InvalidRequest("to_duckdb takes a DuckDB connection", given=type(owner).__name__)
    check_files(source)
    files = scannable_files(source)
    if files:
        # If DuckDB cannot open a file, lakecore's own reader reports the reason when it reads it.
        with suppress(duckdb.Error, RuntimeError):
            return _scan(owner, files, source.schema)
    return owner.from_arrow(dataset(source))


def check_files(source: BatchSource) -> None:
    """Raise CorruptTable for visible damage. An error during a read would not name the file."""
    if isinstance(source, CheckedSource):
        source.check_files()


def scannable_files(
    source: BatchSource, *, merges: Merges = Merges.KNOWN
) -> list[EngineFile] | None:
    """The files of a source that DuckDB's own reader reads correctly.

    None if it cannot read one of them correctly.

    `merges` states whether overlapping files may be read, without the rows that do not survive a
    merge.
    """
    names = source.schema.names
    if not _are_distinct(names) or not all(_reads_alike(field.type) for field in source.schema):
        return None
    files = engine_files(source, names)
    if files is None and isinstance(source, SurvivingSource):
        files = source.surviving_files(names, known_only=merges is Merges.KNOWN)
    return files if files is not None and _are_scannable(files, names) else None


def names_alike(names: Sequence[str]) -> list[str]:
    """The names that DuckDB cannot distinguish, because they differ only in case."""
    counts = Counter(name.lower() for name in names)
    return [name for name in names if counts[name.lower()] > 1]


def _are_distinct(names: list[str]) -> bool:
    return not names_alike(names) and "*" not in names


def _are_scannable(files: Sequence[EngineFile], names: list[str]) -> bool:
    if len(files) > FOOTERS_MAX or any(_PATTERN.search(file.path) for file in files):
        return False
    marked = sum(file.mask is not None for file in files)
    return marked <= _MARKED_MAX and not (marked and _ROW_NUMBER in map(str.lower, names))


def scan_query(
    files: Sequence[EngineFile], schema: pa.Schema, bits_of: Callable[[int], str] | None
) -> str:
    """A query that lets DuckDB scan the files, and returns only the rows that their bitmaps select.

    `bits_of(n)` is a constant SQL expression: the n-th bitmap of `bits_of_files`. With None, each
    bitmap has one bit: such a query can be explained, but not run.

    In a file of few rows, DuckDB tests the bit of a row's position while it decodes the file, and
    skips the values of other rows. DuckDB copies a constant for each 2048 rows, so a bitmap of many
    rows is a table of blocks, which the scan is joined with. Conditions on columns still reach the
    scan. DuckDB evaluates a condition that may raise an error only on rows that are returned.
    """
    whole = [file.path for file in files if file.mask is None]
    marked = [file for file in files if file.mask is not None]
    texts = [f"SELECT {_columns(schema)} {_scan_of(whole, schema)}"] if whole else []
    for number, file in enumerate(marked):
        scan = _scan_of([file.path], schema)
        if not _in_blocks(file):
            bits = _ONE_BIT if bits_of is None else f"CAST({bits_of(number)} AS BIT)"
            test = f"get_bit({bits}, CAST({_ROW_NUMBER} AS INTEGER)) = 1"
            texts.append(f"SELECT {_columns(schema)} {scan} WHERE {test}")
            continue
        count = -(-file.row_count // _BLOCK_ROWS)
        blocks = f"[{_ONE_BIT}]" if bits_of is None else f"CAST({bits_of(number)} AS BIT[])"
        texts.append(
            f'SELECT {_columns(schema, "rows")} {scan} AS "rows" JOIN (SELECT unnest(range('
            f'{count})) AS "block", unnest({blocks}) AS "kept") AS "bits" ON "bits"."block" = '
            f'"rows".{_ROW_NUMBER} // {_BLOCK_ROWS} WHERE get_bit("bits"."kept", '
            f'CAST("rows".{_ROW_NUMBER} % {_BLOCK_ROWS} AS INTEGER)) = 1'
        )
    return " UNION ALL ".join(texts)


def bits_of_files(files: Sequence[EngineFile]) -> list[bytes | list[bytes]]:
    """The bitmaps of the files that have one, for `scan_query`; those of many rows in blocks."""
    size = _BLOCK_ROWS // 8
    found: list[bytes | list[bytes]] = []
    for file in files:
        if file.mask is not None:
            bits = file.mask.bits.translate(_REVERSED)
            cut = range(0, len(bits), size) if _in_blocks(file) else ()
            found.append([bits[start : start + size] for start in cut] if cut else bits)
    return found


def _in_blocks(file: EngineFile) -> bool:
    return file.row_count > _CONSTANT_ROWS_MAX


def _scan(
    owner: DuckDBConnection, files: Sequence[EngineFile], schema: pa.Schema
) -> DuckDBRelation:
    # Bitmaps are not parameters: DuckDB 1 runs a query with parameters immediately, and keeps all
    # its rows.
    bits = [_constant(each) for each in bits_of_files(files)]
    return owner.sql(scan_query(files, schema, bits.__getitem__))


def _constant(bits: bytes | list[bytes]) -> str:
    if isinstance(bits, bytes):
        return f"unhex('{bits.hex()}')"
    return f"[{', '.join(map(_constant, bits))}]"


def _columns(schema: pa.Schema, table: str | None = None) -> str:
    prefix = "" if table is None else f'"{table}".'
    return ", ".join(prefix + _quoted(name) for name in schema.names)


def _scan_of(files: Sequence[str], schema: pa.Schema) -> str:
    """DuckDB's own scan of whole files.

    DuckDB assumes that the bounds of a row group cover all its values, but Parquet's bounds do not
    cover NaN. The scan states that columns may contain NaN; otherwise DuckDB would filter and
    aggregate as if there were none. The scan also states that binary columns are not text, which a
    setting of the connection could change.
    """
    paths = ", ".join("'" + path.replace("'", "''") + "'" for path in files)
    floats = any(pa.types.is_floating(field.type) for field in schema)
    nan = ", can_have_nan = true" if floats else ""
    options = f"hive_partitioning = false, binary_as_string = false{nan}"
    return f"FROM read_parquet([{paths}], {options})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _reads_alike(kind: pa.DataType) -> bool:
    """Whether DuckDB reads values of this type from Parquet as it reads them from Arrow."""
    t = pa.types
    return bool(
        t.is_integer(kind)
        or t.is_floating(kind)
        or t.is_boolean(kind)
        or t.is_string(kind)
        or t.is_binary(kind)
        or t.is_date32(kind)
        or t.is_decimal(kind)
        or (t.is_timestamp(kind) and kind.unit != "ns")
    )


def _shown(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.unit == "ms":
        return pa.timestamp("us", kind.tz)
    return kind
