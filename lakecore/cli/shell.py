r"""The interactive SQL shell of `lakecore sql`.

A statement may have several lines and ends with `;`. A line that begins with `.`, or with `\` as
in psql, is a command of the shell. Tab completes the names of tables, columns, functions and
procedures, keywords and option keys. The input is stored in a history file.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager, redirect_stdout
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from lakecore.cli.arguments import ROWS_SHOWN, Format
from lakecore.cli.output import flush, write
from lakecore.cli.printing import note
from lakecore.cli.sql_rows import ALL_ROWS, file_text, print_rows
from lakecore.errors import InvalidRequest, LakecoreError, did_you_mean
from lakecore.io.ambient import SYSTEM
from lakecore.options import option_keys
from lakecore.sql.parse import WORDS
from lakecore.sql.procedures.registry import listed
from lakecore.sql.tokens import quoted_text, split

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prompt_toolkit.document import Document

    from lakecore.sql.engine import SqlEngine

_PROMPT, _MORE = "lakecore> ", "      ...> "
_WORD = re.compile(r"[\w$.'-]*$")
_OPTION_KEYS = sorted(option_keys())
_HELP = """\
statements end with ; and may have several lines
help, .help, \\?         this text
.tables [TEXT], \\dt     the tables of the current database whose names contain the text
.databases, \\l          the databases
.schema TABLE, \\d       the statement that creates a table
.read FILE, \\i FILE     run the statements of a file
.once FILE, \\o FILE     write the rows of the next statement to a file
.output FORMAT          table, json or csv
.limit N|all            rows that a table shows
.pager on|off           show tables that do not fit the terminal by $PAGER
.timing on|off          print how long each statement takes
.show                   the current settings
.exit, \\q, Ctrl-D       leave"""
_ALIASES = {
    "help": ".help",
    "\\?": ".help",
    "\\h": ".help",
    "\\dt": ".tables",
    "\\l": ".databases",
    "\\d": ".schema",
    "\\i": ".read",
    "\\o": ".once",
    "\\q": ".exit",
    "exit": ".exit",
    "quit": ".exit",
    ".quit": ".exit",
}
"""Other names of the commands: those of psql, and plain words."""
_FUNCTIONS = "SELECT DISTINCT function_name FROM duckdb_functions()"


def _command_of(text: str) -> list[str]:
    """The words of a command of the shell, by its own name; empty for other input."""
    words = text.strip().rstrip(";").split()
    if not words:
        return []
    name = _ALIASES.get(words[0].lower(), words[0])
    # `help` and `exit` are commands only alone: a statement may begin with any word.
    plain = words[0][0] not in ".\\"
    return [name, *words[1:]] if name.startswith((".", "\\")) and not (plain and words[1:]) else []


def run_shell(engine: SqlEngine, form: Format, limit: int | None) -> None:
    """Read statements from the terminal and print their rows, until the end of the input."""
    shell = _Shell(engine, form, limit)
    prompt: PromptSession[str] = PromptSession(
        history=_history(),
        completer=SqlCompleter(engine),
        complete_while_typing=False,
        key_bindings=_keys(),
        multiline=Condition(lambda: True),
        prompt_continuation=_MORE,
    )
    note("Type .help for help, and Ctrl-D to leave.")
    while True:
        try:
            text = prompt.prompt(_PROMPT)
        except KeyboardInterrupt:  # discard the line and continue
            continue
        except EOFError:
            return
        if _command_of(text) == [".exit"]:
            return
        shell.run(text)


class _Shell:
    """The state of the shell, and the execution of input."""

    def __init__(self, engine: SqlEngine, form: Format, limit: int | None) -> None:
        self._engine = engine
        self._form = form
        self._limit = limit
        self._timing = True
        self._pager = sys.stdout.isatty()
        self._once: str | None = None

    def run(self, text: str) -> None:
        """Run the input. Errors are printed, and the shell continues."""
        try:
            command = _command_of(text)
            if command:
                self._command(command)
            else:
                self._run(text)
        except KeyboardInterrupt:
            note("interrupted")
        except LakecoreError as error:
            note(f"error: {error}")

    def _run(self, text: str) -> None:
        for statement in self._engine.checked(split(text)):
            start_ms = SYSTEM.now_ms()
            with self._destination():
                count = print_rows(self._engine, statement, self._form, self._limit)
            if self._timing:
                note(f"{count} rows, {(SYSTEM.now_ms() - start_ms) / 1000:.2f} s")

    @contextmanager
    def _destination(self) -> Iterator[None]:
        """Where the rows of a statement go: the file of `.once`, the pager, or the terminal."""
        if self._once is not None:
            path, self._once = self._once, None
            try:
                file = Path(path).expanduser().open("w", encoding="utf-8")
            except OSError as error:
                raise InvalidRequest(
                    "the file cannot be written", file=path, cause=error.strerror
                ) from error
            with file, redirect_stdout(file):
                yield
            return
        if not self._pager or self._form is not Format.TABLE:
            yield
            return
        kept = _Kept(encoding=sys.stdout.encoding or "utf-8")
        try:
            with redirect_stdout(kept):
                yield
        finally:
            _show(kept.text())

    def _command(self, words: list[str]) -> None:
        match words:
            case [".help"]:
                note(_HELP)
            case [".show"]:
                self._show_settings()
            case [".timing", "on" | "off" as state]:
                self._timing = state == "on"
            case [".pager", "on" | "off" as state]:
                self._pager = state == "on"
            case [".output", ("table" | "json" | "csv") as form]:
                self._form = Format(form)
            case [".limit", "all"]:
                self._limit = ALL_ROWS
            case [".limit", number] if number.isdecimal():
                self._limit = int(number)
            case [".once", *parts] if parts:
                self._once = " ".join(parts)
            case _:
                self._run(_statements_of(words))

    def _show_settings(self) -> None:
        engine = self._engine
        ((database,),) = engine.run("SELECT current_database()").fetchall()
        limit = {None: f"the first {ROWS_SHOWN} rows of a table", ALL_ROWS: "all"}
        for name, value in (
            ("database", database),
            ("output", self._form.value),
            ("limit", limit.get(self._limit, self._limit)),
            ("pager", "on" if self._pager else "off"),
            ("timing", "on" if self._timing else "off"),
            ("next result", self._once or "the terminal"),
        ):
            note(f"{name:<12} {value}")


def _statements_of(words: list[str]) -> str:
    """The statements that a command stands for. Raises InvalidRequest for an unknown command."""
    match words:
        case [".tables"]:
            return "SHOW TABLES"
        case [".tables", text]:
            return f"SHOW TABLES LIKE {quoted_text(f'%{text}%')}"
        case [".databases"]:
            return "SHOW DATABASES"
        case [".schema", table]:
            return f"SHOW CREATE TABLE {table}"
        case [".schema"]:
            raise InvalidRequest("name the table: .schema TABLE")
        case [".read", *parts] if parts:
            return file_text(" ".join(parts))
    known = re.findall(r"^(?:help, )?(\.\w+)", _HELP, re.MULTILINE)
    raise InvalidRequest(
        "unknown command, or other words than .help shows",
        command=" ".join(words),
        **did_you_mean(words[0], known),
    )


class _Kept(io.TextIOWrapper):
    """Keeps what is printed. It passes for the terminal, so that tables are laid out for it."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, errors="backslashreplace")

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return sys.__stdout__.fileno() if sys.__stdout__ is not None else 1

    def text(self) -> str:
        self.flush()
        self.seek(0)
        return self.read()


