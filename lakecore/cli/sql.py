"""`lakecore sql`: statements from arguments, a file or standard input; without any, a shell.

`lakecore procedures` lists what CALL runs.
"""

from __future__ import annotations

import sys
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated

from lakecore.cli.arguments import Form, Format, Limit, OfWarehouse, Verbs, argument, flag, switch
from lakecore.cli.printing import say, write_frame
from lakecore.deferred import deferred
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from polars import DataFrame

    from lakecore.cli.shell import run_shell
    from lakecore.cli.sql_rows import check_one_result, file_text, print_rows
    from lakecore.cli.target import engine_of
    from lakecore.sql.procedures.registry import listed
    from lakecore.sql.tokens import quoted, split
else:
    DataFrame = deferred("polars", "DataFrame")
    check_one_result = deferred("lakecore.cli.sql_rows", "check_one_result")
    engine_of = deferred("lakecore.cli.target", "engine_of")
    file_text = deferred("lakecore.cli.sql_rows", "file_text")
    listed = deferred("lakecore.sql.procedures.registry", "listed")
    print_rows = deferred("lakecore.cli.sql_rows", "print_rows")
    quoted = deferred("lakecore.sql.tokens", "quoted")
    run_shell = deferred("lakecore.cli.shell", "run_shell")
    split = deferred("lakecore.sql.tokens", "split")

commands = Verbs()


@commands("sql")
def sql(  # noqa: PLR0913  one parameter per option
    file: Annotated[
        str | None, argument("[FILE|-]", "File with statements; - is standard input.")
    ] = None,
    *,
    of: OfWarehouse,
    execute: Annotated[
        list[str] | None,
        flag("SQL", "Run this statement; repeatable.", "--execute", "-e", "--command", "-c"),
    ] = None,
    script: Annotated[
        str | None, flag("FILE", "The same as the argument FILE.", "--file", "-f")
    ] = None,
    database: Annotated[
        str | None, flag("NAME", "The current database.", "--database", "-d")
    ] = None,
    create: Annotated[bool, switch("Create the warehouse if it does not exist.")] = False,
    limit: Limit = None,
    form: Form,
) -> None:
    """Run SQL: Paimon's statements, and DuckDB's queries.

    Without a statement or a file, a terminal opens a shell. Statements end with `;`.
    """
    if file is not None and script is not None:
        raise InvalidRequest("name one file of statements", files=[file, script])
    given = _given(execute, file or script)
    engine = engine_of(of.warehouse, of.option, create=create)
    if database is not None:
        engine.run(f"USE {quoted(database)}")
    if given is None:
        run_shell(engine, form, limit)
        return
    statements = list(takewhile(lambda text: text.upper() not in {"EXIT", "QUIT"}, split(given)))
    check_one_result(statements, form)
    for text in engine.checked(statements):
        print_rows(engine, text, form, limit)


@commands("procedures")
def procedures(
    name: Annotated[str | None, argument("[TEXT]", "Only names that contain this text.")] = None,
    *,
    form: Form,
) -> None:
    """List the procedures that CALL sys.NAME(...) runs.

    Each has its arguments; those in brackets may be left out.
    """
    columns, chosen = listed(name or "")
    if form is not Format.TABLE:
        write_frame(DataFrame(chosen, dict.fromkeys(columns, str), orient="row"), form)
        return
    say("\n".join(f"{usage}\n    {about}" for _, usage, about in chosen))


def _given(texts: list[str] | None, file: str | None) -> str | None:
    """The text of the statements; None for the interactive shell."""
    if texts and file:
        raise InvalidRequest("give statements by --execute or in a file, not both", file=file)
    if texts:
        return ";\n".join(texts)
    if file is not None and file != "-":
        return file_text(file)
    return None if file is None and sys.stdin.isatty() else sys.stdin.read()
