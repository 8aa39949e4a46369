"""A server of Paimon's REST protocol over any catalog of lakecore."""

from __future__ import annotations
