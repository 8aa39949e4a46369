"""The structure of one bucket: sorted runs, levels, sections. Pure."""

from __future__ import annotations
