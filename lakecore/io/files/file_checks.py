"""Checks whole data files before an engine reads them directly."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lakecore.errors import LakecoreError
from lakecore.io.files.avro_files import check_avro
from lakecore.io.files.file_format import Checks
from lakecore.io.files.orc_files import check_orc
from lakecore.io.files.parquet_open import leaf_indexes, open_parquet, parquet_columns
from lakecore.io.files.parquet_read import are_checked, check_chunks, file_key, remember
from lakecore.io.parallel import read_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow.parquet as pq

    from lakecore.io.stores.store import Store

_PIECE_BYTES = 32 << 20
"""The approximate number of bytes of a file that one thread checks at a time."""


def check_files(store: Store, paths: Sequence[str], columns: Sequence[str], checks: Checks) -> None:
    """Verify the checksums of these columns of local Parquet files, several concurrently.

    Raises CorruptTable for a damaged file.
    """
    if checks is Checks.NEVER:
        return
    if checks is Checks.ONCE:
        paths = [path for path in paths if not are_checked(path, columns)]
    if not paths:
        return
    opened = read_all(partial(_footer, store), paths)
    pieces = [
        (path, metadata, groups)
        for path, metadata in zip(paths, opened, strict=True)
        for groups in _pieces(metadata)
    ]

    def check(piece: tuple[str, pq.FileMetaData, range]) -> None:
        path, metadata, groups = piece
        leaves = leaf_indexes(metadata, columns)
        check_chunks(path, metadata, groups, leaves, checks, pages=True)

    read_all(check, pieces)
    for path, metadata in zip(paths, opened, strict=True):
        remember(path, metadata, columns)


def check_file(
    store: Store, path: str, row_count: int, columns: Sequence[str], checks: Checks
) -> None:
    """Raise CorruptTable if a local data file is damaged. The check decodes no rows.

    The check covers the checksums of Parquet, the checksums or the structure of ORC, and the blocks
    of Avro. The file must have the `columns`. Raises NotFound if the file does not exist.
    """
    local = store.local_path(path)
    assert local is not None, "a local file"
    if path.endswith(".parquet"):
        # A merge also reads the columns of row kinds and sequence numbers.
        names = [*dict.fromkeys((*columns, *parquet_columns(store, path)))]
        check_files(store, [local], names, checks)
    elif path.endswith(".orc"):
        check_orc(store, path, checks)
    elif path.endswith(".avro"):
        check_avro(store, path, row_count, columns)


def unchecked_bytes(
    store: Store, paths: Sequence[str], columns: Sequence[str], checks: Checks
) -> int:
    """An upper bound of the bytes that `check_files` would read."""
    if checks is Checks.NEVER:
        return 0
    return sum(store.size(path) for path in paths if not are_checked(path, columns))


def _footer(store: Store, path: str) -> pq.FileMetaData:
    with open_parquet(store, path) as file:
        return file.metadata


def _pieces(metadata: pq.FileMetaData) -> list[range]:
    """The row groups of a file, in ranges of about `_PIECE_BYTES`."""
    count = metadata.num_row_groups
    size_bytes = sum(metadata.row_group(at).total_byte_size for at in range(count))
    step = max(1, count * _PIECE_BYTES // max(1, size_bytes))
    return [range(at, min(at + step, count)) for at in range(0, count, step)]


def are_unchanged(paths: Sequence[str], columns: Sequence[str]) -> bool:
    """Whether local Parquet files still exist, unchanged since these columns were verified."""
    try:
        return all(are_checked(path, columns) for path in paths)
    except LakecoreError:
        return False


def identity_of(store: Store, path: str) -> tuple[object, ...] | None:
    """A value that changes if a local file changes; None if the file is missing or remote."""
    local = store.local_path(path)
    try:
        return None if local is None else file_key(local)
    except LakecoreError:
        return None
