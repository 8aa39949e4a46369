"""`lakecore compact`: compact a table once, with a bar, or again and again, with a line a commit.

The bar is for people in front of a terminal: on standard error, gone when all is done. With
`--watch` the lines of commits go to standard output and those of setbacks to standard error; the
first SIGINT or SIGTERM ends it cleanly, the second at once.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from lakecore.cli.arguments import Options, Path, stated
from lakecore.errors import InvalidRequest
from lakecore.options import SIZE
from lakecore.session import open_table
from lakecore.table.reads.explain import show_bytes
from lakecore.table.verbs.compaction import CompactionRequest, compact_table
from lakecore.table.verbs.compaction_job import Setback, StepDone, run_compaction

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

    from lakecore.model.compaction import CompactionResult
    from lakecore.table.compactions.compact_parallel import CompactionProgress
    from lakecore.table.context import TableContext

_DAY_SECONDS = 86_400
_YEAR_SECONDS = 365 * _DAY_SECONDS


def compact(  # noqa: PLR0913  the options of a command
    path: Path,
    option: Options = None,
    *,
    full: Annotated[
        bool, typer.Option("--full", help="Everything to one run, whether it is time or not.")
    ] = False,
    partition: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,...", help="Only partitions like this; repeatable."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="Condition on partition keys, as SQL text.")
    ] = None,
    bucket: Annotated[list[int] | None, typer.Option(help="Only this bucket; repeatable.")] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="In steps that read so much, a commit each: '512 mb'."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on, beside writers, until interrupted.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option(min=0.01, max=_YEAR_SECONDS, help="With --watch: seconds between two looks."),
    ] = 10.0,
) -> None:
    """Merge files of each bucket to fewer sorted runs; pack small files of append tables."""
    specs: list[Mapping[str, object]] = [
        {**stated(spec.split(","), "a partition")} for spec in partition or ()
    ]
    request = CompactionRequest(
        full=full,
        partitions=specs or None,
        where=where,
        buckets=bucket or None,
        max_bytes=None if max_bytes is None else _size(max_bytes),
        dry_run=dry_run,
    )
    if watch and dry_run:
        raise InvalidRequest("a dry run ends at once: leave out --watch or --dry-run")
    context = open_table(path, options=stated(option)).context
    if watch:
        _watch(context, request, interval)
        return
    result = _with_bar(context, request)
    Console(highlight=False).print(Text(_told(result, dry_run=dry_run)), soft_wrap=True)


def _size(text: str) -> int:
    try:
        return SIZE.parse(text)
    except ValueError as error:
        raise InvalidRequest(
            "the size is not one", option="--max-bytes", value=text, allowed=str(error)
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


def _told(result: CompactionResult, *, dry_run: bool) -> str:
    """The result as lines of text."""
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


def _watch(context: TableContext, request: CompactionRequest, interval_seconds: float) -> None:
    out, err = Console(highlight=False), Console(stderr=True, highlight=False)

    def say(console: Console, text: str) -> None:
        clock = _clock(context.ambient.local_wall_clock_ms() // 1000)
        console.print(Text(f"{clock} {text}"), soft_wrap=True)

    def tell(event: StepDone | Setback) -> None:
        if isinstance(event, StepDone):
            say(out, _line(event))
        else:
            say(err, f"once more in {event.seconds:g} s: {event.error}")

    with _stop_on_signal() as stop:
        say(out, f"watching {context.identifier}, every {interval_seconds:g} s")
        steps = run_compaction(
            context, request, interval_seconds=interval_seconds, stop=stop, told=tell
        )
    say(out, f"stopped after {steps} commits")


@contextmanager
def _stop_on_signal() -> Iterator[threading.Event]:
    """What the first SIGINT or SIGTERM sets; the next one does what it did before."""
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


def _line(done: StepDone) -> str:
    """A commit in one line."""
    step = done.step
    before = f"{step.files_before} files, {show_bytes(step.bytes_before)}"
    after = f"{step.files_after} files, {show_bytes(step.bytes_after or 0)}"
    again = f", {step.attempts} plans" if step.attempts > 1 else ""
    return (
        f"snapshot {step.snapshot_id}: {step.buckets} buckets, {before} -> {after},"
        f" {done.seconds:.1f} s{again}"
    )


def _clock(seconds: int) -> str:
    """The time of day of a wall clock."""
    minutes, second = divmod(seconds % _DAY_SECONDS, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:{minute:02}:{second:02}"
