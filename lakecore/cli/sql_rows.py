"""Prints the rows of one SQL statement: a grid of the first rows, or a stream of all rows."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import polars as pl

from lakecore.cli.arguments import ROWS_SHOWN, Format
from lakecore.cli.printing import note, write_batches, write_frame
from lakecore.frames.polars_source import to_frame
from lakecore.session import sql_engine
from lakecore.sql.queries import batches_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from lakecore.session import Session
    from lakecore.table.writes.ingest import IngestResult

__all__ = ["print_rows"]

_DEFINES = frozenset(
    {"CREATE", "DROP", "ALTER", "USE", "SET", "RESET", "COMMENT", "TRUNCATE", "ANALYZE"}
)


def print_rows(session: Session, text: str, form: Format, limit: int | None) -> int:
    """Run one statement and print its rows. Returns how many were printed.

    A table shows the first rows; JSON and CSV stream all of them. DDL statements print nothing.
    """
    engine = sql_engine(session)
    engine.on_commit(_say_commit)
    changes = engine.changes(text)
    if changes is not None:
        return _follow(changes, form)
    relation = session.sql(text)
    if relation.columns == ["result"] and relation.types == ["VARCHAR"] and _is_done(text):
        return 0
    shown = limit if form is not Format.TABLE or limit is not None else ROWS_SHOWN + 1
    schema, batches = batches_of(relation if shown is None else relation.limit(shown))
    empty = to_frame(schema.empty_table())
    if form is not Format.TABLE:
        return _stream(empty, map(to_frame, batches), form)
    frame = pl.concat([empty, *map(to_frame, batches)])
    cut = limit is None and frame.height > ROWS_SHOWN
    write_frame(frame.head(ROWS_SHOWN) if cut else frame, Format.TABLE)
    if cut:
        note(f"the first {ROWS_SHOWN} rows; --limit N shows more, --json or --csv prints all")
    return min(frame.height, ROWS_SHOWN) if cut else frame.height


def _follow(changes: Iterator[pa.Table], form: Format) -> int:
    """Print the changes of a streaming query as they come, until LIMIT or Ctrl-C."""
    frames = map(to_frame, changes)
    if form is not Format.TABLE:
        first = next(frames, None)
        return 0 if first is None else _stream(first, chain([first], frames), form)
    count = 0
    for frame in frames:
        write_frame(frame, form)
        count += frame.height
    return count


def _say_commit(done: IngestResult) -> None:
    snapshots = ", ".join(map(str, done.snapshot_ids)) or "none"
    note(f"{done.rows:,} rows written, snapshot {snapshots}")


def _stream(empty: pl.DataFrame, frames: Iterator[pl.DataFrame], form: Format) -> int:
    count = 0

    def counted() -> Iterator[pl.DataFrame]:
        nonlocal count
        for frame in frames:
            count += frame.height
            yield frame

    write_batches(empty, counted(), form)
    return count


def _is_done(text: str) -> bool:
    """Whether the result of a statement only states success."""
    return text.lstrip().split(None, 1)[0].upper() in _DEFINES
