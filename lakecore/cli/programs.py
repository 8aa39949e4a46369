"""`lakecore action` and `lakecore cdc`, whose flags depend on the action."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from lakecore.cli.action_table import HELP
from lakecore.cli.arguments import Verbs, argument
from lakecore.cli.output import write
from lakecore.deferred import deferred

if TYPE_CHECKING:
    from lakecore.cli.actions import run_action
    from lakecore.cli.cdc import run_pipeline
else:
    run_action = deferred("lakecore.cli.actions", "run_action")
    run_pipeline = deferred("lakecore.cli.cdc", "run_pipeline")

commands = Verbs()
_HELP = ("-h", "--help")
_CDC_VERBS = {
    "run": (
        "run FILE.toml [--metrics-address HOST:PORT] [--FLAG VALUE]...",
        "runs the pipeline of a file",
    ),
    "check": (
        "check ACTION|FILE.toml [--FLAG VALUE]...",
        "lists all problems, and changes nothing",
    ),
    "status": (
        "status [NAME] [--watch [--interval '2 s']] [--json] [--warehouse PATH] [--state PATH]",
        "shows each pipeline: lag, rows, tables that are set aside; or one, with its tables",
    ),
    "resync": (
        "resync NAME --tables A,B [--warehouse PATH] [--state PATH] [--catalog_conf KEY=VALUE]...",
        "has the pipeline read these tables again",
    ),
}
"""The usage and the meaning of each word that may stand in place of an action."""
_CDC_HELP = """\
Usage: lakecore cdc ACTION [--FLAG VALUE]...
{verbs}
  Replicate a database or a topic to tables, including schema changes.

  `lakecore cdc ACTION --help` lists the flags of an action:
  mysql_sync_table, mysql_sync_database, postgres_sync_table, postgres_sync_database,
  kafka_sync_table, kafka_sync_database, files_sync_table, files_sync_database
"""


@commands("action", raw=True)
def action(
    arguments: Annotated[
        list[str] | None, argument("NAME [--FLAG VALUE]...", "An action and its flags.")
    ] = None,
) -> None:
    """Run an action of Paimon's Flink action jar, with the same name and flags."""
    if not arguments or arguments[0] in _HELP:
        write(HELP)
    else:
        run_action(arguments)


@commands("cdc", raw=True)
def cdc(
    arguments: Annotated[
        list[str] | None,
        argument("ACTION [--FLAG VALUE]...", "An action, or `run`, `check`, `status`, `resync`."),
    ] = None,
) -> None:
    """Replicate a database or a topic to tables, including schema changes."""
    name = arguments[0] if arguments else "--help"
    if name in _HELP:
        verbs = "".join(f"       lakecore cdc {usage}\n" for usage, _ in _CDC_VERBS.values())
        write(_CDC_HELP.format(verbs=verbs))
    elif arguments and name in _CDC_VERBS and set(_HELP) & set(arguments[1:]):
        usage, meaning = _CDC_VERBS[name]
        write(f"Usage: lakecore cdc {usage}\n\n  It {meaning}.\n")
    else:
        run_pipeline(arguments or ())
