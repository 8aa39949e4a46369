"""Operations on very many files of a table: listing directories and deleting files.

A verb uses the `BulkFiles` of its context: `IN_THREADS`, or the implementation of an engine with
many machines. Within one call, an implementation may work in any order. The verb decides what is
listed and deleted, and when.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lakecore.io.parallel import delete_all, read_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakecore.io.stores.store import FileStatus, Store


class BulkFiles(Protocol):
    """Lists many directories, and deletes many files."""

    def list_all(self, store: Store, directories: Sequence[str]) -> Sequence[Sequence[FileStatus]]:
        """The content of each directory, in order. Raises the first error of the storage."""
        ...

    def delete_all(self, store: Store, paths: Iterable[str]) -> None:
        """Delete the files; absent ones are ignored. Raises the first error of the storage."""
        ...


@dataclass(frozen=True, slots=True)
class InThreads:
    """Lists and deletes files in threads of this process."""

    def list_all(self, store: Store, directories: Sequence[str]) -> Sequence[Sequence[FileStatus]]:
        """List the directories; see `BulkFiles`."""
        return read_all(store.list, directories)

    def delete_all(self, store: Store, paths: Iterable[str]) -> None:
        """Delete the files; see `BulkFiles`."""
        delete_all(store.delete, paths)


IN_THREADS = InThreads()
