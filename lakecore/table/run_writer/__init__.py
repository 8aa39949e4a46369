"""Writes the ordered rows of a bucket to data files, which form one sorted run."""

from __future__ import annotations
