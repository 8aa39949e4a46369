"""`make demo-spark`: a batch pipeline in Spark, on the flights of `lakecore demo`.

Flights out of New York land as Parquet in several drops. Spark upserts each drop into a partitioned
table with a primary key. A second job corrects and deletes rows, and runs again as after a crash.
Then Spark SQL and DuckDB run the same query on the same files.

INVARIANT: every answer is computed a third time, by plain Polars over the drops. A difference stops
the demo with an error.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from rich.console import Console
from rich.table import Table as Lines

from lakecore import CorruptTable, connect
from lakecore.demo.flights import COLUMNS, KEY, WEEKS, load_flights, news, timetable
from spark_bridge import write

if TYPE_CHECKING:
    from lakecore import Table
    from spark_bridge import WriteResult

DROPS = 4
LOADER, CORRECTOR = "loader", "corrector"
SQL = """
SELECT origin, status, count(*) AS flights, sum(arr_delay) AS minutes
FROM flights GROUP BY origin, status ORDER BY origin, status
"""


@dataclass(slots=True)
class _Story:
    """The state that the chapters share; `expected` are the expected rows, computed by Polars."""

    console: Console
    spark: SparkSession
    table: Table
    landing: Path
    expected: pl.DataFrame

    def done(self, what: str, result: WriteResult, began: float) -> None:
        """Show the result of a write, and check the rows of the table."""
        seconds = time.monotonic() - began
        again = "committed before: nothing written" if result.already_committed else ""
        self.console.print(
            f"  [green]✓[/] {what}: snapshot {result.snapshot_id}, "
            f"{again or f'{result.rows:,} rows in {len(result.tasks)} tasks, {result.files} files'}"
            f"  [dim]{seconds:.1f} s[/]"
        )
        _check(what, self.table.scan().collect(), self.expected)


def main(directory: str | None = None) -> None:
    """Run the pipeline, in a new directory unless one is given."""
    console = Console(highlight=False, width=100)
    home = Path(directory or tempfile.mkdtemp(prefix="lakecore-demo-spark-"))
    story = _begin(console, home)
    try:
        _load(story)
        _correct(story)
        _ask(story)
    finally:
        story.spark.stop()
    console.print(f"\nThe table stays at [cyan]{story.table.path}[/]")


def _begin(console: Console, home: Path) -> _Story:
    console.rule("[bold]Spark writes a table that needs no connector", align="left")
    landing = home / "landing"
    landing.mkdir(parents=True, exist_ok=True)
    flights = load_flights()
    timetable(flights).write_parquet(landing / "drop-0.parquet")
    weeks = range(1, WEEKS + 1)
    for drop in range(DROPS):
        own = [news(flights, week) for week in weeks if (week - 1) * DROPS // WEEKS == drop]
        pl.concat(own).write_parquet(landing / f"drop-{drop + 1}.parquet")
    console.print(f"  {flights.height:,} flights of 2013 landed as {DROPS + 1} Parquet drops")
    catalog = connect(home / "warehouse", create=True)
    catalog.create_database("demo", ignore_if_exists=True)
    table = catalog.create_table(
        "demo.flights",
        COLUMNS,
        primary_keys=KEY,
        partition_keys=["origin"],
        options={"bucket": "2"},
    )
    console.print("  starting Spark …")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("lakecore demo")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.warehouse.dir", str(home / "spark-warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    empty = pl.DataFrame(schema=timetable(flights).schema)
    return _Story(console=console, spark=spark, table=table, landing=landing, expected=empty)


def _load(story: _Story) -> None:
    story.console.rule("[bold]1  Each drop is an upsert, committed once", align="left")
    for drop in range(DROPS + 1):
        began, path = time.monotonic(), story.landing / f"drop-{drop}.parquet"
        rows = pl.read_parquet(path)
        if "_row_kind" not in rows.columns:
            rows = rows.with_columns(_row_kind=pl.lit("+I"))
        kept = story.expected.join(rows, on=KEY, how="anti")
        added = rows.filter(pl.col("_row_kind") != "-D").drop("_row_kind")
        story.expected = pl.concat([kept, added.select(kept.columns)])
        frame = story.spark.read.parquet(str(path))
        result = write(frame, story.table, commit_user=LOADER, identifier=drop)
        story.done(f"drop {drop}", result, began)


def _correct(story: _Story) -> None:
    story.console.rule("[bold]2  A second job corrects rows and deletes some", align="left")
    unknown = pl.col("arr_delay").is_null() & pl.col("dep_delay").is_not_null()
    corrected = story.expected.with_columns(
        status=pl.when(unknown).then(pl.lit("estimated")).otherwise("status"),
        arr_delay=pl.when(unknown).then("dep_delay").otherwise("arr_delay"),
    )
    story.expected = corrected.filter(pl.col("carrier") != "OO")
    began = time.monotonic()
    # The job reads the table as it was before: what it computes is the same when it runs again.
    flights = story.spark.read.format("lakecore").load(story.table.path)
    estimated = flights.where("arr_delay IS NULL AND dep_delay IS NOT NULL AND carrier <> 'OO'")
    changes = (
        estimated.withColumn("arr_delay", f.col("dep_delay"))
        .withColumn("status", f.lit("estimated"))
        .withColumn("_row_kind", f.lit("+U"))
    ).unionByName(flights.where("carrier = 'OO'").withColumn("_row_kind", f.lit("-D")))
    first = write(changes, story.table, commit_user=CORRECTOR, identifier=1)
    story.done("arrivals estimated, flights of carrier OO deleted", first, began)
    story.console.print("  [yellow]![/] the driver dies, and the scheduler runs the job again")
    began = time.monotonic()
    again = write(changes, story.table, commit_user=CORRECTOR, identifier=1)
    if not again.already_committed or again.snapshot_ids != first.snapshot_ids:
        raise CorruptTable("the job was committed twice", snapshots=again.snapshot_ids)
    story.done("the same job", again, began)


def _ask(story: _Story) -> None:
    story.console.rule("[bold]3  Spark SQL and DuckDB, on the same files", align="left")
    path = story.table.path
    story.spark.read.format("lakecore").load(path).createOrReplaceTempView("flights")
    by_spark = [tuple(row) for row in story.spark.sql(SQL).collect()]
    relation = story.table.to_duckdb().query("flights", SQL)
    assert relation is not None, "a SELECT gives rows"
    by_duckdb = pl.DataFrame(relation.to_arrow_table())
    groups = story.expected.group_by("origin", "status")
    expected = groups.agg(pl.len().cast(pl.Int64), pl.col("arr_delay").cast(pl.Int64).sum())
    answers = {
        "Spark": by_spark,
        "DuckDB": [(*row[:3], int(row[3])) for row in by_duckdb.rows()],
        "Polars": expected.sort("origin", "status").rows(),
    }
    for name, rows in answers.items():
        if rows != answers["Polars"]:
            raise CorruptTable("two engines differ", engine=name, rows=rows, polars=expected.rows())
    lines = Lines("origin", "status", "flights", "minutes late in sum")
    for row in by_spark:
        lines.add_row(row[0], row[1], f"{row[2]:,}", f"{row[3]:,}")
    story.console.print(lines)
    story.console.print("  [green]✓[/] Spark, DuckDB and Polars agree")


def _check(what: str, held: pl.DataFrame, expected: pl.DataFrame) -> None:
    """Raise CorruptTable unless the table holds exactly these rows."""
    order = [*KEY]
    if not held.sort(order).equals(expected.select(held.columns).sort(order)):
        raise CorruptTable("the table and the drops differ", after=what)


if __name__ == "__main__":
    main(*sys.argv[1:])
