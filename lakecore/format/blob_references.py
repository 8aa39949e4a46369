"""References to BLOB values, which rows hold in place of the values: descriptors and views.

- A *descriptor* names a file, an offset and a length; the length -1 reaches to the end of the file.
- A *view* names a table, the id of a BLOB column, and the id of a row.

https://paimon.apache.org/docs/master/multimodal-table/blob/

Numbers are little-endian. A reference begins with its version and a magic number, except for
descriptors of version 1, which have no magic number.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest
from lakecore.format.layout import (
    BUCKET_PREFIX,
    MANAGED_BLOB_SUFFIX,
    Layout,
    canonical,
    is_within,
    one_name,
    storage_of,
)
from lakecore.format.varints import encode_java_text

if TYPE_CHECKING:
    from collections.abc import Iterable


_HEAD = struct.Struct("<bq")
_SIZE = struct.Struct("<i")
_RANGE = struct.Struct("<qq")
_ROW = struct.Struct("<iq")
_DESCRIPTOR_HEAD = _HEAD.pack(2, 0x424C4F4244455343)
_VIEW_HEAD = _HEAD.pack(1, 0x424C4F4256494557)
_LIST_MAGIC = struct.pack(">I", 0x50424C52)


@dataclass(frozen=True, slots=True)
class BlobDescriptor:
    """Where a BLOB value is: a file, an offset and a length in bytes (-1: to the end of the file).

    A BLOB column may hold the bytes of a descriptor (`to_bytes`) in place of the value, and a write
    accepts them.

        place = lakecore.BlobDescriptor("/data/photo.jpg", offset=0, length=-1)
        lakecore.BlobDescriptor.from_bytes(place.to_bytes()) == place  # True
    """

    uri: str
    offset: int = 0
    length: int = -1

    def __post_init__(self) -> None:
        """Raise InvalidRequest for a place that no file has."""
        if not self.uri or self.offset < 0 or self.length < -1:
            raise InvalidRequest(
                "a descriptor needs a file, an offset from 0 on, and a length from 0 on, or -1",
                uri=self.uri,
                offset=self.offset,
                length=self.length,
            )

    def to_bytes(self) -> bytes:
        """The bytes that Paimon stores and accepts in place of the value."""
        name = self.uri.encode()
        place = _RANGE.pack(self.offset, self.length)
        return b"".join([_DESCRIPTOR_HEAD, _SIZE.pack(len(name)), name, place])

    @staticmethod
    def from_bytes(data: bytes) -> BlobDescriptor:
        """The descriptor that these bytes hold. Raises InvalidRequest for other bytes."""
        head = len(_DESCRIPTOR_HEAD) if is_descriptor(data) else 1
        if head == 1 and data[:1] != b"\x01":
            raise InvalidRequest("the bytes are no descriptor of a BLOB value", size=len(data))
        try:
            uri, rest = _text(data[head:])
            offset, length = _RANGE.unpack_from(rest)
        except (struct.error, ValueError) as error:
            raise InvalidRequest("a descriptor of a BLOB value is damaged") from error
        return BlobDescriptor(uri, offset, length)


@dataclass(frozen=True, slots=True)
class BlobView:
    """Names a BLOB value of another table, by `db.table` and the ids of the column and the row.

    view = lakecore.BlobView("shop.photos", field_id=2, row_id=7)
    lakecore.BlobView.from_bytes(view.to_bytes()) == view  # True
    """

    table: str
    field_id: int
    row_id: int

    def to_bytes(self) -> bytes:
        """The bytes that Paimon stores and accepts in place of the value."""
        name = self.table.encode()
        row = _ROW.pack(self.field_id, self.row_id)
        return b"".join([_VIEW_HEAD, _SIZE.pack(len(name)), name, row])

    @staticmethod
    def from_bytes(data: bytes) -> BlobView:
        """The view that these bytes hold. Raises InvalidRequest for other bytes."""
        if not is_view(data):
            raise InvalidRequest("the bytes are no view of a BLOB value", size=len(data))
        try:
            table, rest = _text(data[len(_VIEW_HEAD) :])
            field_id, row_id = _ROW.unpack_from(rest)
        except (struct.error, ValueError) as error:
            raise InvalidRequest("a view of a BLOB value is damaged") from error
        return BlobView(table, field_id, row_id)


def is_descriptor(value: bytes) -> bool:
    """Whether Paimon would interpret these bytes as a descriptor, not as a value."""
    return value.startswith(_DESCRIPTOR_HEAD)


def is_view(value: bytes) -> bool:
    """Whether Paimon would interpret these bytes as a view, not as a value."""
    return value.startswith(_VIEW_HEAD)


def are_references(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """For each value, whether it is a descriptor or a view; null stays null."""
    heads = (_DESCRIPTOR_HEAD, _VIEW_HEAD)
    descriptors, views = (pc.starts_with(values, pattern=head) for head in heads)
    return pc.or_(descriptors, views)


def files_of(values: pa.ChunkedArray | pa.Array) -> set[str]:
    """The files that these descriptors name. Most descriptors differ only in their last bytes."""
    heads = pc.unique(pc.binary_slice(values, start=0, stop=-_RANGE.size)).to_pylist()
    nowhere = bytes(_RANGE.size)
    return {BlobDescriptor.from_bytes(head + nowhere).uri for head in heads if head is not None}


def encode_file_list(uris: Iterable[str]) -> bytes:
    """The bytes of the file that lists the managed files to which the rows of a data file refer.

    After a magic number: a version, the number of files, their directories and names in order, and
    a checksum. Numbers are big-endian, strings are in Java's modified UTF-8.
    """
    places = sorted({(place, name) for place, _, name in (uri.rpartition("/") for uri in uris)})
    texts = [encode_java_text(text, "the path of a file") for place in places for text in place]
    payload = b"".join([struct.pack(">bi", 1, len(places)), *texts])
    return b"".join([_LIST_MAGIC, payload, struct.pack(">I", zlib.crc32(payload))])


def _text(data: bytes) -> tuple[str, bytes]:
    """A length-prefixed string, and the bytes after the string."""
    (size,) = _SIZE.unpack_from(data)
    end = _SIZE.size + size
    if size < 0 or end > len(data):
        raise ValueError("the text is longer than the data")
    return data[_SIZE.size : end].decode(), data[end:]


# --- blob paths ----------------------------------------------------------------------------------
# Decides which files descriptors of BLOB values may name.
#
# Whoever writes a row chooses the file that its descriptor names. Such a descriptor must not make a
# reader open any other file that the reader has access to.


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
