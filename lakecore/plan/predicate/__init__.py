"""Predicates: conditions on rows in a closed language that planning can analyse.

`language` defines predicates; `literals` converts values to the type of a column; `polars_form` and
`arrow_form` convert conditions from and to Polars and Arrow; `lakecore.scalar` parses SQL. A
condition that cannot be converted "may match". A schema is a table's or an Arrow schema.
"""

from __future__ import annotations

from lakecore.plan.predicate.arrow_form import (
    arrow_columns,
    as_duckdb_1_means,
    from_arrow,
    to_arrow,
)
from lakecore.plan.predicate.language import (
    FALSE,
    NULL,
    TRUE,
    UNKNOWN,
    And,
    Compare,
    Constant,
    In,
    IsNotNull,
    IsNull,
    Not,
    Op,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    all_of,
    any_of,
    at_most,
    columns_of,
    condition_on,
    conjuncts,
    fixed_values,
    is_exact,
    negate,
    split_by_columns,
)
from lakecore.plan.predicate.literals import Column, between, compare, is_in, one_of, starts_with
from lakecore.plan.predicate.polars_form import (
    compares_with_null,
    from_polars,
    is_and_with_null,
    operands,
    to_polars,
)

__all__ = [
    "FALSE",
    "NULL",
    "TRUE",
    "UNKNOWN",
    "And",
    "Column",
    "Compare",
    "Constant",
    "In",
    "IsNotNull",
    "IsNull",
    "Not",
    "Op",
    "Or",
    "Predicate",
    "StartsWith",
    "Unknown",
    "all_of",
    "any_of",
    "arrow_columns",
    "as_duckdb_1_means",
    "at_most",
    "between",
    "columns_of",
    "compare",
    "compares_with_null",
    "condition_on",
    "conjuncts",
    "fixed_values",
    "from_arrow",
    "from_polars",
    "is_and_with_null",
    "is_exact",
    "is_in",
    "negate",
    "one_of",
    "operands",
    "split_by_columns",
    "starts_with",
    "to_arrow",
    "to_polars",
]
