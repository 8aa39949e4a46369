"""How a command is declared, and the arguments that commands share.

A command is one function: its parameters are its flags, and its body does the work. A parameter
whose type is a dataclass, such as `OfTable`, stands for one flag a field. Nothing of the engine is
imported here, so that `--help` stays fast: a module of commands names what it needs by `deferred`.
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from enum import StrEnum
from inspect import Parameter, Signature, signature
from typing import (
    TYPE_CHECKING,
    Annotated,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
)

import typer
from typer.models import ArgumentInfo, OptionInfo

from lakecore.cli.output import run
from lakecore.cli.registry import COMMANDS
from lakecore.cli.settings import stated
from lakecore.deferred import deferred
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakecore.cli.target import place_of, session_of, table_of, tables
    from lakecore.session import Session
    from lakecore.table.handle import Table
else:
    place_of = deferred("lakecore.cli.target", "place_of")
    session_of = deferred("lakecore.cli.target", "session_of")
    table_of = deferred("lakecore.cli.target", "table_of")
    tables = deferred("lakecore.cli.target", "tables")

ROWS_SHOWN = 20
STDIN = "-"
_YEAR_SECONDS = 365 * 86_400
P = ParamSpec("P")


def flag(metavar: str, meaning: str, *names: str, envvar: str | None = None) -> OptionInfo:
    """A flag with a value, which `--help` shows as `metavar`. Its parameter names it by default."""
    found: OptionInfo = typer.Option(
        *names, metavar=metavar, help=meaning, envvar=envvar, show_envvar=False
    )
    return found


def switch(meaning: str, *names: str) -> OptionInfo:
    """A flag without a value, or one whose type says all about its values."""
    found: OptionInfo = typer.Option(*names, help=meaning)
    return found


def argument(metavar: str, meaning: str) -> ArgumentInfo:
    """A value that is given by its place."""
    found: ArgumentInfo = typer.Argument(metavar=metavar, help=meaning)
    return found


def _table_names(ctx: typer.Context, incomplete: str) -> list[str]:
    return tables(ctx.params.get("warehouse"), incomplete)


class Format(StrEnum):
    """The output formats of a command."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


TableName = Annotated[
    str,
    typer.Argument(
        metavar="PATH|DB.TABLE",
        help="Directory or URI of a table, or its name in the warehouse.",
        show_default=False,
        autocompletion=_table_names,
    ),
]
Warehouse = Annotated[
    str | None,
    flag(
        "PATH",
        "Warehouse of DB.TABLE. Default: LAKECORE_WAREHOUSE, or the profile.",
        "--warehouse",
        "-w",
    ),
]
Options = Annotated[
    list[str] | None,
    flag("KEY=VALUE", "Set an option of the table or the storage; repeatable.", "--option", "-o"),
]
Columns = Annotated[str | None, flag("NAMES", "Only these columns, separated by commas.")]
Where = Annotated[str | None, flag("SQL", "Only rows that match.")]
Limit = Annotated[
    int | None,
    typer.Option(
        metavar="N", help=f"Print at most N rows. Default in a table: {ROWS_SHOWN}.", min=0
    ),
]

Partitions = Annotated[
    list[str] | None, flag("KEY=VALUE,...", "Only partitions with these values; repeatable.")
]
PartitionsWhere = Annotated[str | None, flag("SQL", "Only partitions that match.")]
Full = Annotated[bool, switch("Merge everything into one sorted run per bucket.")]
Interval = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        help="With --watch: the wait between checks.",
        min=0.01,
        max=_YEAR_SECONDS,
    ),
]
EvolveSchema = Annotated[bool, switch("Add missing columns to the table.")]
DryRun = Annotated[bool, switch("Only print what would be done.")]
Yes = Annotated[bool, switch("Do not ask for confirmation.", "--yes", "-y")]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfWarehouse:
    """The warehouse that a command works on."""

    option: Options = None
    warehouse: Warehouse = None

    def session(self, path: str | None = None, *, create: bool = False) -> Session:
        """The session on the warehouse, or on that of a path."""
        return session_of(path, self.warehouse, self.option, create=create)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfTable:
    """The table that a command works on."""

    table: TableName
    option: Options = None
    warehouse: Warehouse = None

    def open(self) -> Table:
        """The table."""
        return table_of(self.table, self.warehouse, self.option)

    def place(self, *, create: bool = False) -> tuple[Session, str, dict[str, str]]:
        """The session, the table's name in it, and the table's options; it need not exist."""
        return place_of(self.table, self.warehouse, self.option, create=create)


