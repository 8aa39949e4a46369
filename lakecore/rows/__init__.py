"""Conforms incoming rows to a schema, casts values, and reads older files under a newer schema."""

from __future__ import annotations
