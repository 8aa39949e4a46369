"""The printing of the demo: chapters, code that is printed as it runs, and checked results."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import polars as pl
from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table as Grid
from rich.text import Text

from lakecore.errors import CorruptTable
from lakecore.io.ambient import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import date

    from rich.console import RenderableType
    from rich.status import Status

    from lakecore.table.reads.explain import Explanation


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


def bars(values: Iterable[tuple[str, int, str]]) -> Grid:
    """A grid with one bar on each line: label, number, and a remark."""
    lines = list(values)
    most = max(number for _, number, _ in lines)
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column()
    grid.add_column(justify="right")
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
    """A sparkline: a vertical bar for each value, with the value and its label below."""
    low, high = min(0.0, *values.values()), max(values.values())
    grid = Grid.grid(padding=(0, 1, 0, 0))
    for _ in values:
        grid.add_column(justify="right")
    steps = [round((value - low) / (high - low) * (len(_SPARKS) - 1)) for value in values.values()]
    grid.add_row(*(Text(_SPARKS[step] * 2, style=ACCENT) for step in steps))
    grid.add_row(*(Text(f"{value:.0f}", style="bold") for value in values.values()))
    grid.add_row(*(Text(str(label), style="dim") for label in values))
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
