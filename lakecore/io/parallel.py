"""Reads and deletes small files concurrently, because on an object store latency dominates."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeVar

from lakecore.io.stores.store import DELETES_MAX, FileStatus, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lakecore.io.progress import WorkBar

READERS = 8
"""The number of files read concurrently."""
_AT_ONCE = 2_000

Key = TypeVar("Key")
Value = TypeVar("Value")


def read_all(
    read: Callable[[Key], Value], keys: Sequence[Key], at_once: int = READERS
) -> list[Value]:
    """The result of `read` for each key, in order; raises the first error."""
    if len(keys) <= 1 or at_once == 1:
        return [read(key) for key in keys]
    with ThreadPoolExecutor(min(at_once, len(keys))) as pool:
        return list(pool.map(read, keys))


def delete_all(
    delete: Callable[[str], None],
    paths: Iterable[str],
    at_once: int = READERS,
    bar: WorkBar | None = None,
) -> int:
    """Call `delete` for each path, several at a time. Returns how many; raises the first error."""
    count = 0
    left = iter(paths)
    while some := list(islice(left, _AT_ONCE)):
        read_all(delete, some, at_once)
        count += len(some)
        _tell(bar, count)
    return count


def _tell(bar: WorkBar | None, count: int) -> None:
    if bar is not None:
        bar.at(f"{count:,} files deleted", count)


def delete_files(store: Store, paths: Iterable[str], bar: WorkBar | None = None) -> int:
    """Delete files, in as few requests as the store needs. Returns how many paths there were.

    Absent files are ignored; raises the first error.
    """
    delete_many = store.delete_many
    if delete_many is None:
        return delete_all(store.delete, paths, store.at_once, bar)
    count = 0
    left = iter(paths)
    while some := list(islice(left, READERS * DELETES_MAX)):
        starts = range(0, len(some), DELETES_MAX)
        read_all(delete_many, [some[start : start + DELETES_MAX] for start in starts])
        count += len(some)
        _tell(bar, count)
    return count


# --- bulk ----------------------------------------------------------------------------------------
# Operations on very many files of a table: listing directories and deleting files.
#
# A verb uses the `BulkFiles` of its context: `IN_THREADS`, or the implementation of an engine with
# many machines. Within one call, an implementation may work in any order. The verb decides what is
# listed and deleted, and when.


class BulkFiles(Protocol):
    """Lists many directories, and deletes many files."""

    def list_all(self, store: Store, directories: Sequence[str]) -> Sequence[Sequence[FileStatus]]:
        """The content of each directory, in order. Raises the first error of the storage."""

    def delete_all(self, store: Store, paths: Iterable[str]) -> None:
        """Delete the files; absent ones are ignored. Raises the first error of the storage."""


@dataclass(frozen=True, slots=True)
class InThreads:
    """Lists and deletes files in threads of this process, and states on the bar how many."""

    bar: WorkBar | None = None

    def list_all(self, store: Store, directories: Sequence[str]) -> Sequence[Sequence[FileStatus]]:
        """List the directories; see `BulkFiles`."""
        listed: Callable[[str], Sequence[FileStatus]] = store.list
        if self.bar is not None:
            listed = self.bar.counting(listed, "directories listed", len(directories))
        return read_all(listed, directories, store.at_once)

    def delete_all(self, store: Store, paths: Iterable[str]) -> None:
        """Delete the files; see `BulkFiles`."""
        delete_files(store, paths, self.bar)


IN_THREADS = InThreads()
