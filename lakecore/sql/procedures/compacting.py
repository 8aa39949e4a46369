"""Procedures that compact tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakecore.catalog.compact_database import CompactMode, DatabaseCompaction, compact_database
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.sql.procedures.procedure import (
    Call,
    Procedure,
    number,
    options_of,
    partitions_of,
    text,
)
from lakecore.sql.run_rows import partition_values
from lakecore.table.verbs.compact_choice import idle_ms

if TYPE_CHECKING:
    from lakecore.model.compaction import CompactionResult
    from lakecore.table.handle import Table

__all__ = ["PROCEDURES"]

_STRATEGIES = ("full", "minor")
_RANGE = re.compile(r"([0-9]{1,9})(?:\s*-\s*([0-9]{1,9}))?")


def _compact(call: Call) -> list[tuple[object, ...]]:
    partitions, where = partitions_of(call.text("partitions")), call.text("where")
    if partitions is not None and where is not None:
        raise InvalidRequest("give `partitions` or `where`, not both")
    table = call.table(options=options_of(call.text("options")))
    given = call.text("buckets")
    buckets = None if given is None else _buckets(given, table)
    typed = (
        None
        if partitions is None
        else [partition_values(call.queries, table.schema, each) for each in partitions]
    )
    result = table.compact(
        full=_full(call, minor=table.context.options.clustering_incremental),
        partitions=typed,
        where=where,
        buckets=buckets,
        order_strategy=call.text("order_strategy"),
        order_by=call.text("order_by") or None,
        partition_idle_time=call.text("partition_idle_time"),
    )
    return [(_said(result),)]


def _buckets(given: str, table: Table) -> list[int]:
    """The bucket numbers in a text such as `0-9,20`: numbers and inclusive ranges.

    Raises InvalidRequest for any other text, and for a bucket that the table does not have.
    """
    count = table.context.options.bucket
    if count < 1:
        raise InvalidRequest(
            "`buckets` is for tables with a fixed number of buckets",
            table=table.identifier,
            bucket=count,
        )
    found: set[int] = set()
    for part in given.split(","):
        match = _RANGE.fullmatch(part.strip())
        first, last = (0, -1) if match is None else (int(match[1]), int(match[2] or match[1]))
        if not first <= last < count:
            raise InvalidRequest(
                "`buckets` are numbers and ranges such as 0-9,20, within the table's buckets",
                buckets=given,
                part=part,
                bucket=count,
            )
        found.update(range(first, last + 1))
    return sorted(found)


def _full(call: Call, *, minor: bool = False) -> bool:
    """Whether `compact_strategy` is full.

    As in Paimon, full is the default unless `minor` is set.
    """
    strategy = call.text("compact_strategy") or ("minor" if minor else "full")
    if strategy not in _STRATEGIES:
        raise InvalidRequest("unknown strategy", compact_strategy=strategy, known=_STRATEGIES)
    return strategy == "full"


def _said(result: CompactionResult) -> str:
    ids = ", ".join(map(str, result.snapshot_ids))
    return f"Success. snapshots: {ids}" if ids else "Success. there was nothing to compact"


def _compact_database(call: Call) -> list[tuple[object, ...]]:
    request = DatabaseCompaction(
        including_databases=call.text("including_databases") or ".*",
        including_tables=call.text("including_tables") or ".*",
        excluding_tables=call.text("excluding_tables"),
        mode=call.text("mode") or CompactMode.DIVIDED,
        full=_full(call),
        table_options=options_of(call.text("table_options")),
        partition_idle_ms=idle_ms(call.text("partition_idle_time")),
    )

    def opened(name: str) -> Table:
        database, _, table = name.partition(".")
        return call.workspace.table((database, table))

    results = compact_database(call.workspace.catalog, opened, request)
    rows: list[tuple[object, ...]] = [
        (f"{name}: {_said(result)}",) for name, result in results.items()
    ]
    return rows or [("Success. no table matches",)]


def _rescale(call: Call) -> list[tuple[object, ...]]:
    given, listed = call.text("partition"), call.text("partitions")
    for name in ("scan_parallelism", "sink_parallelism"):
        if call.number(name) is not None:
            raise Unsupported("lakecore has no such setting: Flink runs jobs by it", argument=name)
    if (given, listed, call.text("where")).count(None) < 2:
        raise InvalidRequest("give `partition`, `partitions` or `where`, not two of them")
    partitions = partitions_of(given or listed)
    table = call.table()
    typed = (
        None
        if partitions is None
        else [partition_values(call.queries, table.schema, each) for each in partitions]
    )
    result = table.rescale(
        bucket_num=call.number("bucket_num"), partition=typed, where=call.text("where")
    )
    ids = ", ".join(map(str, result.snapshot_ids))
    said = f"Success. snapshots: {ids}" if ids else "Success. there was nothing to rescale"
    buckets, option = result.facts.get("buckets"), result.facts.get("option_bucket")
    if buckets != option:
        said += (
            f". Next: set the option bucket, which is {option}, to {buckets}, and rescale the "
            "other partitions; writers refuse partitions with another number"
        )
    return [(said,)]


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
        name="rescale",
        arguments=(
            text("table", required=True),
            number("bucket_num", "`bucket`"),
            text("partition"),
            number("scan_parallelism"),
            number("sink_parallelism"),
            text("partitions"),
            text("where"),
        ),
        run=_rescale,
        about="give partitions another number of buckets",
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
            text("compact_strategy", "full; minor with `clustering.incremental`"),
            text("buckets"),
        ),
        forms=(("table", "order_strategy", "order_by"),),
        run=_compact,
        about="merge the files of a table",
    ),
    Procedure(
        name="compact_database",
        arguments=(
            text("including_databases", "`.*`"),
            text("mode", "divided"),
            text("including_tables", "`.*`"),
            text("excluding_tables"),
            text("table_options"),
            text("partition_idle_time"),
            text("compact_strategy", "full"),
        ),
        run=_compact_database,
        about="merge the files of all tables whose names match",
    ),
)
