"""The sorted runs of a bucket: data files -> rows, merged, and rows -> data files."""

from __future__ import annotations
