"""Rows by their keys: look-ups of a state, and a handle that follows the table with a cache."""

from __future__ import annotations
