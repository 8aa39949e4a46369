"""Tables of a warehouse by their names in Spark SQL, and the traps on the way there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from pyspark.errors import AnalysisException

import lakecore as lc
from lakecore.errors import AlreadyExists, InvalidRequest
from spark_bridge.attach_tables import attach
from spark_bridge.read_frame import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from lakecore.session import Session

COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING"}
KEYED = {"primary_keys": ["id"], "options": {"bucket": "2"}}
DATABASE = "attached"


@pytest.fixture
def warehouse(spark: SparkSession, tmp_path: Path) -> Iterator[Session]:
    session = lc.connect(tmp_path / "warehouse", create=True)
    session.create_database(DATABASE)
    yield session
    spark.sql(f"DROP DATABASE IF EXISTS {DATABASE} CASCADE")


def fill(warehouse: Session, name: str = "t") -> lc.Table:
    table = warehouse.create_table(
        f"{DATABASE}.{name}", COLUMNS, primary_keys=["id"], options={"bucket": "2"}
    )
    table.write(pl.DataFrame({"id": [1, 2, 3], "name": ["a", "b", "c"]}))
    return table


def ids(spark: SparkSession, query: str) -> list[int]:
    return sorted(row[0] for row in spark.sql(query).collect())


def test_every_query_sees_what_was_committed_before_it(
    spark: SparkSession, warehouse: Session
) -> None:
    table = fill(warehouse)
    attach(spark, warehouse.warehouse)
    before = ids(spark, f"SELECT id FROM {DATABASE}.t")
    table.write(pl.DataFrame({"id": [9], "name": ["z"]}))

    assert before == [1, 2, 3]
    assert ids(spark, f"SELECT id FROM {DATABASE}.t") == [1, 2, 3, 9]


@pytest.mark.parametrize("option", ["`snapshot-id` = '1'", "`where` = 'id = 3'"])
def test_a_scan_takes_no_options_since_spark_would_give_them_to_others(
    spark: SparkSession, warehouse: Session, option: str
) -> None:
    table = fill(warehouse)
    table.write(pl.DataFrame({"id": [9], "name": ["z"]}))
    attach(spark, warehouse.warehouse)

    with pytest.raises(AnalysisException, match=r"createOrReplaceTempView"):
        ids(
            spark,
            f"SELECT id FROM {DATABASE}.t WITH ({option}) UNION ALL SELECT id FROM {DATABASE}.t",
        )


def test_states_of_a_table_meet_in_a_query_as_views(
    spark: SparkSession, warehouse: Session
) -> None:
    table = fill(warehouse)
    table.write(pl.DataFrame({"id": [9], "name": ["z"]}))
    attach(spark, warehouse.warehouse)
    read(spark, table, snapshot_id=1).createOrReplaceTempView("t_then")

    added = ids(spark, f"SELECT id FROM {DATABASE}.t WHERE id NOT IN (SELECT id FROM t_then)")

    assert added == [9]


def test_what_sql_inserts_is_selected_by_the_same_name(
    spark: SparkSession, warehouse: Session
) -> None:
    table = fill(warehouse)
    attach(spark, warehouse.warehouse)
    t = f"{DATABASE}.t"
    spark.sql(f"INSERT INTO {t} VALUES (3, 'new'), (4, 'd')")

    assert ids(spark, f"SELECT id FROM {t} WHERE name >= 'b'") == [2, 3, 4]
    spark.sql(f"INSERT INTO {t} SELECT id + 100 id, name FROM {t} WHERE id = 1")
    assert ids(spark, f"SELECT id FROM {t}") == [1, 2, 3, 4, 101]
    spark.sql(f"INSERT OVERWRITE {t} VALUES (7, 'only')")
    assert ids(spark, f"SELECT id FROM {t}") == [7]
    assert table.to_polars().rows() == [(7, "only")]


def test_another_session_attaches_the_same_tables(spark: SparkSession, warehouse: Session) -> None:
    fill(warehouse)
    attach(spark, warehouse.warehouse)
    other = spark.newSession()

    assert attach(other, warehouse.warehouse) == attach(spark, warehouse.warehouse)
    assert ids(other, f"SELECT id FROM {DATABASE}.t") == [1, 2, 3]
    assert ids(spark, f"SELECT id FROM {DATABASE}.t") == [1, 2, 3]


def test_one_name_twice_in_a_query_is_two_scans(spark: SparkSession, warehouse: Session) -> None:
    fill(warehouse)
    attach(spark, warehouse.warehouse, DATABASE)
    t = f"{DATABASE}.t"

    union = f"SELECT id FROM {t} WHERE id = 1 UNION ALL SELECT id FROM {t} WHERE id = 3"
    join = f"SELECT a.id FROM {t} a JOIN {t} b ON a.id = b.id WHERE b.name > 'a'"
    cross = f"SELECT a.id FROM {t} a CROSS JOIN {t} b WHERE a.id > 2"

    assert ids(spark, union) == [1, 3]
    assert ids(spark, join) == [2, 3]
    assert ids(spark, cross) == [3, 3, 3]


def test_attaching_again_takes_up_a_new_schema_and_new_tables(
    spark: SparkSession, warehouse: Session
) -> None:
    fill(warehouse)
    first = attach(spark, warehouse.warehouse)
    warehouse.alter_table(f"{DATABASE}.t", [lc.SchemaChange.add_column("note", "STRING")])
    fill(warehouse, "u")
    second = attach(spark, warehouse.warehouse)

    assert first.tables == (f"{DATABASE}.t",)
    assert second.tables == (f"{DATABASE}.t", f"{DATABASE}.u")
    assert spark.table(f"{DATABASE}.t").columns == ["id", "name", "note"]


def test_a_table_with_a_type_or_name_that_spark_has_not_is_left_out_by_name(
    spark: SparkSession, warehouse: Session
) -> None:
    fill(warehouse)
    warehouse.create_table(f"{DATABASE}.clock", {"at": "TIME(3)"}, options={"bucket": "-1"})
    warehouse.create_table(f"{DATABASE}.a-b", COLUMNS, options={"bucket": "-1"})
    attached = attach(spark, warehouse.warehouse)

    assert attached.tables == (f"{DATABASE}.t",)
    assert "TIME(3) column=at" in attached.left_out[f"{DATABASE}.clock"]
    assert "a-b" in attached.left_out[f"{DATABASE}.a-b"]


def test_a_table_of_spark_is_never_replaced(spark: SparkSession, warehouse: Session) -> None:
    fill(warehouse)
    spark.sql(f"CREATE DATABASE {DATABASE}")
    spark.sql(f"CREATE TABLE {DATABASE}.t (id LONG) USING parquet")

    with pytest.raises(AlreadyExists, match=rf"{DATABASE}\.t"):
        attach(spark, warehouse.warehouse)
    assert spark.table(f"{DATABASE}.t").columns == ["id"]


def test_an_unknown_database_is_refused_with_those_that_there_are(
    spark: SparkSession, warehouse: Session
) -> None:
    with pytest.raises(InvalidRequest, match=DATABASE):
        attach(spark, warehouse.warehouse, "nothing")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE {db}.g USING lakecore OPTIONS (path '{path}')",
        "CREATE TABLE {db}.g USING lakecore LOCATION '{path}'",
        "CREATE TABLE {db}.g USING lakecore OPTIONS (path '{path}') AS SELECT 1L id, 'a' name",
        "CREATE TABLE {db}.g USING `{own}`",
        "CREATE TABLE {db}.g USING `{own}` AS SELECT 1L id, 'a' other",
    ],
)
def test_a_catalog_table_that_would_lose_its_path_is_refused(
    spark: SparkSession, warehouse: Session, statement: str
) -> None:
    from spark_bridge.attach_tables import provider

    table = fill(warehouse)
    attach(spark, warehouse.warehouse)
    own = provider(DATABASE, "t", table.path, {}).name()

    with pytest.raises(Exception, match="attach"):
        spark.sql(statement.format(db=DATABASE, path=table.path, own=own))
    assert not spark.catalog.tableExists(f"{DATABASE}.g")
    assert len(warehouse.get_table(f"{DATABASE}.t").to_arrow()) == 3


def test_a_catalog_table_with_columns_of_its_own_says_what_to_do_when_it_is_read(
    spark: SparkSession, warehouse: Session
) -> None:
    table = fill(warehouse)
    attach(spark, warehouse.warehouse)
    spark.sql(f"CREATE TABLE {DATABASE}.g (id LONG) USING lakecore OPTIONS (path '{table.path}')")

    with pytest.raises(Exception, match="attach"):
        spark.sql(f"SELECT * FROM {DATABASE}.g").collect()


def test_dropping_the_name_leaves_the_table(spark: SparkSession, warehouse: Session) -> None:
    fill(warehouse)
    attach(spark, warehouse.warehouse)
    spark.sql(f"DROP TABLE {DATABASE}.t")

    assert len(warehouse.get_table(f"{DATABASE}.t").to_arrow()) == 3


def test_a_view_stays_at_the_snapshot_it_was_made_for(
    spark: SparkSession, warehouse: Session
) -> None:
    table = fill(warehouse)
    table.write(pl.DataFrame({"id": [9], "name": ["z"]}))
    attach(spark, warehouse.warehouse)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW old USING lakecore "
        f"OPTIONS (path '{table.path}', `snapshot-id` '1')"
    )

    assert ids(spark, "SELECT id FROM old") == [1, 2, 3]


def test_a_table_that_spark_made_of_our_rows_is_not_taken_for_ours(
    spark: SparkSession, warehouse: Session
) -> None:
    table = fill(warehouse)
    attach(spark, warehouse.warehouse)
    t = f"{DATABASE}.t"
    spark.table(t).where("id < 3").write.mode("overwrite").saveAsTable(t)
    table.write(pl.DataFrame({"id": [9], "name": ["z"]}))

    with pytest.raises(AlreadyExists, match="another table of that name"):
        attach(spark, warehouse.warehouse)
    assert ids(spark, f"SELECT id FROM {t}") == [1, 2]
    spark.sql(f"DROP TABLE {t}")
    attach(spark, warehouse.warehouse)
    assert ids(spark, f"SELECT id FROM {t}") == [1, 2, 3, 9]


def test_names_that_spark_does_not_tell_apart_are_left_out(
    spark: SparkSession, warehouse: Session
) -> None:
    for name in ("T", "t", "z"):
        fill(warehouse, name)

    attached = attach(spark, warehouse.warehouse)

    assert attached.tables == (f"{DATABASE}.T", f"{DATABASE}.z")
    assert "attached.T" in attached.left_out[f"{DATABASE}.t"]


def test_database_that_spark_keeps_for_itself_is_left_out(
    spark: SparkSession, warehouse: Session
) -> None:
    fill(warehouse)
    warehouse.create_database("global_temp")
    warehouse.create_table("global_temp.t", COLUMNS)

    attached = attach(spark, warehouse.warehouse)

    assert attached.tables == (f"{DATABASE}.t",)
    assert "global_temp" in attached.left_out["global_temp.t"]


def test_relative_warehouse_is_attached_from_where_the_driver_is(
    spark: SparkSession, warehouse: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(warehouse)
    monkeypatch.chdir(Path(warehouse.warehouse).parent)
    attach(spark, "warehouse")

    assert ids(spark, f"SELECT id FROM {DATABASE}.t") == [1, 2, 3]


def test_cached_rows_are_read_anew_after_a_refresh(spark: SparkSession, warehouse: Session) -> None:
    table = fill(warehouse)
    attach(spark, warehouse.warehouse)
    t = f"{DATABASE}.t"
    spark.sql(f"CACHE TABLE {t}")
    table.write(pl.DataFrame({"id": [9], "name": ["z"]}))
    spark.sql(f"REFRESH TABLE {t}")

    assert ids(spark, f"SELECT id FROM {t}") == [1, 2, 3, 9]
    spark.sql(f"UNCACHE TABLE {t}")


def test_a_frame_keeps_the_snapshot_of_its_first_query(spark: SparkSession, tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("kept")
    table = session.create_table("kept.t", {"id": "BIGINT"})
    table.write([{"id": 1}])
    attach(spark, tmp_path / "w", "kept")
    df = spark.table("kept.t")
    before = df.count()
    table.write([{"id": 2}])

    assert (before, df.count(), spark.table("kept.t").count()) == (1, 1, 2)
    assert spark.sql("SELECT count(*) FROM kept.t").collect() == [(2,)]
