"""The interactive SQL shell of `lakecore sql`.

A statement may have several lines and ends with `;`. Tab completes table names, column names,
keywords and option keys. The input is stored in a history file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings

from lakecore.cli.arguments import Format
from lakecore.cli.printing import note
from lakecore.cli.sql_rows import ALL_ROWS, print_rows
from lakecore.errors import InvalidRequest, LakecoreError
from lakecore.io.ambient import SYSTEM
from lakecore.options import DECLARED
from lakecore.sql.parse import WORDS
from lakecore.sql.tokens import split

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyPressEvent

    from lakecore.sql.engine import SqlEngine

__all__ = ["SqlCompleter", "run_shell"]

_PROMPT, _MORE = "lakecore> ", "      ...> "
_WORD = re.compile(r"[\w$.'-]*$")
_OPTION_KEYS = sorted(option.key for option in DECLARED.values())
_HELP = """\
statements end with ; and may have several lines
.help            this text
.timing on|off   print how long each statement takes
.output FORMAT   table, json or csv
.limit N|all     rows that a table shows
.exit, Ctrl-D    leave"""


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
        if text.strip().rstrip(";").lower() in {".exit", ".quit", "exit", "quit"}:
            return
        shell.run(text)


class _Shell:
    """The state of the shell, and the execution of input."""

    def __init__(self, engine: SqlEngine, form: Format, limit: int | None) -> None:
        self._engine = engine
        self._form = form
        self._limit = limit
        self._timing = True

    def run(self, text: str) -> None:
        """Run the input. Errors are printed, and the shell continues."""
        try:
            if text.strip().startswith("."):
                self._command(text.split())
                return
            for statement in self._engine.checked(split(text)):
                start_ms = SYSTEM.now_ms()
                count = print_rows(self._engine, statement, self._form, self._limit)
                if self._timing:
                    note(f"{count} rows, {(SYSTEM.now_ms() - start_ms) / 1000:.2f} s")
        except KeyboardInterrupt:
            note("interrupted")
        except LakecoreError as error:
            note(f"error: {error}")

    def _command(self, words: list[str]) -> None:
        match words:
            case [".help"]:
                note(_HELP)
            case [".timing", "on" | "off" as state]:
                self._timing = state == "on"
            case [".output", ("table" | "json" | "csv") as form]:
                self._form = Format(form)
            case [".limit", "all"]:
                self._limit = ALL_ROWS
            case [".limit", number] if number.isdecimal():
                self._limit = int(number)
            case _:
                raise InvalidRequest("unknown command; .help lists them", command=" ".join(words))


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
        names = _OPTION_KEYS if in_quotes else [*self._names(document.text), *WORDS]
        for name in dict.fromkeys(names):
            if part and name.lower().startswith(part.lower()):
                yield Completion(name, start_position=-len(part))

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
        if not text or text.endswith(";") or text.startswith(".") or text in {"exit", "quit"}:
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
