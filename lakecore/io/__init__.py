"""The only code that touches storage, time or chance."""

from __future__ import annotations
