"""Decisions taken from metadata and rows. Pure: no IO, no clock."""

from __future__ import annotations
