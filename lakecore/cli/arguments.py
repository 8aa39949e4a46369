"""The arguments that commands share: which table, which options, and how to print.

Nothing of the engine is imported here, so that `--help` stays fast.
"""

from __future__ import annotations

from contextvars import ContextVar
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "PROFILE",
    "AsCsv",
    "AsJson",
    "Columns",
    "DryRun",
    "EvolveSchema",
    "Format",
    "Full",
    "Interval",
    "Limit",
    "Options",
    "Output",
    "Partitions",
    "PartitionsWhere",
    "TableName",
    "Warehouse",
    "Where",
    "Yes",
    "chosen",
    "group",
    "names",
    "stated",
]

ROWS_SHOWN = 20
_YEAR_SECONDS = 365 * 86_400
PROFILE: ContextVar[str | None] = ContextVar("PROFILE", default=None)
"""The profile that `--profile` names; `main` sets it."""


_COMPLETE = "lakecore.cli.complete"


def _table_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The completions of the name of a table."""
    found: list[str] = import_module(_COMPLETE).tables(ctx.params.get("warehouse"), incomplete)
    return found


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
    typer.Option(
        "--warehouse",
        "-w",
        metavar="PATH",
        help="Warehouse of DB.TABLE. Default: LAKECORE_WAREHOUSE, or the profile.",
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="KEY=VALUE",
        help="Set an option of the table or the storage; repeatable.",
    ),
]
Output = Annotated[
    Format,
    typer.Option("--output", help="Print a table for people, JSON lines, CSV, or a Parquet file."),
]
AsJson = Annotated[bool, typer.Option("--json", help="The same as --output json.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="The same as --output csv.")]
Columns = Annotated[
    str | None, typer.Option(metavar="NAMES", help="Only these columns, separated by commas.")
]
Where = Annotated[str | None, typer.Option(metavar="SQL", help="Only rows that match.")]
Limit = Annotated[
    int | None,
    typer.Option(
        min=0, metavar="N", help=f"Print at most N rows. Default in a table: {ROWS_SHOWN}."
    ),
]

Partitions = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE,...", help="Only partitions with these values; repeatable."),
]
PartitionsWhere = Annotated[
    str | None, typer.Option(metavar="SQL", help="Only partitions that match.")
]
Full = Annotated[
    bool, typer.Option("--full", help="Merge everything into one sorted run per bucket.")
]
Interval = Annotated[
    float,
    typer.Option(
        min=0.01,
        max=_YEAR_SECONDS,
        metavar="SECONDS",
        help="With --watch: the wait between checks.",
    ),
]
EvolveSchema = Annotated[
    bool, typer.Option("--evolve-schema", help="Add missing columns to the table.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def group(text: str) -> typer.Typer:
    """A command that only groups other commands, such as `lakecore tag`."""
    return typer.Typer(
        help=text,
        no_args_is_help=True,
        rich_markup_mode=None,  # importing Rich would add 0.1 s to plain help
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def chosen(output: Format, *, json: bool, csv: bool) -> Format:
    """The one format that the flags ask for; a usage error if they ask for two."""
    asked = {output} - {Format.TABLE}
    asked |= {Format.JSON} if json else set()
    asked |= {Format.CSV} if csv else set()
    if len(asked) > 1:
        raise typer.BadParameter("choose one of --output, --json and --csv")
    return asked.pop() if asked else Format.TABLE


def names(columns: str | None) -> list[str] | None:
    """The names in a comma-separated string; None stays None."""
    return None if columns is None else [name.strip() for name in columns.split(",")]


def stated(pairs: Iterable[str] | None, what: str = "an option") -> Mapping[str, str]:
    """Parse KEY=VALUE arguments to options. Raises InvalidRequest for any other form."""
    options: dict[str, str] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise InvalidRequest(f"{what} is written KEY=VALUE", given=pair)
        options[key.strip()] = value.strip()
    return options
