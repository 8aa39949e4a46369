"""`lakecore demo`: in two minutes, what lakecore is for.

A year of flights as a table: first the timetable, then 53 weeks of news as upserts and deletions,
one commit a week. Then it is asked in SQL and in Polars, at an earlier snapshot, and for what a
filter reads; and the files are drawn.

INVARIANT: every number it prints about flights was computed a second time, by plain Polars over
the CSV; where they differ it stops with an error.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn
from rich.rule import Rule
from rich.text import Text

from lakecore.cli import pictures
from lakecore.cli.flights import COLUMNS, KEY, WEEKS, load_flights, news, timetable
from lakecore.errors import CorruptTable
from lakecore.io.ambient import SYSTEM
from lakecore.session import connect

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lakecore.table.handle import Table

__all__ = ["demo"]

_WIDTH_MAX = 100
_BLIZZARD_WEEK = 6
_BLIZZARD = "scheduled >= '2013-02-08' AND scheduled < '2013-02-09'"
_BLIZZARD_DAY = datetime(2013, 2, 8)
_ONE_FLIGHT = """
    origin = 'JFK' AND carrier = 'HA' AND flight = 51
    AND scheduled >= '2013-02-05' AND scheduled < '2013-02-12'
"""

_CREATE = """
catalog = lc.connect(path, create=True)  # or "s3://bucket/warehouse"
catalog.create_database("demo")
flights = catalog.create_table(
    "demo.flights", columns,
    primary_keys=["origin", "scheduled", "carrier", "flight"],
    partition_keys=["origin"],
    options={"bucket": "2", "bucket-key": "carrier,flight"})
flights.write(timetable)
"""
_WRITE = """
for week in weeks:       # any Arrow, Polars, pandas, DuckDB data
    flights.write(week)  # column _row_kind: "+I" or "-D"
"""
_CHANGED = """
before = flights.scan(snapshot_id=1)
now = flights.scan()
before.join(now, on=key, how="anti")
"""
_SQL = """
SELECT origin, count(*) AS flights,
       round(avg(dep_delay), 1) AS minutes
FROM flights
GROUP BY origin ORDER BY origin
"""
_POLARS = """
hour = pl.col("scheduled").dt.hour()
late = pl.col("dep_delay").mean()
flights.scan().group_by(hour).agg(late)
"""
_TRAVEL = """
on_8_february = flights.scan(
    where="scheduled >= '2013-02-08' AND ...",
    snapshot_id=...)   # or tag=..., timestamp=...
