"""Rows -> data files -> commit messages."""

from __future__ import annotations
