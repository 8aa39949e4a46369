"""SQL over a catalog: Paimon's statements of Flink and Spark, and queries by DuckDB.

`tokens` splits a text into tokens; `cursor` reads them one by one; `parse_*` build statements
(`statements.py`) from them; `queries` replaces the tables of a query and passes it to DuckDB;
`run_*` execute the other statements with the verbs of tables and catalogs; `engine` is the session
that holds the current database, the variables and the DuckDB connection. Expressions and queries
are DuckDB's SQL, and only DuckDB parses their text.
"""

from __future__ import annotations
