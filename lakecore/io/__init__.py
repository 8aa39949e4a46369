"""The only code that uses storage, the clock or random numbers."""

from __future__ import annotations