"""


def demo(path: str | None, keep: bool) -> None:  # noqa: FBT001  the flag of the command line
    """Show what lakecore is for, with a year of real flights. Takes seconds."""
    terminal = Console(highlight=False)
    console = Console(highlight=False, width=min(terminal.width, _WIDTH_MAX))
    warehouse = tempfile.mkdtemp(prefix="lakecore-demo-") if path is None else path
    made_here = path is None or not Path(warehouse).exists()
    try:
        story = _begin(console, warehouse)
        for chapter in (_load, _stream, _changes, _ask, _travel, _prune, _draw):
            chapter(story)
        _end(story, keep=keep)
    finally:
        if not keep and made_here:
            shutil.rmtree(warehouse, ignore_errors=True)


@dataclass(slots=True)
class _Story:
    """What the chapters share. `flights` is the CSV, `left` its flights that left.

    `snapshots` are those of the timetable and of each week.
    """

    console: Console
    table: Table
    flights: pl.DataFrame
    left: pl.DataFrame
    started_ms: int
    snapshots: list[int] = field(default_factory=list)
    checked: int = 0
    chapters: int = field(default=0)

    def chapter(self, title: str, says: str) -> None:
        self.chapters += 1
        self.console.print()
        self.console.print(Rule(f"[bold]{self.chapters}  {title}[/]", align="left", style="dim"))
        self.show(Text(says))

    def show(self, *parts: RenderableType) -> None:
        self.console.print(Padding(Group(*parts), (0, 0, 0, 1)))

    def check(self, question: str, got: object, expected: object) -> None:
        """Compare an answer of the table with one of the CSV."""
        if got != expected:
            raise CorruptTable(
                "the table and the CSV differ", question=question, table=got, csv=expected
            )
        self.checked += 1


def _begin(console: Console, warehouse: str) -> _Story:
    started_ms = SYSTEM.now_ms()
    console.print(
        Panel(
            "Files, on a disk or in S3, that are a table: [b]update[/b] and [b]delete[/b] rows,\n"
            "see every [b]earlier state[/b], ask with [b]DuckDB[/b] and [b]Polars[/b]. "
            "No server, no JVM.\n"
            "The format is Apache Paimon's: Flink and Spark read the same files.",
            title="[bold cyan]lakecore[/]",
            title_align="left",
            border_style="cyan",
            padding=(0, 1),
        )
    )
    with console.status("reading flights out of New York, 2013 …"):
        flights = load_flights()
    session = connect(warehouse, create=True)
    session.create_database("demo", ignore_if_exists=True)
    table = session.create_table(
        "demo.flights",
        COLUMNS,
        primary_keys=KEY,
        partition_keys=["origin"],
        options={"bucket": "2", "bucket-key": "carrier,flight"},
    )
    return _Story(
        console=console,
        table=table,
        flights=flights,
        left=flights.filter("left"),
        started_ms=started_ms,
    )


def _load(story: _Story) -> None:
    story.chapter(
        "A timetable becomes a table",
        f"{story.flights.height:,} flights out of New York in 2013, before any has left.",
    )
    began = SYSTEM.now_ms()
    with story.console.status("writing …"):
        result = story.table.write(timetable(story.flights))
    story.snapshots.append(result.snapshot_ids[0])
    story.check("keys are unique", story.flights.n_unique(KEY), story.flights.height)
    story.check("rows of the timetable", _count(story.table), story.flights.height)
    story.show(
        pictures.code(_CREATE, "python"),
        _done(
            f"{result.rows:,} rows, {result.files_added} files, "
            f"{result.bytes_added / 2**20:.1f} MiB, snapshot {result.snapshot_id}",
            began,
        ),
    )


def _stream(story: _Story) -> None:
    story.chapter(
        "The year happens",
        "Each week brings delays (upserts) and cancellations (deletes), in one commit.",
    )
    began = SYSTEM.now_ms()
    bar = Progress(
        TextColumn(" week {task.completed:>2}"),
        BarColumn(bar_width=40, complete_style="cyan", finished_style="cyan"),
        TextColumn("{task.description}"),
        console=story.console,
        transient=True,
        disable=not story.console.is_terminal,
    )
    upserts = deletions = 0
    with bar:
        task = bar.add_task("", total=WEEKS)
        for week in range(1, WEEKS + 1):
            rows = news(story.flights, week)
            story.snapshots.append(story.table.write(rows).snapshot_ids[0])
            gone = rows.filter(_row_kind="-D").height
            upserts, deletions = upserts + rows.height - gone, deletions + gone
            bar.update(task, advance=1, description=f"{upserts:,} flown, {deletions:,} cancelled")
    story.check("flights that left", _count(story.table), story.left.height)
    story.show(
        pictures.code(_WRITE, "python"),
        _done(f"{WEEKS} commits: {upserts:,} upserts, {deletions:,} deletes", began),
    )


def _changes(story: _Story) -> None:
    story.chapter("What changed", "Two snapshots are two frames: join them.")
    before, now = story.table.scan(snapshot_id=story.snapshots[0]), story.table.scan()
    gone = before.join(now, on=KEY, how="anti").collect()
    story.check("cancelled", gone.height, story.flights.height - story.left.height)
    latest = story.left.sort("dep_delay", *KEY, descending=True, nulls_last=True).head(1)
    cancelled = gone.filter(pl.col("scheduled").dt.date() == _BLIZZARD_DAY.date()).sort(KEY).head(1)
    lines = []
    for flight in (latest, cancelled):
        found = now.join(flight.lazy(), on=KEY, how="semi").collect()
        wanted = story.left.join(flight, on=KEY, how="semi")
        story.check("one flight", found["dep_delay"].to_list(), wanted["dep_delay"].to_list())
        outcome = "row deleted: cancelled"
        if found.height:
            outcome = f"flown, {found['dep_delay'].item():,} minutes late"
        lines.append(
            {
                "flight": f"{flight['carrier'].item()} {flight['flight'].item()} "
                f"{flight['origin'].item()}-{flight['dest'].item()}",
                "leaves": f"{flight['scheduled'].item():%d %b %H:%M}",
                "snapshot 1": "scheduled",
                "now": outcome,
            }
        )
    story.show(
        pictures.beside(
            pictures.code(_CHANGED, "python"),
            Text.assemble(
                (f"{gone.height:,}", "bold"),
                " flights are gone: cancelled\n",
                (f"{story.left.height:,}", "bold"),
                " now know their delay",
            ),
        ),
        pictures.answer(pl.DataFrame(lines)),
    )


def _ask(story: _Story) -> None:
    story.chapter("Ask in SQL, ask in Polars", "Columns and filters reach the files either way.")
    rows = story.table.to_duckdb().query("flights", _SQL)
    assert rows is not None, "a SELECT gives rows"
    airports = pl.DataFrame(rows.to_arrow_table())
    expected = story.left.group_by("origin").agg(
        flights=pl.len().cast(pl.Int64), minutes=pl.col("dep_delay").mean().round(1)
    )
    story.check("airports", airports.rows(), expected.sort("origin").rows())

    hour, late = pl.col("scheduled").dt.hour(), pl.col("dep_delay").mean()
    hours = story.table.scan().group_by(hour).agg(late).sort("scheduled").collect()
    expected = story.left.group_by(hour).agg(late).sort("scheduled")
    story.check("hours", _rounded(hours), _rounded(expected))
    story.show(
        pictures.beside(pictures.code(_SQL, "sql"), pictures.answer(airports)),
        pictures.beside(
            pictures.code(_POLARS, "python"),
            Group(
                Text("minutes late, by hour of the day"),
                pictures.spark(dict(hours.gather_every(2).iter_rows())),
            ),
        ),
    )


def _travel(story: _Story) -> None:
    asked = "How many flights leave on 8 February? It depends on when you ask."
    story.chapter("Travel back", asked)
    day = pl.col("scheduled").dt.date() == _BLIZZARD_DAY.date()
    moments = {
        0: ("the timetable", story.flights),
        _BLIZZARD_WEEK - 1: ("four days before", story.flights),
        _BLIZZARD_WEEK: ("after the blizzard", story.left),
        WEEKS: ("the end of the year", story.left),
    }
    lines = []
    for week, (name, state) in moments.items():
        snapshot_id = story.snapshots[week]
        found = story.table.scan(where=_BLIZZARD, snapshot_id=snapshot_id)
        count = found.select(pl.len()).collect().item()
        story.check(f"8 February at snapshot {snapshot_id}", count, state.filter(day).height)
        lines.append((f"snapshot {snapshot_id}", count, name))
    story.show(pictures.code(_TRAVEL, "python"), pictures.bars(lines))


def _prune(story: _Story) -> None:
    story.chapter("Read only what matters", "One flight, one week: what does that cost?")
    everything, plan = story.table.explain(), story.table.explain(where=_ONE_FLIGHT)
    found = story.table.scan(where=_ONE_FLIGHT).sort("scheduled").collect()
    week = pl.col("scheduled").is_between(datetime(2013, 2, 5), datetime(2013, 2, 12), "left")
    expected = story.left.filter(week, origin="JFK", carrier="HA", flight=51).sort("scheduled")
    shown = ("scheduled", "dep_delay")
    story.check("one week", found.select(shown).rows(), expected.select(shown).rows())
    story.show(
        pictures.code(f'print(flights.explain(where="""{_ONE_FLIGHT}"""))', "python"),
        pictures.files_left_out(plan),
        Text.assemble(
            ("✓ ", "bold green"),
            f"{plan.size_bytes / 2**10:,.0f} KiB of {everything.size_bytes / 2**10:,.0f} KiB "
            f"may matter; {found.height} rows do",
        ),
    )


def _draw(story: _Story) -> None:
    files = story.table.inspect.files()
    story.chapter(
        "What lies on disk",
        "Each bucket is a small LSM tree. A line is a sorted run, a block is a file of it.\n"
        "Newer runs lie above; a read merges them, and the newest row of a key wins.",
    )
    story.show(pictures.levels(files))


def _end(story: _Story, *, keep: bool) -> None:
    seconds = (SYSTEM.now_ms() - story.started_ms) / 1000
    story.console.print()
    story.show(
        Text.assemble(
            ("✓ ", "bold green"),
            f"Checked: {story.checked} answers equal plain Polars over the CSV. "
            f"{seconds:.0f} s in all.",
        )
    )
    if not keep:
        return
    program = "lakecore" if shutil.which("lakecore") else sys.argv[0]
    path = story.table.path
    commands = (
        f"{program} show {path} --snapshots",
        f"{program} read {path} --where \"carrier = 'HA'\" --limit 5",
        f"{program} explain {path} --where \"origin = 'JFK'\"",
    )
    story.console.print()
    story.console.print(Text("The table stays here. Try:", style="bold"))
    for command in commands:
        story.console.print(Text(f"  {command}", style="cyan"), soft_wrap=True)


def _count(table: Table) -> int:
    rows: int = table.scan().select(pl.len()).collect().item()
    return rows


def _rounded(frame: pl.DataFrame) -> list[tuple[object, ...]]:
    return frame.with_columns(pl.col(pl.Float64).round(6)).rows()


def _done(what: str, began_ms: int) -> Text:
    seconds = (SYSTEM.now_ms() - began_ms) / 1000
    return Text.assemble(("✓ ", "bold green"), what, (f"  {seconds:.1f} s", "dim"))
