"""The pages of a first mirror, tried as a new user would: their blocks run in order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.services.mirrors import connect

if TYPE_CHECKING:
    from tests.services.servers import Server

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(bash|sql|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_sql(cursor: Any, text: str) -> None:
    for statement in filter(None, map(str.strip, text.split(";"))):
        cursor.execute(statement)


def test_blocks_of_the_pages_mirror_a_database(mariadb_log: Server, tmp_path: Path) -> None:
    server = mariadb_log
    cursor = connect(server)
    place = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}"}
    environment |= {"MIRROR_PASSWORD": "a-password", "COLUMNS": "80"}
    printed = []
    prepared, step, rest = (DOCS / "cdc-mysql.md").read_text().partition("## 2.")
    pages = prepared + (DOCS / "cdc.md").read_text() + step + rest
    for kind, text in BLOCK.findall(pages):
        block = re.sub(r"(port ?= ?)3306", rf"\g<1>{server.port}", text)
        if kind == "sql":
            run_sql(cursor, block)
        elif kind == "toml":
            (tmp_path / "mirror.toml").write_text(block)
        elif not block.startswith("pip "):
            done = subprocess.run(
                ["bash", "-e", "-c", block], cwd=tmp_path, env=environment, check=False,
                capture_output=True, text=True,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            printed.append(done.stdout)

    overview, first, second = printed
    assert re.search(r"^pipeline +mysql_sync_database-shop$", overview, re.MULTILINE)
    assert "cup" in overview
    assert "cup" in first
    assert "cup" not in second
    assert re.search(r"1 │ tea\s+│.*5\.00.*dearer|1 │ tea\s+│ dearer", second)
    assert "pot" in second
