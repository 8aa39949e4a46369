"""Spark reads what lakecore reads: each way, at each state, and nothing by half."""

from __future__ import annotations

import math
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, MapType, StructType

import lakecore as lc
from lakecore.errors import CorruptTable, InvalidRequest, NotFound
from spark_bridge.attach_tables import register
from spark_bridge.read_frame import read
from spark_bridge.settings import settings as set_meanwhile
from spark_bridge.source import LakecoreSource
from spark_bridge.write_frame import write
from tests.spark.frames import held, table_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING", "qty": "INT"}


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def make(path: Path, **options: str) -> lc.Table:
    """A table of 100 rows, half of which a second commit replaced."""
    table = table_at(path, COLUMNS, bucket="2", write_only="true", **options)
    first = pl.DataFrame({"id": range(100), "name": [f"n{i}" for i in range(100)], "qty": 1})
    table.write(first)
    table.write(first.filter(pl.col("id") >= 50).with_columns(qty=pl.lit(2)))
    return table


def load(spark: SparkSession, table: lc.Table, **options: object) -> DataFrame:
    reader = spark.read.format("lakecore")
    for key, value in options.items():
        reader = reader.option(key.replace("__", ".").replace("_", "-"), str(value))
    return reader.load(table.path)


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def test_source_and_read_give_the_merged_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")

    assert rows(load(spark, table)) == rows(read(spark, table)) == held(table)
    assert rows(read(spark, table.path, columns=["qty", "id"])) == sorted(
        table.to_polars(columns=["qty", "id"]).rows(), key=repr
    )


