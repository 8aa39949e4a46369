"""PostgreSQL as a source: a snapshot of the tables, then logical decoding by pgoutput."""

from __future__ import annotations
