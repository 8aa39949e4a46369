"""Row groups of data files as Polars reads them, and the bytes that they take."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from lakecore.frames.polars_source import native_scan
from lakecore.io.data_files import row_group_bounds
from lakecore.model.types import arrow_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.io.file_format import RowGroup
    from lakecore.model.files import DataFile
    from lakecore.model.types import Field
    from lakecore.table.runs.split_files import SplitFiles

_CODECS = frozenset({"ZSTD", "UNCOMPRESSED"})
"""Of damage in others Polars tells less than Arrow."""
_BYTE = 8
_CODE_BYTES = 8
"""Of a value that is to be compared."""
_VIEW_BYTES = 16
"""Of a text decoded, beside its bytes, which it may share with others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A row group of a file, which lies at a local path."""

    file: DataFile
    path: str
    group: RowGroup
    size_bytes: int


def parts_of(
    files: SplitFiles, file: DataFile, path: str, fields: Sequence[Field], sized: Sequence[str] = ()
) -> list[Part] | None:
    """The row groups of a file, with the bytes that these fields take; None: not for Polars.

    Of the columns `sized` each row group tells the bytes.
    """
    fixed = _width([field for field in fields if _is_fixed(field)])
    views = _width(fields) - fixed
    groups = row_group_bounds(files.store, files.path(file), sized) or ()
    if sum(group.row_count for group in groups) != file.row_count:
        return None
    if not all(group.codecs <= _CODECS for group in groups):
        return None
    return [
        Part(file=file, path=path, group=group, size_bytes=_size_of(group, fixed, views))
        for group in groups
    ]


def bytes_to_mark(parts: Sequence[Part], fields: Sequence[Field], key: Sequence[str]) -> int:
    """What these columns take of all rows, the marks, and what is copied of `key` to compare it.

    Each of the parts tells the bytes of those of the columns that are texts.
    """
    copied = [field for field in fields if field.name in key and not _is_wide(field)]
    row_bytes = 1 + _width(fields) + _CODE_BYTES * len(copied)
    groups, texts = [part.group for part in parts], texts_of(fields)
    return sum(
        row_bytes * group.row_count + sum(group.column_bytes[name] for name in texts)
        for group in groups
    )


def texts_of(fields: Sequence[Field]) -> list[str]:
    """Those of the columns whose values are of no one width."""
    return [field.name for field in fields if not _is_fixed(field)]


def scan_parts(
    parts: Sequence[Part], schema: pa.Schema, names: list[str], *, by_row_groups: bool = False
) -> pl.LazyFrame:
    """Columns of all rows of parts, of which those of one file follow on each other."""
    scans = []
    # One scan of several files takes Polars up to twice as long.
    for path, own in groupby(parts, lambda part: part.path):
        groups = [part.group for part in own]
        count = sum(group.row_count for group in groups)
        rows = native_scan(schema, [path], names, casts=False, by_row_groups=by_row_groups)
        scans.append(rows.slice(groups[0].first_row, count))
    return pl.concat(scans)


def _size_of(group: RowGroup, fixed: int, views: int) -> int:
    """What columns of these widths take of a row group in Polars, at most."""
    return max(group.decoded_bytes, fixed * group.row_count) + views * group.row_count


def _is_fixed(field: Field) -> bool:
    return bool(pa.types.is_primitive(arrow_type(field.type)))


def _is_wide(field: Field) -> bool:
    """Whether its values are compared where they lie."""
    return _is_fixed(field) and arrow_type(field.type).bit_width == _BYTE * _CODE_BYTES


def _width(fields: Sequence[Field]) -> int:
    """The bytes of a row of these columns, less those of texts, which others may share."""
    kinds = [arrow_type(field.type) for field in fields if _is_fixed(field)]
    fixed: int = sum(max(kind.bit_width // _BYTE, 1) for kind in kinds)
    return fixed + _VIEW_BYTES * (len(fields) - len(kinds))
