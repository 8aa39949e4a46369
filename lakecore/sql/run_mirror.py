"""Runs CREATE TABLE ... AS TABLE and CREATE DATABASE ... AS DATABASE of a source catalog.

A statement runs a CDC pipeline, as an action of the command line does, and keeps the same state:
running the statement again continues where it ended. It follows the source until Ctrl-C, and then
commits what it has read. With `SET 'cdc.until' = 'caught-up'` or the same option in the hint, it
ends when it has caught up.

An option of the hint is a flag of the action if the action has a flag of that name (`type_mapping`,
`mode`, `interval`, ...). Otherwise it is an option of the source (`server-id`,
`scan.startup.mode`, ...).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.cdc.actions import Arguments
from lakecore.cdc.pipeline import RUN_FLAGS, SYNC_ACTIONS, launch_of
from lakecore.errors import AlreadyExists, InvalidRequest, NotFound, Unsupported
from lakecore.io.ambient import SYSTEM
from lakecore.options.kinds import parse_duration
from lakecore.sql.statements import CreateDatabase, CreateTable, Mirror

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakecore.catalog.catalog import Catalog
    from lakecore.cdc.sink_parts import Progress
    from lakecore.cdc.source_catalogs import SourceCatalog
    from lakecore.sql.run_show import Rows
    from lakecore.sql.workspace import Workspace

_COLUMNS = (
    *("pipeline", "checkpoint", "rows", "tables", "rows_left_out", "caught_up"),
    "tables_in_quarantine",
)
_Flags = dict[str, tuple[str, ...]]


def run_mirror(
    workspace: Workspace,
    statement: CreateTable | CreateDatabase,
    mirror: Mirror,
    reports: Callable[[str, Progress], None] | None,
) -> Rows:
    """Follow the source that the statement names. Returns one row: the pipeline and its counts.

    If a signal ends the pipeline, raises KeyboardInterrupt after the last commit.
    """
    source = _source(workspace, mirror)
    takes_table = isinstance(statement, CreateTable)
    name = source.action(takes_table=takes_table)
    flags, conf = _split(mirror.options, SYNC_ACTIONS[name].known)
    for flag, texts in _stated(statement, mirror).items():
        if flag in flags:
            raise InvalidRequest("the statement says what the option says", option=flag)
        flags[flag] = texts
    if "until" not in flags and workspace.until is not None:
        flags["until"] = (workspace.until,)
    seconds = parse_duration(workspace.commit_interval) / 1000
    flags.setdefault("interval", (f"{seconds:f} s",))
    catalog, database, table = _target(workspace, statement)
    arguments = Arguments(
        database=database,
        table=table,
        conf=source.conf(mirror.chain[1:], conf, takes_table=takes_table),
        table_conf=statement.options,
        flags={flag: texts for flag, texts in flags.items() if flag not in RUN_FLAGS},
        case_sensitive=catalog.case_sensitive,
    )
    launch = launch_of(name, arguments, flags)
    label = launch.pipeline.label
    told: list[tuple[int, bool]] = []

    def report(progress: Progress) -> None:
        # Report only changes of the progress: without changes at the source, there is nothing new.
        seen = (progress.checkpoint, progress.caught_up)
        if reports is not None and told[-1:] != [seen]:
            reports(label, progress)
            told.append(seen)

    progress, interrupted = launch.run(catalog, SYSTEM, report)
    if interrupted:
        raise KeyboardInterrupt
    row = (
        label,
        progress.checkpoint,
        progress.rows,
        len(progress.tables),
        progress.rows_left_out,
        progress.caught_up,
        len(progress.quarantine),
    )
    return _COLUMNS, [row]


def _source(workspace: Workspace, mirror: Mirror) -> SourceCatalog:
    name, *rest = mirror.chain
    if name not in workspace.sources or not rest:
        raise NotFound(
            "name a table or a database of a source catalog, which CREATE CATALOG s WITH "
            "('type' = 'mysql', ...) makes",
            name=".".join(mirror.chain),
            known=sorted(workspace.sources),
        )
    return workspace.sources[name]


def _split(options: Mapping[str, str], known: tuple[str, ...]) -> tuple[_Flags, dict[str, str]]:
    """The options of a hint: flags of the action, and options of its source."""
    flags: _Flags = {}
    conf: dict[str, str] = {}
    for key, text in options.items():
        flag = key.replace("-", "_")
        if flag not in known and flag not in RUN_FLAGS:
            conf[key] = text
        elif flag in flags:
            raise InvalidRequest("the option is given twice", option=key)
        else:
            flags[flag] = (text,)
    return flags, conf


def _stated(statement: CreateTable | CreateDatabase, mirror: Mirror) -> _Flags:
    """The action's flags that follow from the clauses of the statement."""
    found: _Flags = {}
    if isinstance(statement, CreateTable):
        refused = {
            "columns": bool(statement.columns),
            "COMMENT": statement.comment is not None,
            "TEMPORARY": statement.temporary,
            "OR REPLACE": statement.replace,
            "LIKE": statement.like is not None,
        }
        named = [clause for clause, given in refused.items() if given]
        if named:
            raise Unsupported(
                "a table that follows a source has the columns and the comment of the source; it "
                "may state a primary key, PARTITIONED BY and options",
                clauses=named,
            )
        found["primary_keys"] = statement.primary_keys
        found["partition_keys"] = statement.partition_keys
        found["computed_column"] = mirror.computed
    else:
        found["including_tables"] = (mirror.including,) if mirror.including is not None else ()
        found["excluding_tables"] = (mirror.excluding,) if mirror.excluding is not None else ()
    return {flag: texts for flag, texts in found.items() if texts}


def _target(
    workspace: Workspace, statement: CreateTable | CreateDatabase
) -> tuple[Catalog, str, str | None]:
    """The catalog, database and table of the target. Raises AlreadyExists without IF NOT EXISTS."""
    if isinstance(statement, CreateTable):
        catalog, identifier = workspace.identifier(statement.chain)
        _, database, table = workspace.full(statement.chain)
        exists = not statement.if_not_exists and catalog.table_exists(identifier)
        if exists:
            raise AlreadyExists(
                "the table exists; say IF NOT EXISTS to continue its pipeline", table=identifier
            )
        return catalog, database, table
    catalog, database = workspace.databases(statement.chain)
    if not statement.if_not_exists and catalog.database_exists(database):
        raise AlreadyExists(
            "the database exists; say IF NOT EXISTS to continue its pipeline", database=database
        )
    return catalog, database, None
