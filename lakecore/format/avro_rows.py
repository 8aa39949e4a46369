"""Reads Avro containers with many rows: the names of columns, and records in batches of blocks.

Only the blocks of one batch are read, decompressed and decoded together, so that reading a file
takes the memory of one batch.
"""

from __future__ import annotations

import io
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import fastavro

from lakecore.errors import CorruptTable, LakecoreError, Unsupported
from lakecore.format.avro import without_logical_types
from lakecore.format.avro_container import (
    BROKEN,
    CODECS,
    Frame,
    assemble,
    check_count,
    decompress,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from lakecore.format.avro_container import Readable


_RECORD_BYTES = 256
_VALUE_BYTES = 48
"""Size of the Python object of a record or value, in addition to its bytes."""


def container_columns(source: bytes | Readable, path: str) -> tuple[str, ...]:
    """The field names of the container's records."""
    with _damaged(path):
        schema = json.loads(Frame(source, path).metadata["avro.schema"])
        return tuple(str(field["name"]) for field in _record_of(schema)["fields"])


def block_counts(source: bytes | Readable, path: str) -> Iterator[int]:
    """The number of records in each block. Blocks are decompressed, which detects damaged bytes."""
    with _damaged(path):
        frame = Frame(source, path)
        if frame.codec not in CODECS:
            raise Unsupported("unknown Avro codec", codec=frame.codec, path=path)
        for count, block in frame.blocks():
            check_count(count, decompress(block, frame.codec))
            yield count


def read_batches(
    source: bytes | Readable, path: str, batch_rows: int, batch_bytes: int
) -> Generator[list[dict[str, Any]], None, None]:
    """The container's records in batches, limited by rows and bytes.

    A batch has at least one whole block. Values of logical types are plain numbers.
    """
    with _damaged(path):
        frame = Frame(source, path)
        if frame.codec not in CODECS:
            raise Unsupported("unknown Avro codec", codec=frame.codec, path=path)
        schema = without_logical_types(json.loads(frame.metadata["avro.schema"]))
        metadata = {"avro.schema": json.dumps(schema).encode()}
        record_bytes = _RECORD_BYTES + _VALUE_BYTES * len(_record_of(schema)["fields"])

        def records(plain: list[tuple[int, bytes]]) -> list[dict[str, Any]]:
            container = io.BytesIO(assemble(metadata, frame.sync, plain))
            plain.clear()
            return [each for each in fastavro.reader(container) if isinstance(each, dict)]

        waiting: list[tuple[int, bytes]] = []
        rows = held_bytes = 0
        for count, block in frame.blocks():
            waiting.append((count, decompress(block, frame.codec)))
            check_count(*waiting[-1])
            del block
            rows += count
            held_bytes += count * record_bytes + len(waiting[-1][1])
            if rows >= batch_rows or held_bytes >= batch_bytes:
                yield records(waiting)
                rows = held_bytes = 0
        if waiting:
            yield records(waiting)


def _record_of(schema: Any) -> Any:
    """The record type of a container's schema, or the record type in a union with null."""
    branches = schema if isinstance(schema, list) else [schema]
    return next(branch for branch in branches if isinstance(branch, dict))


@contextmanager
def _damaged(path: str) -> Iterator[None]:
    """Translate the libraries' errors for damaged bytes into CorruptTable, naming `path`."""
    try:
        yield
    except BROKEN as error:
        if isinstance(error, LakecoreError) or getattr(error, "errno", None) is not None:
            raise
        raise CorruptTable(
            "the data file is damaged or no Avro", path=path, why=type(error).__name__
        ) from error
