"""What Spark wrote is what one machine writes; every row once; clear errors."""

from __future__ import annotations

from typing import Any, Literal

import polars as pl
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import lakecore as lc
import spark_bridge
from lakecore.errors import InvalidRequest, Unsupported
from spark_bridge.settings import settings
from tests.spark.frames import files_of, frame, held, live_files_of, table_at
from tests.tables import new_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

ROWS = pl.DataFrame(
    {
        "id": range(1000),
        "v": [f"v{i % 7}" for i in range(1000)],
        "n": [i % 11 for i in range(1000)],
    },
    schema={"id": pl.Int64, "v": pl.String, "n": pl.Int32},
    orient="row",
)


def test_rows_of_a_keyed_table_are_those_of_one_machine(
    spark: SparkSession, tmp_path: Path
) -> None:
    ours, alone = (table_at(tmp_path / name, bucket="4") for name in ("spark", "alone"))
    changed = ROWS.head(300).with_columns(v=pl.lit("new"), _row_kind=pl.lit("+I"))
    gone = ROWS.slice(250, 100).with_columns(_row_kind=pl.lit("-D"))
    later = pl.concat([changed.head(250), gone])

    for rows in (ROWS, later):
        result = spark_bridge.write(frame(spark, rows, 3), ours)
        alone.write(rows)
        assert result.rows == rows.height
        assert result.rows_stored == rows.height
        assert result.distribution == "sql"
        assert result.files == len(result.tasks) == 4
        assert sum(task.bytes for task in result.tasks) == result.bytes

    for snapshot_id in (1, 2):
        assert held(ours, snapshot_id=snapshot_id) == held(alone, snapshot_id=snapshot_id)
    assert files_of(ours) == live_files_of(ours)


def test_blob_values_of_a_keyed_table_stay_after_the_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_at(tmp_path / "t", {"id": "BIGINT NOT NULL", "b": "BLOB"}, bucket="2")
    rows = pl.DataFrame({"id": range(20), "b": [b"%d" % number for number in range(20)]})

    assert spark_bridge.write(frame(spark, rows), table).leftovers == 0
    assert held(table) == sorted(rows.rows(), key=repr)


@pytest.mark.parametrize("by", ["task", "group"])
@pytest.mark.sampled(2)
def test_partitions_and_buckets_have_one_owner(
    spark: SparkSession, tmp_path: Path, by: str
) -> None:
    columns = {"id": "BIGINT NOT NULL", "v": "STRING NOT NULL", "n": "INT"}
    table = table_at(tmp_path / "t", columns, keys=("id", "v"), partitions=("v",), bucket="3")
    result = spark_bridge.write(frame(spark, ROWS, 3), table, by=by)  # type: ignore[arg-type]

    assert held(table) == sorted(ROWS.rows(), key=repr)
    assert result.files == 7 * 3
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "10000"


@pytest.mark.parametrize("by", ["task", "group"])
@pytest.mark.parametrize("key", ["a.b", "c`d"])
def test_columns_have_whatever_names(
    spark: SparkSession, tmp_path: Path, by: Literal["task", "group"], key: str
) -> None:
    names = ["a.b", "c`d", "0", "group0", "_metadata"]
    rows = pl.DataFrame({name: range(20) for name in names}).cast({"c`d": pl.Float64})
    columns = {name: "DOUBLE" if name == "c`d" else "BIGINT" for name in names}
    table = table_at(tmp_path / "t", columns, keys=(key,), bucket="3")

    with settings(spark, {"spark.sql.execution.arrow.useLargeVarTypes": "true"}):
        result = spark_bridge.write(frame(spark, rows), table, by=by)
        found = spark_bridge.read(spark, table).collect()
    assert sorted(map(tuple, found), key=repr) == held(table) == sorted(rows.rows(), key=repr)
    assert result.distribution.startswith("arrow" if key == "c`d" else "sql")


@pytest.mark.parametrize("by", ["task", "group"])
def test_nested_values_that_are_all_empty(
    spark: SparkSession, tmp_path: Path, by: Literal["task", "group"]
) -> None:
    lists, maps = "ARRAY<ARRAY<STRING>>", "MAP<STRING, ARRAY<MAP<INT, BINARY>>>"
    columns = {"id": "BIGINT NOT NULL", "a": lists, "m": maps.replace("BINARY", "BYTES")}
    table = table_at(tmp_path / "t", columns, bucket="2")
    values = [f"CAST(array() AS {lists}) a", f"CAST(map() AS {maps}) m"]
    df = spark.range(3000).selectExpr("id", *values)
    spark_bridge.write(df, table, by=by)

    assert held(table) == sorted(((i, [], {}) for i in range(3000)), key=repr)


