"""What the strategies draw fits the tables that they are drawn for, and wrong wishes are named."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.validation import create_schema
from lakecore.testing import (
    Condition,
    Model,
    assert_same_rows,
    conditions,
    histories,
    options,
    rows,
    schema_changes,
    schemas,
)
from lakecore.testing.strategies import ENGINES
from tests.tables import new_table

TYPES = {
    "k": "CHAR(3) NOT NULL",
    "a": "BINARY(2)",
    "b": "DECIMAL(10, 2)",
    "c": "TIME(0)",
    "d": "TIMESTAMP_LTZ(3)",
    "e": "MAP<STRING, ARRAY<INT>>",
    "f": "ROW<x INT, y DOUBLE>",
    "g": "VARCHAR(3)",
}


@given(data=st.data(), neutral=options())
def test_neutral_options_change_no_row_of_any_type(
    data: st.DataObject, neutral: dict[str, Any]
) -> None:
    table = new_table(TYPES, keys=["k"], **neutral)
    model = Model(table.schema)
    for drawn in data.draw(st.lists(rows(table.schema, max_size=4), min_size=1, max_size=3)):
        table.write(model.arrow(drawn))
        model.write(drawn)

    assert_same_rows(table, model)


@given(data=st.data(), shape=schemas(engines=ENGINES))
def test_rows_and_changes_fit_their_table(data: st.DataObject, shape: Any) -> None:
    model = Model(shape.schema)
    drawn = data.draw(rows(shape))
    kinds = {row.get("_row_kind", "+I") for row in drawn}
    model.write(drawn)
    condition = data.draw(conditions(shape))
    model.rows()
    model.alter(data.draw(schema_changes(shape)))

    assert kinds <= {*shape.kinds} | {"+I"}
    assert "_row_kind" not in {name for row in data.draw(rows(shape, kinds=False)) for name in row}
    assert condition.as_sql() in repr(condition)


@given(shape=schemas(keyed=True, types=["INT", "DATE"]))
def test_types_and_keys_are_those_asked_for(shape: Any) -> None:
    assert shape.primary_keys
    values = {kind for name, kind in shape.columns.items() if name.startswith("v")}
    assert values <= {"INT", "DATE"}


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: schemas(engines=["merge"]), "no such merge engine or type"),
        (lambda: schemas(types=["INTEGER"]), "no such merge engine or type"),
        (lambda: histories(create_schema({"v": "INT"}, now_ms=0), verbs=["drop"]), "no such verb"),
    ],
)
def test_wish_that_cannot_be_drawn_is_named(draw: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        draw()


@pytest.mark.parametrize("kind", ["VARIANT", "MULTISET<INT>", "ARRAY<VARIANT>"])
def test_type_without_values_is_named(kind: str) -> None:
    schema = create_schema({"v": kind}, now_ms=0)
    with pytest.raises(Unsupported, match="no rows are drawn of this type"):
        rows(schema)


@given(data=st.data())
def test_histories_have_the_verbs_and_the_length_that_are_asked_for(data: st.DataObject) -> None:
    schema = create_schema({"v": "INT"}, now_ms=0)
    history = data.draw(histories(schema, 5, verbs=["write", "alter", "tag"]))

    assert 1 <= len(history) <= 5
    assert {step.verb for step in history} <= {"write", "alter", "tag"}
    assert all(isinstance(Model(schema).arrow(()), pa.Table) for _ in history)


def test_conditions_in_sql_quote_names_and_texts() -> None:
    table = new_table({"order": "INT", "it's": "STRING"}, keys=())
    table.write([{"order": 1, "it's": "a'b"}, {"order": 2, "it's": "c"}])
    number, text = table.schema.fields

    for tree in (("compare", number, "=", 1), ("in", text, ["a'b"]), ("starts", text, "a'")):
        condition = Condition(tree)
        for where in (condition.as_sql(), condition.as_polars()):
            assert table.to_polars(["order"], where=where)["order"].to_list() == [1]
