"""The printing of the demo: chapters, code that is printed as it runs, and checked results."""

from __future__ import annotations

import inspect
import textwrap
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn
from rich.rule import Rule
from rich.text import Text

from lakecore.demo import pictures
from lakecore.errors import CorruptTable
from lakecore.io.ambient import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import RenderableType
    from rich.status import Status

__all__ = ["Stage"]

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
        self.show(pictures.beside(_code(step), Group(*answers)))

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
        return pictures.code(step, "sql")
    body = inspect.getsource(step).partition(":\n")[2]
    shown = textwrap.dedent(body).replace("return flights\n", "").replace("return ", "")
    return pictures.code(shown, "python")
