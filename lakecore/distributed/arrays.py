"""Arrow arrays as another process hands them over."""

from __future__ import annotations

from lakecore.model.arrow_arrays import retype, with_offsets

__all__ = ["retype", "with_offsets"]
