"""How the rows of one split are read: the decision, and the readers that carry it out."""

from __future__ import annotations
