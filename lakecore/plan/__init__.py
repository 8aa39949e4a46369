"""Decisions taken from metadata alone. Pure: no IO, no clock."""

from __future__ import annotations
