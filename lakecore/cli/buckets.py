"""`lakecore rescale` and `lakecore compact-database`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, TypedDict

import polars as pl

from lakecore.catalog.compact_database import (
    DatabaseCompaction,
    TableEvent,
    compact_database,
    watch_database,
)
from lakecore.cli.arguments import Format, stated
from lakecore.cli.compact import clock, line_of, size_of, stop_on_signal
from lakecore.cli.grid import json_text
from lakecore.cli.printing import note, say, write_frame, write_record
from lakecore.cli.target import session_of, table_of
from lakecore.io.ambient import SYSTEM
from lakecore.table.verbs.compaction_job import Setback

if TYPE_CHECKING:
    from lakecore.session import Session

__all__ = ["compact_tables", "rescale"]


class What(TypedDict):
    """The arguments of `compact-database`, as given on the command line."""

    including_databases: str
    including_tables: str
    excluding_tables: str | None
    mode: str
    full: bool
    max_bytes: str | None
    table_options: list[str] | None


def rescale(  # noqa: PLR0913, PLR0917  the parameters of the command
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    bucket_num: int | None,
    partitions: list[str] | None,
    where: str | None,
    form: Format,
) -> None:
    """Rescale partitions, and print the commit."""
    chosen = [{**stated(each.split(","), "a partition")} for each in partitions or ()] or None
    result = table_of(name, warehouse, option).rescale(
        bucket_num=bucket_num, partition=chosen, where=where
    )
    write_record(asdict(result), form, str(result))


def compact_tables(
    warehouse: str | None,
    option: list[str] | None,
    what: What,
    interval: float | None,
    form: Format,
) -> None:
    """Compact tables once, and print a row for each; or until stopped, with a line per commit."""
    limit = what["max_bytes"]
    request = DatabaseCompaction(
        including_databases=what["including_databases"],
        including_tables=what["including_tables"],
        excluding_tables=what["excluding_tables"],
        mode=what["mode"],
        full=what["full"],
        max_bytes=None if limit is None else size_of(limit),
        table_options=stated(what["table_options"], "--table-option"),
    )
    session = session_of(None, warehouse, option)
    if interval is not None:
        _watch(session, request, interval, form)
        return
    results = compact_database(session, session.get_table, request)
    rows = [
        (name, each.buckets, each.files_before, each.files_after, each.snapshot_id)
        for name, each in results.items()
    ]
    schema = {
        "table": pl.String,
        "buckets": pl.Int64,
        "files_before": pl.Int64,
        "files_after": pl.Int64,
        "snapshot_id": pl.Int64,
    }
    write_frame(pl.DataFrame(rows, schema, orient="row"), form)


def _watch(session: Session, request: DatabaseCompaction, seconds: float, form: Format) -> None:
    as_json = form is Format.JSON
    status = note if as_json else say

    def at(text: str) -> str:
        return f"{clock(SYSTEM.local_wall_clock_ms() // 1000)} {text}"

    def report(told: TableEvent) -> None:
        event = told.event
        if event is None:
            status(at(f"{told.table}: watching"))
        elif isinstance(event, Setback):
            note(at(f"{told.table}: once more in {event.seconds:g} s: {event.error}"))
        elif as_json:
            say(json_text({"table": told.table, **asdict(event.step)}))
        else:
            say(at(f"{told.table}: {line_of(event)}"))

    with stop_on_signal() as stop:
        status(at(f"watching, every {seconds:g} s"))
        commits = watch_database(
            session,
            session.get_table,
            request,
            interval_seconds=seconds,
            stop=stop,
            report=report,
        )
    status(at(f"stopped after {commits} commits"))
