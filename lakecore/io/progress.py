"""A progress bar on standard error for long work, shown only to a person.

The bar appears after a second, in a terminal or (with ipywidgets) in a notebook, and disappears
when the work ends. Nothing is written elsewhere. At most one bar is shown: work inside of other
work has none.
"""

from __future__ import annotations

import os
import sys
import threading
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, Self, TypeVar

from lakecore.deferred import deferred_module
from lakecore.io.ambient import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich import console, progress
else:
    console = deferred_module("rich.console")
    progress = deferred_module("rich.progress")

Key = TypeVar("Key")
Value = TypeVar("Value")
PATIENCE_MS = 1_000
_SHOWN_STEPS = 200
_shown = threading.Lock()


class WorkBar:
    """How far some work is: `with WorkBar() as bar`, and `bar.at("3 rows", 3)` again and again."""

    def __init__(self) -> None:
        self._due_ms = SYSTEM.now_ms() + PATIENCE_MS if _is_looked_at() else None
        self._bar: progress.Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the bar; it does not come back."""
        self._due_ms = None
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
            _shown.release()

    def at(self, text: str, done: int, total: int | None = None) -> None:
        """State how much is done, and the total if known."""
        if self._bar is None:
            if self._due_ms is None or SYSTEM.now_ms() < self._due_ms:
                return
            if not _shown.acquire(blocking=False):
                self._due_ms = None
                return
            self._bar = _started(text)
        self._bar.update(self._bar.task_ids[0], description=text, completed=done, total=total)

    def counting(
        self, work: Callable[[Key], Value], what: str, total: int
    ) -> Callable[[Key], Value]:
        """The same work, which states how many of its `total` calls are done, from any thread."""
        numbers, step = count(1), max(total // _SHOWN_STEPS, 1)

        def counted(key: Key) -> Value:
            found, done = work(key), next(numbers)
            if done % step == 0 or done == total:
                self.at(f"{done:,} of {total:,} {what}", done, total)
            return found

        return counted


def _is_looked_at() -> bool:
    if "ipykernel" in sys.modules:
        # Without ipywidgets, rich warns in place of drawing.
        return find_spec("ipywidgets") is not None
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _started(text: str) -> progress.Progress:
    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=40, complete_style="cyan", finished_style="cyan"),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        console=console.Console(stderr=True),
        transient=True,
    )
    bar.add_task(text, total=None)
    bar.start()
    return bar
