"""Reads the data files of a split as rows with the columns and types of the table's schema."""

from __future__ import annotations
