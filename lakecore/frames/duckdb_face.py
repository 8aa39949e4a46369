"""A batch source as a DuckDB relation, through the Arrow dataset.

DuckDB pushes columns and filters into the dataset, reads it as a stream, and stops at a LIMIT. It
pushes no filter on a TIMESTAMP_MS column, so millisecond timestamps are presented as microseconds,
DuckDB's own TIMESTAMP, with the same values.

If all files can be read without merging, are few, and have the dataset's types in DuckDB's Parquet
reader, the relation is DuckDB's own scan of the files. It is not used where it would return other
rows: DuckDB interprets some paths as glob patterns and the name `*` as all columns, and matches
column names case-insensitively.

NOTE: DuckDB turns every error during a read into its own InvalidInputException and keeps only the
text. All files are therefore checked before the relation is created. Damage that is visible then
raises CorruptTable: missing or truncated files, wrong checksums, broken structure.
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
    """The source as the Arrow dataset that DuckDB reads best."""
    return SourceDataset(source, shown_schema(source.schema))


def shown_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with the types in which DuckDB reads it best."""
    return pa.schema([field.with_type(_shown(field.type)) for field in schema])


def relation(source: BatchSource, connection: DuckDBConnection | None = None) -> DuckDBRelation:
    """The source as a relation, on the given connection or on DuckDB's default one."""
    owner = duckdb.default_connection() if connection is None else connection
    if not isinstance(owner, duckdb.DuckDBPyConnection):
        raise InvalidRequest("to_duckdb takes a DuckDB connection", given=type(owner).__name__)
    names = source.schema.names
    if isinstance(source, CheckedSource):
        source.check_files()
    if _are_distinct(names) and all(_reads_alike(field.type) for field in source.schema):
        files = source.engine_files(names)
        if files and len(files) <= FOOTERS_MAX and not any(map(_PATTERN.search, files)):
            columns = [duckdb.ColumnExpression(name) for name in names]
            # If DuckDB cannot open a file, lakecore's own reader reports the reason when it reads
            # it.
            with suppress(duckdb.Error, RuntimeError):
                return owner.sql(_scan_of(files, source.schema)).select(*columns)
    return owner.from_arrow(dataset(source))


def _are_distinct(names: list[str]) -> bool:
    """Whether DuckDB can distinguish the names."""
    return len({name.lower() for name in names}) == len(names) and "*" not in names


def _scan_of(files: Sequence[str], schema: pa.Schema) -> str:
    """DuckDB's own scan of the files.

    DuckDB assumes that the bounds of a row group cover all its values, but Parquet's bounds do not
    cover NaN. The scan states that columns may contain NaN; otherwise DuckDB would filter and
    aggregate as if there were none.
    """
    paths = ", ".join("'" + path.replace("'", "''") + "'" for path in files)
    floats = any(pa.types.is_floating(field.type) for field in schema)
    nan = ", can_have_nan = true" if floats else ""
    return f"FROM read_parquet([{paths}], hive_partitioning = false{nan})"


def _reads_alike(kind: pa.DataType) -> bool:
    """Whether DuckDB reads the type from Parquet as it reads it from Arrow."""
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