def test_one_frame_in_several_places_of_a_query(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")

    for frame in (load(spark, table), read(spark, table)):
        assert frame.where("id = 5").count() == 1
        assert frame.count() == 100
        assert rows(frame.where("id=5").union(frame.where("id=7")).select("id")) == [(5,), (7,)]
        assert frame.where("id > 90").crossJoin(frame.select("qty")).count() == 900
        joined = frame.alias("a").join(frame.alias("b"), "id").where("a.qty = 2 and b.id < 60")
        assert joined.count() == 10


def test_a_frame_keeps_its_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    frames = [load(spark, table), read(spark, table)]
    table.write(pl.DataFrame({"id": [1000], "name": ["late"], "qty": [3]}))

    assert [frame.count() for frame in frames] == [100, 100]
    assert load(spark, table).count() == 101


def test_every_way_of_naming_a_state(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    first = table.context.history.snapshot(1).time_ms
    (tmp_path / "t" / "tag").mkdir()
    (tmp_path / "t" / "tag" / "tag-one").write_bytes(
        (tmp_path / "t" / "snapshot" / "snapshot-1").read_bytes()
    )
    then = held(table, snapshot_id=1)

    for options in (
        {"snapshot_id": 1},
        {"tag": "one"},
        {"timestamp": first},
        {"versionAsOf": 1},
        {"versionAsOf": "one"},
        {"timestampAsOf": first},
        {"scan__snapshot_id": 1},
    ):
        assert rows(load(spark, table, **options)) == then, options
    assert rows(read(spark, table, snapshot_id=1)) == then
    assert rows(read(spark, table, tag="one")) == then
    assert rows(read(spark, table, timestamp=first)) == then


def test_a_time_without_a_zone_is_one_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    first = datetime.fromtimestamp(table.context.history.snapshot(1).time_ms / 1000, UTC)
    after = first + timedelta(milliseconds=1)
    then = held(table, snapshot_id=1)
    in_tokyo = after.astimezone(ZoneInfo("Asia/Tokyo"))

    with set_meanwhile(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        assert rows(read(spark, table, timestamp=in_tokyo.replace(tzinfo=None))) == then
        assert rows(read(spark, table, timestamp=str(in_tokyo.replace(tzinfo=None)))) == then
        assert rows(read(spark, table, timestamp=after)) == then
        assert rows(load(spark, table, timestampAsOf=in_tokyo.isoformat())) == then
    for option in ("timestamp", "timestampAsOf"):
        with pytest.raises(Exception, match="a time needs its zone"):
            load(spark, table, **{option: "2026-01-01 00:00:00"})


@pytest.mark.parametrize("state", [{"snapshot_id": 1}, {"tag": "no"}, {"timestamp": 1}])
def test_system_table_is_read_as_it_is(
    spark: SparkSession, tmp_path: Path, state: dict[str, Any]
) -> None:
    table = make(tmp_path / "t")

    with pytest.raises(InvalidRequest, match="as it is"):
        read(spark, f"{table.path}$files", **state)


def test_version_of_a_system_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    path = f"{table.path}$snapshots"

    with pytest.raises(Exception, match="as it is"):
        spark.read.format("lakecore").option("versionAsOf", "77").load(path)
    assert spark.read.format("lakecore").load(path).count() == 2


@pytest.mark.parametrize(
    "asked",
    ["name string not null", "a array<int not null>", "r struct<x int not null>", "m map<int,int>"],
)
def test_column_that_may_be_null_is_not_taken_for_another(
    spark: SparkSession, tmp_path: Path, asked: str
) -> None:
    kinds = {"id": "INT NOT NULL", "name": "STRING", "a": "ARRAY<INT>", "r": "ROW<x INT>"}
    table = table_at(tmp_path / "t", {**kinds, "m": "MAP<INT, INT>"}, keys=())
    table.write([{"id": 1}, {"id": 2, "name": "b", "a": [None]}])
    schema = StructType.fromDDL(asked.replace("int not null>", "int>"))
    field = schema.fields[0]
    match field.dataType:
        case ArrayType():
            field.dataType.containsNull = False
        case MapType():
            field.dataType.valueContainsNull = False
        case StructType():
            field.dataType.fields[0].nullable = False

    with pytest.raises(Exception, match="without NOT NULL"):
        spark.read.format("lakecore").schema(schema).load(table.path).count()
    given = spark.read.format("lakecore").schema("id int not null, name string")
    assert given.load(table.path).where("name is null").count() == 1


def test_a_text_is_one_column(spark: SparkSession, tmp_path: Path) -> None:
    assert read(spark, make(tmp_path / "t"), columns="id").columns == ["id"]
    with pytest.raises(InvalidRequest, match="unknown column"):
        read(spark, make(tmp_path / "t"), columns="i")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"snapshot_id": 1, "tag": "one"}, "one way only"),
        ({"versionAsOf": 1, "snapshot_id": 1}, "one way only"),
        ({"snapshot_id": "x"}, "a snapshot id is a number"),
        ({"snapshot_id": 77}, "77"),
        ({"tag": "nothing"}, "nothing"),
        ({"no_such_option": 1}, "no-such-option"),
        ({"where": "price > 1"}, "price"),
        ({"where": "id >"}, "id >"),
        ({"where": "qty"}, "a condition is true or false"),
        ({"snapshot_id": "²"}, "a snapshot id is a number"),
        ({"snapshot_id": 1, "scan__snapshot_id": 2}, "one way only"),
        ({"incremental_between": "1,2"}, "Table.changes"),
    ],
)
def test_what_is_not_understood_is_refused(
    spark: SparkSession, tmp_path: Path, options: dict[str, object], message: str
) -> None:
    table = make(tmp_path / "t")

    with pytest.raises(Exception, match=message):
        load(spark, table, **options).collect()


