"""Catalogs map names to tables, and store the names of databases and tables."""

from __future__ import annotations
