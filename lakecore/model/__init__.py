"""The model of a table as frozen values. No IO, no clock, no file formats."""

from __future__ import annotations
