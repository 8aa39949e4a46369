"""SQL on attached tables: what Spark refuses runs as verbs; everything else is Spark's."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import lakecore as lc
import spark_bridge
from tests.spark.frames import held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    Run = Callable[[str], list[tuple[object, ...]]]


@pytest.fixture(scope="module")
def shop(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[lc.Session, Run]]:
    """A warehouse with a table, attached; and what runs a text."""
    home = tmp_path_factory.mktemp("sql")
    session = lc.connect(home)
    session.create_database("sqlshop")
    session.create_table(
        "sqlshop.orders",
        {"id": "BIGINT NOT NULL", "item": "STRING", "qty": "INT", "day": "DATE NOT NULL"},
        primary_keys=["day", "id"],
        partition_keys=["day"],
        options={"bucket": "2"},
    )
    spark_bridge.attach(spark, home)

    def run(text: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in spark_bridge.sql(spark, text).collect()]

    yield session, run
    spark.sql("DROP DATABASE sqlshop CASCADE")


def test_rows_go_in_change_and_go_by_statements_alone(
    shop: tuple[lc.Session, Run], spark: SparkSession
) -> None:
    _, run = shop
    day, other = dt.date(2026, 1, 1), dt.date(2026, 1, 2)
    (done,) = run(
        "INSERT INTO sqlshop.orders VALUES (1, 'tea', 2, DATE'2026-01-01'),"
        " (2, 'rice', 3, DATE'2026-01-01'),"
        " (3, NULL, 300, DATE'2026-01-02'), (4, 'a;b', 5, DATE'2026-01-02')"
    )
    assert done[1] == 4
    updated = spark_bridge.sql(
        spark, "UPDATE sqlshop.orders o SET qty = o.qty + 1 WHERE o.item = 'tea'"
    )
    assert [row.rows_updated for row in updated.collect()] == [1]
    spark.createDataFrame([(1, 10), (9, 90)], "id long, n int").createOrReplaceTempView("more")
    merged = run(
        """
        MERGE INTO sqlshop.orders t
        USING (SELECT id, CAST(n AS INT) AS n, DATE'2026-01-01' AS day FROM more) s
        ON t.day = s.day AND t.id = s.id
        WHEN MATCHED THEN UPDATE SET qty = t.qty + s.n
        WHEN NOT MATCHED THEN INSERT (id, qty, day) VALUES (s.id, s.n, s.day)
        """
    )
    assert merged[0][-3:] == (1, 1, 0)
    assert run("DELETE FROM sqlshop.orders WHERE qty = 300")[0][-1] == 1
    assert run("SELECT id, item, qty, day FROM sqlshop.orders ORDER BY day, id") == [
        (1, "tea", 13, day),
        (2, "rice", 3, day),
        (9, None, 90, day),
        (4, "a;b", 5, other),
    ]
    run("INSERT OVERWRITE sqlshop.orders PARTITION (day = '2026-01-01') SELECT 7, 'new', 1")
    run("INSERT INTO sqlshop.orders (day, id) VALUES (DATE'2026-01-03', 5)")
    assert run("SELECT id, item FROM sqlshop.orders ORDER BY day, id") == [
        (7, "new"),
        (4, "a;b"),
        (5, None),
    ]


def test_insert_overwrite_replaces_the_same_rows_by_both_doors(
    shop: tuple[lc.Session, Run], spark: SparkSession
) -> None:
    session, run = shop
    run("CREATE TABLE sqlshop.parts (a STRING, b INT, id INT) PARTITIONED BY (a, b)")
    table = session.get_table("sqlshop.parts")
    doors: list[Run] = [run, lambda text: [tuple(row) for row in spark.sql(text).collect()]]
    rows = {"a": ["x", "x", "y"], "b": [1, 2, 1], "id": [1, 2, 3]}
    overwrite = "INSERT OVERWRITE sqlshop.parts"
    setting = "spark.sql.sources.partitionOverwriteMode"

    def left(statement: str, door: Run = run) -> list[tuple[object, ...]]:
        table.overwrite(rows, dynamic=False)
        door(statement)
        return held(table)

    new, kept = ("x", 1, 7), [("x", 2, 2), ("y", 1, 3)]
    for door in doors:
        assert left(f"{overwrite} SELECT 'x', 1, 7", door) == [new]
    assert left(f"{overwrite} PARTITION (a, b) SELECT 7, 'x', 1") == [new]
    assert left(f"{overwrite} PARTITION (a = 'x', b) SELECT 7, 1") == [new, kept[1]]
    assert left(f"{overwrite} PARTITION (a = 'x', b = 1) SELECT 7") == [new, *kept]
    spark.conf.set(setting, "dynamic")
    try:
        assert left(f"{overwrite} SELECT 'x', 1, 7") == [new, *kept]
        assert left(f"{overwrite} PARTITION (a = 'x', b) SELECT 7, 1") == [new, *kept]
        empty = f"{overwrite} PARTITION (a = 'x', b = 1) SELECT 7 WHERE false"
        assert left(empty) == kept
    finally:
        spark.conf.unset(setting)
    run("ALTER TABLE sqlshop.parts SET TBLPROPERTIES ('dynamic-partition-overwrite' = 'true')")
    for door in doors:
        assert left(f"{overwrite} SELECT 'x', 1, 7", door) == [new, *kept]


def test_time_travel_and_system_tables_are_parts_of_a_query(
    shop: tuple[lc.Session, Run],
) -> None:
    session, run = shop
    run("CREATE TABLE sqlshop.small AS SELECT 1 AS id, '{x}' AS v")
    run("INSERT INTO sqlshop.small SELECT 2, 'b'")
    session.get_table("sqlshop.small").create_tag("one", 1)

    assert run("SELECT v, count(*) FROM sqlshop.small VERSION AS OF 1 GROUP BY v") == [("{x}", 1)]
    assert run("SELECT v FROM sqlshop.small VERSION AS OF 'one' WHERE v <> '{}'") == [("{x}",)]
    joined = run(
        "SELECT n.id FROM sqlshop.small n LEFT ANTI JOIN sqlshop.small FOR VERSION AS OF 1 AS o"
        " ON n.id = o.id"
    )
    assert joined == [(2,)]
    assert run("SELECT count(*) FROM sqlshop.small TIMESTAMP AS OF (current_timestamp())") == [(2,)]
    snapshots = run("SELECT snapshot_id FROM sqlshop.`small$snapshots` ORDER BY snapshot_id")
    assert snapshots == [(1,), (2,)]
    with pytest.raises(lc.NotFound):
        run("SELECT * FROM sqlshop.small VERSION AS OF 77")


def test_tables_are_altered_compacted_and_dropped_and_spark_knows_it(
    shop: tuple[lc.Session, Run], spark: SparkSession
) -> None:
    session, run = shop
    run("CREATE TABLE sqlshop.kept (id INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key'='id')")
    run("INSERT INTO sqlshop.kept VALUES (1, 'a'), (2, 'b')")
    run("ALTER TABLE sqlshop.kept ADD COLUMN w INT")
    run("UPDATE sqlshop.kept SET w = 5 WHERE id = 2; USE sqlshop")
    assert run("SELECT * FROM kept ORDER BY id") == [(1, "a", None), (2, "b", 5)]
    (said,) = run("CALL sys.compact(table => 'sqlshop.kept', compact_strategy => 'full')")
    assert "Success" in str(said[0])
    assert session.get_table("sqlshop.kept").inspect.snapshots()["commit_kind"][-1] == "COMPACT"
    run("USE default")
    run("ALTER TABLE sqlshop.kept RENAME TO sqlshop.moved")
    assert not spark.catalog.tableExists("sqlshop.kept")
    assert run("SELECT count(*) FROM sqlshop.moved") == [(2,)]
    run("DROP TABLE sqlshop.moved")
    assert not spark.catalog.tableExists("sqlshop.moved")
    assert not session.table_exists("sqlshop.moved")


def test_what_is_wrong_is_said_by_whose_statement_it_is(
    shop: tuple[lc.Session, Run], spark: SparkSession
) -> None:
    session, run = shop
    with pytest.raises(lc.InvalidRequest):
        run("DELETE sqlshop.orders")
    with pytest.raises(lc.InvalidRequest, match="another number of columns"):
        run("INSERT INTO sqlshop.orders SELECT 1")
    with pytest.raises(lc.InvalidRequest, match="absent"):
        run("UPDATE sqlshop.orders SET absent = 1")
    with pytest.raises(PySparkException):
        run("SELECT * FROM sqlshop.nowhere")
    with pytest.raises(PySparkException):
        run("CREATE TABLE sqlshop.broken AS SELECT 1 / 0 AS x")
    assert not session.table_exists("sqlshop.broken")
    assert run("SELECT 1; SELECT 'x;y'") == [("x;y",)]
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW own AS SELECT 1 AS id")
    assert run("SELECT * FROM own") == [(1,)]


def test_statement_that_was_executed_does_not_fail_for_an_unrelated_name(
    shop: tuple[lc.Session, Run], spark: SparkSession
) -> None:
    session, run = shop
    run("CREATE TABLE sqlshop.plain (id BIGINT)")
    run("CREATE TABLE sqlshop.other (id BIGINT)")
    spark.range(3).write.mode("overwrite").saveAsTable("sqlshop.plain")
    try:
        run("ALTER TABLE sqlshop.other ADD COLUMN z INT")
        run("CREATE TABLE sqlshop.made AS SELECT 1L id")
        spark.range(3).write.saveAsTable("sqlshop.theirs")
        for rest in ("(id BIGINT)", "AS SELECT 1L id"):
            with pytest.raises(lc.AlreadyExists, match=r"sqlshop\.theirs"):
                run(f"CREATE TABLE sqlshop.theirs {rest}")
    finally:
        spark.sql("DROP TABLE IF EXISTS sqlshop.plain")
        spark.sql("DROP TABLE IF EXISTS sqlshop.theirs")

    assert session.get_table("sqlshop.other").schema.names == ("id", "z")
    assert run("SELECT * FROM sqlshop.made") == [(1,)]
    assert not session.table_exists("sqlshop.theirs")


def test_insert_casts_as_the_store_assignment_ansi(
    shop: tuple[lc.Session, Run], spark: SparkSession
) -> None:
    session, run = shop
    run(
        "CREATE TABLE sqlshop.typed (i INT, l BIGINT, d DOUBLE, s STRING, day DATE, b BOOLEAN,"
        " r STRUCT<x: BIGINT, y: ARRAY<INT>>)"
    )
    given = "1, 2, 3, 4, DATE'2026-01-01', true, named_struct('p', 5, 'q', array(6L))"
    run(f"INSERT INTO sqlshop.typed SELECT {given}")
    run("INSERT INTO sqlshop.typed (l) VALUES (NULL)")
    nothing = (None,) * 7
    stored = (1, 2, 3.0, "4", dt.date(2026, 1, 1), True, {"x": 5, "y": [6]})
    table = session.get_table("sqlshop.typed")
    assert held(table) == [stored, nothing]
    for column, value in (
        ("day", "'2026-01-01'"),
        ("i", "'1'"),
        ("b", "1"),
        ("i", "true"),
        ("r", "struct('5', array(6))"),
        ("r", "struct(5)"),
    ):
        with pytest.raises(lc.InvalidRequest, match=r"store|number of (fields|columns)"):
            run(f"INSERT INTO sqlshop.typed ({column}) VALUES ({value})")
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        try:
            with pytest.raises((PySparkException, lc.LakecoreError), match=r"(?i)overflow|fit"):
                run("INSERT INTO sqlshop.typed (i) SELECT id + 3000000000 FROM range(1)")
        finally:
            spark.conf.unset("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.storeAssignmentPolicy", "LEGACY")
    try:
        with pytest.raises(lc.Unsupported, match="ANSI"):
            run("INSERT INTO sqlshop.typed (i) VALUES (1)")
    finally:
        spark.conf.unset("spark.sql.storeAssignmentPolicy")
    assert table.count() == 2


def test_strings_with_escapes_are_read_as_spark_reads_them_or_refused(
    shop: tuple[lc.Session, Run],
) -> None:
    session, run = shop
    run("CREATE TABLE sqlshop.texts (id INT, v STRING)")
    run(
        "INSERT INTO sqlshop.texts VALUES (1, 'it\\'s; DELETE FROM sqlshop.texts; --'), "
        '(2, "a\\nb")'
    )
    table = session.get_table("sqlshop.texts")
    rows = [(1, "it's; DELETE FROM sqlshop.texts; --"), (2, "a\nb")]
    assert held(table) == rows
    assert run("SELECT id FROM sqlshop.texts WHERE v LIKE 'it\\'s%' AND id = 1; SELECT '\\';'") == [
        ("';",)
    ]
    assert run("SELECT id FROM sqlshop.texts VERSION AS OF 1 WHERE v = 'a\\nb'") == [(2,)]
    for text in (
        "DELETE FROM sqlshop.texts WHERE v = 'a\\nb'",
        "UPDATE sqlshop.texts SET v = 'it\\'s' WHERE id = 1",
        "UPDATE sqlshop.texts SET v = '\\' WHERE id = 1 --'",
        (
            "MERGE INTO sqlshop.texts t USING (SELECT 1 id, '\\'' v) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET v = s.v"
        ),
        "ALTER TABLE sqlshop.texts SET TBLPROPERTIES ('comment' = 'a\\tb')",
        "OPTIMIZE sqlshop.texts WHERE v = '\\'",
    ):
        with pytest.raises((lc.LakecoreError, PySparkException)):
            run(text)
    assert held(table) == rows


def test_statements_of_delta_are_names_of_our_verbs(
    shop: tuple[lc.Session, Run], spark: SparkSession
) -> None:
    session, run = shop
    run("CREATE TABLE sqlshop.hist (id BIGINT NOT NULL, v STRING) USING lakecore")
    table = session.get_table("sqlshop.hist")
    for number in range(3):
        spark_bridge.write(spark.sql(f"SELECT 'a{number}' AS V, {number}L AS ID"), table)
    history = spark_bridge.sql(spark, "DESCRIBE HISTORY sqlshop.hist LIMIT 2").collect()
    (detail,) = spark_bridge.sql(spark, "DESCRIBE DETAIL sqlshop.hist").collect()
    changed = run("SELECT id, _row_kind FROM table_changes('sqlshop.hist', 2, 3) ORDER BY id")
    run("RESTORE TABLE sqlshop.hist TO VERSION AS OF 2")
    restored = held(table)
    run("OPTIMIZE sqlshop.hist")
    (kept,) = run("VACUUM sqlshop.hist RETAIN 168 HOURS DRY RUN")

    assert [row.snapshot_id for row in history] == [3, 2]
    assert (detail.location, detail.files) == (table.path, 3)
    assert changed == [(1, "+I"), (2, "+I")]
    assert restored == [(0, "a0"), (1, "a1")]
    assert kept == (0, 0)
    for text, match in (("VACUUM sqlshop.hist FULL", "ends before this"),):
        with pytest.raises(lc.LakecoreError, match=match):
            run(text)


def test_merge_with_schema_evolution_adds_the_new_columns_of_its_source(
    shop: tuple[lc.Session, Run], spark: SparkSession
) -> None:
    session, run = shop
    run("CREATE TABLE sqlshop.grown (id BIGINT NOT NULL PRIMARY KEY, v STRING)")
    run("INSERT INTO sqlshop.grown VALUES (1, 'a'), (2, 'b')")
    more = "(SELECT * FROM VALUES (2L, 'c', 7, 'x'), (3L, 'd', 8, 'y') AS s(id, v, N, `a b`))"
    head = f"MERGE  with schema evolution INTO sqlshop.grown t USING {more} s ON t.id = s.id"
    with pytest.raises(lc.InvalidRequest, match=r"lacks columns.*columns=\[v\]"):
        run(head.replace(" v, N", " w, N") + " WHEN MATCHED THEN UPDATE SET *")
    with pytest.raises(lc.LakecoreError):
        run(head.replace("  with schema evolution", "") + " WHEN MATCHED THEN UPDATE SET N = s.N")
    table = session.get_table("sqlshop.grown")
    assert table.schema.names == ("id", "v")

    assert run(head + " WHEN MATCHED THEN UPDATE SET N = s.N")[0][-3:] == (0, 1, 0)
    assert run("SELECT * FROM sqlshop.grown ORDER BY id") == [(1, "a", None), (2, "b", 7)]
    done = run(head + " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
    assert done[0][-3:] == (1, 1, 0)
    assert spark.table("sqlshop.grown").columns == ["id", "v", "N", "a b"]
    assert held(session.get_table("sqlshop.grown")) == [
        (1, "a", None, None),
        (2, "c", 7, "x"),
        (3, "d", 8, "y"),
    ]
    count = session.get_table("sqlshop.grown").schema.id
    run(head + " WHEN NOT MATCHED BY SOURCE THEN DELETE")
    assert session.get_table("sqlshop.grown").schema.id == count
    assert run("SELECT count(*) FROM sqlshop.grown") == [(2,)]


def test_options_of_delta_and_camel_case_are_named_with_ours(
    shop: tuple[lc.Session, Run], spark: SparkSession
) -> None:
    path = shop[0].get_table("sqlshop.orders").path
    spark_bridge.register(spark, "paimon")
    for option, ours in (("snapshotId", "snapshot-id"), ("mergeSchema", "write.merge-schema")):
        with pytest.raises(PySparkException, match=f"{option.lower()} did_you_mean=.*{ours}"):
            spark.read.format("paimon").option(option, "1").load(path)
    assert spark.read.format("paimon").load(path).columns == ["id", "item", "qty", "day"]
