"""Rows made to fit a schema: conformed, cast, and evolved from the columns of older files."""

from __future__ import annotations
