"""Columns that a pipeline adds to those of the source: computed columns and metadata. Pure."""

from __future__ import annotations
