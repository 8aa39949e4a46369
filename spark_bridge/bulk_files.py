"""Lists many directories and deletes many files in tasks of Spark jobs.

A storage request takes from a few to some hundred milliseconds, and a table may have millions of
files. The driver decides what is listed and deleted, in which order, with lakecore's own code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from lakecore.distributed.tables import IN_THREADS, MemoryStore, delete_all, read_all, unguarded
from spark_bridge.spread import spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from lakecore.distributed.tables import FileStatus, Store

__all__ = ["SparkFiles"]

FEW = 2_000
"""The driver alone lists up to this many directories, and deletes up to this many files."""
_TASKS_PER_CORE = 4
_PART_MAX = 10_000
_AT_ONCE = 100_000
"""The most paths of one job, because every executor receives all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkFiles:
    """`BulkFiles` that works in tasks of Spark jobs. `identifier` names the table in Spark's UI.

    `few`: up to this many directories or files, the driver does the work.
    """

    spark: SparkSession
    cores: int
    identifier: str
    few: int = FEW

    def list_all(self, store: Store, directories: Sequence[str]) -> Sequence[Sequence[FileStatus]]:
        """The content of each directory, in order."""
        if len(directories) <= self.few or isinstance(unguarded(store), MemoryStore):
            return IN_THREADS.list_all(store, directories)
        found: list[Sequence[FileStatus]] = []
        for some in _chunks(directories, _AT_ONCE):
            name = f"lakecore: list {self.identifier}, {len(some)} directories"
            for part in spread(self.spark, name, self._parts(some), partial(_listed, store)):
                found += part
        return found

    def delete_all(self, store: Store, paths: Iterable[str]) -> None:
        """Delete the files; absent ones are ignored."""
        left = iter(paths)
        while some := list(islice(left, _AT_ONCE)):
            if len(some) <= self.few or isinstance(unguarded(store), MemoryStore):
                IN_THREADS.delete_all(store, some)
                continue
            name = f"lakecore: delete files of {self.identifier}, {len(some)} files"
            spread(self.spark, name, self._parts(some), partial(_deleted, store))

    def _parts(self, paths: Sequence[str]) -> list[Sequence[str]]:
        """The paths in parts of about equal size, in order."""
        size = max(1, min(_PART_MAX, -(-len(paths) // (self.cores * _TASKS_PER_CORE))))
        return list(_chunks(paths, size))


def _chunks(paths: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(paths), size):
        yield paths[start : start + size]


def _listed(store: Store, directories: Sequence[str]) -> Sequence[Sequence[FileStatus]]:
    return read_all(store.list, directories)


def _deleted(store: Store, paths: Sequence[str]) -> int:
    return delete_all(store.delete, paths)
