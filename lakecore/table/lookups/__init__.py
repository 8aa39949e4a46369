"""Finds rows by their keys, in one state of a table or with a handle that follows it and caches."""

from __future__ import annotations
