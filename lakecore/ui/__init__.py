"""`lakecore ui`: a read-only web page over a warehouse or a catalog."""

from __future__ import annotations
