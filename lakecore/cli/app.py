"""The program `lakecore`: finds the command, runs it, and ends with its exit code.

`registry.py` lists the commands. The module of a command is imported when the command runs or
prints its help, and the engine when it works: `--help` does not load Polars, DuckDB or Arrow.

Data goes to standard output; notes, progress and errors go to standard error. Exit code 0: success.
1: a lakecore error, printed in one line; `--debug` shows the traceback. 2: wrong usage. 130: ended
by Ctrl-C. It is not an error if the reader of a pipe closes it early.
"""

from __future__ import annotations

import io
import os
import re
import sys
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from typer._click.core import Command, Context
from typer.core import TyperGroup
from typer.main import get_group

from lakecore import __version__
from lakecore.cli.flags import WrongFlag
from lakecore.cli.output import ERROR_LINE, OutputFailed, flush, to_nowhere, write
from lakecore.cli.registry import COMMANDS, Commands
from lakecore.cli.settings import PROFILE
from lakecore.errors import LakecoreError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lakecore.cli.output import ErrorLine


PROGRAM = "lakecore"
DEBUG = "--debug"
_PROFILE = "--profile"

_PROPOSED = re.compile(r"\b(?:(\w+)\((?:\.\.\., )?([a-z]\w*)=True[^)]*\)|([a-z]\w*)=True\b)")
"""A call, or an argument, that the message of an error proposes to a Python program."""

_FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")

app = typer.Typer(
    name=PROGRAM,
    cls=Commands,
    help="Create, write, read and maintain Apache Paimon tables, without a JVM.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,  # importing Rich would add 0.1 s to plain help
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the arguments name, and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):  # a terminal may not have every character
            output.reconfigure(errors="backslashreplace")
    if sys.stdout is None:  # closed by the parent process
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  open until the end
    given, profile = _without_profile(given)
    debug = DEBUG in given
    token, line = PROFILE.set(profile), ERROR_LINE.set(None)
    try:
        app(args=[part for part in given if part != DEBUG], prog_name=PROGRAM)
    except (LakecoreError, OutputFailed, OSError) as error:
        if debug:
            raise
        if isinstance(error, LakecoreError):
            code = 2 if isinstance(error, WrongFlag) else 1
            _fail(_one_text(in_flags(error, flags_of(given))), code, error.facts)
        to_nowhere()
        is_output = isinstance(error, OutputFailed)
        what = "the output cannot be written" if is_output else "the system refused a call"
        _fail(f"{what}: {error}")
    except _polars_errors() as error:
        if debug:
            raise
        _fail(str(error).strip().partition("\n")[0])
    except BaseException as error:
        form = ERROR_LINE.get()
        if isinstance(error, Exception) and not debug and form is not None:
            sys.excepthook = partial(_one_line, form)
        raise
    finally:
        PROFILE.reset(token)
        ERROR_LINE.reset(line)


def _one_line(
    form: ErrorLine, kind: type[BaseException], error: BaseException, trace: object
) -> None:
    """Write a fault of the program as the line of an error, in place of its traceback."""
    del trace
    text = f"a fault of lakecore: {kind.__name__}: {error}. --debug shows where it is"
    sys.stderr.write(form(text, {}))


def _one_text(message: str) -> str:
    """The message in one line; in its own lines if the last one marks a position with a caret."""
    lines = message.splitlines()
    return ("\n" if lines[-1:] and lines[-1].strip() == "^" else " ").join(lines)


def in_flags(error: LakecoreError, flags: Collection[str] | None) -> str:
    """The text of an error, with flags in place of Python's arguments.

    A call that is a command of its own is named as that command. What proposes a flag that the
    command does not have is left out; `flags` is None for a program that checks its flags itself.
    """

    def has(clause: str) -> bool:
        named = _FLAG.findall(clause) if flags is not None and PROGRAM not in clause else ()
        return all(flag in (flags or ()) for flag in named) and all(
            _flag(each, flags or ()) for each in _PROPOSED.finditer(clause)
        )

    first, *more = error.message.split("; ")
    said = "; ".join([first, *filter(has, more)])
    said = _PROPOSED.sub(lambda each: _flag(each, flags or ()) or each[0], said)
    return said + str(error).removeprefix(error.message)


def _flag(proposed: re.Match[str], flags: Collection[str]) -> str | None:
    """The flag that stands for a proposal; None if the command that ran has none."""
    call, argument = proposed[1], proposed[2] or proposed[3]
    flag = f"--{argument.replace('_', '-')}"
    if call in COMMANDS:
        return f"`{PROGRAM} {call} {flag}`"
    return flag if flag in flags else None


def flags_of(arguments: Sequence[str]) -> frozenset[str] | None:
    """The flags of the command that these arguments run; None if it reads them itself."""
    command: Command = get_group(app)
    for part in arguments:
        if isinstance(command, TyperGroup) and not part.startswith("-"):
            command = command.get_command(Context(command), part) or command
    if command.context_settings.get("ignore_unknown_options"):
        return None
    return frozenset(flag for each in command.params for flag in (*each.opts, *each.secondary_opts))


def _without_profile(arguments: list[str]) -> tuple[list[str], str | None]:
    """The arguments without `--profile NAME`, which may stand anywhere, and the name."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    rest: list[str] = []
    profile, place = None, 0
    while place < end:
        part = arguments[place]
        if part == _PROFILE and place + 1 < end:
            profile, place = arguments[place + 1], place + 1
        elif part.startswith(f"{_PROFILE}="):
            profile = part.removeprefix(f"{_PROFILE}=")
        else:
            rest.append(part)
        place += 1
    return rest + arguments[end:], profile


def _show_version(*, asked: bool) -> None:
    if asked:
        _say(__version__)
        raise typer.Exit


@app.callback()
def _common(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(_PROFILE, metavar="NAME", help="Use this profile of the configuration file."),
    ] = None,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an error.")] = False,
) -> None:
    del version, profile, debug  # `main` reads --profile and --debug wherever they stand


def _polars_errors() -> tuple[type[Exception], ...]:
    """The error types of Polars, if it has been imported."""
    # NOTE: if pulling rows raises an error, Polars raises its own error in place of it.
    loaded = sys.modules.get("polars.exceptions")
    return () if loaded is None else (loaded.PolarsError,)


def _say(text: str) -> None:
    write(f"{text}\n")
    flush()


def _fail(
    message: str, code: int = 1, facts: Mapping[str, object] = MappingProxyType({})
) -> NoReturn:
    form = ERROR_LINE.get()
    sys.stderr.write(f"error: {message}\n" if form is None else form(message, facts))
    sys.exit(code)
