"""`lakecore stream` and `lakecore consumer`: streams of changes, and their consumers.

With a consumer, a snapshot is recorded after its rows are printed: if the program is killed, its
rows may be printed again. Ctrl-C ends the program with exit code 130, as in a shell.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Literal

import polars as pl

from lakecore.cli.arguments import ROWS_SHOWN, Format, names
from lakecore.cli.confirm import confirmed, require_consent
from lakecore.cli.output import flush
from lakecore.cli.printing import note, write_batches, write_frame, write_record
from lakecore.cli.run import INTERRUPTED
from lakecore.cli.target import table_of
from lakecore.errors import InvalidRequest
from lakecore.frames.arrow_frames import to_frame
from lakecore.model.times import is_time_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.table.changes.change_stream import ChangeStream

__all__ = ["clear_consumers", "list_consumers", "reset_consumer", "stream"]

_CONSUMERS = {
    "consumer_id": pl.String(),
    "next_snapshot": pl.Int64(),
    "behind": pl.Int64(),
    "modified": pl.Datetime("ms", "UTC"),
}

What = tuple[str | None, str | None]
Place = tuple[str | None, str | None, str | None, str | None, str | None]


def stream(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    what: What,
    place: Place,
    form: Format,
) -> None:
    """Print the changes of each snapshot until the stream ends, or the user ends it."""
    columns, where = what
    start, mode, until, consumer, poll = place
    table = table_of(name, warehouse, option)
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


def list_consumers(
    name: str, warehouse: str | None, option: list[str] | None, form: Format
) -> None:
    """Print the consumers of a table."""
    table = table_of(name, warehouse, option)
    latest = table.context.history.latest_snapshot_id() or 0
    rows = [
        (each.consumer_id, each.next_snapshot, latest + 1 - each.next_snapshot, each.modified_ms)
        for each in table.consumers()
    ]
    frame = pl.DataFrame(rows, {**_CONSUMERS, "modified": pl.Int64()}, orient="row")
    write_frame(frame.cast({"modified": _CONSUMERS["modified"]}), form)


def reset_consumer(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    consumer: str,
    what: tuple[int | None, bool, bool],
    form: Format,
) -> None:
    """Set or delete a consumer."""
    next_snapshot, dry_run, yes = what
    table = table_of(name, warehouse, option)
    known = {each.consumer_id: each.next_snapshot for each in table.consumers()}
    before = known.get(consumer)
    deed = "delete the consumer" if next_snapshot is None else f"go on with {next_snapshot}"
    if not dry_run:
        if before is not None:
            require_consent(f"{consumer} would read snapshot {before} next: {deed}?", yes=yes)
        table.reset_consumer(consumer, next_snapshot)
    record = {"consumer_id": consumer, "before": before, "next_snapshot": next_snapshot}
    text = f"{consumer}: {_position(before)} -> {_position(next_snapshot)}"
    write_record(record, form, text + _dry(dry_run=dry_run))


def clear_consumers(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    what: tuple[str | None, str | None, bool, bool],
    form: Format,
) -> None:
    """Delete the consumers that match."""
    including, excluding, dry_run, yes = what
    table = table_of(name, warehouse, option)
    chosen = confirmed(
        partial(table.clear_consumers, including, excluding),
        lambda ids: f"delete {len(ids)} consumers: {', '.join(ids)}?" if ids else None,
        dry_run=dry_run,
        yes=yes,
    )
    text = "\n".join(chosen) if chosen else "no consumer matches"
    write_record({"consumers": list(chosen)}, form, text + _dry(dry_run=dry_run))


def _position(number: int | None) -> str:
    return "none" if number is None else str(number)


def _dry(*, dry_run: bool) -> str:
    return "\ndry run: nothing was changed" if dry_run else ""
