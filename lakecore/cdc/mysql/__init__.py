"""MySQL and MariaDB as a source: a snapshot of the tables, then their binary log."""

from __future__ import annotations
