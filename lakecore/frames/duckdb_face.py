"""The DuckDB face: a batch source as a relation, by way of the Arrow dataset.

DuckDB pushes columns and filters into the dataset, streams, and stops it at a LIMIT. It pushes no
filter on a TIMESTAMP_MS column, so timestamps of milliseconds are shown to it in microseconds,
which hold the same values and are DuckDB's own TIMESTAMP.

Where all files can be read as they are, are few, and DuckDB's Parquet reader gives the types that
the dataset would, the relation is DuckDB's own scan of the files. It is not where that would give
other rows: DuckDB takes a path for a pattern if it can be one, `*` for all columns, and finds them
without regard to case.

NOTE: DuckDB turns every error that is raised while it reads into its own InvalidInputException, and
keeps only the text. All files are therefore checked before there is a relation. What can be known
of damage at that point is CorruptTable: files that are missing or cut short, checksums that differ,
broken structure.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

import duckdb
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.frames.arrow_dataset import SourceDataset
from lakecore.frames.polars_source import FOOTERS_MAX
from lakecore.frames.source import CheckedSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.frames.source import BatchSource

DuckDBConnection: TypeAlias = duckdb.DuckDBPyConnection
DuckDBRelation: TypeAlias = duckdb.DuckDBPyRelation

_PATTERN = re.compile(r"[*?\[\]{}\\]")


def dataset(source: BatchSource) -> SourceDataset:
    """The source as the Arrow dataset that suits DuckDB best."""
    fields = [field.with_type(_shown(field.type)) for field in source.schema]
    return SourceDataset(source, pa.schema(fields))


def relation(source: BatchSource, connection: DuckDBConnection | None = None) -> DuckDBRelation:
    """The source as a relation, on the connection given or DuckDB's default one."""
    owner = duckdb.default_connection() if connection is None else connection
    if not isinstance(owner, duckdb.DuckDBPyConnection):
        raise InvalidRequest("to_duckdb takes a DuckDB connection", given=type(owner).__name__)
    names = source.schema.names
    if isinstance(source, CheckedSource):
        source.check_files()
    if _are_distinct(names) and all(_reads_alike(field.type) for field in source.schema):
        files = source.native_files(names)
        if files and len(files) <= FOOTERS_MAX and not any(map(_PATTERN.search, files)):
            columns = [duckdb.ColumnExpression(name) for name in names]
            # What DuckDB cannot even open, lakecore's own reader names once it is read.
            with suppress(duckdb.Error, RuntimeError):
                return owner.sql(_scan_of(files, source.schema)).select(*columns)
    return owner.from_arrow(dataset(source))


def _are_distinct(names: list[str]) -> bool:
    """Whether each name means one column to DuckDB."""
    return len({name.lower() for name in names}) == len(names) and "*" not in names


def _scan_of(files: Sequence[str], schema: pa.Schema) -> str:
    """DuckDB's own scan of the files.

    DuckDB takes the bounds of a row group for those of all its values, and Parquet's leave out NaN:
    the scan states it, or it filters and aggregates as if there were none.
    """
    paths = ", ".join("'" + path.replace("'", "''") + "'" for path in files)
    floats = any(pa.types.is_floating(field.type) for field in schema)
    nan = ", can_have_nan = true" if floats else ""
    return f"FROM read_parquet([{paths}], hive_partitioning = false{nan})"


def _reads_alike(kind: pa.DataType) -> bool:
    """Whether DuckDB reads a Parquet column as it reads an Arrow column."""
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
