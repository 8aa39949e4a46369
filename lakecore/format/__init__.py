"""The model as bytes and as file names. Pure both ways: no IO, no clock."""

from __future__ import annotations
