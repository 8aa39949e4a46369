"""Avro containers of many rows: their columns, and their records a batch of blocks at a time.

Only the blocks of one batch are decompressed and decoded at once, so that what a file costs in
memory is its own size and one batch.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import fastavro

from lakecore.errors import CorruptTable, LakecoreError, Unsupported
from lakecore.format.avro import without_logical_types
from lakecore.format.avro_container import BROKEN, CODECS, Frame, assemble, decompress

if TYPE_CHECKING:
    from collections.abc import Iterator


def container_columns(data: bytes, path: str) -> tuple[str, ...]:
    """The field names of the container's records."""
    try:
        schema = json.loads(Frame(data, path).metadata["avro.schema"])
        branches = schema if isinstance(schema, list) else [schema]
        record = next(branch for branch in branches if isinstance(branch, dict))
        return tuple(str(field["name"]) for field in record["fields"])
    except BROKEN as error:
        raise _damaged(error, data, path) from error


def read_batches(data: bytes, path: str, batch_rows: int) -> Iterator[list[dict[str, Any]]]:
    """The container's records, about so many at once, logical types as plain numbers."""
    try:
        frame = Frame(data, path)
        if frame.codec not in CODECS:
            raise Unsupported("unknown Avro codec", codec=frame.codec, path=path)
        schema = without_logical_types(json.loads(frame.metadata["avro.schema"]))
        metadata = {"avro.schema": json.dumps(schema).encode()}

        def records(blocks: list[tuple[int, bytes]]) -> list[dict[str, Any]]:
            plain = [(count, decompress(block, frame.codec)) for count, block in blocks]
            reader = fastavro.reader(io.BytesIO(assemble(metadata, frame.sync, plain)))
            return [record for record in reader if isinstance(record, dict)]

        waiting: list[tuple[int, bytes]] = []
        for count, block in frame.blocks():
            waiting.append((count, block))
            if sum(rows for rows, _ in waiting) >= batch_rows:
                yield records(waiting)
                waiting = []
        if waiting:
            yield records(waiting)
    except BROKEN as error:
        raise _damaged(error, data, path) from error


def _damaged(error: BaseException, data: bytes, path: str) -> LakecoreError:
    if isinstance(error, LakecoreError):
        return error
    return CorruptTable(
        "the data file is damaged or no Avro", path=path, size_bytes=len(data), why=repr(error)
    )
