"""`lakecore read`, `count` and `changes`: a grid of the first rows, or a stream of all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from lakecore.cli.arguments import (
    ROWS_SHOWN,
    Columns,
    Form,
    Format,
    Limit,
    OfTable,
    Verbs,
    Where,
    flag,
    names,
)
from lakecore.cli.printing import note, write_batches, write_frame, write_record
from lakecore.deferred import deferred

if TYPE_CHECKING:
    import polars as pl

    from lakecore.frames.arrow_frames import to_frame
else:
    to_frame = deferred("lakecore.frames.arrow_frames", "to_frame")

commands = Verbs()


@commands("read")
def read(  # noqa: PLR0913  one parameter per option
    of: OfTable,
    *,
    columns: Columns = None,
    where: Where = None,
    limit: Limit = None,
    snapshot: Annotated[
        int | None, flag("N", "Read this snapshot.", "--snapshot", "--snapshot-id")
    ] = None,
    tag: Annotated[str | None, flag("NAME", "Read this tag.")] = None,
    timestamp: Annotated[
        str | None, flag("TIME", "Read the newest snapshot at this time (ISO 8601).")
    ] = None,
    form: Form,
) -> None:
    """Print the rows of a table, merged by their keys."""
    table = of.open()
    if form is Format.TABLE:
        frame = table.to_polars(
            names(columns), where, _asked(limit), snapshot_id=snapshot, tag=tag, timestamp=timestamp
        )
        _write_first(frame, limit)
    else:
        reader = table.to_batches(
            names(columns), where, limit, snapshot_id=snapshot, tag=tag, timestamp=timestamp
        )
        write_batches(to_frame(reader.schema.empty_table()), map(to_frame, reader), form)


@commands("count")
def count(
    of: OfTable,
    *,
    where: Where = None,
    snapshot: Annotated[
        int | None, flag("N", "Count in this snapshot.", "--snapshot", "--snapshot-id")
    ] = None,
    tag: Annotated[str | None, flag("NAME", "Count in this tag.")] = None,
    timestamp: Annotated[
        str | None, flag("TIME", "Count in the newest snapshot at this time (ISO 8601).")
    ] = None,
    form: Form,
) -> None:
    """Count the rows of a table, merged by their keys."""
    rows = of.open().count(where, snapshot_id=snapshot, tag=tag, timestamp=timestamp)
    write_record({"rows": rows}, form, str(rows))


@commands("changes")
def changes(  # noqa: PLR0913  one parameter per option
    of: OfTable,
    *,
    start: Annotated[
        str | None, flag("POINT", "Changes after this snapshot, tag, date or time (ISO 8601).")
    ] = None,
    end: Annotated[str | None, flag("POINT", "Changes up to this point.")] = None,
    columns: Columns = None,
    where: Where = None,
    limit: Limit = None,
    form: Form,
) -> None:
    """Print the changes between two snapshots or times, with row kinds.

    The column _row_kind is +I (new), -U and +U (before and after an update) or -D (deleted).
    """
    frame = of.open().changes(start, end, names(columns), where)
    if form is Format.TABLE:
        _write_first(frame.head(_asked(limit)).collect(), limit)
    else:
        rows = frame if limit is None else frame.head(limit)
        empty = rows.collect_schema().to_frame()
        write_batches(empty, rows.collect_batches(maintain_order=True), form)


def _asked(limit: int | None) -> int:
    """How many rows to read: one more than a grid shows, to detect whether there are more."""
    return ROWS_SHOWN + 1 if limit is None else limit


def _write_first(frame: pl.DataFrame, limit: int | None) -> None:
    shown = frame if limit is not None else frame.head(ROWS_SHOWN)
    write_frame(shown, Format.TABLE)
    if shown.height < frame.height:
        note(f"the first {shown.height} rows; --limit N shows more, --json or --csv prints all")
