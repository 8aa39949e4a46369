"""`lakecore sql`: statements from arguments, a file or standard input; without any, a shell.

`lakecore procedures` lists what CALL runs.
"""

from __future__ import annotations

import sys
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from lakecore.cli.arguments import Format
from lakecore.cli.printing import say, write_frame
from lakecore.cli.run import run
from lakecore.cli.sql_rows import check_one_result, print_rows
from lakecore.cli.target import engine_of
from lakecore.deferred import deferred
from lakecore.errors import InvalidRequest
from lakecore.sql.tokens import quoted, split

if TYPE_CHECKING:
    from polars import DataFrame

    from lakecore.sql.procedures.registry import listed
else:
    DataFrame = deferred("polars", "DataFrame")
    listed = deferred("lakecore.sql.procedures.registry", "listed")

__all__ = ["file_text", "procedures", "sql"]


def sql(  # noqa: PLR0913, PLR0917  the parameters of the command
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
    engine = engine_of(warehouse, option, create=create)
    if database is not None:
        engine.run(f"USE {quoted(database)}")
    if given is None:
        # The library of the shell is only loaded for interactive use.
        run("lakecore.cli.shell", "run_shell", engine, form, limit)
        return
    statements = list(takewhile(lambda text: text.upper() not in {"EXIT", "QUIT"}, split(given)))
    check_one_result(statements, form)
    for text in engine.checked(statements):
        print_rows(engine, text, form, limit)


def _given(texts: list[str] | None, file: str | None) -> str | None:
    """The text of the statements; None for the interactive shell."""
    if texts and file:
        raise InvalidRequest("give statements by --execute or in a file, not both", file=file)
    if texts:
        return ";\n".join(texts)
    if file is not None and file != "-":
        return file_text(file)
    return None if file is None and sys.stdin.isatty() else sys.stdin.read()


def file_text(file: str) -> str:
    """The text of a file of statements. Raises InvalidRequest if it cannot be read."""
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest("the file cannot be read", file=file, cause=error) from error


def procedures(name: str | None, form: Format) -> None:
    """Print the procedures, with their arguments."""
    columns, chosen = listed(name or "")
    if form is not Format.TABLE:
        write_frame(DataFrame(chosen, dict.fromkeys(columns, str), orient="row"), form)
        return
    say("\n".join(f"{usage}\n    {about}" for _, usage, about in chosen))
