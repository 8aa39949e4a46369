"""Opens or creates the directory of a warehouse in its store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, NotFound
from lakecore.io.stores.open import locate, open_store
from lakecore.io.stores.remote import SINGLE_WRITER_OPTION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.io.stores.store import Store

__all__ = ["open_warehouse", "under_lock"]


def open_warehouse(stated: str, options: Mapping[str, str], *, create: bool) -> tuple[str, Store]:
    """The absolute path or URI of a warehouse, and its store.

    Raises NotFound if the warehouse is missing, unless `create` is set.
    """
    warehouse = locate(stated)
    store = open_store(warehouse, options)
    if not store.exists(warehouse):
        if not create:
            store.list(warehouse)  # raises if there is no bucket
            raise NotFound(
                "no such warehouse; connect(..., create=True) makes one", warehouse=warehouse
            )
        store.make_directory(warehouse)
    elif _is_file(store, warehouse):
        raise InvalidRequest("a warehouse must be a directory", warehouse=warehouse)
    return warehouse, store


def under_lock(warehouse: str, options: Mapping[str, str]) -> Store:
    """The store of a warehouse, for a catalog that commits while it holds the lock of a table.

    On a storage without conditional puts, a put first checks that the file does not exist. The lock
    ensures that no other process writes between the check and the put.
    """
    return open_store(warehouse, {**options, SINGLE_WRITER_OPTION: "true"})


def _is_file(store: Store, path: str) -> bool:
    """Whether a local path is a file; on object stores a path may be both a file and a prefix."""
    if store.local_path(path) is None:
        return False
    try:
        store.size(path)
    except NotFound:
        return False
    return True
