"""Lakecore verbs, run by Spark: a job writes and reads Paimon tables without a connector jar.

Bucket-level work runs on executors with lakecore's own code; the driver commits one snapshot.
Executors receive frozen values, never a table. The names below are public, and imported at their
first use, so that `import spark_bridge` does not load PySpark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_bridge.attach_tables import Attached, attach, register
    from spark_bridge.cdc_batches import CdcBatch, cdc
    from spark_bridge.change_rows import delete, update
    from spark_bridge.maintenance import (
        analyze,
        compact,
        expire_snapshots,
        remove_orphan_files,
        rescale,
    )
    from spark_bridge.merge_frame import merge
    from spark_bridge.read_frame import changes, read
    from spark_bridge.spread import SkewedBucket
    from spark_bridge.sql_statements import sql
    from spark_bridge.stream_frame import BatchSink, foreach_batch, read_stream
    from spark_bridge.write_frame import WriteResult, WrittenTask, prepare, write

__all__ = [
    "Attached",
    "BatchSink",
    "CdcBatch",
    "SkewedBucket",
    "WriteResult",
    "WrittenTask",
    "analyze",
    "attach",
    "cdc",
    "changes",
    "compact",
    "delete",
    "expire_snapshots",
    "foreach_batch",
    "merge",
    "prepare",
    "read",
    "read_stream",
    "register",
    "remove_orphan_files",
    "rescale",
    "sql",
    "update",
    "write",
]

_HOMES = {
    "spark_bridge.attach_tables": "Attached attach register",
    "spark_bridge.cdc_batches": "CdcBatch cdc",
    "spark_bridge.change_rows": "delete update",
    "spark_bridge.read_frame": "changes read",
    "spark_bridge.maintenance": "analyze compact expire_snapshots remove_orphan_files rescale",
    "spark_bridge.merge_frame": "merge",
    "spark_bridge.spread": "SkewedBucket",
    "spark_bridge.sql_statements": "sql",
    "spark_bridge.stream_frame": "BatchSink foreach_batch read_stream",
    "spark_bridge.write_frame": "WriteResult WrittenTask prepare write",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """The public name, imported from its home at first use."""
    home = _HOME_OF.get(name)
    if home is None:
        message = f"module 'spark_bridge' has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
