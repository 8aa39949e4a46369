"""Builds the file indexes of a data file from its rows, in one container.

Each index stays in memory until the file is closed (`format/file_index`): a Bloom filter takes its
bits, a bitmap index its distinct values and up to four bytes for each row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest
from lakecore.format.file_index.bitmap import BLOCK_BYTES, VERSIONS, BitmapWriter
from lakecore.format.file_index.bloom_filter import BloomFilterWriter
from lakecore.format.file_index.bsi import BsiWriter
from lakecore.format.file_index.container import StoredIndex, encode_container
from lakecore.format.file_index.range_bitmap import RangeBitmapWriter
from lakecore.format.file_index.values import value_form
from lakecore.model.file_indexes import BITMAP, BLOOM_FILTER, BSI, RANGE_BITMAP, IndexedColumn
from lakecore.model.types import Root

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHUNK_BYTES = 16 << 10
_UNCHUNKED = frozenset({Root.BOOLEAN, Root.TINYINT, Root.SMALLINT})
"""Types whose chunks hold one value each unless `chunk-size` says otherwise, as in Java."""


class _IndexWriter(Protocol):
    def add(self, column: pa.Array) -> None: ...

    def finish(self) -> bytes: ...


class FileIndexes:
    """The indexes of one data file."""

    def __init__(self, columns: Sequence[IndexedColumn]) -> None:
        self._indexes = [(column, _writer(column)) for column in columns]

    def add(self, rows: pa.Table) -> None:
        """Add rows, in the order of the file."""
        for column, writer in self._indexes:
            for chunk in rows.column(column.field.name).chunks:
                values = chunk
                if column.map_key is not None:
                    values = pc.map_lookup(chunk, column.map_key, "last")
                try:
                    writer.add(values)
                except InvalidRequest as error:
                    raise InvalidRequest(
                        "a value does not fit a file index",
                        column=column.name,
                        index=column.index_type,
                        cause=error,
                    ) from error

    def finish(self) -> bytes:
        """The bytes of the container with all indexes of the file."""
        return encode_container(
            StoredIndex(column=column.name, index_type=column.index_type, body=writer.finish())
            for column, writer in self._indexes
        )


def _writer(column: IndexedColumn) -> _IndexWriter:
    form, settings = value_form(column.value_type), column.settings
    assert form is not None, "checked by `indexed_columns`"
    if column.index_type == BLOOM_FILTER:
        items, fpp = settings["items"], settings["fpp"]
        assert isinstance(items, int)
        assert isinstance(fpp, float)
        return BloomFilterWriter(form, items, fpp)
    if column.index_type == BITMAP:
        version = settings.get("version", VERSIONS[-1])
        block_bytes = settings.get("index-block-size", BLOCK_BYTES)
        assert isinstance(version, int)
        assert isinstance(block_bytes, int)
        return BitmapWriter(form, version, block_bytes)
    if column.index_type == RANGE_BITMAP:
        least = 0 if form.root in _UNCHUNKED else _CHUNK_BYTES
        chunk_bytes = settings.get("chunk-size", least)
        assert isinstance(chunk_bytes, int)
        return RangeBitmapWriter(form, chunk_bytes)
    assert column.index_type == BSI
    return BsiWriter(form)
