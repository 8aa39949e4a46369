"""SQL over a catalog: Paimon's statements of Flink and Spark, and queries by DuckDB.

`tokens` cuts a text into tokens; `cursor` walks over them; `parse_*` make statements
(`statements.py`) of them; `queries` replaces the tables of a query and gives it to DuckDB;
`run_*` carry out the other statements by the verbs of tables and catalogs; `engine` is the session
that holds the current database, the variables and the DuckDB connection. Expressions and queries
are DuckDB's SQL: their text is never parsed here.
"""

from __future__ import annotations
