"""Files of BLOB values, as Java and pypaimon write them."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from lakecore.format.blob_file import NULL, PLACEHOLDER
from lakecore.model.files import EMPTY_ROW, CommitMessage, DataFile, FileSource
from lakecore.table.commits.commit import commit
from lakecore.table.commits.commit_change import CommitRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.table.handle import Table

SAME = object()
"""A placeholder: the value in an older file remains valid."""


def blob_file(values: Sequence[object], *, java: bool = True) -> bytes:
    """The bytes of a file with these values; None is null."""
    entries, lengths = [], []
    for value in values:
        if not isinstance(value, bytes):
            lengths.append(NULL if value is None else PLACEHOLDER)
            continue
        entry = struct.pack("<i", 1481511375) + value
        length = struct.pack("<q", len(value) + 16)
        checksum = zlib.crc32(entry + length if java else entry)
        entries.append(entry + length + struct.pack("<I", checksum))
        lengths.append(len(value) + 16)
    index = b"".join(
        _varint(length - before) for before, length in zip([0, *lengths], lengths, strict=False)
    )
    return b"".join([*entries, index, struct.pack("<iB", len(index), 1)])


def _varint(number: int) -> bytes:
    left, found = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def put_blobs(table: Table, column: str, values: Sequence[object], first_row_id: int) -> str:
    """Commit a file with the BLOB values of the rows from `first_row_id` on. Returns its path."""
    context = table.context
    data = blob_file(values)
    name = f"data-{context.ambient.new_uuid()}-0.blob"
    path = context.layout.file_in_bucket("", 0, name)
    context.store.put(path, data)
    file = DataFile(
        name=name,
        size_bytes=len(data),
        row_count=len(values),
        sequence_min=0,
        sequence_max=0,
        schema_id=table.schema.id,
        file_source=FileSource.APPEND,
        write_columns=(column,),
        first_row_id=first_row_id,
    )
    base = context.history.latest_snapshot()
    assert base is not None
    message = CommitMessage(
        partition=EMPTY_ROW,
        bucket=0,
        total_buckets=-1,
        new_files=(file,),
        base_snapshot_id=base.id,
        base_snapshot_uuid=base.uuid,
    )
    commit(context, CommitRequest(messages=[message], user="blobs"))
    return path
