"""Which files a table has loaded by COPY INTO: one small record for each, in the table's directory.

A file counts as loaded if its path, size and time of the last change equal those in a record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import NotFound
from lakecore.format.json_files import (
    decode_load_record,
    encode_load_record,
    record_name,
    record_prefix,
)
from lakecore.io.parallel import read_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakecore.format.json_files import LoadRecord
    from lakecore.table.context import TableContext


def load_records(context: TableContext, paths: Iterable[str]) -> frozenset[tuple[str, int, int]]:
    """For each recorded load of these files: path, size and time of the last change.

    Raises CorruptTable if a record cannot be read: otherwise the file would be loaded twice.
    """
    prefixes = {record_prefix(path) for path in paths}
    directory = context.layout.load_history_dir
    names = [status.path for status in context.store.list(directory) if not status.is_directory]
    chosen = [
        path for path in names if path.rpartition("/")[2].rpartition("-")[0] + "-" in prefixes
    ]

    def read(path: str) -> LoadRecord | None:
        try:
            return decode_load_record(context.store.read(path), path)
        except NotFound:  # removed since it was listed
            return None

    found = filter(None, read_all(read, chosen))
    return frozenset((each.path, each.size_bytes, each.modified_ms) for each in found)


def is_loaded(
    records: frozenset[tuple[str, int, int]], path: str, size_bytes: int, modified_ms: int | None
) -> bool:
    """Whether a record says that the file was loaded as it is now."""
    return modified_ms is not None and (path, size_bytes, modified_ms) in records


def record_loads(context: TableContext, records: Sequence[LoadRecord]) -> None:
    """Write a record for each loaded file."""

    def write(record: LoadRecord) -> None:
        path = f"{context.layout.load_history_dir}/{record_name(record)}"
        context.store.put(path, encode_load_record(record))

    read_all(write, records)
