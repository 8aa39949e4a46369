"""Writes rows to data files, and describes them in commit messages."""

from __future__ import annotations
