"""A query of `spark_bridge.sql` reads the rows and columns that it needs, and returns all rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

import lakecore as lc
import spark_bridge
from spark_bridge import sql_query

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from spark_bridge.pushdown import Need

DAYS = [dt.date(2026, 1, day) for day in range(1, 6)]
TIMES = [dt.datetime(2026, 1, 1, hour) for hour in range(5)]


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[lc.Table]:
    """Five partitions with one file each, and a small table of days."""
    home = tmp_path_factory.mktemp("pruned")
    session = lc.connect(home)
    session.create_database("prune")
    session.create_table("prune.days", {"day": "DATE", "open": "BOOLEAN"}).write(
        pl.DataFrame({"day": DAYS[:2], "open": [True, False]})
    )
    columns = {"day": "DATE NOT NULL", "id": "BIGINT NOT NULL", "s": "STRING", "x": "DOUBLE"}
    columns |= {"n": "DECIMAL(10, 2)", "at": "TIMESTAMP(6)", "b": "BOOLEAN", "by": "BYTES"}
    columns |= {"z": "TIMESTAMP(6) WITH LOCAL TIME ZONE", "orders": "ROW<i INT>"}
    table = session.create_table(
        "prune.orders", columns, primary_keys=["day", "id"], partition_keys=["day"]
    )
    rows = [
        [
            *[day, at, f"it's {at}" if at else None, float(at), Decimal(at) / 2, TIMES[at]],
            *[at % 2 == 0, b"\x00" * at, TIMES[at].replace(tzinfo=dt.UTC), {"i": at}],
        ]
        for at, day in enumerate(DAYS)
    ]
    rows[4][3] = float("nan")
    named = [dict(zip(table.schema.names, row, strict=True)) for row in rows]
    table.write(pa.Table.from_pylist(named, table.schema.arrow))
    spark_bridge.attach(spark, home, "prune")
    yield table
    spark.sql("DROP DATABASE prune CASCADE")


# The query, and what it needs of each mention: the number of rows, and the columns (None: all).
QUERIES: list[tuple[str, list[tuple[int, str | None]]]] = [
    ("SELECT s FROM prune.orders WHERE day = '2026-01-02'", [(1, "day s")]),
    ("SELECT orders.s FROM prune.orders WHERE orders.id IN (0, 3)", [(2, "id s")]),
    ("SELECT count(*) FROM prune.orders o WHERE o.day > DATE '2026-01-03'", [(2, "day")]),
    ("SELECT * FROM prune.orders WHERE s = 'it''s 2' OR n >= 2", [(2, None)]),
    ("SELECT id FROM prune.orders WHERE NOT (id = 1 OR s IS NULL)", [(3, "id s")]),
    ("SELECT id FROM prune.orders WHERE s LIKE 'it%' AND length(s) > 90", [(4, "id s")]),
    ("SELECT id FROM prune.orders WHERE at >= '2026-01-01 03:00:00'", [(2, "at id")]),
    ("SELECT id FROM prune.orders WHERE z < TIMESTAMP '2026-01-01 02:00:00Z'", [(2, "id z")]),
    ("SELECT id FROM prune.orders WHERE b", [(3, "b id")]),
    ("SELECT id FROM prune.orders WHERE x > 2", [(2, "id x")]),
    ("SELECT id FROM prune.orders WHERE by = X'0000'", [(1, "by id")]),
    ("SELECT id FROM prune.orders WHERE s <=> 'it''s 1'", [(1, "id s")]),
    ("SELECT id FROM prune.orders WHERE id NOT IN (0, NULL)", [(5, "")]),
    ("SELECT id FROM prune.orders WHERE id * id = 9 AND 2 < id", [(2, "id")]),
    ("SELECT id FROM prune.orders WHERE id > 1 OR uuid() = ''", [(5, "id")]),
    ("SELECT id FROM prune.orders WHERE day < current_date()", [(5, "day id")]),
    (f"SELECT id FROM prune.orders WHERE id IN ({', '.join(map(str, range(3, 40)))})", [(2, "id")]),
    (
        "SELECT id FROM prune.orders o JOIN prune.days d USING (day) WHERE day = '2026-01-01'",
        [(1, "day id"), (1, "day")],
    ),
    (
        "SELECT o.id, open FROM prune.orders AS o, prune.days WHERE o.day = days.day AND o.id = 1",
        [(1, "day id"), (2, None)],
    ),
    (
        "SELECT id FROM prune.orders WHERE id = 1 UNION SELECT id FROM prune.orders WHERE id = 2",
        [(1, "id"), (1, "id")],
    ),
    (
        "WITH o AS (FROM prune.orders) SELECT 1 FROM o WHERE id=1 UNION SELECT 2 FROM o WHERE id=3",
        [(2, "id")],
    ),
    (
        "WITH o AS (FROM prune.orders) SELECT s FROM o WHERE id = 1 UNION SELECT 'a' FROM o",
        [(5, "id s")],
    ),
    ("WITH orders AS (FROM prune.orders) FROM orders SELECT s WHERE id = 1", [(1, "id s")]),
    (
        "SELECT id FROM prune.orders WHERE id = (SELECT max(id) FROM prune.orders WHERE id < 3)",
        [(5, "id"), (3, "id")],
    ),
    ("SELECT id FROM prune.orders TABLESAMPLE (100 PERCENT) WHERE id = 3", [(5, "id")]),
    ("SELECT orders.i FROM prune.orders o WHERE orders.i = 2", [(5, "orders")]),
    ("SELECT prune.orders.id FROM prune.orders WHERE prune.orders.id = 2", []),
    ("SELECT '{x}', 'it\\'s' FROM prune.orders WHERE id = 2", [(1, "id")]),
    ("SELECT id FROM prune.orders VERSION AS OF 1 WHERE id = 2", [(1, "id")]),
    ("SELECT count(*) FROM prune.`orders$snapshots`", []),
]


@pytest.mark.parametrize(("text", "expected"), QUERIES)
def test_query_reads_what_it_needs_and_returns_all_of_its_rows(
    spark: SparkSession,
    shop: lc.Table,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    expected: list[tuple[int, str | None]],
) -> None:
    read: list[Need] = []
    frame: Any = vars(sql_query)["read_needed"]

    def noted(*given: Any) -> object:
        read.append(given[3])
        return frame(*given)

    monkeypatch.setattr(sql_query, "read_needed", noted)
    rows = spark_bridge.sql(spark, text).collect()
    whole = text.replace(" VERSION AS OF 1", "")

    found = []
    for need, (_, columns) in zip(read, expected, strict=True):
        names = None
        if need.columns is not None and columns is not None:
            names = " ".join(sorted(shop.schema.names[place] for place in need.columns))
        where = pl.lit(value=True) if need.where is None else need.where
        found.append((read_rows(shop, where), names))
    if "days" in text:
        expected, found = expected[:1], found[:1]
    assert found == expected
    if "$" not in text:
        assert sorted(map(repr, rows)) == sorted(map(repr, spark.sql(whole).collect()))


def read_rows(table: lc.Table, where: pl.Expr) -> int:
    rows: pl.DataFrame = table.to_polars()
    return rows.filter(where).height


def test_names_of_the_current_database_and_names_that_hide_a_table(
    spark: SparkSession, shop: lc.Table
) -> None:
    spark.sql("USE prune")
    try:
        assert spark_bridge.sql(spark, "SELECT id FROM orders WHERE id = 4").collect() == [(4,)]
        spark.range(7).createOrReplaceTempView("orders")
        assert spark_bridge.sql(spark, "SELECT count(*) FROM orders").collect() == [(7,)]
        spark.catalog.dropTempView("orders")
        text = "WITH orders (a) AS (SELECT 1) SELECT count(*) FROM orders"
        assert spark_bridge.sql(spark, text).collect() == [(1,)]
        spark.sql("CACHE TABLE prune.days")
        shop.copy({}).refresh()
        lc.open_table(shop.path.replace("orders", "days")).truncate()
        assert spark_bridge.sql(spark, "SELECT count(*) FROM days").collect() == [(2,)]
        spark.sql("UNCACHE TABLE prune.days")
        assert spark_bridge.sql(spark, "SELECT count(*) FROM days").collect() == [(0,)]
    finally:
        spark.sql("USE default")
