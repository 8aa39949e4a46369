"""Starts a pipeline from flags, from a file, or from the options of a statement.

SIGINT and SIGTERM end a pipeline after a last commit; a second signal ends it immediately.
"""

from __future__ import annotations

import re
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.cdc.pipeline import Pipeline, run_pipeline
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

    from lakecore.catalog.catalog import Catalog
    from lakecore.cdc.actions import Arguments
    from lakecore.cdc.sink_parts import Progress
    from lakecore.io.ambient import Ambient

__all__ = ["CAUGHT_UP", "RUN_FLAGS", "Launch", "launch_of"]

CAUGHT_UP = "caught-up"
RUN_FLAGS = ("name", "state", "until", "interval", "dead_letters")
"""The flags that say how a pipeline runs, not what it does."""
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)\s*(s|sec|seconds|min|minutes|h|hours)?")
_UNITS = {"m": 60, "h": 3600}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A pipeline to run, and whether it ends once it has caught up."""

    pipeline: Pipeline
    until_caught_up: bool = False

    def run(
        self, catalog: Catalog, ambient: Ambient, reports: Callable[[Progress], None] | None = None
    ) -> tuple[Progress, bool]:
        """Follow the source. Returns the progress, and whether a signal ended it."""
        with _until_signal() as stops:
            progress = run_pipeline(
                catalog,
                self.pipeline,
                ambient,
                until_caught_up=self.until_caught_up,
                stops=stops,
                reports=reports,
            )
            return progress, stops()


def launch_of(action: str, arguments: Arguments, flags: Mapping[str, Sequence[str]]) -> Launch:
    """The pipeline that an action and the flags `RUN_FLAGS` define.

    Raises InvalidRequest, naming the flag.
    """
    one = {flag: flags[flag][-1] for flag in RUN_FLAGS if flags.get(flag)}
    until = one.get("until")
    if until not in {None, CAUGHT_UP}:
        raise InvalidRequest("--until takes one value", until=until, known=[CAUGHT_UP])
    pipeline = Pipeline(
        action=action,
        arguments=arguments,
        name=one.get("name"),
        state=one.get("state"),
        interval_seconds=_seconds(one.get("interval", "10 s")),
        keeps_dead_letters=_is_true("dead_letters", one.get("dead_letters", "false")),
    )
    return Launch(pipeline=pipeline, until_caught_up=until == CAUGHT_UP)


@contextmanager
def _until_signal() -> Iterator[Callable[[], bool]]:
    """A context manager that catches signals. Its value is a function that tells whether one came.

    The signals are SIGINT and SIGTERM. Only the main thread gets them: in other threads, the
    function always returns False.
    """
    ended = threading.Event()
    before: dict[signal.Signals, object] = {}

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        ended.set()
        restore()

    def restore() -> None:
        for each, handler in before.items():
            signal.signal(each, handler)  # type: ignore[arg-type]  # as signal() returned it

    if threading.current_thread() is threading.main_thread():
        before |= {each: signal.signal(each, end) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended.is_set
    finally:
        restore()


def _seconds(text: str) -> float:
    match = _SECONDS.fullmatch(text.strip())
    if match is None:
        raise InvalidRequest("not a duration", option="--interval", value=text, example="10 s")
    return float(match[1]) * _UNITS.get((match[2] or "s")[0], 1)


def _is_true(name: str, text: str) -> bool:
    if text not in {"true", "false"}:
        raise InvalidRequest("the flag is true or false", flag=f"--{name}", value=text)
    return text == "true"
