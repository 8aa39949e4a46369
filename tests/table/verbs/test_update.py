"""UPDATE: columns of the rows that match have new values, in one commit."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lakecore.errors import CommitConflict, InvalidRequest
from lakecore.model.evolution import evolve
from lakecore.model.schema_change import SchemaChange
from lakecore.table.publication import write_schema
from tests.reading import rows_written
from tests.stores import MeddledStore
from tests.tables import held, new_table, put, reopened

if TYPE_CHECKING:
    from lakecore.table.handle import Table

WIDE = {"id": "INT NOT NULL", "v": "STRING", "n": "INT"}


def test_rows_that_match_have_the_new_values() -> None:
    table = new_table(WIDE)
    put(table, "1 a 1 | 2 b 2 | 3 c _")
    result = table.update({"n": pl.col("n") * 10, "v": "x"}, "id >= 2")

    assert held(table) == "1 a 1 | 2 x 20 | 3 x _"
    assert (result.snapshot_ids, result.rows_updated) == ((2,), 2)
    assert (result.rows_inserted, result.rows_deleted) == (0, 0)
    assert rows_written(table) == [(2, 2, "x", 20), (2, 3, "x", None)]


def test_without_a_condition_every_row_is_updated() -> None:
    table = new_table(WIDE)
    put(table, "1 a 1 | 2 b 2")
    table.update({"v": None})

    assert held(table) == "1 _ 1 | 2 _ 2"


def test_values_are_computed_from_the_row_as_it_was() -> None:
    columns = {"id": "INT NOT NULL", "a": "INT", "b": "INT"}
    table = new_table(columns)
    put(table, "1 5 7")
    table.update({"a": pl.col("b"), "b": pl.col("a")})

    assert held(table) == "1 7 5"


def test_text_is_a_text_and_sql_is_an_expression() -> None:
    table = new_table(WIDE)
    put(table, "1 a 1")
    table.update({"v": "n + 1", "n": pl.sql_expr("n + 1")})

    assert held(table) == "1 n + 1 2"


def test_newest_row_is_the_one_updated() -> None:
    table = new_table(WIDE)
    put(table, "1 a 1 | 2 a 1")
    put(table, "1 b 2")
    table.update({"n": pl.col("n") + 1})

    assert held(table) == "1 b 3 | 2 a 2"


def test_snapshot_says_what_it_was() -> None:
    table = new_table(WIDE)
    put(table, "1 a 1")
    table.update({"n": 2})
    snapshot = table.context.history.latest_snapshot()

    assert snapshot is not None
    assert (snapshot.commit_kind, snapshot.operation) == ("APPEND", "UPDATE")
    assert table.update({"n": 3}, "id = 9").snapshot_ids == ()


VALUES: dict[str, tuple[Any, Any]] = {
    "DECIMAL(20, 2)": (Decimal("1.50"), Decimal("12345678901234567.25")),
    "DATE": (date(1969, 1, 1), date(2026, 1, 2)),
    "TIMESTAMP(9)": (datetime(2020, 1, 1), datetime(2026, 1, 1, 1, 2, 3)),
    "BOOLEAN": (True, False),
    "DOUBLE": (1.5, -0.0),
    "VARBINARY(4)": (b"ab", b""),
    "ARRAY<INT>": ([1, None], []),
    "ROW<x INT, y STRING>": ({"x": 1, "y": "a"}, {"x": None, "y": "b"}),
    "MAP<STRING, INT>": ([("a", 1)], [("b", 2), ("c", None)]),
    "TIME(0)": (None, None),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_every_kind_stay_and_are_set(kind: str) -> None:
    old, new = VALUES[kind]
    table = new_table({"id": "INT NOT NULL", "kept": kind, "changed": kind})
    wanted = table.schema.arrow
    given = pa.array([old], wanted.field("kept").type)
    ids = pa.array([1], pa.int32())
    table.write(pa.Table.from_arrays([ids, given, given], schema=wanted))
    table.update({"changed": new})
    assert table.to_arrow().to_pylist() == [{"id": 1, "kept": old, "changed": new}]

    table.update({"changed": pl.col("kept")})
    assert table.to_arrow().to_pylist() == [{"id": 1, "kept": old, "changed": old}]


def test_default_value_is_for_new_rows_alone() -> None:
    columns = {"id": "INT NOT NULL", "v": "STRING", "n": "INT"}
    table = with_default(new_table(columns), "n", "7")
    table.write([{"id": 1, "v": "a"}])
    assert held(table) == "1 a 7"
    table.update({"n": None})
    table.update({"v": "b"})

    assert held(table) == "1 b _"


def with_default(table: Table, column: str, text: str) -> Table:
    """The table, with a schema in which the column has a default value."""
    change = SchemaChange.update_column_default_value(column, text)
    schema = evolve(table.schema, [change], has_snapshots=False, now_ms=0)
    context = table.context
    assert write_schema(context.store, context.layout, schema)
    return table.refresh()


# --- options -------------------------------------------------------------------------------------


def test_update_with_an_input_changelog_tells_both_rows() -> None:
    table = new_table(WIDE, changelog_producer="input")
    put(table, "1 a 1")
    table.update({"n": 2})

    assert rows_written(table, changelog=True) == [(1, 1, "a", 1), (2, 1, "a", 2)]
    assert held(table) == "1 a 2"


def test_update_carries_the_sequence_of_its_row_and_wins_the_tie() -> None:
    table = new_table(WIDE, sequence__field="n")
    put(table, "1 a 9")
    table.update({"v": "b"})
    put(table, "1 late 8")

    assert held(table) == "1 b 9"


def test_update_of_a_table_that_tells_what_was_before_wins_the_tie() -> None:
    table = new_table(WIDE, sequence__field="n", changelog_producer="input")
    put(table, "1 a 9 | 2 a 9")
    table.update({"v": "b"}, where="id = 1")
    table.update({"v": "c", "n": 8}, where="id = 2")

    assert held(table) == "1 b 9 | 2 a 9"


def test_row_with_an_older_sequence_changes_nothing_as_with_any_write() -> None:
    table = new_table(WIDE, sequence__field="n")
    put(table, "1 a 9")
    table.update({"v": "b", "n": 8})

    assert held(table) == "1 a 9"


@pytest.mark.parametrize(
    ("order", "sequence", "kept"),
    [
        ("ascending", 8, "1 a 9"),
        ("ascending", None, "1 a 9"),
        ("ascending", 9, "1 b 9"),
        ("ascending", 10, "1 b 10"),
        ("descending", 10, "1 a 9"),
        ("descending", 8, "1 b 8"),
    ],
)
def test_changelog_tells_only_of_rows_that_are_not_older(
    order: str, sequence: int | None, kept: str
) -> None:
    options: Any = {"sequence__field": "n", "sequence__field__sort_order": order}
    table = new_table(WIDE, changelog_producer="input", **options)
    put(table, "1 a 9 | 2 z 5")
    source = pl.DataFrame({"id": [1], "v": ["b"], "n": [sequence]})
    source = source.cast({"id": pl.Int32, "n": pl.Int32})
    table.merge(source, ["id"]).when_matched_update_all().execute()

    assert held(table) == f"{kept} | 2 z 5"
    told = 2 if kept.split()[1] == "b" else 0
    assert table.inspect.snapshots().height == 1 + bool(told)
    if told:
        assert len(rows_written(table, changelog=True)) == told


def test_kind_goes_to_the_column_that_is_for_it() -> None:
    columns = {"id": "INT NOT NULL", "kind": "STRING NOT NULL", "n": "INT"}
    table = new_table(columns, rowkind__field="kind")
    put(table, "1 +I 1")
    table.update({"n": 2})

    assert held(table) == "1 +U 2"
    with pytest.raises(InvalidRequest, match=r"rowkind\.field"):
        table.update({"kind": "-D"})


def test_update_in_partitions_and_buckets() -> None:
    table = new_table(partitions=["v"], keys=["id", "v"], bucket="2")
    put(table, " | ".join(f"{number} {letter}" for number in range(5) for letter in "ab"))
    wide = new_table(
        {"id": "INT NOT NULL", "day": "STRING NOT NULL", "n": "INT"},
        partitions=["day"],
        keys=["id", "day"],
        bucket="2",
        path="memory://warehouse/shop.db/wide",
    )
    put(wide, " | ".join(f"{number} {letter} 0" for number in range(5) for letter in "ab"))
    wide.update({"n": pl.col("id")}, "day = 'a' and id > 2")

    assert held(wide, where="n > 0") == "3 a 3 | 4 a 4"


# --- bad requests --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "name the columns to set"),
        ({"x": 1}, "unknown column. column=x"),
        ({"id": 2}, "primary key.* column=id"),
        ({"n": "a"}, "sql_expr.*column=n"),
        ({"n": 1 << 40}, "column=n value=1099511627776"),
        ({"n": pl.col("n").sum()}, "the value of n must look at one row at a time"),
        ({"n": pl.col("q")}, "unknown column. column=q"),
        ({"n": pl.col("v").cast(pl.Int32)}, "cannot be computed"),
        ({"n": object()}, "plain value. column=n"),
        ({"need": None}, "column=need value=null"),
    ],
)
def test_bad_value_is_refused_and_nothing_is_written(values: dict[str, Any], message: str) -> None:
    table = new_table({**WIDE, "need": "INT NOT NULL"})
    put(table, "1 a 1 1")

    with pytest.raises(InvalidRequest, match=message):
        table.update(values)
    assert held(table) == "1 a 1 1"
    assert table.context.budget.used_bytes == 0


def test_lost_update_is_a_conflict() -> None:
    table = new_table(WIDE)
    put(table, "1 a 1 | 2 b 1")
    other = reopened(table)
    slow = reopened(
        table,
        store=MeddledStore(table.context.store, lambda: other.update({"n": 5}, "id = 1")),
    )
    with pytest.raises(CommitConflict, match=r"key=\[1\]"):
        slow.update({"n": pl.col("n") + 1})
    slow.update({"n": pl.col("n") + 1})

    assert held(table) == "1 a 6 | 2 b 2"


_AT = pd.Timestamp("2026-01-01 00:00:00.000000001")
PLAIN: list[tuple[str, object, object]] = [
    ("m", {"a": 1}, [("a", 1)]),
    ("m", [("a", 1)], [("a", 1)]),
    ("m", {}, []),
    ("t", _AT, _AT),
    ("t", pd.NaT, None),
    ("t", pd.NA, None),
    ("r", {"a": _AT, "m": {1: "x"}}, {"a": _AT, "m": [(1, "x")]}),
]


@pytest.mark.parametrize(("column", "value", "wanted"), PLAIN, ids=str)
def test_plain_value_is_what_a_write_makes_of_it(
    column: str, value: object, wanted: object
) -> None:
    parts = "ROW<a TIMESTAMP(9), m MAP<INT, STRING>>"
    columns = {"id": "INT", "m": "MAP<STRING, INT>", "t": "TIMESTAMP(9)", "r": parts}
    table = new_table(columns, keys=[])
    table.write([{"id": 1, "t": _AT, "m": {"z": 0}}])

    table.update({column: value})

    assert table.to_arrow()[column].to_pylist() == [wanted]
