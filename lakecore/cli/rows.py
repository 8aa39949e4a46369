"""`lakecore read`, `count` and `changes`: a grid of the first rows, or a stream of all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from lakecore.cli.arguments import ROWS_SHOWN, Format, names
from lakecore.cli.printing import note, write_batches, write_frame, write_record
from lakecore.cli.target import table_of
from lakecore.frames.arrow_frames import to_frame

if TYPE_CHECKING:
    import polars as pl

__all__ = ["changes", "count", "read"]

Chosen = tuple[str | None, str | None, int | None]


class At(TypedDict):
    """The state to read, as in `Table.scan`."""

    snapshot_id: int | None
    tag: str | None
    timestamp: str | None


def read(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    chosen: Chosen,
    at: At,
    form: Format,
) -> None:
    """Print the rows of a table."""
    columns, where, limit = chosen
    table = table_of(name, warehouse, option)
    if form is Format.TABLE:
        frame = table.to_polars(names(columns), where, _asked(limit), **at)
        _write_first(frame, limit)
    else:
        reader = table.to_batches(names(columns), where, limit, **at)
        write_batches(to_frame(reader.schema.empty_table()), map(to_frame, reader), form)


def count(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    where: str | None,
    at: At,
    form: Format,
) -> None:
    """Print the number of rows."""
    rows = table_of(name, warehouse, option).count(where, **at)
    write_record({"rows": rows}, form, str(rows))


def changes(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    chosen: Chosen,
    between: tuple[str | None, str | None],
    form: Format,
) -> None:
    """Print the changes between two snapshots, tags or times."""
    columns, where, limit = chosen
    frame = table_of(name, warehouse, option).changes(*between, names(columns), where)
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
