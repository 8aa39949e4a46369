"""`make demo-spark`: a pipeline of a data team in Spark, on the flights of `lakecore demo`.

1. Flights out of New York land as Parquet files. A stream upserts them into a partitioned table
   with a primary key, exactly once. The driver is killed after a commit; a new one continues.
2. A second stream follows the changelog of the table, and adds up flights and delays.
3. MERGE corrects rows and deletes some, and the second stream follows.
4. The table is compacted by Spark jobs, and old snapshots expire.
5. Spark, DuckDB and Polars compute the same sums from the same files.

INVARIANT: every state is computed by plain Polars over the files, too. A difference stops the demo
with an error.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from rich.console import Console
from rich.table import Table as Lines

import spark_bridge
from lakecore import CorruptTable, connect
from lakecore.demo import COLUMNS, KEY, WEEKS, load_flights, news, timetable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from lakecore import Session, Table

DROPS = 4
KILLED_AFTER = 2
SUMS = {
    "origin": "STRING NOT NULL",
    "status": "STRING NOT NULL",
    "flights": "BIGINT",
    "minutes": "BIGINT",
}
SQL = """
SELECT origin, status, count(*) AS flights, sum(arr_delay) AS minutes
FROM flights GROUP BY origin, status ORDER BY origin, status
"""


@dataclass(slots=True)
class _Story:
    """The state that the chapters share; `expected` are the expected rows, computed by Polars."""

    console: Console
    home: Path
    spark: SparkSession
    flights: Table
    sums: Table
    expected: pl.DataFrame

    def done(self, what: str, began: float) -> None:
        """Say what is done, and how long it took."""
        self.console.print(f"  [green]✓[/] {what}  [dim]{time.monotonic() - began:.1f} s[/]")


def main(directory: str | None = None) -> None:
    """Run the pipeline, in a new directory unless one is given."""
    console = Console(highlight=False, width=100)
    home = Path(directory or tempfile.mkdtemp(prefix="lakecore-demo-spark-"))
    console.rule("[bold]1  Files land, and a stream upserts them exactly once", align="left")
    expected = _land(console, home)
    session = _create(home)
    _stream_until_killed(console, home, session)
    console.print("  starting Spark again …")
    story = _Story(
        console=console,
        home=home,
        spark=_start(home),
        flights=session.get_table("demo.flights"),
        sums=session.get_table("demo.sums"),
        expected=expected,
    )
    try:
        _stream_on(story)
        _follow(story)
        _correct(story)
        _care(story)
        _ask(story)
    finally:
        with _silent():
            story.spark.stop()
    console.print(f"\nThe tables stay in [cyan]{home / 'warehouse'}[/]")


def _land(console: Console, home: Path) -> pl.DataFrame:
    """Write the files, the oldest first. Returns the rows that they leave."""
    landing = home / "landing"
    landing.mkdir(parents=True, exist_ok=True)
    flights = load_flights()
    drops = [timetable(flights).with_columns(_row_kind=pl.lit("+I"))]
    for drop in range(DROPS):
        weeks = range(1, WEEKS + 1)
        own = [news(flights, week) for week in weeks if (week - 1) * DROPS // WEEKS == drop]
        drops.append(pl.concat(own))
    expected = drops[0].clear().drop("_row_kind")
    for number, rows in enumerate(drops):
        path = landing / f"drop-{number}.parquet"
        rows.write_parquet(path)
        # A stream of files takes the oldest first.
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        kept = expected.join(rows, on=KEY, how="anti")
        added = rows.filter(pl.col("_row_kind") != "-D").select(kept.columns)
        expected = pl.concat([kept, added])
    console.print(f"  {flights.height:,} flights of 2013 landed as {len(drops)} Parquet files")
    return expected


def _create(home: Path) -> Session:
    session = connect(home / "warehouse", create=True)
    session.create_database("demo", ignore_if_exists=True)
    session.create_table(
        "demo.flights",
        COLUMNS,
        primary_keys=KEY,
        partition_keys=["origin"],
        options={"bucket": "1", "changelog-producer": "lookup"},
    )
    session.create_table(
        "demo.sums",
        SUMS,
        primary_keys=["origin", "status"],
        options={
            "bucket": "1",
            "merge-engine": "aggregation",
            "fields.flights.aggregate-function": "sum",
            "fields.minutes.aggregate-function": "sum",
        },
    )
    return session


def _start(home: Path) -> SparkSession:
    """A session on two cores that prints nothing."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = {
        # A busy machine takes longer to start a Python process.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(home / "spark-warehouse"),
    }
    builder = SparkSession.builder.master("local[2]").appName("lakecore demo")
    for key, value in conf.items():
        builder = builder.config(key, value)
    with _silent():
        return builder.getOrCreate()


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing is printed to standard error, also by processes that start meanwhile."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