def test_dynamic_buckets_have_one_assigner_a_partition(spark: SparkSession, tmp_path: Path) -> None:
    columns = {"id": "BIGINT NOT NULL", "v": "STRING NOT NULL", "n": "INT"}
    options = {"bucket": "-1", "dynamic_bucket__target_row_num": "50"}
    table = table_at(tmp_path / "t", columns, keys=("id", "v"), partitions=("v",), **options)
    spark_bridge.write(frame(spark, ROWS, 3), table)
    spark_bridge.write(frame(spark, ROWS.with_columns(n=pl.lit(5, pl.Int32)), 2), table)
    table.write(ROWS.head(100).with_columns(n=pl.lit(6, pl.Int32)))
    expected = ROWS.with_columns(n=pl.when(pl.col("id") < 100).then(6).otherwise(5).cast(pl.Int32))

    assert held(table) == sorted(expected.rows(), key=repr)
    assert table.inspect.files()["bucket"].max() == 2


def test_append_tables_take_rows_of_any_task(spark: SparkSession, tmp_path: Path) -> None:
    unaware = table_at(tmp_path / "u", keys=())
    fixed = table_at(tmp_path / "f", keys=(), bucket="3", bucket_key="v")
    twice = pl.concat([ROWS, ROWS])
    result = spark_bridge.write(frame(spark, twice, 3), unaware)
    spark_bridge.write(frame(spark, twice, 3), fixed)

    assert held(unaware) == held(fixed) == sorted(twice.rows(), key=repr)
    assert result.distribution == "none"
    assert result.files == 3


