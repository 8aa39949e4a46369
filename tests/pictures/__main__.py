"""Writes docs/img/*.svg again; `site` takes pictures of the site, to look at."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.pictures.figures import ROOT, terminal
from tests.pictures.list import PICTURES
from tests.pictures.screens import screens, site_screens

IMAGES = ROOT / "docs" / "img"


def main() -> None:
    """Write each picture, or those that are named."""
    wanted = sys.argv[1:] or [*PICTURES, "demo", "ui"]
    with tempfile.TemporaryDirectory() as place:
        for name in wanted:
            if name == "ui":
                screens(Path(place), IMAGES)
                continue
            if name == "site":
                site_screens(Path(place), ROOT / "build" / "site-screens", IMAGES)
                continue
            if name == "demo":
                text = terminal(played(Path(place) / "demo"))
            else:
                text = PICTURES[name](Path(place))
            (IMAGES / f"{name}.svg").write_text(text, encoding="utf-8")


def played(warehouse: Path) -> str:
    """What the demo prints in a terminal of 80 columns."""
    command = [sys.executable, "-m", "lakecore", "demo", "--path", str(warehouse), "--no-keep"]
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": "80", "TERM": "xterm-256color"}
    return subprocess.run(
        command, env=environment, check=True, text=True, capture_output=True
    ).stdout


if __name__ == "__main__":
    main()
