"""Figures as people read them: a table of contenders, medians, ratios against one of them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

console = Console(width=110)


@dataclass(slots=True)
class Figures:
    """The seconds of some contenders at one task, run after run."""

    task: str
    rows: int | None = None
    seconds: dict[str, list[float]] = field(default_factory=dict)
    cpu_seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, contender: str, seconds: float, cpu_seconds: float) -> None:
        """One more run."""
        self.seconds.setdefault(contender, []).append(seconds)
        self.cpu_seconds.setdefault(contender, []).append(cpu_seconds)

    def time(self, contender: str, work: Callable[[], object]) -> None:
        """One more run, timed here."""
        began, worked = time.perf_counter(), time.process_time()
        work()
        self.add(contender, time.perf_counter() - began, time.process_time() - worked)

    def ratio(self, contender: str, other: str) -> float:
        """Median seconds of `contender` over those of `other`."""
        return median(self.seconds[contender]) / median(self.seconds[other])

    def cpu_ratio(self, contender: str, other: str) -> float:
        """Median seconds of the processor of `contender` over those of `other`."""
        return median(self.cpu_seconds[contender]) / median(self.cpu_seconds[other])

    def show(self, base: str) -> None:
        """Print the table: how many times the seconds of `base` each contender took."""
        table = Table(title=self.task, title_justify="left", title_style="bold")
        for column in ("", "median s", "min", "max", "cpu s", "runs", "M rows/s", f"times {base}"):
            table.add_column(column, justify="left" if column == "" else "right")
        for name, runs in self.seconds.items():
            rate = "" if self.rows is None else f"{self.rows / median(runs) / 1e6:.2f}"
            table.add_row(
                name,
                f"{median(runs):.3f}",
                f"{min(runs):.3f}",
                f"{max(runs):.3f}",
                f"{median(self.cpu_seconds[name]):.3f}",
                str(len(runs)),
                rate,
                f"{self.ratio(name, base):.2f}",
            )
        console.print(table)


def promise(text: str, reached: float, wanted: float, *, at_least: bool) -> bool:
    """Print what was wanted beside what was reached; whether it was reached."""
    kept = reached >= wanted if at_least else reached <= wanted
    sign = "≥" if at_least else "≤"
    mark = "[green]reached[/]" if kept else "[red]not reached[/]"
    console.print(f"  {text}: [bold]{reached:.2f}[/] (wanted {sign} {wanted:g}) {mark}")
    return kept
