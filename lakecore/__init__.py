"""lakecore: the engine that makes Apache Paimon tables first-class in Python.

The names below are the public ones. Each is imported when it is first used, so that `import
lakecore` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from lakecore.deferred import named

if TYPE_CHECKING:
    from lakecore import memory
    from lakecore.errors import (
        AlreadyExists,
        CommitConflict,
        CommitUnknown,
        CorruptTable,
        InvalidRequest,
        LakecoreError,
        NotFound,
        StorageError,
        Uncomputable,
        Unsupported,
    )
    from lakecore.format.blob_references import BlobDescriptor, BlobView
    from lakecore.frames.variants import variant_to_json
    from lakecore.model.compaction import CompactionResult
    from lakecore.model.file_indexes import IndexesRewritten
    from lakecore.model.files import CommitMessage
    from lakecore.model.manifest import AnalyzeResult, ColumnStatistics, TableStatistics
    from lakecore.model.retention import (
        ExpiredChangelogs,
        ExpiredSnapshots,
        FilesDeleted,
        OrphanFiles,
        Purged,
        RolledBack,
        TagDeletion,
    )
    from lakecore.model.schema_change import Move, SchemaChange
    from lakecore.model.snapshot import (
        Branch,
        CommitResult,
        Consumer,
        FastForwardResult,
        IcebergExport,
        Tag,
    )
    from lakecore.scalar.values import SqlExpression, sql_expr
    from lakecore.session import Session, connect, open_table, sql
    from lakecore.table.changes.change_stream import ChangeStream
    from lakecore.table.handle import Table
    from lakecore.table.lookups.lookup import Lookup
    from lakecore.table.verbs.merge_files import MergeInto
    from lakecore.table.writes.stream_write import IngestResult, StreamWrite

# Forks before the first use of a name must be detected, too.
import_module("lakecore.forks")
# The package of this name is loaded first: loading it later would replace the function `sql`.
import_module("lakecore.sql")
del globals()["sql"]

__all__ = [
    "AlreadyExists",
    "AnalyzeResult",
    "BlobDescriptor",
    "BlobView",
    "Branch",
    "ChangeStream",
    "ColumnStatistics",
    "CommitConflict",
    "CommitMessage",
    "CommitResult",
    "CommitUnknown",
    "CompactionResult",
    "Consumer",
    "CorruptTable",
    "ExpiredChangelogs",
    "ExpiredPartitions",
    "ExpiredSnapshots",
    "FastForwardResult",
    "FilesDeleted",
    "IcebergExport",
    "IndexesRewritten",
    "IngestResult",
    "InvalidRequest",
    "LakecoreError",
    "Lookup",
    "MergeInto",
    "Move",
    "NotFound",
    "OrphanFiles",
    "Purged",
    "RolledBack",
    "SchemaChange",
    "Session",
    "SqlExpression",
    "StorageError",
    "StreamWrite",
    "Table",
    "TableStatistics",
    "Tag",
    "TagDeletion",
    "Uncomputable",
    "Unsupported",
    "__version__",
    "connect",
    "memory",
    "open_table",
    "sql",
    "sql_expr",
    "variant_to_json",
]

__version__ = "0.2.0"

_HOMES = {
    "lakecore": "memory",
    "lakecore.errors": (
        "AlreadyExists CommitConflict CommitUnknown CorruptTable InvalidRequest LakecoreError "
        "NotFound StorageError Uncomputable Unsupported"
    ),
    "lakecore.format.blob_references": "BlobDescriptor BlobView",
    "lakecore.frames.variants": "variant_to_json",
    "lakecore.model.snapshot": "Branch CommitResult Consumer FastForwardResult IcebergExport Tag",
    "lakecore.model.compaction": "CompactionResult",
    "lakecore.model.file_indexes": "IndexesRewritten",
    "lakecore.model.files": "CommitMessage",
    "lakecore.model.retention": (
        "ExpiredChangelogs ExpiredPartitions ExpiredSnapshots FilesDeleted OrphanFiles Purged "
        "RolledBack TagDeletion"
    ),
    "lakecore.model.schema_change": "Move SchemaChange",
    "lakecore.model.manifest": "AnalyzeResult ColumnStatistics TableStatistics",
    "lakecore.scalar.values": "SqlExpression sql_expr",
    "lakecore.session": "Session connect open_table sql",
    "lakecore.table.changes.change_stream": "ChangeStream",
    "lakecore.table.handle": "Table",
    "lakecore.table.lookups.lookup": "Lookup",
    "lakecore.table.verbs.merge_files": "MergeInto",
    "lakecore.table.writes.stream_write": "IngestResult StreamWrite",
}

__getattr__ = named(__name__, _HOMES)


def __dir__() -> list[str]:
    return list(__all__)
