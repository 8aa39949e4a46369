"""Scalar SQL: one expression over the columns of a row, in DuckDB's dialect.

`syntax` parses and checks an expression, with DuckDB's own parser; `functions` says which functions
it may call; `pruning` and `literals` translate a condition into lakecore's predicate language,
which prunes partitions, buckets, files and row groups; `engine` is the sealed DuckDB that evaluates
the expression exactly, batch by batch; `values` is the interface for reads and writes of tables.
"""

from __future__ import annotations
