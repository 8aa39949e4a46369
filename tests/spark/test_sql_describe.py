"""SHOW CREATE TABLE and DESCRIBE through `spark_bridge.sql` speak Spark's dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore as lc
import spark_bridge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    Run = Callable[[str], list[tuple[object, ...]]]
    Shop = tuple[Path, lc.Session, Run]

COMMENTS = ["plain", "it's", 'a "b"', "back\\slash \\n", "two\nlines", "{x} -- ; /* `y` */"]
TYPES = [
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "STRING"),
    *("CHAR(3)", "VARCHAR(7)", "BINARY(1)", "BINARY(4)", "VARBINARY(5)", "BYTES"),
    *("DECIMAL(10, 0)", "DECIMAL(38, 7)"),
    *(f"TIMESTAMP({digits})" for digits in (0, 3, 6, 9)),
    *(f"TIMESTAMP({digits}) WITH LOCAL TIME ZONE" for digits in (0, 3, 6, 9)),
    *("ARRAY<INT NOT NULL>", "MULTISET<STRING>", "MAP<STRING NOT NULL, ARRAY<BYTES>>"),
    "ROW<`timestamp` TIMESTAMP(6) WITH LOCAL TIME ZONE, `a b` MAP<INT, TIMESTAMP(6)>, l BYTES>",
    "ROW<long ROW<x BYTES> NOT NULL>",
    "ROW<x INT COMMENT 'it''s nested', y ARRAY<ROW<z STRING COMMENT 'a\\b'>>>",
]


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    home = tmp_path_factory.mktemp("described")
    session = lc.connect(home)
    session.create_database("shown")

    def run(text: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in spark_bridge.sql(spark, text).collect()]

    yield home, session, run
    spark.sql("DROP DATABASE shown CASCADE")


def test_shown_statement_makes_an_equal_table(shop: Shop, spark: SparkSession) -> None:
    home, session, run = shop
    plain = {f"c{number}": kind for number, kind in enumerate(TYPES)}
    session.create_table("shown.types", plain)
    comments = [each.replace("'", "''") for each in COMMENTS]
    session.sql(
        f"CREATE TABLE shown.parts (`a,b` STRING NOT NULL COMMENT '{comments[1]}', "
        f"`timestamp` INT NOT NULL COMMENT '{comments[4]}', n INT DEFAULT -5 COMMENT 'plain', "
        f"s STRING DEFAULT '7' COMMENT '{comments[3]}', d DATE DEFAULT '2026-01-01', "
        "q STRING DEFAULT 'it''s', PRIMARY KEY (`timestamp`, `a,b`) NOT ENFORCED) "
        f"COMMENT '{' '.join(comments)}' PARTITIONED BY (`timestamp`) "
        "WITH ('bucket' = '3', 'fields.s.ignore-retract' = 'true')"
    )
    session.create_table(
        "shown.keyed",
        {"id": "BIGINT NOT NULL", "v": "STRING"},
        primary_keys=["id"],
        options={"merge-engine": "partial-update", "csv.field-delimiter": "\t\\"},
    )
    spark_bridge.attach(spark, home)
    for name in ("types", "parts", "keyed"):
        before = session.get_table(f"shown.{name}").schema
        ((text,),) = run(f"SHOW CREATE TABLE shown.{name}")
        run(f"DROP TABLE shown.{name}")
        run(str(text))
        after = session.get_table(f"shown.{name}").schema

        assert after.fields == before.fields, text
        assert after.primary_keys == before.primary_keys
        assert after.partition_keys == before.partition_keys
        assert after.stated_options == before.stated_options
        assert after.comment == before.comment
        assert run(f"SHOW CREATE TABLE shown.{name}") == [(text,)]


def test_types_have_the_meaning_of_spark(shop: Shop, spark: SparkSession) -> None:
    home, session, run = shop
    spark_bridge.attach(spark, home)
    columns = "at TIMESTAMP, local TIMESTAMP_NTZ, raw BINARY, s STRUCT<at: TIMESTAMP, b: BINARY>"
    run(f"CREATE TABLE shown.meant ({columns}) USING paimon")
    run("CREATE TABLE shown.selected AS SELECT * FROM shown.meant")
    run("ALTER TABLE shown.meant ADD COLUMN later TIMESTAMP")
    run("ALTER TABLE shown.selected ADD COLUMN later TIMESTAMP")
    made, selected = (session.get_table(f"shown.{name}").schema for name in ("meant", "selected"))

    assert [str(field.type) for field in made.fields] == [
        "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        "TIMESTAMP(6)",
        "BYTES",
        "ROW<`at` TIMESTAMP(6) WITH LOCAL TIME ZONE, `b` BYTES>",
        "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    ]
    assert made.fields == selected.fields
    assert spark.table("shown.meant").schema.simpleString() == (
        "struct<at:timestamp,local:timestamp_ntz,raw:binary,s:struct<at:timestamp,b:binary>,"
        "later:timestamp>"
    )


def test_description_has_the_rows_of_spark(shop: Shop, spark: SparkSession) -> None:
    home, session, run = shop
    table = session.create_table(
        "shown.orders",
        {"id": "BIGINT NOT NULL", "c": "VARCHAR(3)", "r": "ROW<x INT>", "day": "DATE NOT NULL"},
        primary_keys=["day", "id"],
        partition_keys=["day"],
        options={"bucket": "2"},
        comment="what was sold",
    )
    session.create_table("shown.bare", {"id": "INT"})
    spark_bridge.attach(spark, home)
    columns = [
        ("id", "bigint", None),
        ("c", "varchar(3)", None),
        ("r", "struct<x:int>", None),
        ("day", "date", None),
        ("# Partition Information", "", ""),
        ("# col_name", "data_type", "comment"),
        ("day", "date", None),
    ]
    facts = [
        ("", "", ""),
        ("# Detailed Table Information", "", ""),
        ("Catalog", "spark_catalog", ""),
        ("Database", "shown", ""),
        ("Table", "orders", ""),
        ("Type", "MANAGED", ""),
        ("Provider", "paimon", ""),
        ("Comment", "what was sold", ""),
        ("Table Properties", "[bucket=2,primary-key=day,id]", ""),
        ("Location", table.path, ""),
    ]

    names = spark_bridge.sql(spark, "DESCRIBE shown.bare").columns
    assert names == ["col_name", "data_type", "comment"]
    assert run("DESC TABLE shown.bare") == [("id", "int", None)]
    assert run("DESCRIBE TABLE shown.orders") == columns
    for words in ("DESCRIBE EXTENDED", "DESCRIBE TABLE EXTENDED", "DESC FORMATTED"):
        assert run(f"{words} shown.orders") == columns + facts
    assert run("DESCRIBE TABLE FORMATTED shown.orders") == columns + facts
    assert run("DESCRIBE shown.orders id")[0][:2] == ("col_name", "id")
    spark.range(1).createOrReplaceTempView("bare")
    try:
        assert run("USE shown; DESCRIBE bare") == [("id", "bigint", None)]
    finally:
        run("USE default")
        spark.catalog.dropTempView("bare")
