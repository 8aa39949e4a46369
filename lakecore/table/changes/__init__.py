"""Snapshots -> what changed between them."""

from __future__ import annotations
