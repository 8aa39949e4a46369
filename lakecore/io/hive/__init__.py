"""Hive Metastores: calls to them, their locks, and their form of columns."""

from __future__ import annotations
