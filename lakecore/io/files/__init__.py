"""Data files: runs of rows in Parquet, ORC and Avro, and the checks of their bytes."""

from __future__ import annotations
