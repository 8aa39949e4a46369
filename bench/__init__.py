"""Seeded benchmarks, one file a verb; every claim is a ratio of contenders measured in one run."""

from __future__ import annotations
