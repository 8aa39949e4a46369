"""`lakecore compact`, `lakecore rescale` and `lakecore compact-database`.

A compaction runs once, with a progress bar, or repeatedly, with a line per commit. The progress bar
is shown on standard error if that is a terminal, and is erased at the end. With `--watch`, the
lines of commits go to standard output, and those of retries to standard error. The first SIGINT or
SIGTERM ends the command after the current commit, the second one immediately.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lakecore.cli.arguments import (
    DryRun,
    Form,
    Format,
    Full,
    Interval,
    OfTable,
    OfWarehouse,
    Partitions,
    PartitionsWhere,
    Verbs,
    flag,
    partitions_of,
    switch,
)
from lakecore.cli.printing import note, say, write_frame, write_record
from lakecore.cli.settings import stated
from lakecore.deferred import deferred, deferred_module
from lakecore.display import json_text, show_bytes
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    import polars as pl

    from lakecore import options
    from lakecore.catalog.compact_database import (
        DatabaseCompaction,
        TableEvent,
        compact_database,
        watch_database,
    )
    from lakecore.io import ambient
    from lakecore.model.compaction import CompactionResult
    from lakecore.session import Session
    from lakecore.table.context import TableContext
    from lakecore.table.verbs import compaction_job
    from lakecore.table.verbs.compaction import CompactionRequest, compact_shown
    from lakecore.table.verbs.compaction_job import StepDone
else:
    CompactionRequest = deferred("lakecore.table.verbs.compaction", "CompactionRequest")
    DatabaseCompaction = deferred("lakecore.catalog.compact_database", "DatabaseCompaction")
    ambient = deferred_module("lakecore.io.ambient")
    compaction_job = deferred_module("lakecore.table.verbs.compaction_job")
    compact_database = deferred("lakecore.catalog.compact_database", "compact_database")
    compact_shown = deferred("lakecore.table.verbs.compaction", "compact_shown")
    options = deferred_module("lakecore.options")
    pl = deferred_module("polars")
    watch_database = deferred("lakecore.catalog.compact_database", "watch_database")

commands = Verbs()
_DAY_SECONDS = 86_400


@commands("compact")
def compact(  # noqa: PLR0913  one parameter per option
    of: OfTable,
    *,
    full: Full = False,
    partition: Partitions = None,
    where: PartitionsWhere = None,
    bucket: Annotated[list[int] | None, flag("N", "Only this bucket; repeatable.")] = None,
    max_bytes: Annotated[
        str | None, flag("SIZE", "Work in steps that read at most SIZE, such as '512 mb'.")
    ] = None,
    dry_run: DryRun = False,
    order_strategy: Annotated[
        str | None, flag("order|zorder|hilbert", "Sort all rows of a table without a primary key.")
    ] = None,
    order_by: Annotated[
        str | None, flag("COLUMN,...", "With --order-strategy: the columns to sort by.")
    ] = None,
    watch: Annotated[bool, switch("Keep compacting while others write, until stopped.")] = False,
    interval: Interval = 10.0,
    form: Form,
) -> None:
    """Merge the files of each bucket into fewer sorted runs.

    In a table without a primary key, pack small files into larger ones.
    """
    _check_watched(form, watch=watch)
    request = CompactionRequest(
        full=full,
        partitions=partitions_of(partition) or None,
        where=where,
        buckets=bucket or None,
        max_bytes=None if max_bytes is None else _size_of(max_bytes),
        dry_run=dry_run,
        order_strategy=order_strategy,
        order_by=order_by,
    )
    if watch and order_strategy is not None:
        raise InvalidRequest("--watch and --order-strategy cannot be combined")
    if watch and dry_run:
        raise InvalidRequest("--watch and --dry-run cannot be combined")
    context = of.open().context
    if watch:
        _watch_table(context, request, interval, form)
        return
    result = compact_shown(context, request)
    write_record(asdict(result), form, _text_of(result, dry_run=request.dry_run))


@commands("rescale")
def rescale(
    of: OfTable,
    *,
    bucket_num: Annotated[
        int | None,
        typer.Option(metavar="N", help="The number of buckets. Default: the option bucket.", min=1),
    ] = None,
    partition: Partitions = None,
    where: PartitionsWhere = None,
    form: Form,
) -> None:
    """Give partitions another number of buckets, in one commit."""
    result = of.open().rescale(
        bucket_num=bucket_num, partition=partitions_of(partition) or None, where=where
    )
    write_record(asdict(result), form, str(result))


@commands("compact-database")
def compact_tables(  # noqa: PLR0913  one parameter per option
    of: OfWarehouse,
    *,
    including_databases: Annotated[
        str, flag("REGEX", "Databases whose whole name matches.")
    ] = ".*",
    including_tables: Annotated[
        str, flag("REGEX", "Tables whose whole name matches, as `t` or `db.t`.")
    ] = ".*",
    excluding_tables: Annotated[str | None, flag("REGEX", "Tables to leave out.")] = None,
    mode: Annotated[
        str, flag("divided|combined", "One job per table, or one for all tables.")
    ] = "divided",
    full: Full = False,
    max_bytes: Annotated[
        str | None, flag("SIZE", "Work in steps that read at most SIZE per table.")
    ] = None,
    table_option: Annotated[
        list[str] | None, flag("KEY=VALUE", "A dynamic option of all tables; repeatable.")
    ] = None,
    watch: Annotated[
        bool, switch("Repeat until stopped, also with tables that are created later.")
    ] = False,
    interval: Interval = 10.0,
    form: Form,
) -> None:
    """Compact all tables of a warehouse whose names match."""
    _check_watched(form, watch=watch)
    request = DatabaseCompaction(
        including_databases=including_databases,
        including_tables=including_tables,
        excluding_tables=excluding_tables,
        mode=mode,
        full=full,
        max_bytes=None if max_bytes is None else _size_of(max_bytes),
        table_options=stated(table_option, "--table-option"),
    )
    session = of.session()
    if watch:
        _watch_tables(session, request, interval, form)
        return
    results = compact_database(session, session.get_table, request)
    rows = [
        (name, each.buckets, each.files_before, each.files_after, each.snapshot_id)
        for name, each in results.items()
    ]
    numbers = dict.fromkeys(("buckets", "files_before", "files_after", "snapshot_id"), int)
    write_frame(pl.DataFrame(rows, {"table": str, **numbers}, orient="row"), form)


def _check_watched(form: Format, *, watch: bool) -> None:
    if watch and form not in {Format.TABLE, Format.JSON}:
        raise typer.BadParameter("--watch prints text or JSON lines")


def _size_of(text: str) -> int:
    """The bytes of `--max-bytes`."""
    try:
        return options.SIZE.parse(text)
    except ValueError as error:
        raise InvalidRequest(
            "the size is not valid", option="--max-bytes", value=text, allowed=str(error)
        ) from error


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


def _watch_table(
    context: TableContext, request: CompactionRequest, interval_seconds: float, form: Format
) -> None:
    as_json = form is Format.JSON
    status = note if as_json else say

    def at(text: str) -> str:
        return f"{_clock(context.ambient.local_wall_clock_ms() // 1000)} {text}"

    def report(event: StepDone | compaction_job.Setback) -> None:
        if isinstance(event, compaction_job.Setback):
            note(at(f"once more in {event.seconds:g} s: {event.error}"))
        elif as_json:
            say(json_text({**asdict(event.step), "seconds": round(event.seconds, 3)}))
        else:
            say(at(_line_of(event)))

    with _stop_on_signal() as stop:
        status(at(f"watching {context.identifier}, every {interval_seconds:g} s"))
        steps = compaction_job.run_compaction(
            context, request, interval_seconds=interval_seconds, stop=stop, report=report
        )
    status(at(f"stopped after {steps} commits"))


def _watch_tables(
    session: Session, request: DatabaseCompaction, seconds: float, form: Format
) -> None:
    as_json = form is Format.JSON
    status = note if as_json else say

    def at(text: str) -> str:
        return f"{_clock(ambient.SYSTEM.local_wall_clock_ms() // 1000)} {text}"

    def report(told: TableEvent) -> None:
        event = told.event
        if event is None:
            status(at(f"{told.table}: watching"))
        elif isinstance(event, compaction_job.Setback):
            note(at(f"{told.table}: once more in {event.seconds:g} s: {event.error}"))
        elif as_json:
            say(json_text({"table": told.table, **asdict(event.step)}))
        else:
            say(at(f"{told.table}: {_line_of(event)}"))

    with _stop_on_signal() as stop:
        status(at(f"watching, every {seconds:g} s"))
        commits = watch_database(
            session, session.get_table, request, interval_seconds=seconds, stop=stop, report=report
        )
    status(at(f"stopped after {commits} commits"))


@contextmanager
def _stop_on_signal() -> Iterator[threading.Event]:
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


def _line_of(done: StepDone) -> str:
    """A commit as one line."""
    step = done.step
    before = f"{step.files_before} files, {show_bytes(step.bytes_before)}"
    after = f"{step.files_after} files, {show_bytes(step.bytes_after or 0)}"
    again = f", {step.attempts} plans" if step.attempts > 1 else ""
    return (
        f"snapshot {step.snapshot_id}: {step.buckets} buckets, {before} -> {after},"
        f" {done.seconds:.1f} s{again}"
    )


def _clock(seconds: int) -> str:
    """The time of day as text."""
    minutes, second = divmod(seconds % _DAY_SECONDS, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:{minute:02}:{second:02}"
