"""Commit messages -> snapshots."""

from __future__ import annotations
