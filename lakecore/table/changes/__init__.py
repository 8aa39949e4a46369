"""The changes of a table: what differs between two snapshots, and streams that follow the table."""

from __future__ import annotations
