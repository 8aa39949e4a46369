"""The operations on a table, by package.

Each package imports only those below: see ARCHITECTURE.md.
"""

from __future__ import annotations
