"""The enums of option values, and of the effects that options have."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

from lakecore.errors import InvalidRequest

LINE_FORMATS = ("csv", "json", "text")
"""The formats of data files that hold rows as lines."""


class Effect(StrEnum):
    """The effect of an option. OTHER: work of other engines, or tuning that changes no row.

    NOTHING: Paimon no longer reads the option, which existing tables may have but nobody can set.
    """

    READ = "read"
    WRITE = "write"
    MAINTAIN = "maintain"
    OTHER = "other"
    NOTHING = "nothing"


class Scope(StrEnum):
    """The tables for which an option means something."""

    ALL = "all"
    PRIMARY_KEY = "primary-key"
    APPEND = "append"


class MergeEngine(StrEnum):
    """How the rows of one key become one."""

    DEDUPLICATE = "deduplicate"
    PARTIAL_UPDATE = "partial-update"
    AGGREGATION = "aggregation"
    FIRST_ROW = "first-row"


class ChangelogProducer(StrEnum):
    """The source of the changelog of a primary-key table."""

    NONE = "none"
    INPUT = "input"
    LOOKUP = "lookup"
    FULL_COMPACTION = "full-compaction"


class BucketFunction(StrEnum):
    """How a bucket key becomes a bucket number."""

    DEFAULT = "default"
    MOD = "mod"
    HIVE = "hive"


class SortOrder(StrEnum):
    """The order of the sequence field: the greater (ascending) or the smaller value wins."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


class OrderStrategy(StrEnum):
    """How clustering sorts rows."""

    ORDER = "order"
    ZORDER = "zorder"
    HILBERT = "hilbert"


class ScanMode(StrEnum):
    """The start of a scan."""

    DEFAULT = "default"
    LATEST_FULL = "latest-full"
    FULL = "full"
    LATEST = "latest"
    LATEST_DELTA = "latest-delta"
    COMPACTED_FULL = "compacted-full"
    FROM_TIMESTAMP = "from-timestamp"
    FROM_CREATION_TIMESTAMP = "from-creation-timestamp"
    FROM_FILE_CREATION_TIME = "from-file-creation-time"
    FROM_SNAPSHOT = "from-snapshot"
    FROM_SNAPSHOT_FULL = "from-snapshot-full"
    INCREMENTAL = "incremental"


class IncrementalScanMode(StrEnum):
    """The rows that an incremental read takes from the snapshots of its range."""

    AUTO = "auto"
    DELTA = "delta"
    CHANGELOG = "changelog"
    DIFF = "diff"


class ConsumerMode(StrEnum):
    """How exactly a consumer records its progress."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class TableType(StrEnum):
    """The kind of object at the table's path."""

    TABLE = "table"
    FORMAT_TABLE = "format-table"
    MATERIALIZED_TABLE = "materialized-table"
    OBJECT_TABLE = "object-table"
    LANCE_TABLE = "lance-table"
    ICEBERG_TABLE = "iceberg-table"


ROW_TABLES = frozenset({TableType.TABLE, TableType.MATERIALIZED_TABLE})
"""The tables whose rows are in Paimon's files; lakecore reads and writes only these."""


class IcebergStorage(StrEnum):
    """Where Iceberg metadata is written, and which catalog points at it."""

    DISABLED = "disabled"
    TABLE_LOCATION = "table-location"
    HADOOP_CATALOG = "hadoop-catalog"
    HIVE_CATALOG = "hive-catalog"
    REST_CATALOG = "rest-catalog"


class IcebergLocation(StrEnum):
    """The directory of Iceberg metadata: in the table, or in `iceberg/` of the warehouse."""

    TABLE_LOCATION = "table-location"
    CATALOG_LOCATION = "catalog-location"


class SequenceInit(StrEnum):
    """The source of a writer's next sequence number."""

    SCAN = "scan"
    SNAPSHOT = "snapshot"


class LookupCache(StrEnum):
    """Which rows a look-up handle caches."""

    AUTO = "auto"
    FULL = "full"
    MEMORY = "memory"


class LookupCompact(StrEnum):
    """How eagerly a lookup compaction compacts level 0."""

    RADICAL = "radical"
    GENTLE = "gentle"


class TagCreation(StrEnum):
    """The event that creates tags automatically."""

    NONE = "none"
    PROCESS_TIME = "process-time"
    WATERMARK = "watermark"
    BATCH = "batch"


class TagPeriod(StrEnum):
    """The period of automatic tags."""

    DAILY = "daily"
    HOURLY = "hourly"
    TWO_HOURS = "two-hours"


class TagFormatter(StrEnum):
    """The format of the names of automatic tags."""

    WITH_DASHES = "with_dashes"
    WITHOUT_DASHES = "without_dashes"
    WITHOUT_DASHES_AND_SPACES = "without_dashes_and_spaces"


class PartitionExpiry(StrEnum):
    """The time from which a partition's age is measured."""

    VALUES_TIME = "values-time"
    UPDATE_TIME = "update-time"


class ExpireMode(StrEnum):
    """Whether the committer waits for expiry."""

    SYNC = "sync"
    ASYNC = "async"


# --- texts ---------------------------------------------------------------------------------------
# Options as a caller states them, converted to the strings that Paimon stores.
#
# A number or a boolean may be passed as it is: `{"bucket": 4}`. A duration or a size must be a
# string with its unit: `"1 d"`, `"128 mb"`.

OptionValue: TypeAlias = "str | bool | int | float | os.PathLike[str]"
"""The types in which a caller may state the value of an option."""


def option_texts(options: object, *, table: str = "") -> dict[str, str]:
    """The options as strings. Raises InvalidRequest, with the key, for a value of another type."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise InvalidRequest(
            "options are a mapping of texts to texts", options=type(options).__name__, table=table
        )
    return {_key(key, table): option_text(key, value, table) for key, value in options.items()}


def below(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The options whose keys begin with `prefix`, under their keys without it."""
    return {
        key.removeprefix(prefix): text for key, text in options.items() if key.startswith(prefix)
    }


def option_text(key: object, value: object, table: str = "") -> str:
    """The value as the string that is stored."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return str(value)
        case int():
            return str(int(value))
        case float() if math.isfinite(value):
            return repr(float(value))
        case os.PathLike():
            return option_text(key, os.fspath(value), table)
        case _:
            # The value may be a secret: its type is enough to find the mistake.
            raise InvalidRequest(
                "an option's value is a text, a number, True or False",
                option=key,
                given=type(value).__name__,
                table=table,
            )


def _key(key: object, table: str) -> str:
    if not isinstance(key, str):
        raise InvalidRequest("an option's key is a text", option=key, table=table)
    return str(key)
