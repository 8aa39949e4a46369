"""Merges the sorted runs of a section, window by window."""

from __future__ import annotations
