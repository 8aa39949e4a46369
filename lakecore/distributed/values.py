"""Frozen values that do not need a table: types, schemas, files, names and numbers."""

from __future__ import annotations

from lakecore.format.layout import BUCKET_PREFIX, MAIN_BRANCH, MANAGED_BLOB_SUFFIX, Layout
from lakecore.model.arguments import check_flags
from lakecore.model.files import HASH_INDEX, DataFile, Split
from lakecore.model.schema import TableSchema
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot
from lakecore.model.times import Time, wall_time
from lakecore.model.types import (
    BINARIES,
    INTEGERS,
    LENGTH_MAX,
    STRINGS,
    TIMESTAMPS,
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Multiset,
    Root,
    Row,
    arrow_type,
    with_nullable,
)
from lakecore.options import POSTPONE_BUCKET, BucketFunction, OptionValue

__all__ = [
    "BATCH_COMMIT_IDENTIFIER",
    "BINARIES",
    "BUCKET_PREFIX",
    "HASH_INDEX",
    "INTEGERS",
    "LENGTH_MAX",
    "MAIN_BRANCH",
    "MANAGED_BLOB_SUFFIX",
    "POSTPONE_BUCKET",
    "STRINGS",
    "TIMESTAMPS",
    "Array",
    "Atomic",
    "BucketFunction",
    "DataFile",
    "DataType",
    "Field",
    "Layout",
    "Map",
    "Multiset",
    "OptionValue",
    "Root",
    "Row",
    "Snapshot",
    "Split",
    "TableSchema",
    "Time",
    "arrow_type",
    "check_flags",
    "wall_time",
    "with_nullable",
]
