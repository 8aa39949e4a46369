"""Rows of the buckets that a task owns -> data files and commit messages."""

from __future__ import annotations

from lakecore.rows.fit import check_once
from lakecore.table.writes.write import TableWrite
from lakecore.table.writes.write_start import WriteStart, read_base

__all__ = ["TableWrite", "WriteStart", "check_once", "read_base"]
