"""Finds the files of COPY INTO, and copies remote files to the local disk.

DuckDB reads and writes files on the local disk only. Error messages name the remote files, not
their local copies.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakecore.errors import LakecoreError, NotFound
from lakecore.format.locations import is_local
from lakecore.io.local_files import local_files
from lakecore.io.stores.open import locate, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore.io.stores.store import FileStatus, Store

__all__ = ["Place", "Sources", "is_file", "name_of", "recorded", "sources_of"]

_HIDDEN = ("_", ".")


@dataclass(frozen=True, slots=True)
class Place:
    """A path or URI that a statement names, and its storage."""

    path: str
    store: Store = field(repr=False)

    @classmethod
    def of(cls, text: str, options: Mapping[str, str]) -> Place:
        """The place that a path or URI names; `options` are those of the storage."""
        path = locate(text)
        return cls(path, open_store(path, options))

    def files(self) -> list[FileStatus]:
        """The file of this path, or the files of this directory, sorted by name.

        Raises NotFound if there is neither.
        """
        if is_file(self.store, self.path):
            parent = self.path.rpartition("/")[0]
            return [each for each in self.store.list(parent or "/") if each.path == self.path]
        if not self.store.exists(self.path):
            raise NotFound("COPY INTO finds no such file or directory", path=self.path)
        # Leave out files of Spark and Hadoop, such as _SUCCESS.
        return [
            each
            for each in self.store.list(self.path)
            if not each.is_directory and not name_of(each).startswith(_HIDDEN)
        ]


@dataclass(frozen=True, slots=True)
class Sources:
    """Files to load, and the local path by which DuckDB reads each."""

    files: Sequence[FileStatus]
    local: Sequence[str]

    def shown(self, value: object) -> object:
        """The string, or list of strings, with the path of each file in place of its copy's."""
        if isinstance(value, list | tuple):
            return [self.shown(each) for each in value]
        if not isinstance(value, str | BaseException):
            return value
        text = str(value)
        for file, local in zip(self.files, self.local, strict=True):
            text = text.replace(local, file.path)
        return text


@contextmanager
def sources_of(place: Place, files: Sequence[FileStatus]) -> Iterator[Sources]:
    """A context with local copies of the files. Errors in it name the files, not their copies."""
    with local_files(place.store, [each.path for each in files]) as local:
        sources = Sources(files, local)
        try:
            yield sources
        except LakecoreError as error:
            if place.store.local_path(place.path) is not None:
                raise
            facts = {name: sources.shown(fact) for name, fact in error.facts.items()}
            raise type(error)(error.message, **facts) from error


def is_file(store: Store, path: str) -> bool:
    """Whether this path is a file."""
    try:
        store.size(path)
    except NotFound:
        return False
    return True


def name_of(status: FileStatus) -> str:
    """The last part of a path."""
    return status.path.rpartition("/")[2]


def recorded(status: FileStatus) -> str:
    """The path of a file in Hadoop's spelling, as Paimon records it."""
    return f"file:{status.path}" if is_local(status.path) else status.path
