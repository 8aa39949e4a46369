"""Procedures that compact tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.sql.procedures.procedure import (
    Call,
    Procedure,
    options_of,
    partitions_of,
    text,
)
from lakecore.sql.run_rows import partition_values

if TYPE_CHECKING:
    from lakecore.model.compaction import CompactionResult

__all__ = ["PROCEDURES"]

_STRATEGIES = ("full", "minor")
_MODES = ("divided", "combined")


def _compact(call: Call) -> list[tuple[object, ...]]:
    for name in ("order_strategy", "order_by", "partition_idle_time"):
        if call.text(name) not in {None, "none"}:
            raise Unsupported(
                "compact does not sort rows or wait for idle partitions", argument=name
            )
    partitions, where = partitions_of(call.text("partitions")), call.text("where")
    if partitions is not None and where is not None:
        raise InvalidRequest("give `partitions` or `where`, not both")
    table = call.table(options=options_of(call.text("options")))
    typed = (
        None
        if partitions is None
        else [partition_values(call.queries, table.schema, each) for each in partitions]
    )
    result = table.compact(full=_full(call), partitions=typed, where=where)
    return [(_said(result),)]


def _full(call: Call) -> bool:
    """Whether `compact_strategy` is full, which is the default, as in Paimon's batch mode."""
    strategy = call.text("compact_strategy") or "full"
    if strategy not in _STRATEGIES:
        raise InvalidRequest("unknown strategy", compact_strategy=strategy, known=_STRATEGIES)
    return strategy == "full"


def _said(result: CompactionResult) -> str:
    ids = ", ".join(map(str, result.snapshot_ids))
    return f"Success. snapshots: {ids}" if ids else "Success. there was nothing to compact"


def _compact_database(call: Call) -> list[tuple[object, ...]]:
    if call.text("partition_idle_time") is not None:
        raise Unsupported(
            "compact does not wait for idle partitions", argument="partition_idle_time"
        )
    mode = call.text("mode") or "divided"
    if mode not in _MODES:
        raise InvalidRequest("unknown mode", mode=mode, known=_MODES)
    databases = _pattern(call, "including_databases", ".*")
    including = _pattern(call, "including_tables", ".*")
    excluding = _pattern(call, "excluding_tables", "")
    options = options_of(call.text("table_options"))
    catalog = call.workspace.catalog
    rows: list[tuple[object, ...]] = []
    for database in filter(databases.fullmatch, catalog.list_databases()):
        for name in catalog.list_tables(database):
            # Paimon matches a table by its name, with or without its database.
            names = (name, f"{database}.{name}")
            if not any(map(including.fullmatch, names)) or any(map(excluding.fullmatch, names)):
                continue
            table = call.workspace.table((database, name), options)
            rows.append((f"{database}.{name}: {_said(table.compact(full=_full(call)))}",))
    return rows or [("Success. no table matches",)]


def _pattern(call: Call, name: str, default: str) -> re.Pattern[str]:
    given = call.text(name)
    try:
        return re.compile(default if given is None else given)
    except re.error as error:
        raise InvalidRequest(
            "this is not a valid regular expression", argument=name, given=given
        ) from error


def _rewrite_file_index(call: Call) -> list[tuple[object, ...]]:
    partitions, where = partitions_of(call.text("partitions")), call.text("where")
    if partitions is not None and where is not None:
        raise InvalidRequest("give `partitions` or `where`, not both")
    table = call.table()
    typed = (
        None
        if partitions is None
        else [partition_values(call.queries, table.schema, each) for each in partitions]
    )
    table.rewrite_file_index(partitions=typed, where=where)
    return [("Success",)]


PROCEDURES = (
    Procedure(
        name="rewrite_file_index",
        arguments=(text("table", required=True), text("partitions"), text("where")),
        run=_rewrite_file_index,
        about="index the files as the options say now",
    ),
    Procedure(
        name="compact",
        arguments=(
            text("table", required=True),
            text("partitions"),
            text("order_strategy"),
            text("order_by"),
            text("options"),
            text("where"),
            text("partition_idle_time"),
            text("compact_strategy"),
        ),
        forms=(("table", "order_strategy", "order_by"),),
        run=_compact,
        about="merge the files of a table",
    ),
    Procedure(
        name="compact_database",
        arguments=(
            text("including_databases"),
            text("mode"),
            text("including_tables"),
            text("excluding_tables"),
            text("table_options"),
            text("partition_idle_time"),
            text("compact_strategy"),
        ),
        run=_compact_database,
        about="merge the files of all tables whose names match",
    ),
)
