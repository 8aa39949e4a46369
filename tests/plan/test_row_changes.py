"""What each merge engine lets DELETE, UPDATE and MERGE do, and what their rows hold."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import InvalidRequest, LakecoreError, Unsupported
from lakecore.model.validation import create_schema
from lakecore.plan.row_changes import (
    UpdateShape,
    Verb,
    check_deletion,
    check_engine,
    deletion_columns,
    update_shape,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.model.schema import TableSchema
    from lakecore.options import TableOptions

COLUMNS = {
    "id": "INT NOT NULL",
    "day": "STRING NOT NULL",
    "need": "INT NOT NULL",
    "a": "INT",
    "b": "INT",
    "g": "INT",
    "h": "INT",
}
GROUP = {"fields.g.sequence-group": "a,b"}
SUMMED = {**GROUP, "fields.a.aggregate-function": "sum"}


def table(
    engine: str,
    options: Mapping[str, str] = MappingProxyType({}),
    columns: Mapping[str, str] = COLUMNS,
) -> tuple[TableSchema, TableOptions]:
    schema = create_schema(
        dict(columns),
        primary_keys=["day", "id"],
        partition_keys=["day"],
        options={"bucket": "1", "merge-engine": engine, **options},
        now_ms=0,
    )
    return schema, schema.parsed_options(table="t")


@pytest.mark.parametrize(
    ("engine", "options", "refusal"),
    [
        ("deduplicate", {}, None),
        ("deduplicate", {"ignore-delete": "true"}, (InvalidRequest, "ignore-delete")),
        ("partial-update", {}, (Unsupported, "partial-update.remove-record-on-delete")),
        ("partial-update", {"partial-update.remove-record-on-delete": "true"}, None),
        (
            "partial-update",
            GROUP,
            (Unsupported, "partial-update.remove-record-on-sequence-group"),
        ),
        (
            "partial-update",
            {**GROUP, "partial-update.remove-record-on-sequence-group": "g"},
            None,
        ),
        ("aggregation", {}, (Unsupported, "aggregation.remove-record-on-delete")),
        ("aggregation", {"aggregation.remove-record-on-delete": "true"}, None),
        ("first-row", {}, (Unsupported, "merge_engine=first-row")),
    ],
)
def test_deletions_are_taken_where_they_take_the_row_away(
    engine: str, options: dict[str, str], refusal: tuple[type[LakecoreError], str] | None
) -> None:
    _, parsed = table(engine, options)
    if refusal is None:
        check_deletion(parsed)
        return
    kind, text = refusal
    with pytest.raises(kind, match=text):
        check_deletion(parsed)


@pytest.mark.parametrize("verb", [Verb.UPDATE, Verb.MERGE])
@pytest.mark.parametrize("engine", ["aggregation", "first-row"])
def test_values_are_set_in_deduplicate_and_partial_update_tables_alone(
    engine: str, verb: Verb
) -> None:
    for known in ("deduplicate", "partial-update"):
        check_engine(table(known)[1], verb)

    with pytest.raises(Unsupported, match=rf"no {verb}.*merge_engine={engine}"):
        check_engine(table(engine)[1], verb)


def test_deletion_holds_key_order_and_what_cannot_be_null() -> None:
    plain = table("deduplicate")
    ordered = table("deduplicate", {"sequence.field": "h"})
    grouped = table(
        "partial-update", {**GROUP, "partial-update.remove-record-on-sequence-group": "g"}
    )

    assert deletion_columns(*plain) == ("id", "day", "need")
    assert deletion_columns(*ordered) == ("id", "day", "need", "h")
    assert deletion_columns(*grouped) == ("id", "day", "need", "g")


def test_deletion_that_goes_to_a_changelog_holds_all() -> None:
    logged = table("deduplicate", {"changelog-producer": "input"})

    assert deletion_columns(*logged) == tuple(COLUMNS)


def test_update_of_a_deduplicate_table_holds_all() -> None:
    shape = update_shape(*table("deduplicate"), {"a", "need"})

    assert shape == UpdateShape(carried=("id", "day", "b", "g", "h"))


def test_update_of_a_partial_update_table_holds_what_it_sets_and_what_cannot_be_null() -> None:
    shape = update_shape(*table("partial-update"), {"a"})

    assert shape == UpdateShape(carried=("id", "day", "need"), not_null=("a",))


def test_update_of_a_sequence_group_holds_the_group() -> None:
    shape = update_shape(*table("partial-update", GROUP), {"a"})

    assert shape == UpdateShape(carried=("id", "day", "need", "b", "g"), sequences=(("g",),))


def test_update_outside_a_sequence_group_leaves_the_group_out() -> None:
    shape = update_shape(*table("partial-update", GROUP), {"h"})

    assert shape == UpdateShape(carried=("id", "day", "need"), not_null=("h",))


def test_group_whose_sequence_cannot_be_null_is_always_held() -> None:
    columns = {**COLUMNS, "g": "INT NOT NULL"}
    shape = update_shape(*table("partial-update", GROUP, columns), {"h"})

    assert shape.carried == ("id", "day", "need", "a", "b", "g")


def test_last_value_is_repeated_and_can_be_set() -> None:
    options = {"fields.a.aggregate-function": "last_value", **GROUP}
    schema, parsed = table("partial-update", options)

    assert "a" in update_shape(schema, parsed, {"b"}).carried
    assert update_shape(schema, parsed, {"a"}).carried == ("id", "day", "need", "b", "g")


def test_what_is_added_up_cannot_be_set() -> None:
    summed = table("partial-update", SUMMED)

    with pytest.raises(Unsupported, match="column=a aggregate_function=sum"):
        update_shape(*summed, {"a"})
    assert "a" not in update_shape(*summed, {"b"}).carried


def test_sum_that_cannot_be_null_stands_in_the_way_of_its_group_alone() -> None:
    columns = {**COLUMNS, "a": "INT NOT NULL"}
    summed = table("partial-update", SUMMED, columns)

    with pytest.raises(Unsupported, match="column=a aggregate_function=sum"):
        update_shape(*summed, {"b"})
    assert update_shape(*summed, {"h"}).carried == ("id", "day", "need", "a")


@pytest.mark.parametrize("column", ["id", "day"])
def test_key_cannot_be_updated(column: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"primary key.* column={column}"):
        update_shape(*table("deduplicate"), {column})


def test_unknown_column_and_the_column_of_kinds_cannot_be_updated() -> None:
    columns = {**COLUMNS, "kind": "STRING"}
    kinds = table("deduplicate", {"rowkind.field": "kind"}, columns)

    with pytest.raises(InvalidRequest, match=r"unknown column\. column=x"):
        update_shape(*kinds, {"x"})
    with pytest.raises(InvalidRequest, match=r"rowkind\.field.* column=kind"):
        update_shape(*kinds, {"kind"})
