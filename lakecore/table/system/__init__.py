"""What a table says of itself: the `$` tables."""

from __future__ import annotations
