"""Data files: reads and writes rows in Parquet, ORC and Avro, and checks the bytes of files."""

from __future__ import annotations
