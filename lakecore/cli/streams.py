"""`lakecore stream` and `lakecore consumer`: streams of changes, and their consumers.

With a consumer, a snapshot is recorded after its rows are printed: if the program is killed, its
rows may be printed again. Ctrl-C ends the program with exit code 130, as in a shell.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lakecore.cli.arguments import (
    DRY,
    ROWS_SHOWN,
    Care,
    Columns,
    Form,
    Format,
    OfTable,
    Verbs,
    Where,
    argument,
    confirmed,
    flag,
    names,
    require_consent,
    switch,
)
from lakecore.cli.output import INTERRUPTED, flush
from lakecore.cli.printing import note, write_batches, write_frame, write_record
from lakecore.deferred import deferred, deferred_module
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from lakecore.frames.arrow_frames import to_frame
    from lakecore.model.times import is_time_text
    from lakecore.table.changes.change_stream import ChangeStream
else:
    is_time_text = deferred("lakecore.model.times", "is_time_text")
    pl = deferred_module("polars")
    to_frame = deferred("lakecore.frames.arrow_frames", "to_frame")

commands = Verbs()
_consumer = commands.group("consumer")


@commands("stream")
def stream(  # noqa: PLR0913  one parameter per option
    of: OfTable,
    *,
    start: Annotated[
        str | None,
        flag(
            "POINT",
            "Begin with this snapshot, tag or time (ISO 8601). Default: all rows as they are.",
            "--from",
        ),
    ] = None,
    mode: Annotated[str | None, flag("MODE", "Where to begin: Paimon's scan.mode.")] = None,
    until: Annotated[
        str | None, flag("ID|latest", "End after this snapshot. Default: wait for new ones.")
    ] = None,
    consumer: Annotated[
        str | None, flag("ID", "Continue where this consumer is, and record what was printed.")
    ] = None,
    poll: Annotated[
        str | None, flag("TIME", "Look for new snapshots this often, such as '10 s'.")
    ] = None,
    columns: Columns = None,
    where: Where = None,
    form: Form,
) -> None:
    """Print changes snapshot by snapshot, and wait for new ones until Ctrl-C.

    The column _row_kind is +I (new), -U and +U (before and after an update) or -D (deleted). A
    table shows the first 20 rows of each snapshot.
    """
    table = of.open()
    from_snapshot, from_timestamp = None, None
    if start is not None:
        if start in table.context.history.tag_names():
            table = table.copy({"scan.tag-name": start})
        elif start.isascii() and start.isdecimal():
            from_snapshot = int(start)
        elif is_time_text(start):
            from_timestamp = start
        else:
            raise InvalidRequest(
                "--from must be a snapshot id, a tag or a time (ISO 8601)",
                given=start,
                tags=table.context.history.tag_names(),
            )
    found = table.stream(
        from_snapshot,
        _end(until),
        names(columns),
        where,
        from_timestamp=from_timestamp,
        scan_mode=mode,
        consumer_id=consumer,
        poll=poll,
    )
    try:
        with found:
            _print(found, form, commits=bool(consumer or table.options.consumer_id))
    except KeyboardInterrupt:
        flush()
        raise SystemExit(INTERRUPTED) from None


def _end(until: str | None) -> int | Literal["latest"] | None:
    if until is None or until == "latest":
        return "latest" if until else None
    if until.isascii() and until.isdecimal():
        return int(until)
    raise InvalidRequest("--until must be a snapshot id, or latest", given=until)


def _print(found: ChangeStream[pl.LazyFrame], form: Format, *, commits: bool) -> None:
    if form is Format.TABLE:
        for number, frame in found:
            rows = frame.head(ROWS_SHOWN + 1).collect()
            write_frame(rows.head(ROWS_SHOWN), form, f"snapshot {number}")
            if rows.height > ROWS_SHOWN:
                note(f"the first {ROWS_SHOWN} rows; --json or --csv prints all")
            if commits:
                found.commit(number)
        return
    batches = found.to_batches()
    first = next(batches, None)
    if first is None:
        return

    def frames() -> Iterator[pl.DataFrame]:
        for number, reader in chain([first], batches):
            yield from map(to_frame, reader)
            if commits:  # the rows of the previous snapshot are all printed
                found.commit(number)

    write_batches(to_frame(first[1].schema.empty_table()), frames(), form)


@_consumer("list")
def list_consumers(of: OfTable, form: Form) -> None:
    """List the consumers, the snapshot that each reads next, and how far behind it is."""
    table = of.open()
    latest = table.context.history.latest_snapshot_id() or 0
    rows = [
        (each.consumer_id, each.next_snapshot, latest + 1 - each.next_snapshot, each.modified_ms)
        for each in table.consumers()
    ]
    columns = {"consumer_id": str, "next_snapshot": int, "behind": int, "modified": int}
    frame = pl.DataFrame(rows, columns, orient="row")
    write_frame(frame.cast({"modified": pl.Datetime("ms", "UTC")}), form)


@_consumer("reset")
def reset_consumer(
    of: OfTable,
    consumer: Annotated[str, argument("CONSUMER", "The id of the consumer.")],
    *,
    next_snapshot: Annotated[
        int | None, flag("ID", "Continue with this snapshot.", "--next")
    ] = None,
    delete: Annotated[bool, switch("Delete the consumer.")] = False,
    care: Care,
    form: Form,
) -> None:
    """Set the next snapshot that a consumer reads, or delete the consumer.

    Stop its stream first.
    """
    if (next_snapshot is None) is not delete:
        raise typer.BadParameter("give one of --next ID and --delete")
    table = of.open()
    known = {each.consumer_id: each.next_snapshot for each in table.consumers()}
    before = known.get(consumer)
    deed = "delete the consumer" if next_snapshot is None else f"go on with {next_snapshot}"
    if not care.dry_run:
        if before is not None:
            require_consent(f"{consumer} would read snapshot {before} next: {deed}?", yes=care.yes)
        table.reset_consumer(consumer, next_snapshot)
    record = {"consumer_id": consumer, "before": before, "next_snapshot": next_snapshot}
    text = f"{consumer}: {_position(before)} -> {_position(next_snapshot)}"
    write_record(record, form, text + (f"\n{DRY}" if care.dry_run else ""))


@_consumer("clear")
def clear_consumers(
    of: OfTable,
    *,
    including: Annotated[
        str | None, flag("REGEX", "Only consumers whose whole id matches. Default: all.")
    ] = None,
    excluding: Annotated[
        str | None, flag("REGEX", "Keep consumers whose whole id matches.")
    ] = None,
    care: Care,
    form: Form,
) -> None:
    """Delete consumers. Snapshots that only they need may expire."""
    chosen = confirmed(
        partial(of.open().clear_consumers, including, excluding),
        lambda ids: f"delete {len(ids)} consumers: {', '.join(ids)}?" if ids else None,
        care,
    )
    text = "\n".join(chosen) if chosen else "no consumer matches"
    write_record({"consumers": list(chosen)}, form, text + (f"\n{DRY}" if care.dry_run else ""))


def _position(number: int | None) -> str:
    return "none" if number is None else str(number)
