"""Names -> tables: where a catalog keeps its databases and tables, and how they are found."""

from __future__ import annotations
