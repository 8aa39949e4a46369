"""What can be done to a table, by folders, each importing those below: see ARCHITECTURE.md."""

from __future__ import annotations
