"""A batch source as a DuckDB relation: DuckDB scans it as an Arrow dataset, and pushes into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import duckdb

from lakecore.frames.arrow_dataset import SourceDataset

if TYPE_CHECKING:
    from lakecore.frames.source import BatchSource

DuckDBConnection: TypeAlias = "duckdb.DuckDBPyConnection"
DuckDBRelation: TypeAlias = "duckdb.DuckDBPyRelation"


def relation(source: BatchSource, connection: DuckDBConnection | None = None) -> DuckDBRelation:
    """The rows as a relation of a connection; of DuckDB's default one without."""
    dataset = SourceDataset(source)
    return duckdb.from_arrow(dataset) if connection is None else connection.from_arrow(dataset)
