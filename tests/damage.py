"""Data files whose bytes are changed in a test, as a program that is no lakecore may have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = {"file__compression": "none", "lakecore__verify_checksums": "false"}
"""Options of a table whose bytes are values, and are believed."""
_MARKS = (b"LakeCRC<", b">LakeCRC")


def unsealed(data: bytes) -> bytes:
    """A Parquet file without the checksums that lakecore adds; those of its pages stay."""
    for mark in _MARKS:
        assert data.count(mark) == 1
        data = data.replace(mark, bytes(len(mark)))
    return data


def replace_in(path: Path, old: bytes, new: bytes) -> None:
    """Put other bytes of the same length into a file, which then has no checksums."""
    data = path.read_bytes()
    assert len(old) == len(new)
    if old in data:
        path.write_bytes(unsealed(data).replace(old, new))
