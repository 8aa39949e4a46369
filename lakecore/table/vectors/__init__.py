"""Deletion vectors of a bucket: reading, changing and writing their index files."""

from __future__ import annotations
