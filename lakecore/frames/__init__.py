"""The forms in which a batch source is read: Polars, Arrow dataset and stream, DuckDB, pandas."""

from __future__ import annotations
