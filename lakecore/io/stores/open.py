"""Finds the store for a URI by its scheme."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.format.layout import canonical, is_local
from lakecore.io.stores.hdfs import HdfsStore
from lakecore.io.stores.local import LocalStore
from lakecore.io.stores.remote import RemoteStore
from lakecore.io.stores.service_settings import HADOOP_CONF_DIR, HDFS, check_storage_options
from lakecore.io.stores.services import SERVICES
from lakecore.io.stores.store import MemoryStore, Store

if TYPE_CHECKING:
    from collections.abc import Mapping


_memory_stores: dict[str, MemoryStore] = {}
_memory_stores_lock = threading.Lock()


def locate(text: str) -> str:
    """The canonical name of a location: an absolute local path or a URI, without a final slash.

    A relative path is resolved against the current working directory, so a later `os.chdir` does
    not change it. A leading `~` is the home directory. `..` is resolved through symbolic links, as
    the operating system does.
    """
    place = canonical(text)
    if is_local(text):
        place = _absolute(os.path.expanduser(place) if place == text else place)
    bare = place.rstrip("/")
    return place if not bare or bare.endswith(":") else bare


def without_links(place: str) -> str:
    """The location that a canonical one names once its symbolic links are followed."""
    return os.path.realpath(place) if is_local(place) else place


def _absolute(path: str) -> str:
    if not os.path.isabs(path):
        try:
            path = os.path.join(os.getcwd(), path)
        except FileNotFoundError as error:
            raise InvalidRequest(
                "a relative path, but the working directory is gone; give an absolute one",
                path=path,
            ) from error
    names = path.split("/")
    if ".." in names:
        # INVARIANT: `link/..` is the parent of the link's target, not of the link.
        end = len(names) - names[::-1].index("..")
        path = "/".join([os.path.realpath("/".join(names[:end])), *names[end:]])
    return os.path.normpath(path)


def open_store(uri: str, options: Mapping[str, str]) -> Store:
    """The store for paths below `uri`. All callers share the store of a `memory://NAME`.

    A URI without a scheme, or with `file:`, is in the local file system. The call reads and sends
    nothing.
    """
    if not uri:
        raise InvalidRequest("the path of a warehouse or table is empty")
    check_storage_options(options)
    uri = canonical(uri)
    scheme, _, rest = uri.partition("://")
    if HADOOP_CONF_DIR in options and scheme != HDFS:
        raise Unsupported(
            "the files of Hadoop's configuration are read for HDFS alone; give the options of this "
            "storage themselves",
            option=HADOOP_CONF_DIR,
            uri=uri,
        )
    if is_local(uri):
        return LocalStore()
    if scheme == HDFS:
        return HdfsStore(uri, options)
    if scheme == "memory":
        with _memory_stores_lock:
            return _memory_stores.setdefault(rest.partition("/")[0], MemoryStore())
    service = SERVICES.get(scheme)
    if service is None:
        schemes = ["file", "memory", HDFS, *SERVICES]
        raise Unsupported("unknown kind of storage", uri=uri, scheme=scheme, known=schemes)
    if not rest.partition("/")[0]:
        raise InvalidRequest("the URI names no bucket", uri=uri, example=f"{scheme}://bucket/path")
    return RemoteStore(service, uri, options)
