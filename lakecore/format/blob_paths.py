"""Decides which files descriptors of BLOB values may name.

Whoever writes a row chooses the file that its descriptor names. Such a descriptor must not make a
reader open any other file that the reader has access to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.format.layout import BUCKET_PREFIX, MANAGED_BLOB_SUFFIX, one_name
from lakecore.format.locations import canonical, is_within, storage_of

if TYPE_CHECKING:
    from lakecore.format.layout import Layout

__all__ = ["managed_here", "referenced"]


def referenced(layout: Layout, uri: str) -> str:
    """The canonical form of the file that a descriptor names.

    Raises InvalidRequest unless the file is in the directory of the table or below a directory that
    the reader allows.
    """
    place = _in_scheme_of(layout.root, canonical(uri))
    roots = (_in_scheme_of(layout.root, canonical(root)) for root in layout.blob_roots)
    if not any(is_within(place, root) for root in (layout.root, *roots)):
        raise InvalidRequest(
            "a descriptor names a file outside the table; if such files may be read, name their "
            "directory by the option lakecore.blob-paths, or read descriptors by "
            "blob-as-descriptor",
            file=uri,
            blob_paths=layout.blob_roots,
            table=layout.root,
        )
    return place


def managed_here(layout: Layout, uri: str) -> str | None:
    """The managed file of this table with the same partition, bucket and name as `uri`.

    Managed files keep their names when a table is moved, and descriptors keep the old path. None if
    `uri` does not name a managed file.
    """
    *above, bucket, name = ["", "", *uri.split("/")]
    if not (name.endswith(MANAGED_BLOB_SUFFIX) and bucket.startswith(BUCKET_PREFIX)):
        return None
    values: list[str] = []
    while above and "=" in above[-1]:
        values.insert(0, above.pop())
    return "/".join([layout.data_dir, *map(one_name, (*values, bucket, name))])


def _in_scheme_of(root: str, place: str) -> str:
    """A canonical path with the scheme of `root`, if both schemes mean the same storage."""
    if storage_of(place) != storage_of(root) or "://" not in root:
        return place
    return f"{root.partition('://')[0]}://{place.partition('://')[2]}"
