"""Catalogs map names to tables: how a catalog stores and finds its databases and tables."""

from __future__ import annotations
