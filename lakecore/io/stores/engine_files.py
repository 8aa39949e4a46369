"""The files of remote storage for DuckDB, which reads them through an fsspec file system.

DuckDB asks for a file by its URI, or expands a pattern such as `s3://bucket/in/*.csv`. Files are
opened with the storage options that the owner of the connection gives for the URI. Nothing is
written: DuckDB would make a file visible before it is complete.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fnmatch import translate
from typing import TYPE_CHECKING

from fsspec import AbstractFileSystem

from lakecore.errors import NotFound, Unsupported
from lakecore.io.stores.open import open_store
from lakecore.io.stores.services import SERVICES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from lakecore.io.stores.store import FileStatus, Store

_MAGIC = re.compile(r"[*?\[]")


class EngineFiles(AbstractFileSystem):  # type: ignore[misc]
    """Read-only files by URI. `options_of(uri)` are the options of the storage of a URI."""

    protocol = (*SERVICES, "hdfs")
    cachable = False

    def __init__(self, options_of: Callable[[str], Mapping[str, str]]) -> None:
        super().__init__()
        self._options_of = options_of
        self._stores: dict[str, Store] = {}

    def open(self, path: str, mode: str = "rb", **_: object) -> pa.NativeFile:
        """The file, opened to read; `NotFound` if there is none."""
        if "r" not in mode:
            raise Unsupported("DuckDB only reads remote files", path=path)
        return self._store(path).open_input(path)

    def exists(self, path: str, **_: object) -> bool:
        return self._store(path).exists(path)

    def isfile(self, path: str) -> bool:
        try:
            self._store(path).size(path)
        except NotFound:
            return False
        return True

    def isdir(self, path: str) -> bool:
        return self.exists(path) and not self.isfile(path)

    def size(self, path: str) -> int:
        return self._store(path).size(path)

    def modified(self, path: str) -> datetime:
        """The time of the last change; 1970 if the storage states none."""
        found = [each for each in self._store(path).list(_parent(path)) if each.path == path]
        return datetime.fromtimestamp((found[0].modified_ms or 0) / 1000 if found else 0, UTC)

    def glob(self, path: str, **_: object) -> list[str]:
        """The files that match, sorted. `*` matches in a name, `**` also through directories."""
        scheme, separator, rest = path.partition("://")
        authority, *parts = rest.split("/")
        plain = next((n for n, part in enumerate(parts) if _MAGIC.search(part)), None)
        if plain is None:
            return [path] if self.isfile(path) else []
        start = "/".join([scheme + separator + authority, *parts[:plain]])
        return sorted(each.path for each in self._matching(start, parts[plain:]))

    def _matching(self, directory: str, parts: list[str]) -> Iterator[FileStatus]:
        first, *others = parts
        wanted = re.compile(translate(first))
        for child in self._store(directory).list(directory):
            if first == "**":
                if others and not child.is_directory:
                    yield from self._leaf(child, others)
                elif child.is_directory:
                    yield from self._matching(child.path, parts)
                else:
                    yield child
            elif wanted.match(child.path.rpartition("/")[2]) is None:
                continue
            elif not others and not child.is_directory:
                yield child
            elif others and child.is_directory:
                yield from self._matching(child.path, others)

    @staticmethod
    def _leaf(child: FileStatus, parts: list[str]) -> Iterator[FileStatus]:
        """The file below `**`, if the last part of the pattern matches it."""
        if len(parts) == 1 and re.match(translate(parts[0]), child.path.rpartition("/")[2]):
            yield child

    def _store(self, path: str) -> Store:
        place = "/".join(path.split("/")[:3])
        if place not in self._stores:
            self._stores[place] = open_store(place, self._options_of(path))
        return self._stores[place]


def _parent(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0]
