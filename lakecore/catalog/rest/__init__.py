"""A catalog on a server: a client of Paimon's REST protocol."""

from __future__ import annotations
