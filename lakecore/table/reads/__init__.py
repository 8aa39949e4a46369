"""A state of a table: which snapshot, which splits, and their rows."""

from __future__ import annotations
