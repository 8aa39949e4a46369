"""The program `lakecore` as `python -m lakecore`."""

from __future__ import annotations

from lakecore.cli import main

if __name__ == "__main__":
    main()
