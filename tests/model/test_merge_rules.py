from __future__ import annotations

import pytest

from lakecore.model.merge_rules import aggregate_functions
from lakecore.model.validation import create_schema

FUNCTIONS = {"fields.v.aggregate-function": "sum", "fields.default-aggregate-function": "max"}


@pytest.mark.parametrize(
    ("engine", "functions"),
    [
        ("aggregation", {"v": "sum", "w": "max"}),
        ("deduplicate", {}),
        ("first-row", {}),
    ],
)
def test_functions_are_those_of_an_engine_that_folds(
    engine: str, functions: dict[str, str]
) -> None:
    columns = {"id": "INT NOT NULL", "v": "INT", "w": "INT"}
    schema = create_schema(columns, primary_keys=["id"], options={}, now_ms=0)
    options = schema.parsed_options({"merge-engine": engine, **FUNCTIONS})

    assert aggregate_functions(schema, options) == functions
