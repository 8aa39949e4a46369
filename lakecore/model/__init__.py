"""What exists in a table: frozen values. No IO, no clock, no format."""

from __future__ import annotations
