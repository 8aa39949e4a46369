"""What the bridge writes, Java Paimon and its connector for Spark read; and the other way round."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakecore as lc
import spark_bridge
from spark_bridge.types import spark_arrow_schema, spark_schema
from tests.interop import cases, limits, values
from tests.interop.arrow_values import from_arrow, to_arrow
from tests.interop.columns import Column, columns_from_json, parse_type
from tests.interop.engines import running_peers
from tests.interop.setup_peers import set_up_spark, spark_jar, spark_python
from tests.spark.conftest import ROOT, spark_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.interop.columns import Json
    from tests.interop.engines import PeerEngine

TYPES = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "CHAR(5)",
    "VARCHAR(10)",
    "STRING",
    "BYTES",
    "DECIMAL(5, 2)",
    "DECIMAL(18, 4)",
    "DECIMAL(38, 10)",
    "DATE",
    "TIMESTAMP(3)",
    "TIMESTAMP(6)",
    "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "ARRAY<INT>",
    "ARRAY<ARRAY<STRING>>",
    "MAP<STRING, BIGINT>",
    "ROW<x INT, y STRING>",
)
NESTED = ("ARRAY", "MAP", "ROW")
LAST = {"fields.default-aggregate-function": "last_non_null_value"}
ENGINES = {
    "deduplicate": {"bucket": "2"},
    "dynamic": {"bucket": "-1"},
    "partial-update": {"bucket": "2", "merge-engine": "partial-update"},
    "aggregation": {"bucket": "2", "merge-engine": "aggregation", **LAST},
    "first-row": {"bucket": "2", "merge-engine": "first-row"},
    "append": {},
}
FIRST, SECOND = range(6), range(3, 9)


def data(keys: Sequence[int], shift: int, columns: dict[str, str]) -> pa.Table:
    """Rows of these keys, with values of every type that the interop suite knows for it."""
    known = {f"c{i}": cases.VALUES[text] for i, text in enumerate(TYPES)}
    rows: list[list[Json]] = []
    for key in keys:
        found = [known[name] for name in columns if name != "k"]
        # Java takes all values of an empty map, or of none, for the same.
        rows.append([key, *(each[(key + shift) % len(each)] for each in found)])
    parsed = [Column(name, parse_type(text)) for name, text in columns.items()]
    return to_arrow(values.canonical_rows(rows, parsed), parsed)


def for_engine(engine: str) -> dict[str, str]:
    """The columns of the table of an engine: aggregation functions take no parts."""
    chosen = {
        f"c{i}": text
        for i, text in enumerate(TYPES)
        if engine != "aggregation" or not text.startswith(NESTED)
    }
    return {"k": "INT" if engine == "append" else "INT NOT NULL", **chosen}


def spark_frame(spark: SparkSession, table: lc.Table, rows: pa.Table) -> DataFrame:
    schema = spark_schema(table.schema.fields, nullable=True)
    return spark.createDataFrame(rows.cast(spark_arrow_schema(schema)), schema)


def plain(rows: pa.Table) -> list[str]:
    """Rows as sorted texts: instants in UTC, whichever zone or unit their type has."""
    columns = []
    for name in sorted(rows.column_names):
        column = rows.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.timestamp("us"))
        if pa.types.is_date(column.type):
            # The connector stores 0001-01-01 as a day before the first that Python knows.
            column = column.cast(pa.int32())
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        columns.append([f"{name}={_text(value)}" for value in column.to_pylist()])
    return sorted(" ".join(row) for row in zip(*columns, strict=True))


def _text(value: object) -> str:
    if isinstance(value, dict):
        return str({name: _text(part) for name, part in value.items()})
    return repr(value)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with the database `d`."""
    home = tmp_path_factory.mktemp("peers") / "w"
    lc.connect(home, create=True).create_database("d")
    return home


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], PeerEngine]]:
    with running_peers(tmp_path_factory.mktemp("logs")) as peer:
        yield peer


@pytest.fixture(scope="module")
def connector(warehouse: Path) -> Iterator[Callable[..., None]]:
    """Runs SQL by Paimon's connector, on the warehouse as catalog `p`."""
    set_up_spark()
    with _running(warehouse) as process:

        def run(*statements: str) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(statements) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            assert line, "the connector ended"
            error = json.loads(line)
            assert error is None, error

        yield run


