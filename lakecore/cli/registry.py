"""The names of all commands, by subject, with the module that declares each.

A module is imported when its command runs or prints its help: `lakecore --help` only needs this
table. The summary of a command is the first line of its help (`tests/cli/test_registry.py`).
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from typer.core import TyperGroup
from typer.main import get_group

if TYPE_CHECKING:
    from typer._click.core import Command, Context
    from typer._click.formatting import HelpFormatter

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Read": {
        "tables": ("look", "List the tables of a warehouse, with keys, snapshot and rows."),
        "show": ("look", "Show the schema, options and snapshots of a table."),
        "read": ("look", "Print the rows of a table, merged by their keys."),
        "count": ("look", "Count the rows of a table, merged by their keys."),
        "changes": ("look", "Print the changes between two snapshots or times, with row kinds."),
        "stream": (
            "streams",
            "Print changes snapshot by snapshot, and wait for new ones until Ctrl-C.",
        ),
        "explain": ("look", "Show which files a read would skip, merge and read."),
        "inspect": (
            "look",
            "Draw a table: snapshots, tags, consumers, buckets, files, and what would expire.",
        ),
    },
    "Write": {
        "import": (
            "write",
            "Load files into a table. With a primary key, rows replace those of the same key.",
        ),
        "write": ("write", "Write the rows of files to a table that exists, in one commit."),
        "delete": ("write", "Delete the rows that match a condition, in one commit."),
        "update": ("write", "Set columns of the rows that match a condition, in one commit."),
        "merge": ("write", "Merge a file or a table into a table, in one commit."),
    },
    "Define": {
        "db": ("define", "List, create, describe and drop the databases of a warehouse."),
        "table": ("define", "Create, describe, rename, empty and drop tables."),
        "alter": ("define", "Change columns, options and comments of a table, all at once."),
    },
    "SQL": {
        "sql": ("sql", "Run SQL: Paimon's statements, and DuckDB's queries."),
        "procedures": ("sql", "List the procedures that CALL sys.NAME(...) runs."),
        "action": (
            "programs",
            "Run an action of Paimon's Flink action jar, with the same name and flags.",
        ),
    },
    "Mirror": {
        "cdc": ("programs", "Replicate a database or a topic to tables, including schema changes.")
    },
    "Maintain": {
        "advise": (
            "look",
            "Say which options to change, and what it saves, from the table's own history.",
        ),
        "compact": ("compact", "Merge the files of each bucket into fewer sorted runs."),
        "rescale": ("compact", "Give partitions another number of buckets, in one commit."),
        "compact-database": ("compact", "Compact all tables of a warehouse whose names match."),
        "analyze": (
            "look",
            "Compute and store statistics of a table, for the query planners of other engines.",
        ),
        "tag": ("tags", "List, create, replace, rename, delete and expire the tags of a table."),
        "branch": (
            "tags",
            "List, create, rename, delete and fast-forward the branches of a table.",
        ),
        "snapshot": ("retention", "List the snapshots of a table, and expire old ones."),
        "expire": ("retention", "Expire old snapshots, changelogs or partitions of a table."),
        "rollback": (
            "retention",
            "Make an earlier snapshot the latest one, and remove all later snapshots and tags.",
        ),
        "consumer": ("streams", "List, set and delete the consumers of a table."),
        "orphans": (
            "retention",
            "Delete orphan files: left by failed writes, in no snapshot, tag or branch.",
        ),
        "repair": (
            "retention",
            "Register the databases and tables of a warehouse in its catalog, with their schemas.",
        ),
        "partition-done": (
            "retention",
            "Mark partitions as done, so that other jobs know that they are complete.",
        ),
        "iceberg": (
            "retention",
            "Write Iceberg metadata of the latest snapshot, for DuckDB, Spark and other readers.",
        ),
    },
    "Serve": {
        "serve-rest": ("serve", "Serve a warehouse to other engines by Paimon's REST protocol."),
        "ui": (
            "serve",
            "Show a warehouse in a browser: tables, snapshots, files, rows. It changes nothing.",
        ),
        "metrics": (
            "serve",
            "Print numbers of all tables and pipelines in Prometheus's text format.",
        ),
    },
    "About lakecore": {
        "demo": ("about", "Show what lakecore does, with a year of real flights."),
        "version": ("about", "Print the version."),
    },
}
COMMANDS = {name: entry for names in SECTIONS.values() for name, entry in names.items()}


class Commands(TyperGroup):
    """The program. Each command is declared when it is needed."""

    def list_commands(self, ctx: Context) -> list[str]:
        """The names of all commands, in the order of the help."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """The command of that name, or None."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            module = import_module(f"lakecore.cli.{COMMANDS[cmd_name][0]}")
            self.commands.update(get_group(module.commands.app).commands)
        return self.commands[cmd_name]

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        """The command that the arguments start with. The error names the nearest command."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            near = get_close_matches(args[0], COMMANDS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else " `lakecore --help` lists them."
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the names and summaries, section by section."""
        del ctx
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, summary) for name, (_, summary) in names.items()])