@pytest.mark.parametrize("kind", ["STRING", "DATE", "DOUBLE"])
@pytest.mark.sampled(3)
def test_one_day_of_an_append_table_is_spread_over_tasks(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    columns = {"id": "BIGINT", "dt": kind}
    table = table_at(tmp_path / "t", columns, keys=(), partitions=("dt",))
    value = "1.5D" if kind == "DOUBLE" else "DATE '2026-01-01'"
    df = spark.range(0, 40_000, 1, 4).selectExpr("id", f"CAST({value} AS {kind}) dt")
    small = spark_bridge.write(df, table)
    spark.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", "40kb")
    try:
        large = spark_bridge.write(df, table)
    finally:
        spark.conf.unset("spark.sql.adaptive.advisoryPartitionSizeInBytes")

    assert small.distribution == large.distribution == "rebalance"
    assert (len(small.tasks), len(large.tasks)) == (1, 4)
    assert table.scan().collect().height == 80_000


def test_days_of_an_append_table_stay_together(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", {"id": "BIGINT", "p": "BIGINT"}, keys=(), partitions=("p",))
    result = spark_bridge.write(spark.range(0, 1000, 1, 4).selectExpr("id", "id % 5 p"), table)

    assert result.files == 5


@pytest.mark.parametrize("by", ["task", "group"])
def test_lists_and_maps_of_void_take_the_types_of_the_table(
    spark: SparkSession, tmp_path: Path, by: Literal["task", "group"]
) -> None:
    columns = {
        "id": "BIGINT NOT NULL",
        "a": "ARRAY<INT>",
        "m": "MAP<STRING, ARRAY<INT>>",
        "r": "ROW<x INT, y ARRAY<STRING>>",
    }
    table = table_at(tmp_path / "t", columns, bucket="2")
    df = spark.range(3).select(
        "id",
        f.array().alias("a"),
        f.create_map().alias("m"),
        f.struct(f.lit(None).alias("x"), f.array().alias("y")).alias("r"),
    )
    spark_bridge.write(df, table, by=by)
    listed = spark.range(3, 5).select("id", f.array(f.lit(None)).alias("a"))
    spark_bridge.write(listed, table, by=by)

    empty: list[Any] = [(i, [], {}, {"x": None, "y": []}) for i in range(3)]
    assert held(table) == [*empty, *((i, [None], None, None) for i in (3, 4))]


def test_a_list_of_void_for_another_type_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", {"id": "BIGINT NOT NULL", "a": "INT"}, bucket="1")
    df = spark.range(1).select("id", f.array().alias("a"))

    with pytest.raises((InvalidRequest, Unsupported), match="column=a"):
        spark_bridge.write(df, table)


def test_key_of_other_types_is_routed_by_python(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", {"id": "DOUBLE NOT NULL", "v": "STRING"}, bucket="3")
    rows = pl.DataFrame({"id": [i / 2 for i in range(50)], "v": ["x"] * 50})
    result = spark_bridge.write(frame(spark, rows), table)

    assert result.distribution == "arrow"
    assert held(table) == sorted(rows.rows(), key=repr)


def test_null_goes_where_the_default_value_of_its_partition_goes(
    spark: SparkSession, tmp_path: Path
) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("d")
    columns = {"id": "BIGINT", "p": "STRING"}
    session.create_table("d.t", columns, partition_keys=["p"])
    change = lc.SchemaChange.update_column_default_value("p", "x")
    session.alter_table("d.t", [change])
    table = session.get_table("d.t")
    df = spark.range(40).withColumn("p", f.expr("if(id % 2 = 0, 'x', null)"))
    result = spark_bridge.write(df, table, tasks=4)
    missing = spark_bridge.write(spark.range(40, 50), table, tasks=4)

    assert held(table) == sorted([(i, "x") for i in range(50)], key=repr)
    assert (result.distribution, result.files) == ("rebalance", 1)
    assert (missing.distribution, missing.rows) == ("none", 10)


def test_one_identifier_is_committed_once(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="2")
    df = frame(spark, ROWS)
    first = spark_bridge.write(df, table, commit_user="job", identifier=7)
    again = spark_bridge.write(df, table, commit_user="job", identifier=7)

    assert (first.snapshot_ids, first.already_committed) == ((1,), False)
    assert (again.snapshot_ids, again.already_committed) == ((1,), True)
    assert again.tasks == ()
    assert table.last_identifier("job") == 7


def test_empty_frame_commits_its_number_alone(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="2")
    empty = frame(spark, ROWS).where("false")

    assert spark_bridge.write(empty, table).snapshot_ids == ()
    assert spark_bridge.write(empty, table, commit_user="j", identifier=1).snapshot_ids == (1,)


def test_overwrites_replace_what_they_say(spark: SparkSession, tmp_path: Path) -> None:
    columns = {"id": "BIGINT NOT NULL", "v": "STRING NOT NULL", "n": "INT"}
    table = table_at(tmp_path / "t", columns, keys=("id", "v"), partitions=("v",), bucket="2")
    spark_bridge.write(frame(spark, ROWS), table)
    v1 = ROWS.filter(v="v1").head(3)
    spark_bridge.write(frame(spark, v1), table, "overwrite")
    dynamic = pl.concat([ROWS.filter(pl.col("v") != "v1"), v1])

    assert held(table) == sorted(dynamic.rows(), key=repr)
    spark_bridge.write(frame(spark, v1.head(1)), table, "overwrite", {"v": "v1"})
    assert held(table) == sorted(
        pl.concat([ROWS.filter(pl.col("v") != "v1"), v1.head(1)]).rows(), key=repr
    )
    with pytest.raises(InvalidRequest, match="outside the partition"):
        spark_bridge.write(frame(spark, ROWS), table, "overwrite", {"v": "v1"})
    assert files_of(table) >= live_files_of(table)
    spark_bridge.write(frame(spark, v1), table, "overwrite", dynamic=False)
    assert held(table) == sorted(v1.rows(), key=repr)


def test_kinds_come_from_a_column_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    columns = {"id": "BIGINT NOT NULL", "k": "STRING"}
    table = table_at(
        tmp_path / "t",
        columns,
        bucket="2",
        rowkind__field="k",
        changelog_producer="input",
    )
    rows = pl.DataFrame({"id": range(10), "k": ["+I"] * 10})
    spark_bridge.write(frame(spark, rows), table)
    result = spark_bridge.write(frame(spark, rows.head(4).with_columns(k=pl.lit("-D"))), table)

    assert [row[0] for row in held(table)] == list(range(4, 10))
    assert sum(task.files for task in result.tasks) == 2 * len(result.tasks)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda df: df.withColumn("x", f.lit(1)), "unknown column"),
        (lambda df: df.drop("id"), "NOT NULL is missing"),
        (lambda df: df.withColumn("n", f.lit("a")), "not of the column's type"),
        (lambda df: df.select("*", "n"), "two columns have the same name. column=n"),
        (lambda df: df.withColumn("n", f.expr("make_dt_interval(1)")), "does not exchange"),
    ],
)
def test_frame_that_does_not_fit_is_refused_before_a_task_runs(
    spark: SparkSession, tmp_path: Path, change: object, message: str
) -> None:
    table = table_at(tmp_path / "t", bucket="2")
    df = spark.createDataFrame([(1, "a", 1)], "id long, v string, n int")
    assert callable(change)

    with pytest.raises((InvalidRequest, Unsupported), match=message):
        spark_bridge.write(change(df), table)
    assert table.context.history.latest_snapshot() is None


