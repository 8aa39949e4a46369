"""The sorted runs of a section -> merged rows, window by window."""

from __future__ import annotations
