"""The catalog that a server keeps: Paimon's REST protocol, spoken as a client."""

from __future__ import annotations
