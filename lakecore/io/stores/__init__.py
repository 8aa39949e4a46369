"""Storage: bytes by path, on a local disk, in memory and on object stores."""

from __future__ import annotations