# --- 1: files to the table ------------------------------------------------------------------------


def _load(spark: SparkSession, home: Path, *, dies: bool) -> list[tuple[int, int, bool]]:
    """Stream the files into the table. Returns number, rows, and repetition of each batch."""
    sink = spark_bridge.foreach_batch(home / "warehouse/demo.db/flights", compact_every=1)

    def write(rows: DataFrame, batch: int) -> None:
        sink(rows, batch)
        if dies and batch == KILLED_AFTER:
            os.kill(os.getpid(), signal.SIGKILL)

    landing = home / "landing"
    schema = spark.read.parquet(str(landing / "drop-0.parquet")).schema
    files = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(landing))
    query = (
        files.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(home / "checkpoints/load"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [(batch, result.rows, result.already_committed) for batch, result in sink.results]


def _stream_until_killed(console: Console, home: Path, session: Session) -> None:
    console.print("  starting Spark …")
    began = time.monotonic()
    command = [sys.executable, "-W", "ignore", __file__, "--until-killed", str(home)]
    died = subprocess.run(command, capture_output=True, text=True, check=False)
    if died.returncode != -signal.SIGKILL:
        raise CorruptTable("the driver was to be killed", code=died.returncode, says=died.stderr)
    batches = len(set(_batches(session)))
    console.print(f"  {batches} batches are committed  [dim]{time.monotonic() - began:.1f} s[/]")
    console.print("  [yellow]![/] the driver is killed after a commit, before Spark records it")


def _batches(session: Session) -> list[int]:
    found = session.get_table("demo.flights").inspect.snapshots()
    by_spark = found.filter(pl.col("commit_user").str.starts_with("spark-"))
    return [int(number) for number in by_spark["commit_identifier"].to_list()]


def _stream_on(story: _Story) -> None:
    began = time.monotonic()
    for batch, rows, again in _load(story.spark, story.home, dies=False):
        says = "was committed before: nothing written" if again else f"{rows:,} rows"
        story.console.print(f"  batch {batch}: {says}")
    story.done("the new driver continues with the same checkpoint", began)
    _check("the stream of files", story.flights.refresh(), story.expected)


# --- 2: changes to sums ---------------------------------------------------------------------------


def _follow(story: _Story, *, title: bool = True) -> None:
    """Add the changes since the last call to the sums."""
    if title:
        story.console.rule("[bold]2  A second stream follows the changelog", align="left")
    began = time.monotonic()
    sink = spark_bridge.foreach_batch(story.sums)
    changes = spark_bridge.read_stream(
        story.spark, story.flights.path, columns=["origin", "status", "arr_delay"]
    )
    sign = f.when(f.col("_row_kind").isin("+I", "+U"), 1).otherwise(-1)

    def add(rows: DataFrame, batch: int) -> None:
        sums = rows.groupBy("origin", "status").agg(
            f.sum(sign.cast("bigint")).alias("flights"),
            f.sum(sign * f.coalesce("arr_delay", f.lit(0))).cast("bigint").alias("minutes"),
        )
        sink(sums, batch)

    query = (
        changes.writeStream.foreachBatch(add)
        .option("checkpointLocation", str(story.home / "checkpoints/follow"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    story.done(f"{len(sink.results)} batches of changes are in the sums", began)
    expected = _sums(story.expected)
    found = story.sums.refresh().scan().collect().filter(pl.col("flights") != 0)
    _compare("the stream of changes", found.sort("origin", "status"), expected)


def _sums(rows: pl.DataFrame) -> pl.DataFrame:
    """Flights and minutes of each origin and status, by Polars."""
    minutes = pl.col("arr_delay").cast(pl.Int64).sum().alias("minutes")
    flights = pl.len().cast(pl.Int64).alias("flights")
    return rows.group_by("origin", "status").agg(flights, minutes).sort("origin", "status")


# --- 3 to 5: corrections, care, answers -----------------------------------------------------------


def _correct(story: _Story) -> None:
    story.console.rule("[bold]3  MERGE corrects rows and deletes some", align="left")
    began = time.monotonic()
    unknown = pl.col("arr_delay").is_null() & pl.col("dep_delay").is_not_null()
    story.expected = story.expected.with_columns(
        status=pl.when(unknown).then(pl.lit("estimated")).otherwise("status"),
        arr_delay=pl.when(unknown).then("dep_delay").otherwise("arr_delay"),
    ).filter(pl.col("carrier") != "OO")
    flights = spark_bridge.read(story.spark, story.flights)
    wrong = "carrier = 'OO' OR (arr_delay IS NULL AND dep_delay IS NOT NULL)"
    source = flights.where(wrong).select(*KEY, f.col("dep_delay").alias("late"))
    merge = spark_bridge.merge(story.spark, story.flights.path, source, on=list(KEY))
    result = (
        merge.when_matched_delete("source.carrier = 'OO'")
        .when_matched_update({"arr_delay": pl.col("source.late"), "status": "estimated"})
        .execute()
    )
    story.done(f"{result.rows_updated} flights estimated, {result.rows_deleted} deleted", began)
    spark_bridge.compact(story.spark, story.flights.path)
    _check("the MERGE", story.flights.refresh(), story.expected)
    _follow(story, title=False)


def _care(story: _Story) -> None:
    story.console.rule("[bold]4  Compaction by Spark jobs, and expiry", align="left")
    began = time.monotonic()
    spark_bridge.compact(story.spark, story.flights.path, full=True)
    table = story.flights.refresh()
    files = table.inspect.files().height
    story.done(f"every bucket is one run: {files} files", began)
    began = time.monotonic()
    expired = table.expire_snapshots(retain_max=1, retain_min=1)
    story.done(f"{expired.snapshots_expired} snapshots expired", began)
    _check("the compaction", table.refresh(), story.expected)


def _ask(story: _Story) -> None:
    story.console.rule("[bold]5  Spark, DuckDB and Polars on the same files", align="left")
    spark_bridge.read(story.spark, story.flights.path).createOrReplaceTempView("flights")
    by_spark = [tuple(row) for row in story.spark.sql(SQL).collect()]
    relation = story.flights.refresh().to_duckdb().query("flights", SQL)
    assert relation is not None, "a SELECT gives rows"
    by_duckdb = pl.DataFrame(relation.to_arrow_table())
    answers = {
        "Spark": by_spark,
        "DuckDB": [(*row[:3], int(row[3])) for row in by_duckdb.rows()],
        "Polars": _sums(story.expected).rows(),
    }
    for name, rows in answers.items():
        if rows != answers["Polars"]:
            raise CorruptTable("two engines differ", engine=name, rows=rows)
    lines = Lines("origin", "status", "flights", "minutes late in sum")
    for row in by_spark:
        lines.add_row(row[0], row[1], f"{row[2]:,}", f"{row[3]:,}")
    story.console.print(lines)
    story.console.print("  [green]✓[/] Spark, DuckDB and Polars agree")


def _check(what: str, table: Table, expected: pl.DataFrame) -> None:
    """Raise CorruptTable unless the table holds exactly these rows."""
    held = table.scan().collect()
    _compare(what, held.sort(KEY), expected.select(held.columns).sort(KEY))


def _compare(what: str, held: pl.DataFrame, expected: pl.DataFrame) -> None:
    if not held.equals(expected):
        raise CorruptTable("the table and the files differ", after=what)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--until-killed"]:
        place = Path(sys.argv[2])
        _load(_start(place), place, dies=True)
    else:
        main(*sys.argv[1:])
