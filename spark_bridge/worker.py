"""Optimisations in Spark's Python workers, because small tasks otherwise mostly wait.

1. Spark's daemon runs Python's garbage collector after every task. The collector would visit all
   objects that the imports of lakecore, Polars and PyArrow have created, for about 50 ms per task,
   and free nothing. After its first task, a worker therefore excludes all existing objects from
   later collections.
2. The JVM sends a task in several small writes, and TCP delays a small write until the previous one
   is acknowledged. A reused worker would acknowledge only after 40 ms; here the acknowledgement is
   immediate. (`spark.python.unix.domain.socket.enabled` avoids TCP, but is off by default.)
3. Batches of a few thousand rows are joined, because each batch has a fixed cost.
4. Spark 4.1 leaves out offsets below nested values that are all empty (SPARK-55056). No reader of
   Arrow here accepts that, so the offsets are added before a batch is read.
"""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import TypeAlias

import pyarrow as pa
from pyspark import TaskContext

from lakecore.distributed import with_offsets

BATCH_ROWS = 65_536
BATCH_BYTES = 16 << 20
_DESCRIPTORS = range(3, 64)
"""The file descriptors to try: a worker opens its connection to the JVM early."""

Batches: TypeAlias = Iterator[pa.RecordBatch]


@cache
def set_aside(kind: str) -> None:
    """After a worker's first task of a kind, exclude all objects from garbage collections.

    Objects are still freed with their last reference.
    """
    del kind
    if TaskContext.get() is not None:
        gc.freeze()


def partition_number() -> int:
    """The number of the task in its stage; 0 outside of Spark."""
    spark = TaskContext.get()
    return spark.partitionId() if spark else 0


def acknowledge() -> None:
    """Let the kernel acknowledge the data from the JVM, so that the JVM sends the rest."""
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None or TaskContext.get() is None:
        return
    for descriptor in _DESCRIPTORS:
        # A descriptor that is closed, or no TCP connection, has nothing to acknowledge.
        with suppress(OSError):
            # NOTE: `fromfd` duplicates the descriptor, and leaks the copy of a descriptor that is
            # no socket.
            connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=descriptor)
            try:
                connection.setsockopt(socket.IPPROTO_TCP, option, 1)
            finally:
                connection.detach()


def joined(batches: Batches) -> Batches:
    """The same rows in fewer batches."""
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in map(with_offsets, batches):
        waiting.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= BATCH_ROWS or size_bytes >= BATCH_BYTES:
            yield _in_one(waiting)
            waiting, rows, size_bytes = [], 0, 0
    if waiting:
        yield _in_one(waiting)


def _in_one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
