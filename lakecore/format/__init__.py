"""Converts the model to bytes and file names, and back. Pure: no IO, no clock."""

from __future__ import annotations
