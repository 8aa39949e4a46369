"""The changes of a table as a streaming DataFrame.

The arguments are passed as options of `format("lakecore")`, because Spark plans a stream in
processes that get nothing else.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from lakecore import InvalidRequest, Unsupported, open_table
from lakecore.distributed.changes import ROW_KIND
from lakecore.distributed.descriptor import anchored
from lakecore.distributed.planning import is_access_option, parse_condition
from lakecore.distributed.tables import MemoryStore, unguarded
from lakecore.distributed.values import MAIN_BRANCH
from spark_bridge.arguments import named_arguments
from spark_bridge.attach_tables import register
from spark_bridge.read_frame import in_zone_of_session, resolved
from spark_bridge.stream_read import SNAPSHOT_ID
from spark_bridge.stream_source import stream_columns, stream_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakecore import Table
    from lakecore.distributed.values import Time

__all__ = ["read_stream"]


@named_arguments
def read_stream(  # noqa: PLR0913  the public verb
    spark: SparkSession,
    table: Table | str | os.PathLike[str],
    *,
    columns: Sequence[str] | str | None = None,
    where: str | None = None,
    changelog: bool = True,
    from_snapshot: int | None = None,
    from_timestamp: Time | None = None,
    scan_mode: str | None = None,
    consumer_id: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The changes of a table as a streaming frame, with the columns `_row_kind` and `_snapshot_id`.

    - `columns`: the columns of the table to read; by default all.
    - `where`: an SQL condition; only matching rows are returned. It may name `_row_kind`.
    - `changelog`: False returns the rows +I and +U, without the two columns. Deletions are lost.
    - `from_snapshot`, `from_timestamp`, `scan_mode`, `consumer_id`: where the stream begins, as for
      `Table.stream`. By default it first returns all rows of the latest snapshot as +I. A time
      without a zone is in the session's time zone.
    - `options`: other options of `format("lakecore")`, such as `maxSnapshotsPerTrigger`, and of the
      table or its storage.

    A batch of a table with a primary key has the changes of one snapshot, unless a limit is given.

    Raises InvalidRequest for wrong arguments, Unsupported for a type that Spark lacks. If the start
    has expired, the query fails, and the error names the earliest snapshot that still exists.

        changes = spark_bridge.read_stream(spark, "/data/shop/orders")
    """
    register(spark)
    given = dict(options or {})
    if isinstance(table, str | os.PathLike):
        branch = given.get("branch", MAIN_BRANCH)
        storage = {key: text for key, text in given.items() if is_access_option(key)}
        opened = open_table(table, branch=branch, options=storage)
    else:
        opened = table
        given = {**_own_options(table), **given}
    context = opened.context
    if isinstance(unguarded(context.store), MemoryStore):
        raise Unsupported(
            "Spark cannot read a table in the memory of one process", table=context.identifier
        )
    named = {
        "startingVersion": from_snapshot,
        "startingTimestamp": in_zone_of_session(spark, from_timestamp),
        "scan.mode": scan_mode,
        "consumer-id": consumer_id,
        "where": where,
    }
    if where is not None:
        if not isinstance(where, str):
            raise InvalidRequest("the condition of a stream is SQL, as a string", where=where)
        schema = stream_columns(context.schema) if changelog else context.schema
        parse_condition(where, schema)
    given |= {key: str(value) for key, value in named.items() if value is not None}
    given["read.changelog"] = str(changelog).lower()
    reader = spark.readStream.format("lakecore").options(**given)
    everything = stream_schema(context.schema, changelog=changelog)
    if columns is not None:
        names = resolved(spark, context.schema, columns) or []
        for name in names:
            context.schema.field(name)
        added = [ROW_KIND, SNAPSHOT_ID] if changelog else []
        fields = {field.name: field for field in everything.fields}
        reader = reader.schema(StructType([fields[name] for name in [*added, *names]]))
    return reader.load(anchored(context.layout, context.store).root)


def _own_options(table: Table) -> dict[str, str]:
    """The options of this table object that are not in the stored schema, and its branch."""
    context = table.context
    stored = context.schema.options
    own = {key: text for key, text in context.options.texts.items() if stored.get(key) != text}
    if context.layout.branch != MAIN_BRANCH:
        own["branch"] = context.layout.branch
    return own
