"""`lakecore sql`: statements from arguments, a file or standard input; without any, a shell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from lakecore.cli.arguments import ROWS_SHOWN, Format
from lakecore.cli.printing import note, write_batches, write_frame
from lakecore.cli.target import session_of
from lakecore.errors import InvalidRequest
from lakecore.frames.polars_source import to_frame
from lakecore.sql.queries import error_of
from lakecore.sql.tokens import quoted, split

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from lakecore.session import Session

__all__ = ["print_rows", "sql"]

_BATCH_ROWS = 8_192


def sql(  # noqa: PLR0913, PLR0917  what the command takes
    warehouse: str | None,
    option: list[str] | None,
    texts: list[str] | None,
    file: str | None,
    database: str | None,
    limit: int | None,
    form: Format,
    *,
    create: bool,
) -> None:
    """Run statements and print the rows of each; or open a shell."""
    given = _given(texts, file)
    session = session_of(None, warehouse, option, create=create)
    if database is not None:
        session.sql(f"USE {quoted(database)}")
    if given is None:
        from lakecore.cli.shell import run_shell  # noqa: PLC0415  needs a terminal's library

        run_shell(session, form, limit)
        return
    for text in split(given):
        print_rows(session, text, form, limit)


def _given(texts: list[str] | None, file: str | None) -> str | None:
    """The text of the statements; None if a person is to type them."""
    if texts and file:
        raise InvalidRequest("give statements by --execute or in a file, not both", file=file)
    if texts:
        return ";\n".join(texts)
    if file is not None and file != "-":
        try:
            return Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest("the file cannot be read", file=file, cause=error) from error
    return None if file is None and sys.stdin.isatty() else sys.stdin.read()


def print_rows(session: Session, text: str, form: Format, limit: int | None) -> int:
    """Run one statement and print its rows. How many were printed.

    A table shows the first rows; JSON and CSV stream all of them. What defines something prints
    nothing.
    """
    relation = session.sql(text)
    try:
        if relation.columns == ["result"] and relation.types == ["VARCHAR"] and _is_done(text):
            return 0
        shown = limit if form is not Format.TABLE or limit is not None else ROWS_SHOWN + 1
        rows = relation if shown is None else relation.limit(shown)
        reader = rows.to_arrow_reader(_BATCH_ROWS)
        frames = map(to_frame, reader)
        if form is not Format.TABLE:
            return _stream(to_frame(reader.schema.empty_table()), frames, form)
        frame = to_frame(reader.read_all())
    except duckdb.Error as error:
        raise error_of(error) from error
    cut = limit is None and frame.height > ROWS_SHOWN
    write_frame(frame.head(ROWS_SHOWN) if cut else frame, Format.TABLE)
    if cut:
        note(f"the first {ROWS_SHOWN} rows; --limit N shows more, --json or --csv prints all")
    return min(frame.height, ROWS_SHOWN) if cut else frame.height


def _stream(empty: pl.DataFrame, frames: Iterator[pl.DataFrame], form: Format) -> int:
    count = 0

    def counted() -> Iterator[pl.DataFrame]:
        nonlocal count
        for frame in frames:
            count += frame.height
            yield frame

    write_batches(empty, counted(), form)
    return count


_DEFINES = frozenset(
    {"CREATE", "DROP", "ALTER", "USE", "SET", "RESET", "COMMENT", "TRUNCATE", "ANALYZE"}
)


def _is_done(text: str) -> bool:
    """Whether a statement only says that it is done."""
    return text.lstrip().split(None, 1)[0].upper() in _DEFINES
