"""Tables that Java Paimon wrote: Spark reads the rows that Java read, each way there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.errors import Unsupported
from spark_bridge.attach_tables import register
from spark_bridge.plan_read import read_schema
from spark_bridge.read_frame import read
from tests.golden.test_fixtures import (
    FIXTURES,
    READ,
    TRAVEL_OPTIONS,
    bag_columns,
    columns_of,
    in_bags,
    states,
)
from tests.interop import values
from tests.interop.arrow_values import from_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tests.golden.test_fixtures import State
    from tests.interop.columns import Column, Type

DIGITS_MAX = 6


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def is_sparks(kind: Type) -> bool:
    """Whether Spark has the type, and every value that the fixtures hold of it."""
    if kind.root in values.TIMESTAMPS and kind.precision > DIGITS_MAX:
        return False
    return kind.root != "TIME" and all(is_sparks(child.type) for child in kind.children)


def last_states(name: str) -> Iterator[tuple[str, State]]:
    for branch, when, state in states(name):
        if not when:
            yield branch, state


def check(frame: DataFrame, name: str, state: State, bags: frozenset[str]) -> None:
    columns = columns_of(name, state.schema_id)
    kept = [place for place, column in enumerate(columns) if is_sparks(column.type)]
    shown = [columns[place] for place in kept]
    rows = [[row[place] for place in kept] for row in values.canonical_rows(state.rows, columns)]
    rows = in_bags(rows, shown, bags)

    found = in_bags(from_arrow(frame.toArrow(), shown), shown, bags)

    assert frame.columns == [column.name for column in shown]
    assert values.difference(found, rows, shown) == []
    assert values.sort_rows(found) == values.sort_rows(rows)


def names_for_spark(columns: list[Column]) -> list[str]:
    return [column.name for column in columns if is_sparks(column.type)]


@pytest.mark.parametrize("name", READ)
@pytest.mark.sampled(4)
def test_read_gives_the_rows_of_java(spark: SparkSession, name: str) -> None:
    for branch, state in last_states(name):
        table = lc.open_table(FIXTURES / name, branch=branch)
        names = names_for_spark(columns_of(name, state.schema_id))

        check(read(spark, table, columns=names), name, state, bag_columns(table))


@pytest.mark.parametrize("name", READ)
@pytest.mark.sampled(4)
def test_the_source_gives_the_rows_of_java(spark: SparkSession, name: str) -> None:
    for branch, state in last_states(name):
        table = lc.open_table(FIXTURES / name, branch=branch)
        names = names_for_spark(columns_of(name, state.schema_id))
        reader = spark.read.format("lakecore").option("branch", branch)
        if len(names) < len(table.schema.names):
            with pytest.raises(Unsupported, match="Spark has no such type"):
                read(spark, table)
            reader = reader.schema(read_schema(table.schema, names))

        check(reader.load(table.path), name, state, bag_columns(table))


@pytest.mark.parametrize("name", ["schema_evolution/table", "tag_branch_consumer_statistics/table"])
def test_time_travel_gives_the_rows_of_then(spark: SparkSession, name: str) -> None:
    for branch, when, state in states(name):
        if branch != "main" or not when:
            continue
        table = lc.open_table(FIXTURES / name)
        options: dict[str, Any] = {TRAVEL_OPTIONS[key]: value for key, value in when.items()}
        loaded = spark.read.format("lakecore").options(**options).load(table.path)
        bags = bag_columns(table)

        check(loaded, name, state, bags)
        check(read(spark, table, **when), name, state, bags)
