"""What is known about data files: facts from storage, row groups for Polars, size in memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from lakecore.frames.engine_scan import parquet_scan
from lakecore.model.types import arrow_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.io.files.file_format import RowGroup
    from lakecore.model.files import DataFile
    from lakecore.model.types import Field

CODECS = frozenset({"ZSTD", "UNCOMPRESSED"})
"""The codecs that Polars may decode: with others, it detects less damage than Arrow."""
_BYTE = 8
_CODE_BYTES = 8
"""Bytes of the number that stands for a value in a comparison."""
_VIEW_BYTES = 16
"""Bytes of the view of a decoded string; several views may share the bytes of one string."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """What storage says about a data file.

    - `path`: the local path (None: the file is not on a local disk);
    - `columns`: the names of the columns (None: all columns of the file's schema);
    - `groups`: the row groups; empty if they were not examined.
    """

    path: str | None
    columns: frozenset[str] | None = None
    groups: tuple[RowGroup, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A row group of a file at a local path."""

    file: DataFile
    path: str
    group: RowGroup
    size_bytes: int


def parts_of(file: DataFile, facts: FileFacts, fields: Sequence[Field]) -> list[Part]:
    """The row groups of a file, with the size of these fields in bytes."""
    assert facts.path is not None
    fixed = _width([field for field in fields if _is_fixed(field)])
    views = _width(fields) - fixed
    return [
        Part(file=file, path=facts.path, group=group, size_bytes=_size_of(group, fixed, views))
        for group in facts.groups
    ]


def bytes_to_mark(parts: Sequence[Part], fields: Sequence[Field], key: Sequence[str]) -> int:
    """The bytes of a merge of keys (`marks.py`): these columns of all rows, flags, encoded `key`.

    The size of string columns comes from each part.
    """
    copied = [field for field in fields if field.name in key and not _is_wide(field)]
    row_bytes = 1 + _width(fields) + _CODE_BYTES * len(copied)
    groups, texts = [part.group for part in parts], texts_of(fields)
    return sum(
        row_bytes * group.row_count + sum(group.column_bytes[name] for name in texts)
        for group in groups
    )


def texts_of(fields: Sequence[Field]) -> list[str]:
    """The columns whose values have variable width."""
    return [field.name for field in fields if not _is_fixed(field)]


def scan_parts(
    parts: Sequence[Part], schema: pa.Schema, names: list[str], *, by_row_groups: bool = False
) -> pl.LazyFrame:
    """The columns `names` of all rows of the parts; parts of one file must be adjacent."""
    scans = []
    # In Polars, one scan of several files takes up to twice the time of one scan for each file.
    for path, own in groupby(parts, lambda part: part.path):
        groups = [part.group for part in own]
        count = sum(group.row_count for group in groups)
        rows = parquet_scan(schema, [path], names, casts=False, by_row_groups=by_row_groups)
        scans.append(rows.slice(groups[0].first_row, count))
    return pl.concat(scans)


def _size_of(group: RowGroup, fixed: int, views: int) -> int:
    """The most bytes that Polars needs for columns of these widths in a row group."""
    return max(group.decoded_bytes, fixed * group.row_count) + views * group.row_count


def _is_fixed(field: Field) -> bool:
    return bool(pa.types.is_primitive(arrow_type(field.type)))


def _is_wide(field: Field) -> bool:
    """Whether the values of a column are compared directly, without encoding."""
    return _is_fixed(field) and arrow_type(field.type).bit_width == _BYTE * _CODE_BYTES


def _width(fields: Sequence[Field]) -> int:
    """The bytes of these columns in one row, without the bytes of strings, which rows may share."""
    kinds = [arrow_type(field.type) for field in fields if _is_fixed(field)]
    fixed: int = sum(max(kind.bit_width // _BYTE, 1) for kind in kinds)
    return fixed + _VIEW_BYTES * (len(fields) - len(kinds))
