"""Commands over the verbs of a session and a table. `main` is the program `lakecore`."""

from __future__ import annotations

from lakecore.cli.app import main

__all__ = ["main"]
