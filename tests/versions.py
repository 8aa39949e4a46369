"""What tests expect of libraries whose versions differ. No other test asks for a version.

`make floors` runs the tests at the oldest supported versions.
"""

from __future__ import annotations

import duckdb
import pandas as pd
import polars as pl

DUCKDB_1 = duckdb.__version__.startswith("1.")
POLARS_1 = pl.__version__.startswith("1.")

NO_EXPRESSION = "the text ends too early" if DUCKDB_1 else "not an SQL condition"
"""What is wrong with an empty condition."""

SYMMETRIC = (
    "reason=Expression type T_List" if DUCKDB_1 else 'error at or near "SYMMETRIC" position=12'
)
"""What is wrong with BETWEEN SYMMETRIC."""

KEPT_BY_DUCKDB = (
    {
        *(
            "i NOT IN (1, 3)",
            "i IS NULL",
            "i IS NOT NULL",
            "i = 1 OR s = 'a'",
            "i = 1 OR i IS NULL",
        ),
        *("dec = 1.5", "year(d) = 2026"),
    }
    if DUCKDB_1
    else set[str]()
)
"""Conditions that DuckDB does not give to a dataset, although it could."""

ENGINES_THAT_STOP = ["streaming"] if POLARS_1 else ["auto", "streaming"]
"""The engines of Polars that stop a source once a filter has let enough rows through."""

PANDAS_TEXT = "object" if pd.__version__.startswith("2.") else "str"
"""The type of strings in pandas."""
