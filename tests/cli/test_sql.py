"""`lakecore sql`: statements from arguments, files and pipes; rows to standard output."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def run(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from lakecore.cli import main; main()", "sql", *arguments],
        input=given,
        stdin=subprocess.DEVNULL if given is None else None,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("sql") / "warehouse")
    made = run(
        *("-w", place, "--create", "-e", "CREATE DATABASE shop"),
        *("-e", "CREATE TABLE shop.t (id INT, v STRING)"),
        *("-e", "INSERT INTO shop.t VALUES (1, 'a'), (2, 'b')"),
    )
    assert made.returncode == 0, made.stderr
    assert "snapshot_id" in made.stdout
    return place


def test_json_lines_are_parsed(warehouse: str) -> None:
    done = run("-w", warehouse, "-d", "shop", "--json", "-e", "SELECT * FROM t ORDER BY id")

    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"id": 1, "v": "a"},
        {"id": 2, "v": "b"},
    ]


def test_a_script_comes_by_a_pipe_or_a_file(warehouse: str, tmp_path: Path) -> None:
    script = "USE shop;\nSELECT count(*) AS n FROM t; -- the end\n"
    (tmp_path / "script.sql").write_text(script)

    piped = run("-w", warehouse, "--csv", given=script)
    read = run("-w", warehouse, "--csv", str(tmp_path / "script.sql"))

    assert piped.stdout == read.stdout == "n\n2\n"


def test_a_syntax_error_shows_its_place_and_ends_with_1(warehouse: str) -> None:
    done = run("-w", warehouse, "-e", "CREATE TABLE (id INT)")

    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "error: expected the name of the table, but found '(', at line 1, column 14\n"
        "  CREATE TABLE (id INT)\n"
        "               ^\n"
    )


def test_statements_before_an_error_have_printed_their_rows(warehouse: str) -> None:
    done = run("-w", warehouse, "--csv", "-e", "SELECT 1 AS x; SELECT * FROM shop.nowhere")

    assert done.returncode == 1
    assert done.stdout == "x\n1\n"
    assert "nowhere" in done.stderr
