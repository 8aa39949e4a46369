"""The records of files that COPY INTO has loaded: their file names and bytes.

A record is the file `copy-into/history/load-HASH-TIME` in the table's directory. HASH consists of
16 hexadecimal digits of the SHA-256 of the loaded file's path. TIME is the time of the load. Paimon
on Spark writes and reads the same records.

https://paimon.apache.org/docs/master/spark/sql-write/#repeated-imports
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from lakecore.format.json_record import Record, json_bytes

__all__ = ["LoadRecord", "decode_load_record", "encode_load_record", "record_name", "record_prefix"]

_HASH_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRecord:
    """A loaded file: its identity, and what was loaded. Times are milliseconds since 1970."""

    path: str
    size_bytes: int
    modified_ms: int
    loaded_ms: int
    snapshot_id: int
    rows: int


def record_prefix(path: str) -> str:
    """The start of the names of all records of a loaded file."""
    return f"load-{sha256(path.encode()).hexdigest()[:_HASH_DIGITS]}-"


def record_name(record: LoadRecord) -> str:
    """The file name of a record."""
    return f"{record_prefix(record.path)}{record.loaded_ms}"


def encode_load_record(record: LoadRecord) -> bytes:
    """The bytes of a record."""
    return json_bytes(
        {
            "filePath": record.path,
            "fileSize": record.size_bytes,
            "lastModified": record.modified_ms,
            "loadedAt": record.loaded_ms,
            "snapshotId": record.snapshot_id,
            "rowsLoaded": record.rows,
        }
    )


def decode_load_record(data: bytes, path: str) -> LoadRecord:
    """The record that a file holds. Raises CorruptTable if the file is not a record."""
    record = Record.parse(data, path, "load record")
    return LoadRecord(
        path=record.text("filePath"),
        size_bytes=record.number("fileSize"),
        modified_ms=record.number("lastModified"),
        loaded_ms=record.number("loadedAt"),
        snapshot_id=record.number("snapshotId"),
        rows=record.number("rowsLoaded"),
    )
