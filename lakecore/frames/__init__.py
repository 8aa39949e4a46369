"""The faces of one batch source: a lazy Polars frame, an Arrow dataset, an Arrow stream, DuckDB."""

from __future__ import annotations
