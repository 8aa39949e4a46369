"""Computes the demo's expected results a second time, by plain Polars over the CSV file.

`planned` are all flights of the CSV, `flown` those that departed.
"""

from __future__ import annotations

from datetime import datetime

import polars as pl

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