@contextmanager
def _running(warehouse: Path) -> Iterator[subprocess.Popen[str]]:
    python = str(spark_python())
    environment = {
        **spark_environment(),
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "PAIMON_SPARK_JAR": str(spark_jar()),
    }
    environment.pop("SPARK_HOME", None)
    process = subprocess.Popen(
        [python, "-W", "ignore", "-m", "tests.spark.connector", str(warehouse)],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


_dumps = count()


def dump(connector: Callable[..., None], warehouse: Path, name: str) -> pa.Table:
    """The rows of a table as the connector reads them."""
    target = warehouse.parent / f"dump-{next(_dumps)}"
    connector(
        f"INSERT OVERWRITE LOCAL DIRECTORY '{target}' USING parquet SELECT * FROM p.d.`{name}`"
    )
    return pq.read_table(target)


@pytest.mark.filterwarnings("ignore:reads of .* leave out the rows until they are compacted")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.sampled(2)
def test_java_and_the_connector_read_what_the_bridge_writes(
    engine: str,
    spark: SparkSession,
    warehouse: Path,
    peers: Callable[[str], PeerEngine],
    connector: Callable[..., None],
) -> None:
    session, name = lc.connect(warehouse), f"ours_{engine.replace('-', '_')}"
    columns, keys = for_engine(engine), [] if engine == "append" else ["k"]
    table = session.create_table(f"d.{name}", columns, primary_keys=keys, options=ENGINES[engine])
    for keys_written, shift in ((FIRST, 0), (SECOND, 1)):
        df = spark_frame(spark, table, data(keys_written, shift, columns))
        spark_bridge.write(df, table)
    if engine == "deduplicate":
        gone = spark_frame(spark, table, data([1], 0, columns)).selectExpr("*", "'-D' _row_kind")
        spark_bridge.write(gone, table)
    if engine == "first-row":
        spark_bridge.compact(spark, table, full=True)
    rows = table.to_arrow()
    assert rows.num_rows == {"append": 12, "deduplicate": 8}.get(engine, 9)

    newest = max((warehouse / "d.db" / name / "schema").iterdir(), key=lambda p: p.name)
    parsed = columns_from_json(json.loads(newest.read_text())["fields"])
    by_java = peers(limits.JAVA).read(warehouse / "d.db" / name)
    assert values.difference(by_java, values.sort_rows(from_arrow(rows, parsed)), parsed) == []
    if engine != "first-row":
        # 0.9 reads such a table by a changelog of look-ups, which was not written.
        assert plain(dump(connector, warehouse, name)) == plain(rows)
    spark_bridge.compact(spark, table, full=True)
    again = peers(limits.JAVA).read(warehouse / "d.db" / name)
    assert values.difference(again, values.sort_rows(by_java), parsed) == []


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "append"])
def test_the_bridge_reads_what_the_connector_writes_and_goes_on(
    engine: str, spark: SparkSession, warehouse: Path, connector: Callable[..., None]
) -> None:
    session, name = lc.connect(warehouse), f"theirs_{engine.replace('-', '_')}"
    columns, keys = for_engine(engine), [] if engine == "append" else ["k"]
    options = {**ENGINES[engine], "write-only": "true"}
    table = session.create_table(f"d.{name}", columns, primary_keys=keys, options=options)
    schema = spark_arrow_schema(spark_schema(table.schema.fields, nullable=True))
    for number, (keys_written, shift) in enumerate(((FIRST, 0), (SECOND, 1))):
        file = warehouse.parent / f"{name}-{number}.parquet"
        pq.write_table(data(keys_written, shift, columns).cast(schema), file)
        connector(f"INSERT INTO p.d.{name} SELECT * FROM parquet.`{file}`")
    theirs = dump(connector, warehouse, name)

    assert plain(spark_bridge.read(spark, table).toArrow()) == plain(theirs)
    spark_bridge.write(spark_frame(spark, table, data([2, 50], 2, columns)), table)
    assert plain(dump(connector, warehouse, name)) == plain(table.to_arrow())
    assert os.environ["PYSPARK_PYTHON"]
