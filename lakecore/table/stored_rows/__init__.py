"""The data files of a split -> their rows, as the table's schema has them."""

from __future__ import annotations
