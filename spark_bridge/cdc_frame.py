"""`cdc`: writes a stream of CDC messages to tables, which follow schema changes.

The arguments are those of Paimon's actions for Kafka. The driver keeps the tables in step with the
schemas (`cdc_batches.py`); tasks decode and write (`cdc_decode.py`).

See https://paimon.apache.org/docs/master/cdc-ingestion/kafka-cdc/
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql import types as s

from lakecore import InvalidRequest, Unsupported
from lakecore.distributed import (
    COMMON_FLAGS,
    DATABASE_FLAGS,
    TABLE_FLAGS,
    Arguments,
    decoder_for,
    option_texts,
)
from spark_bridge.arguments import check_counts, check_every, named_arguments
from spark_bridge.cdc_batches import CdcSettings, CdcSink
from spark_bridge.cdc_decode import MESSAGE_COLUMNS, rules_for
from spark_bridge.settings import require_version
from spark_bridge.task import MEMORY_PER_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter

    from spark_bridge.cdc_batches import CdcBatch

_EAGER = "eager_init"
_TEXTS = (s.BinaryType, s.StringType)
_NUMBERS = (s.ByteType, s.ShortType, s.IntegerType, s.LongType)
_TYPES: Mapping[str, tuple[type[s.DataType], ...]] = {
    "key": _TEXTS,
    "value": _TEXTS,
    "topic": (s.StringType,),
    "partition": _NUMBERS,
    "offset": _NUMBERS,
    "timestamp": (s.TimestampType,),
    "timestampType": _NUMBERS,
}


@named_arguments
def cdc(  # noqa: PLR0913  the public verb
    df: DataFrame,
    warehouse: str | os.PathLike[str] | Mapping[str, str],
    database: str,
    table: str | None = None,
    *,
    format: str,  # noqa: A002  Spark's own word
    table_conf: Mapping[str, str] | None = None,
    schema_registry_url: str | None = None,
    case_sensitive: bool = True,
    dead_letters: bool = False,
    state: str | None = None,
    commit_user: str | None = None,
    compact_every: int | None = None,
    tasks: int | None = None,
    memory_per_task: int = MEMORY_PER_TASK,
    reports: Callable[[CdcBatch], object] | None = None,
    **flags: object,
) -> DataStreamWriter:
    """A writer for a stream of messages: its batches change the tables of a database, exactly once.

    `df` has the columns of Spark's Kafka source: `value`, and if known `key`, `topic`, `partition`,
    `offset`, `timestamp`, `timestampType`. Other columns are ignored. Without `offset`, all
    messages of a batch must be in one partition of Spark.

    - `warehouse`: the path, or the catalog options, as for `lakecore.connect`;
    - `database`, `table`: every message goes into the table; without `table`, into the table of
      that database that the message names. Missing tables are created;
    - `format`: `debezium-json`, `debezium-avro` (needs `schema_registry_url`), `debezium-bson`,
      `canal-json`, `maxwell-json`, `ogg-json`, `aws-dms-json`, `aliyun-json` or `json`;
    - `table_conf`: options of the tables;
    - `dead_letters`: keep messages and rows that do not fit in files
      `dead-letters-BATCH.jsonl` below `WAREHOUSE/.cdc/spark-QUERYID` (`state` replaces
      `WAREHOUSE/.cdc`); without it, they end the query;
    - `commit_user`, `compact_every`, `tasks`, `memory_per_task`: as for `foreach_batch`;
      `compact_every` counts the commits of each table;
    - `reports`: called after each batch;
    - `flags`: the other arguments of `kafka_sync_table` and `kafka_sync_database`: `primary_keys`,
      `partition_keys`, `computed_column`, `metadata_column`, `type_mapping`, `including_tables`,
      `table_mapping`, ... A flag that may be repeated takes a list; a flag with `key=value`, such
      as `table_mapping`, takes a mapping.

    If a schema changes, a batch runs several jobs: the tables are changed before any row is
    written. Raises InvalidRequest or Unsupported for arguments that do not fit together.

        writer = spark_bridge.cdc(df, "/data/warehouse", "shop", format="debezium-json")
        query = writer.option("checkpointLocation", path).start()
    """
    require_version(df.sparkSession)
    check_counts(tasks=tasks, memory_per_task=memory_per_task)
    check_every(compact_every)
    if not df.isStreaming:
        raise InvalidRequest("cdc takes a streaming frame: read it by spark.readStream")
    if (schema_registry_url is not None) != (format == "debezium-avro"):
        raise InvalidRequest(
            "schema_registry_url and the format debezium-avro belong together", format=format
        )
    if state is not None and not dead_letters:
        raise InvalidRequest(
            "state says where dead letters are kept: pass dead_letters=True as well", state=state
        )
    options = (
        option_texts(warehouse)
        if isinstance(warehouse, Mapping)
        else {"warehouse": os.fspath(warehouse)}
    )
    arguments = Arguments(
        database=database,
        table=table,
        conf={"value.format": format},
        table_conf=option_texts(table_conf),
        flags=_flags(flags, COMMON_FLAGS + (DATABASE_FLAGS if table is None else TABLE_FLAGS)),
        case_sensitive=case_sensitive,
    )
    given = _given(df)
    decoder_for(format, arguments.mapping, schema_registry_url)
    rules_for(arguments, given)
    sink = CdcSink(
        CdcSettings(
            options=options,
            arguments=arguments,
            registry_url=schema_registry_url,
            given=given,
            keeps_letters=dead_letters,
            state=state,
            commit_user=commit_user,
            compact_every=compact_every,
            tasks=tasks,
            memory_per_task=memory_per_task,
        ),
        reports,
    )
    columns = [
        (f.col(name) if name in given else f.lit(None)).cast(kind).alias(name)
        for name, kind in MESSAGE_COLUMNS.items()
    ]
    return df.select(*columns).writeStream.foreachBatch(sink)


def _given(df: DataFrame) -> frozenset[str]:
    """The message columns that the frame has.

    Raises InvalidRequest for a column of another type.
    """
    types = {each.name: each.dataType for each in df.schema.fields}
    if "value" not in types:
        raise InvalidRequest(
            "a frame of messages has a column value, of type BINARY or STRING",
            columns=list(types),
        )
    for name, allowed in _TYPES.items():
        if name in types and not isinstance(types[name], allowed):
            raise InvalidRequest(
                "a column of the messages has a type that a Kafka source does not give it: rename "
                "or cast it",
                column=name,
                type=types[name].simpleString(),
                allowed=[each().simpleString() for each in allowed],
            )
    return frozenset(name for name in _TYPES if name in types)


def _flags(given: Mapping[str, object], known: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The flags as texts. Raises InvalidRequest for an unknown one."""
    if _EAGER in given:
        raise Unsupported(
            "tables are opened when their first message arrives; leave the argument out",
            argument=_EAGER,
        )
    flags: dict[str, tuple[str, ...]] = {}
    for name, value in given.items():
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise InvalidRequest(
                "unknown argument of cdc",
                argument=name,
                **({"nearest": near[0]} if near else {"known": list(known)}),
            )
        match value:
            case None:
                continue
            case bool():
                flags[name] = (str(value).lower(),)
            case str():
                flags[name] = (value,)
            case Mapping():
                flags[name] = tuple(f"{key}={each}" for key, each in value.items())
            case list() | tuple():
                flags[name] = tuple(map(str, value))
            case _:
                raise InvalidRequest(
                    "an argument of cdc is a text, a list of texts or a mapping",
                    argument=name,
                    value=value,
                )
    return flags
