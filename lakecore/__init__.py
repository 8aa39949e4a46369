"""lakecore: the engine that makes Apache Paimon tables first-class in Python."""

from __future__ import annotations

__version__ = "0.1.0"
