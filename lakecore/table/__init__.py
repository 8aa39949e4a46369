"""What can be done to a table: one file a verb."""

from __future__ import annotations