def test_row_that_does_not_fit_is_named_and_nothing_stays(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_at(tmp_path / "t", bucket="2")
    df = frame(spark, ROWS).withColumn("n", f.expr("if(id = 777, 5000000000L, cast(n as bigint))"))

    with pytest.raises(InvalidRequest, match="5000000000") as caught:
        spark_bridge.write(df, table)
    assert caught.value.facts["column"] == "n"
    assert "task" in caught.value.facts
    assert files_of(table) == set()


def test_null_key_is_named(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="2")
    df = frame(spark, ROWS).withColumn("id", f.expr("nullif(id, 5)"))

    with pytest.raises(InvalidRequest, match="column=id"):
        spark_bridge.write(df, table)


def test_arguments_that_contradict_each_other_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_at(tmp_path / "t", bucket="2")
    df = spark.range(1)

    with pytest.raises(InvalidRequest, match="for mode='overwrite'"):
        spark_bridge.write(df, table, partition={"v": "a"})
    with pytest.raises(InvalidRequest, match="unknown mode"):
        spark_bridge.write(df, table, "ignore")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="give both"):
        spark_bridge.write(df, table, identifier=1)
    with pytest.raises(InvalidRequest, match="unknown way"):
        spark_bridge.write(df, table, by="auto")  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match="memory of one process"):
        spark_bridge.write(df.selectExpr("cast(id as int) id"), new_table())


def test_all_rows_in_one_bucket_and_more_buckets_than_cores(
    spark: SparkSession, tmp_path: Path
) -> None:
    one = table_at(tmp_path / "one", bucket="64", bucket_key="id", keys=("id", "v"))
    same = ROWS.with_columns(id=pl.lit(7, pl.Int64), v=pl.col("id").cast(pl.String))
    many = table_at(tmp_path / "many", bucket="64")
    result = spark_bridge.write(frame(spark, same), one)
    spread = spark_bridge.write(frame(spark, ROWS), many)

    assert (len(result.tasks), result.files, result.rows_stored) == (1, 1, 1000)
    assert held(many) == sorted(ROWS.rows(), key=repr)
    assert spread.files == 64
    assert len(spread.tasks) <= 32


def test_small_memory_makes_no_other_files(spark: SparkSession, tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": range(60_000), "v": [f"text {i}" * 9 for i in range(60_000)]})
    table = table_at(tmp_path / "t", bucket="2")
    result = spark_bridge.write(frame(spark, rows), table, memory_per_task=4 << 20)

    assert result.files == 2
    assert table.scan().select("id", "v").sort("id").collect().equals(rows)


@pytest.mark.parametrize("by", ["task", "group"])
@pytest.mark.sampled(2)
def test_ten_thousand_partitions_are_one_commit(
    spark: SparkSession, tmp_path: Path, by: str
) -> None:
    table = table_at(tmp_path / "t", {"p": "INT", "v": "BIGINT"}, keys=(), partitions=("p",))
    count = 10_000 if by == "task" else 1_500
    df = spark.range(2 * count).selectExpr(f"cast(id % {count} as int) p", "id v")
    result = spark_bridge.write(df, table, by=by)  # type: ignore[arg-type]

    assert (result.rows, result.files, result.snapshot_ids) == (2 * count, count, (1,))
    assert table.scan().select(pl.col("v").sum()).collect().item() == sum(range(2 * count))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mode": "overwrite", "partition": {"v": "a"}, "dynamic": True}, "leave dynamic out"),
        ({"mode": "overwrite", "dynamic": "false"}, "dynamic is True or False"),
        ({"mode": "overwrite", "partition": {}}, "at least one"),
        ({"mode": "append", "partition": {}}, "mode='overwrite'"),
        ({"tasks": "2"}, "tasks is a whole number"),
        ({"tasks": 0}, "tasks is a whole number"),
        ({"memory_per_task": 0}, "memory_per_task is a whole number"),
        ({"by": "group", "tasks": 2}, "leave tasks out"),
    ],
)
def test_arguments_that_would_be_ignored_are_refused(
    spark: SparkSession, tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    columns = {"id": "BIGINT NOT NULL", "v": "STRING NOT NULL", "n": "INT"}
    table = table_at(tmp_path / "t", columns, keys=("id", "v"), partitions=("v",), bucket="1")

    with pytest.raises(InvalidRequest, match=message):
        spark_bridge.write(frame(spark, ROWS), table, **given)
    assert held(table) == []


def test_append_table_is_written_by_as_many_tasks_as_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_at(tmp_path / "t", keys=())
    result = spark_bridge.write(frame(spark, ROWS, 3), table.path, tasks=2)

    assert (len(result.tasks), result.distribution) == (2, "none")
    assert len(held(table)) == 1000


def test_rows_that_no_read_shows_yet_are_told_of(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="1", merge_engine="first-row")

    with pytest.warns(UserWarning, match=r"table\.compact\(\)"):
        spark_bridge.write(frame(spark, ROWS), table)
    assert held(table) == []
    table.compact()
    assert len(held(table)) == 1000