def test_a_projection_by_schema(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    reader = spark.read.format("lakecore")

    frame = reader.schema("qty int, id long").load(table.path)
    assert frame.columns == ["qty", "id"]
    assert rows(frame) == sorted(table.to_polars(columns=["qty", "id"]).rows(), key=repr)
    with pytest.raises(Exception, match=r"unknown column.*price"):
        reader.schema("price long").load(table.path).collect()
    with pytest.raises(Exception, match="asked=int type=bigint"):
        reader.schema("id int").load(table.path).collect()
    with pytest.raises(InvalidRequest, match="each once"):
        read(spark, table, columns=["id", "id"])


def test_conditions_prune_and_filter(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    wanted = sorted(table.to_polars(where="id > 45 and qty = 2").rows(), key=repr)

    assert rows(load(spark, table, where="id > 45 and qty = 2")) == wanted
    assert rows(read(spark, table, where="id > 45 and qty = 2")) == wanted
    assert rows(read(spark, table, where=(pl.col("id") > 45) & (pl.col("qty") == 2))) == wanted
    assert rows(read(spark, table, columns=["name"], where="qty = 2 and id = 50")) == [("n50",)]
    assert read(spark, table, where="id = 12345").count() == 0
    with pytest.raises(InvalidRequest, match="price"):
        read(spark, table, where=pl.col("price") > 1)
    with pytest.raises(InvalidRequest, match="one row at a time"):
        read(spark, table, where=pl.col("id") > pl.col("id").mean())


def test_files_that_need_no_merge_go_to_sparks_own_reader(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = make(tmp_path / "t")
    table.compact(full=True)
    raw = read(spark, table)
    table.write(pl.DataFrame({"id": [50], "name": ["late"], "qty": [3]}))
    mixed, by_lakecore = read(spark, table), read(spark, table, raw_by_spark=False)

    assert len(raw.inputFiles()) == 2
    assert len(mixed.inputFiles()) == 1
    assert not by_lakecore.inputFiles()
    assert rows(raw) == held(table, snapshot_id=3)
    assert rows(mixed) == rows(by_lakecore) == held(table)
    assert mixed.schema == raw.schema == load(spark, table).schema


def test_sparks_own_reader_passes_over_no_nan_and_no_negative_zero(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = {"id": "INT", "f": "FLOAT", "a.d": "DOUBLE", "n": "INT"}
    table = table_at(tmp_path / "t", columns, keys=())
    for id_, values in enumerate([[-1.0, math.nan], [-0.0, -0.0], [0.0, 0.0]]):
        types = [pl.Int32, pl.Float32, pl.Float64, pl.Int32]
        of_id = {"id": id_, "f": values, "a.d": values, "n": 1}
        table.write(pl.DataFrame(of_id, schema=dict(zip(columns, types, strict=True))))
    raw, by_lakecore = read(spark, table), read(spark, table, raw_by_spark=False)

    assert len(raw.inputFiles()) == 3
    assert raw.schema == by_lakecore.schema
    for condition in ["f > 0", "`a.d` = double('NaN')", "f = 0", "`a.d` in (0D, 5D)", "n = 1"]:
        found, expected = rows(raw.where(condition)), rows(by_lakecore.where(condition))
        assert repr(found) == repr(expected) != "[]"


@pytest.mark.parametrize("digits", [0, 3, 6])
def test_sparks_own_reader_compares_times_by_all_that_they_are_compared_with(
    spark: SparkSession, tmp_path: Path, digits: int
) -> None:
    columns = {"id": "INT", "ts": f"TIMESTAMP({digits}) WITH LOCAL TIME ZONE"}
    table = table_at(tmp_path / "t", columns, keys=())
    at = datetime(2024, 1, 1, tzinfo=UTC)
    table.write([{"id": id_, "ts": at} for id_ in range(3)])
    raw, by_lakecore = read(spark, table), read(spark, table, raw_by_spark=False)

    assert len(raw.inputFiles()) == 1
    assert raw.schema == by_lakecore.schema
    later = "timestamp'2024-01-01 00:00:00.0005'"
    for condition in [f"ts < {later}", f"ts != {later}", f"ts NOT IN ({later})", "id < 9"]:
        assert rows(raw.where(condition)) == rows(by_lakecore.where(condition)) != []


@pytest.mark.parametrize("prefix", ["_data-", ".data-", "a:b-", "{a,b}-"])
def test_files_that_spark_would_pass_over_are_read(
    spark: SparkSession, tmp_path: Path, prefix: str
) -> None:
    table = table_at(tmp_path / "t", keys=(), data_file__prefix=prefix)
    table.write(pl.DataFrame({"id": range(3), "v": "a", "n": 1}))

    assert rows(read(spark, table)) == held(table)


def test_a_local_table_is_found_whatever_spark_takes_for_its_own_place(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = table_at(Path("t"), keys=())
    table.write(pl.DataFrame({"id": range(3), "v": "a", "n": 1}))

    with set_meanwhile(spark, {"fs.defaultFS": "hdfs://127.0.0.1:1"}):
        found = read(spark, table)
        assert rows(found) == held(table)
        assert len(found.inputFiles()) == 1
        write(found, table)
        assert read(spark, table, raw_by_spark=False).count() == len(held(table)) == 6


def test_files_of_an_older_schema_are_read_by_lakecore(spark: SparkSession, tmp_path: Path) -> None:
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    table = session.create_table("d.t", COLUMNS, options={"bucket": "-1"})
    table.write(pl.DataFrame({"id": [1], "name": ["old"], "qty": [1]}))
    change = lc.SchemaChange
    session.alter_table(
        "d.t",
        [
            change.rename_column("name", "title"),
            change.update_column_type("qty", "BIGINT"),
            change.add_column("note", "STRING"),
        ],
    )
    table = session.get_table("d.t")
    table.write(pl.DataFrame({"id": [2], "title": ["new"], "qty": [1 << 40], "note": ["x"]}))
    frame = read(spark, table)

    assert len(frame.inputFiles()) == 1
    assert rows(frame) == rows(load(spark, table)) == held(table)
    assert rows(read(spark, table, snapshot_id=1)) == [(1, "old", 1)]


def test_a_table_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", COLUMNS, bucket="2")
    never = [load(spark, table), read(spark, table)]
    table.write(pl.DataFrame({"id": [1], "name": ["a"], "qty": [1]}))
    table.truncate()
    emptied = [load(spark, table), read(spark, table)]

    for frame in never + emptied:
        assert frame.columns == ["id", "name", "qty"]
        assert frame.collect() == []
        assert frame.selectExpr("sum(qty) s").collect()[0].s is None


def test_reader_without_rows_leaves_no_partition_for_spark_to_make_up(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", COLUMNS, bucket="2")
    source = LakecoreSource({"path": table.path})
    reader = source.reader(source.schema())
    (partition,) = reader.partitions()

    assert list(reader.read(partition)) == []


def test_many_partitions_under_any_name(spark: SparkSession, tmp_path: Path) -> None:
    columns = {"p": "STRING NOT NULL", "id": "BIGINT NOT NULL", "qty": "INT"}
    table = table_at(tmp_path / "t", columns, keys=("p", "id"), partitions=("p",), bucket="1")
    names = [*(f"p{i}" for i in range(150)), "a b", "a:b", "{x}", "x=y", "ü%41", "*?[1]", "\\"]
    table.write(pl.DataFrame({"p": names}).with_columns(id=pl.int_range(pl.len()), qty=1))
    table.compact(full=True)
    frame = read(spark, table)

    assert len(frame.inputFiles()) == 157
    assert rows(frame) == rows(load(spark, table)) == held(table)
    assert rows(read(spark, table, columns=["id"], where="p = 'a:b'")) == [(151,)]


def test_a_file_that_is_gone_is_said(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    merged = [load(spark, table), read(spark, table)]
    table.compact(full=True)
    raw = read(spark, table)
    for path in (tmp_path / "t").rglob("*.parquet"):
        os.unlink(path)  # noqa: PTH108  a file of the table, gone under our feet

    for frame in merged:
        with pytest.raises(Exception, match="a file of the snapshot is missing"):
            frame.collect()
    with pytest.raises(Exception, match="does not exist"):
        raw.collect()
    with pytest.raises(CorruptTable, match="is missing"):
        read(spark, table)


def test_a_file_cut_short_is_said_before_a_task_runs(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.compact(full=True)
    for path in (tmp_path / "t").rglob("*.parquet"):
        path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(CorruptTable, match="differs from the manifest"):
        read(spark, table)


def test_no_table_there(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nothing"):
        read(spark, tmp_path / "nothing")
    with pytest.raises(Exception, match="no table in this directory"):
        spark.read.format("lakecore").load(str(tmp_path / "nothing"))
    with pytest.raises(Exception, match="no path was given"):
        spark.read.format("lakecore").load()


@pytest.mark.parametrize("name", ["snapshots", "schemas", "options", "files", "partitions"])
def test_system_tables(spark: SparkSession, tmp_path: Path, name: str) -> None:
    table = make(tmp_path / "t")
    path = f"{table.path}${name}"
    wanted = sorted(table.inspect.system_table(name).to_polars().rows(), key=repr)

    assert rows(read(spark, path)) == wanted
    assert rows(spark.read.format("lakecore").load(path)) == wanted
    if name == "files":
        some = read(spark, path, columns=["level", "bucket"], where="bucket = 1")
        assert rows(some) == [(0, 1), (0, 1)]


def test_spark_expects_as_many_rows_as_there_are(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", COLUMNS, bucket="1", write_only="true")
    ids = pl.DataFrame({"id": range(200_000)}).with_columns(name=pl.lit("x"), qty=pl.lit(1))
    table.write(ids)
    table.write(ids)
    plan = read(spark, table)._jdf.queryExecution().optimizedPlan()  # noqa: SLF001

    assert plan.stats().sizeInBytes() > 400_000 * 20, "the frame would be broadcast"


def pid(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"pid": pa.array([os.getpid()] * batch.num_rows, pa.int64())})


@pytest.mark.parametrize("buckets", ["1", "8"])
def test_a_limit_ends_tasks_by_itself(spark: SparkSession, tmp_path: Path, buckets: str) -> None:
    table = table_at(tmp_path / "t", COLUMNS, bucket=buckets, write_only="true")
    ids = pl.DataFrame({"id": range(5000)}).with_columns(name=pl.lit("x"), qty=pl.lit(1))
    table.write(ids)
    table.write(ids.head(2500).with_columns(qty=pl.lit(2)))
    right = set(held(table))
    workers = {row.pid for row in spark.range(64).mapInArrow(pid, "pid long").collect()}

    for count in (0, 1, 17, 4999, 5000, 100_000):
        some = rows(read(spark, table, limit=count))
        assert len(some) == min(count, 5000)
        assert set(some) <= right
        assert len(set(some)) == len(some)
    some = rows(read(spark, table, columns=["id", "qty"], where="qty = 2", limit=70_000))
    assert len(some) == 2500
    assert {row.pid for row in spark.range(64).mapInArrow(pid, "pid long").collect()} <= workers

    assert len(rows(read(spark, table, where="qty = 2", limit=3))) == 3
    table.compact(full=True)
    assert len(rows(read(spark, table, limit=4001))) == 4001
    assert read(spark, f"{table.path}$files", limit=1).count() == 1
    for wrong in (-1, True, "3", 1.5):
        with pytest.raises(InvalidRequest, match="limit"):
            read(spark, table, limit=wrong)  # type: ignore[arg-type]


cells = st.one_of(st.none(), st.integers(-3, 3))


@settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    commits=st.lists(
        st.lists(st.tuples(st.integers(0, 20), cells, cells), min_size=1, max_size=15),
        min_size=1,
        max_size=3,
    ),
    engine=st.sampled_from(["deduplicate", "partial-update", "aggregation", "first-row"]),
    where=st.sampled_from([None, "a > 0", "b IS NULL OR id < 5", "NOT (a = b)", "id IN (1, 2, 3)"]),
    compacted=st.booleans(),
)
def test_spark_reads_what_lakecore_reads(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[list[tuple[int, int | None, int | None]]],
    engine: str,
    where: str | None,
    compacted: bool,  # noqa: FBT001
) -> None:
    table = table_at(
        tmp_path_factory.mktemp("random") / "t",
        {"id": "BIGINT NOT NULL", "a": "INT", "b": "INT"},
        bucket="2",
        merge_engine=engine,
        source__split__target_size="1 kb",
        source__split__open_file_cost="1 b",
        **({} if engine == "first-row" else {"write_only": "true"}),
    )
    schema = {"id": pl.Int64, "a": pl.Int32, "b": pl.Int32}
    for commit in commits:
        table.write(pl.DataFrame(commit, schema=schema, orient="row"))
    if compacted:
        table.compact(full=True)
    wanted = held(table, where=where)

    assert rows(read(spark, table, where=where)) == wanted
    assert rows(load(spark, table, **({} if where is None else {"where": where}))) == wanted


def test_columns_are_found_as_spark_finds_them(spark: SparkSession, tmp_path: Path) -> None:
    columns = {"Id": "BIGINT NOT NULL", "v": "INT", "V": "INT"}
    table = table_at(tmp_path / "t", columns, keys=("Id",), bucket="1")
    table.write(pl.DataFrame({"Id": [1], "v": [2], "V": [3]}, schema_overrides={"v": pl.Int32}))

    assert read(spark, table, columns=["ID", "v"]).collect() == [(1, 2)]
    assert read(spark, table, columns="iD").columns == ["Id"]
    files = read(spark, f"{table.path}$files", columns="LEVEL")
    assert files.columns == ["level"]
    with set_meanwhile(spark, {"spark.sql.caseSensitive": "true"}), pytest.raises(InvalidRequest):
        read(spark, table, columns=["ID"])
    unclear = table_at(tmp_path / "u", {"ab": "INT", "aB": "INT"}, keys=())
    with pytest.raises(InvalidRequest, match="another case"):
        read(spark, unclear, columns=["AB"])