@dataclass(frozen=True, slots=True, kw_only=True)
class Care:
    """What the user wants before something is removed."""

    dry_run: DryRun = False
    yes: Yes = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Printed:
    output: Annotated[
        Format, switch("Print a table for people, JSON lines, CSV, or a Parquet file.")
    ] = Format.TABLE
    json: Annotated[bool, switch("The same as --output json.")] = False
    csv: Annotated[bool, switch("The same as --output csv.")] = False

    def value(self) -> Format:
        """The one format that the flags ask for; a usage error if they ask for two."""
        asked = {self.output} - {Format.TABLE}
        asked |= {Format.JSON} if self.json else set()
        asked |= {Format.CSV} if self.csv else set()
        if len(asked) > 1:
            raise typer.BadParameter("choose one of --output, --json and --csv")
        return asked.pop() if asked else Format.TABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How files are read."""

    kind: Annotated[
        str | None,
        flag(
            "csv|json|parquet",
            "Format of the files. Default: by the file suffix.",
            "--format",
            "-f",
        ),
    ] = None
    delimiter: Annotated[
        str | None, flag("TEXT", "CSV: the separator of values. Default: detected.")
    ] = None
    no_header: Annotated[bool, switch("CSV: the first line holds values, not names.")] = False
    header_names: Annotated[
        str | None, flag("NAMES", "CSV: column names, separated by commas.", "--names")
    ] = None
    null: Annotated[str, flag("TEXT", "CSV: the text that means null. Default: empty.")] = ""
    date_format: Annotated[
        str | None, flag("FORMAT", "CSV: format of dates, such as '%d/%m/%Y'.")
    ] = None
    timestamp_format: Annotated[str | None, flag("FORMAT", "CSV: format of timestamps.")] = None
    encoding: Annotated[
        str | None,
        flag("NAME", "Encoding of CSV and JSON files, such as latin-1 or utf-16; default UTF-8."),
    ] = None


Form = Annotated[Format, _Printed]
"""The format to print: `--output`, `--json` and `--csv`."""


class Verbs:
    """The commands of a module, or those of a group such as `lakecore tag`.

    Example: `commands = Verbs()`, and `@commands("count")` above a function.
    """

    def __init__(self, text: str = "") -> None:
        self.app = typer.Typer(
            help=text,
            no_args_is_help=True,
            rich_markup_mode=None,  # importing Rich would add 0.1 s to plain help
            context_settings={"help_option_names": ["-h", "--help"]},
        )

    def group(self, name: str) -> Verbs:
        """A command that only groups other commands."""
        inner = Verbs(COMMANDS[name][1])
        self.app.add_typer(inner.app, name=name)
        return inner

    def __call__(
        self, name: str, *, raw: bool = False
    ) -> Callable[[Callable[P, None]], Callable[P, None]]:
        """Declare a function as the command of that name; a `raw` one parses its own flags."""
        raw_settings = {"ignore_unknown_options": True, "allow_extra_args": True}

        def declare(work: Callable[P, None]) -> Callable[P, None]:
            self.app.command(
                name, add_help_option=not raw, context_settings=raw_settings if raw else None
            )(_flat(work))
            return work

        return declare


def _flat(work: Callable[..., None]) -> Callable[..., None]:
    """The function with a parameter for each flag, as typer reads them."""
    hints = get_type_hints(work, include_extras=True)
    flags: list[Parameter] = []
    groups: dict[str, type] = {}
    for name, each in signature(work).parameters.items():
        hint = _named(name, hints[name])
        group = next((part for part in (hint, *get_args(hint)) if is_dataclass(part)), None)
        if group is None:
            flags.append(each.replace(kind=Parameter.KEYWORD_ONLY, annotation=hint))
            continue
        assert isinstance(group, type), "an annotation names the class"
        groups[name] = group
        of_group = get_type_hints(group, include_extras=True)
        for field in fields(group):
            default = Parameter.empty if field.default is MISSING else field.default
            flags.append(
                Parameter(
                    field.name,
                    Parameter.KEYWORD_ONLY,
                    default=default,
                    annotation=_named(field.name, of_group[field.name]),
                )
            )

    def command(**given: object) -> None:
        for name, group in groups.items():
            made = group(**{each.name: given.pop(each.name) for each in fields(group)})
            given[name] = made.value() if isinstance(made, _Printed) else made
        run(work, **given)

    command.__doc__ = work.__doc__
    command.__name__ = work.__name__
    command.__signature__ = Signature(flags)  # type: ignore[attr-defined]  # inspect reads it
    return command


def _named(name: str, hint: object) -> object:
    """The annotation of a parameter. A switch without names is only `--NAME`, not `--no-NAME`."""
    of, *more = get_args(hint) or (None,)
    for each in more:
        if of is bool and isinstance(each, OptionInfo) and each.default is ...:
            each.param_decls = (f"--{name.replace('_', '-')}",)
    return hint


def names(columns: str | None) -> list[str] | None:
    """The names in a comma-separated string; None stays None."""
    return None if columns is None else [name.strip() for name in columns.split(",")]


def partitions_of(specs: Iterable[str] | None) -> list[Mapping[str, object]]:
    """The partitions in texts such as `dt=1,hour=2`."""
    return [{**stated(each.split(","), "a partition")} for each in specs or ()]


# --- confirmation --------------------------------------------------------------------------------

DRY = "dry run: nothing was changed"
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class Verb(Protocol[R_co]):
    """A verb that removes something, or in a dry run only says what it would remove."""

    def __call__(self, *, dry_run: bool) -> R_co: ...


def confirmed(verb: Verb[R], question: Callable[[R], str | None], care: Care) -> R:
    """Run a verb after the user agreed, and return its result, or that of a dry run.

    A dry run determines what would be removed, and `question` turns its result into a question. If
    `question` returns None, there is nothing to remove: then nothing is asked or done.
    """
    planned = verb(dry_run=True)
    if care.dry_run:
        return planned
    asked = question(planned)
    if asked is None:
        return _done(planned)
    require_consent(asked, yes=care.yes)
    return verb(dry_run=False)


def _done(result: R) -> R:
    """The result of a verb with nothing to remove, which is no dry run."""
    if is_dataclass(result) and not isinstance(result, type) and hasattr(result, "dry_run"):
        return cast("R", replace(result, dry_run=False))
    return result


def require_consent(question: str, *, yes: bool) -> None:
    """Return if the user agrees, by `--yes` or at the terminal.

    Raises InvalidRequest if the user declines, or if there is no terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidRequest("this needs a confirmation: add --yes", question=question)
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise InvalidRequest("nothing was changed")
