"""The sorted runs of a bucket: data files -> merged rows, and rows -> data files."""

from __future__ import annotations
