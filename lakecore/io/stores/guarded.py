"""The store of one table: it deletes and moves nothing outside the table's own places.

Every deletion of a file of a table goes through the store of its context (`table/context.py`),
whichever verb makes it and whatever metadata named the file. There is no other check of links.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from lakecore.errors import InvalidRequest
from lakecore.format.layout import Layout, canonical, is_local, is_within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.io.stores.store import DeleteMany, Store


def guarded(store: Store, layout: Layout) -> Store:
    """The store for a table with this layout.

    Only paths below the table's directory, and below the places that the process allows, can be
    deleted. The deletion of any other path, or through a link below these places, raises
    InvalidRequest.
    """
    places = (layout.root, *layout.external_roots, *layout.blob_roots)
    return cast("Store", _GuardedStore(unguarded(store), tuple(map(canonical, places))))


def unguarded(store: Store) -> Store:
    """The store within a guarded one, or the store itself."""
    return store.inner if isinstance(store, _GuardedStore) else store


class _GuardedStore:
    """Forwards all calls to a store; deletions and moves are checked first."""

    def __init__(self, inner: Store, places: tuple[str, ...]) -> None:
        self.inner = inner
        self._places = places

    def __reduce__(self) -> tuple[object, ...]:
        return _GuardedStore, (self.inner, self._places)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def __repr__(self) -> str:
        return repr(self.inner)

    def delete(self, path: str) -> None:
        self._check(path)
        self.inner.delete(path)

    @property
    def delete_many(self) -> DeleteMany | None:
        return None if self.inner.delete_many is None else self._delete_many

    def _delete_many(self, paths: Sequence[str]) -> None:
        assert self.inner.delete_many is not None
        for path in paths:
            self._check(path)
        self.inner.delete_many(paths)

    def delete_directory(self, path: str) -> None:
        self._check(path)
        self.inner.delete_directory(path)

    def remove_empty_directory(self, path: str) -> None:
        with suppress(InvalidRequest):  # as in every store, a directory that stays is no error
            self._check(path)
            self.inner.remove_empty_directory(path)

    def rename_directory(self, source: str, target: str) -> None:
        self._check(source)
        self._check(target)
        self.inner.rename_directory(source, target)

    def _check(self, path: str) -> None:
        """Raise InvalidRequest for a path that is outside, or reached through a link."""
        named = canonical(path.rstrip("/"))
        place = next((each for each in self._places if is_within(named, each)), None)
        if place is None:
            raise InvalidRequest(
                "nothing is deleted outside the directory of a table and the places that the "
                "process allows",
                path=path,
                allowed=self._places,
            )
        if not is_local(place):
            return
        directory = os.path.dirname(named)
        while len(directory) > len(place.rstrip("/")):
            if os.path.islink(directory):
                raise InvalidRequest(
                    "a directory of the table is a symbolic link, and nothing is deleted through "
                    "it; mount the disk there, or move the directory into the table",
                    path=path,
                    link=directory,
                )
            directory = os.path.dirname(directory)
