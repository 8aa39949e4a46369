"""`lakecore compact`: compact once, with a progress bar, or repeatedly, with a line per commit.

The progress bar is shown on standard error if that is a terminal, and is erased at the end. With
`--watch`, the lines of commits go to standard output, and those of retries to standard error. The
first SIGINT or SIGTERM ends the command after the current commit, the second one immediately.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, TypedDict

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from lakecore.cli.arguments import Format, stated
from lakecore.cli.grid import json_text
from lakecore.cli.printing import note, say, write_record
from lakecore.cli.target import table_of
from lakecore.display import show_bytes
from lakecore.errors import InvalidRequest
from lakecore.options import SIZE
from lakecore.table.verbs.compaction import CompactionRequest, compact_table
from lakecore.table.verbs.compaction_job import Setback, StepDone, run_compaction

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

    from lakecore.model.compaction import CompactionResult
    from lakecore.table.compactions.compact_parallel import CompactionProgress
    from lakecore.table.context import TableContext

_DAY_SECONDS = 86_400


class What(TypedDict):
    """The part of a table to compact, as the command line states it."""

    full: bool
    partitions: list[str] | None
    where: str | None
    buckets: list[int] | None
    max_bytes: str | None
    dry_run: bool
    order_strategy: str | None
    order_by: str | None


def compact(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    what: What,
    interval: float | None,
    form: Format,
) -> None:
    """Compact once, or repeatedly if an interval in seconds is given."""
    limit = what["max_bytes"]
    request = CompactionRequest(
        full=what["full"],
        partitions=_partitions(what["partitions"]),
        where=what["where"],
        buckets=what["buckets"] or None,
        max_bytes=None if limit is None else size_of(limit),
        dry_run=what["dry_run"],
        order_strategy=what["order_strategy"],
        order_by=what["order_by"],
    )
    if interval is not None and request.order_strategy is not None:
        raise InvalidRequest("--watch and --order-strategy cannot be combined")
    if interval is not None and request.dry_run:
        raise InvalidRequest("--watch and --dry-run cannot be combined")
    context = table_of(name, warehouse, option).context
    if interval is not None:
        _watch(context, request, interval, form)
        return
    result = _with_bar(context, request)
    write_record(asdict(result), form, _text_of(result, dry_run=request.dry_run))


def _partitions(specs: list[str] | None) -> list[Mapping[str, object]] | None:
    return [{**stated(spec.split(","), "a partition")} for spec in specs or ()] or None


def size_of(text: str) -> int:
    """The bytes of `--max-bytes`."""
    try:
        return SIZE.parse(text)
    except ValueError as error:
        raise InvalidRequest(
            "the size is not valid", option="--max-bytes", value=text, allowed=str(error)
        ) from error


def _with_bar(context: TableContext, request: CompactionRequest) -> CompactionResult:
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=40, complete_style="cyan", finished_style="cyan"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("planning", total=None)

        def show(at: CompactionProgress) -> None:
            text = f"{at.buckets_done} of {at.buckets} buckets"
            text += f", {at.rows_done:,} of {at.rows:,} rows"
            bar.update(task, description=text, completed=at.rows_done, total=at.rows)

        return compact_table(context, request, show)


def _text_of(result: CompactionResult, *, dry_run: bool) -> str:
    """The result as lines for people."""
    if not result.buckets:
        return "nothing to compact"
    before = f"{result.files_before} files, {show_bytes(result.bytes_before)}"
    lines = [f"buckets:   {result.buckets}", f"before:    {before}, {result.rows_before:,} rows"]
    if result.bytes_after is not None:
        after = f"{result.files_after} files, {show_bytes(result.bytes_after)}"
        lines += [
            f"after:     {after}, {result.rows_after:,} rows",
            f"upgraded:  {result.files_upgraded} files",
            f"steps:     {result.steps}",
            f"snapshot:  {result.snapshot_id}",
        ]
    elif dry_run:
        lines += [f"steps:     {result.steps}", "dry run:   nothing was written"]
    return "\n".join(lines)


# --- watching -------------------------------------------------------------------------------------


def _watch(
    context: TableContext, request: CompactionRequest, interval_seconds: float, form: Format
) -> None:
    as_json = form is Format.JSON
    status = note if as_json else say

    def at(text: str) -> str:
        return f"{clock(context.ambient.local_wall_clock_ms() // 1000)} {text}"

    def report(event: StepDone | Setback) -> None:
        if isinstance(event, Setback):
            note(at(f"once more in {event.seconds:g} s: {event.error}"))
        elif as_json:
            say(json_text({**asdict(event.step), "seconds": round(event.seconds, 3)}))
        else:
            say(at(line_of(event)))

    with stop_on_signal() as stop:
        status(at(f"watching {context.identifier}, every {interval_seconds:g} s"))
        steps = run_compaction(
            context, request, interval_seconds=interval_seconds, stop=stop, report=report
        )
    status(at(f"stopped after {steps} commits"))


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """An event that the first SIGINT or SIGTERM sets; a second signal has its usual effect."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def give_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop.set()
        give_back()

    for number in before:
        signal.signal(number, end)
    try:
        yield stop
    finally:
        give_back()


def line_of(done: StepDone) -> str:
    """A commit as one line."""
    step = done.step
    before = f"{step.files_before} files, {show_bytes(step.bytes_before)}"
    after = f"{step.files_after} files, {show_bytes(step.bytes_after or 0)}"
    again = f", {step.attempts} plans" if step.attempts > 1 else ""
    return (
        f"snapshot {step.snapshot_id}: {step.buckets} buckets, {before} -> {after},"
        f" {done.seconds:.1f} s{again}"
    )


def clock(seconds: int) -> str:
    """The time of day as text."""
    minutes, second = divmod(seconds % _DAY_SECONDS, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:{minute:02}:{second:02}"
