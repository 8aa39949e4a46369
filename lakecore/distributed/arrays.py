"""Conversions of Arrow arrays that come from, or go to, another engine."""

from __future__ import annotations

from lakecore.model.arrow_arrays import retype, with_offsets

__all__ = ["retype", "with_offsets"]
