"""Ordered rows of a bucket -> data files of one sorted run."""

from __future__ import annotations
