"""Compaction: rewrites the files of a bucket as fewer files."""

from __future__ import annotations
