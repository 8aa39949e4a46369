"""The DuckDB face: a batch source as a relation, by way of the Arrow dataset.

DuckDB pushes columns and filters into the dataset, streams, and stops it at a LIMIT. It pushes no
filter on a TIMESTAMP_MS column, so timestamps of milliseconds are shown to it in microseconds,
which hold the same values and are DuckDB's own TIMESTAMP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import duckdb
import pyarrow as pa

from lakecore.frames.arrow_dataset import SourceDataset

if TYPE_CHECKING:
    from lakecore.frames.source import BatchSource

DuckDBConnection: TypeAlias = duckdb.DuckDBPyConnection
DuckDBRelation: TypeAlias = duckdb.DuckDBPyRelation


def dataset(source: BatchSource) -> SourceDataset:
    """The source as the Arrow dataset that suits DuckDB best."""
    fields = [field.with_type(_shown(field.type)) for field in source.schema]
    return SourceDataset(source, pa.schema(fields))


def relation(source: BatchSource, connection: DuckDBConnection | None = None) -> DuckDBRelation:
    """The source as a relation, on the connection given or DuckDB's default one."""
    owner = duckdb.default_connection() if connection is None else connection
    return owner.from_arrow(dataset(source))


def _shown(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.unit == "ms":
        return pa.timestamp("us", kind.tz)
    return kind
