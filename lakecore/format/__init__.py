"""The model <-> bytes and file names. Pure in both directions: no IO, no clock."""

from __future__ import annotations
