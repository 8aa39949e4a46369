"""Prints the rows of one SQL statement: a grid of the first rows, or a stream of all rows."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from lakecore.cli.arguments import ROWS_SHOWN, Format
from lakecore.cli.printing import Column, note, write_batches, write_frame, write_grid
from lakecore.deferred import deferred
from lakecore.errors import InvalidRequest
from lakecore.sql.printable import printable
from lakecore.sql.queries import batches_of
from lakecore.sql.tokens import tokenize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from lakecore.cdc.sink_parts import Progress
    from lakecore.frames.arrow_frames import to_frame
    from lakecore.sql.engine import SqlEngine
    from lakecore.table.writes.stream_write import IngestResult
else:
    to_frame = deferred("lakecore.frames.arrow_frames", "to_frame")


# --- running -------------------------------------------------------------------------------------
# Watches a running statement: Ctrl-C stops it, and a terminal shows its progress.
#
# Python handles a signal only when the main thread runs Python code again, but a DuckDB query may
# compute for hours before it returns. The C-level signal handler runs immediately: it writes a byte
# to a socket, and a thread that reads the socket stops the query. The same thread shows the
# progress.

_BYTES = 64
_SECONDS = 0.5
_SILENT_ROUNDS = 4
"""Progress is first shown after this many times `_SECONDS`: most statements are faster."""
_ERASE = "\r\x1b[K"


class Running(Protocol):
    """The engine that runs statements."""

    def interrupt(self) -> None:
        """Stop the running statement."""

    def progress(self) -> float | None:
        """How much of the running query is done, in percent; None if that is unknown."""


@contextmanager
def watched(running: Running) -> Iterator[None]:
    """Stop the statement on SIGINT, and show its progress in a terminal.

    Does nothing outside of the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    watcher = threading.Thread(
        target=_watch, args=(receiver, running), name="lakecore-statement", daemon=True
    )
    watcher.start()
    before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before, warn_on_full_buffer=False)
        sender.close()
        watcher.join()
        receiver.close()


def _watch(receiver: socket.socket, running: Running) -> None:
    """Read signal numbers from the socket until the other end is closed."""
    receiver.settimeout(_SECONDS)
    rounds, shown = 0, False
    while True:
        try:
            numbers = receiver.recv(_BYTES)
        except TimeoutError:
            rounds += 1
            done = running.progress() if rounds > _SILENT_ROUNDS and sys.stderr.isatty() else None
            if done is not None and done >= 1:  # work without a known end stays at 0
                sys.stderr.write(f"{_ERASE}{done:.0f} % done")
                sys.stderr.flush()
                shown = True
            continue
        if signal.SIGINT in numbers:
            running.interrupt()
        if not numbers or signal.SIGINT in numbers:
            if shown:
                sys.stderr.write(_ERASE)
                sys.stderr.flush()
            rounds, shown = 0, False
        if not numbers:
            return


# --- sql rows ------------------------------------------------------------------------------------

_DEFINES = frozenset(
    {"CREATE", "DROP", "ALTER", "USE", "SET", "RESET", "COMMENT", "TRUNCATE", "ANALYZE"}
)
_DESCRIBES = frozenset({"SHOW", "EXPLAIN", "DESCRIBE", "DESC", "CALL", "SUMMARIZE"})
"""Their answers are texts to read: no cell is cut."""
ALL_ROWS = sys.maxsize
"""The limit of a table that shows all rows."""


def check_one_result(statements: Sequence[str], form: Format) -> None:
    """Raise InvalidRequest if several results would become one Parquet file."""
    results = sum(_verb(text) not in _DEFINES for text in statements)
    if form is Format.PARQUET and results > 1:
        raise InvalidRequest(
            "a Parquet file holds the rows of one statement: run each statement that has a result "
            "by itself",
            results=results,
        )


def print_rows(engine: SqlEngine, text: str, form: Format, limit: int | None) -> int:
    """Run one statement and print its rows. Returns the number of printed rows.

    A table shows the first rows; JSON and CSV stream all of them. DDL statements print nothing.
    Ctrl-C stops the statement at once, also within a long computation of DuckDB.
    """
    with watched(engine):
        return _printed(engine, text, form, limit)


def _printed(engine: SqlEngine, text: str, form: Format, limit: int | None) -> int:
    engine.on_commit(_say_commit)
    engine.on_checkpoint(_say_checkpoint)
    changes = engine.changes(text)
    if changes is not None:
        return _follow(changes, form)
    relation = engine.run(text)
    if relation.columns == ["result"] and relation.types == ["VARCHAR"] and _is_done(text):
        return 0
    relation = printable(relation)
    shown = limit if form is not Format.TABLE or limit is not None else ROWS_SHOWN + 1
    schema, batches = batches_of(relation if shown is None else relation.limit(shown))
    if form is not Format.TABLE:
        # NOTE: `schema.empty_table()` converts Python lists, for which Arrow imports pandas.
        empty = to_frame(pa.Table.from_batches([], schema))
        return _stream(empty, map(to_frame, batches), form)
    rows = pa.Table.from_batches(batches, schema)
    cut = limit is None and rows.num_rows > ROWS_SHOWN
    rows = rows.slice(0, ROWS_SHOWN) if cut else rows
    _write_table(rows, whole=_verb(text) in _DESCRIBES)
    if cut:
        note(f"the first {ROWS_SHOWN} rows; --limit N shows more, --json or --csv prints all")
    return int(rows.num_rows)


def _write_table(rows: pa.Table, *, whole: bool) -> None:
    """Print a grid. Polars is only loaded for types whose values Python cannot always represent."""
    if not all(map(_is_plain, rows.schema.types)):
        write_frame(to_frame(rows), Format.TABLE)
        return
    columns = [Column(each.name, _is_number(each.type)) for each in rows.schema]
    values = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    write_grid(columns, values, whole=whole)


def _follow(changes: Iterator[pa.Table], form: Format) -> int:
    """Print the changes of a streaming query as they arrive, until its LIMIT or Ctrl-C."""
    frames = map(to_frame, changes)
    if form is not Format.TABLE:
        first = next(frames, None)
        return 0 if first is None else _stream(first.clear(), chain([first], frames), form)
    height = 0
    for frame in frames:
        write_frame(frame, form)
        height += frame.height
    return height


def _say_commit(done: IngestResult) -> None:
    snapshots = ", ".join(map(str, done.snapshot_ids)) or "none"
    note(f"{done.rows:,} rows written, snapshot {snapshots}")


def _say_checkpoint(name: str, progress: Progress) -> None:
    note(progress.line(name))


def _stream(empty: pl.DataFrame, frames: Iterator[pl.DataFrame], form: Format) -> int:
    height = 0

    def counted() -> Iterator[pl.DataFrame]:
        nonlocal height
        for frame in frames:
            height += frame.height
            yield frame

    write_batches(empty, counted(), form)
    return height


def _is_plain(kind: pa.DataType) -> bool:
    """Whether Arrow and Polars convert values of this type to equal Python values."""
    kinds = pa.types
    texts = kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_boolean(kind)
    return texts or _is_number(kind)


def _is_number(kind: pa.DataType) -> bool:
    kinds = pa.types
    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind))


def _is_done(text: str) -> bool:
    """Whether the result of a statement only says that it succeeded."""
    return _verb(text) in _DEFINES


def _verb(text: str) -> str:
    """The first word of a statement, in upper case."""
    return tokenize(text)[0].word


def file_text(file: str) -> str:
    """The text of a file of statements. Raises InvalidRequest if it cannot be read."""
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest("the file cannot be read", file=file, cause=error) from error
