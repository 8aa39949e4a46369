"""Turns commit messages into snapshots."""

from __future__ import annotations
