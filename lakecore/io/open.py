"""The store behind a URI, by its scheme."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.local import LocalStore
from lakecore.io.remote import RemoteStore
from lakecore.io.services import SERVICES
from lakecore.io.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.io.store import Store

__all__ = ["expand_home", "open_store"]

_memory_stores: dict[str, MemoryStore] = {}
_memory_stores_lock = threading.Lock()


def expand_home(path: str) -> str:
    """The path with a home directory for a leading `~`, as Polars takes it for one, too."""
    return os.path.expanduser(path)


def open_store(uri: str, options: Mapping[str, str]) -> Store:
    """The store that holds the paths below `uri`; `memory://NAME` is the same for all who ask.

    No scheme, or `file:`, is the local file system. Nothing is read or sent yet.
    """
    if not uri:
        raise InvalidRequest("the path of a warehouse or table is empty")
    scheme, separator, rest = uri.partition("://")
    scheme = scheme.lower()
    if not separator or scheme == "file":
        return LocalStore()
    if scheme == "memory":
        with _memory_stores_lock:
            return _memory_stores.setdefault(rest.partition("/")[0], MemoryStore())
    service = SERVICES.get(scheme)
    if service is None:
        schemes = ["file", "memory", *SERVICES]
        raise Unsupported("unknown kind of storage", uri=uri, scheme=scheme, known=schemes)
    if not rest.partition("/")[0]:
        raise InvalidRequest("the URI names no bucket", uri=uri, example=f"{scheme}://bucket/path")
    return RemoteStore(service, uri, options)
