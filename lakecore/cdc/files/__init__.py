"""A source of changes that reads a folder of files with one message per line."""

from __future__ import annotations
