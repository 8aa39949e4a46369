"""`lakecore demo`: chooses its warehouse, and whether to keep it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from lakecore.demo.tour import play

__all__ = ["demo"]


def demo(path: str | None, keep: bool) -> None:  # noqa: FBT001  the flag of the command line
    """Run the demo in the given warehouse, by default in a new directory."""
    warehouse = tempfile.mkdtemp(prefix="lakecore-demo-") if path is None else path
    made_here = path is None or not Path(warehouse).exists()
    try:
        play(warehouse, stays=keep)
    finally:
        if not keep and made_here:
            shutil.rmtree(warehouse, ignore_errors=True)