def _show(text: str) -> None:
    """Print the text, by the pager if the terminal has fewer lines."""
    pager = os.environ.get("PAGER") or shutil.which("less")
    if not pager or text.count("\n") < shutil.get_terminal_size().lines:
        write(text)
        flush()
        return
    words = shlex.split(pager)
    flags = ["-RSX"] if words[-1].endswith("less") else []
    try:
        subprocess.run([*words, *flags], input=text, text=True, check=False)  # noqa: S603  $PAGER
    except OSError:
        write(text)
        flush()


class SqlCompleter(Completer):
    """Completes keywords, tables, columns of the tables that the text names, and option keys."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    def get_completions(self, document: Document, complete_event: object) -> Iterable[Completion]:
        """The completions of the word before the cursor."""
        del complete_event
        found = _WORD.search(document.text_before_cursor)
        typed = found[0] if found is not None else ""
        in_quotes = typed.startswith("'")
        part = typed.lstrip("'")
        names = _OPTION_KEYS if in_quotes else [*self._names(document.text), *WORDS, *self._known]
        for name in dict.fromkeys(names):
            if part and name.lower().startswith(part.lower()):
                yield Completion(name, start_position=-len(part))

    @cached_property
    def _known(self) -> list[str]:
        """The procedures as `sys.NAME`, and the functions of queries."""
        functions = [row[0] for row in self._engine.run(_FUNCTIONS).fetchall()]
        return [*(f"sys.{row[0]}" for row in listed()[1]), *sorted(functions)]

    def _names(self, text: str) -> list[str]:
        try:
            tables = [row[0] for row in self._engine.run("SHOW TABLES").fetchall()]
            databases = [row[0] for row in self._engine.run("SHOW DATABASES").fetchall()]
            columns: list[str] = []
            for table in tables:
                if re.search(rf"\b{re.escape(table)}\b", text):
                    rows = self._engine.run(f"SHOW COLUMNS FROM `{table}`").fetchall()
                    columns += [row[0] for row in rows]
        except LakecoreError:  # a failed completion must not disturb the user
            return []
        return [*columns, *tables, *databases]


def _keys() -> KeyBindings:
    """The key bindings.

    Enter submits a statement that ends with `;`, a dot command, `exit` or `quit`; otherwise it adds
    a line.
    """
    keys = KeyBindings()

    @keys.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        text = buffer.text.strip()
        if not text or text.endswith(";") or _command_of(text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def _history() -> History:
    """The history file of the user, or an in-memory history if the file is not writable."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    place = Path(base) / "lakecore"
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / "sql_history").touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(place / "sql_history"))
