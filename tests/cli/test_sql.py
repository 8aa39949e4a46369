"""`lakecore sql`: statements from arguments, files and pipes; rows to standard output."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lakecore as lc

if TYPE_CHECKING:
    from collections.abc import Iterator


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


@pytest.mark.parametrize("form", ["--json", "--csv", "--output=table"])
def test_values_that_only_duckdb_has_are_printed_as_texts(warehouse: str, form: str) -> None:
    rows = (
        "SELECT INTERVAL 1 MONTH AS a, [INTERVAL 1 DAY] AS b, '101'::BIT AS c, 7::BIGNUM AS a, "
        "union_value(x := 5) AS e, '12:00:00+02'::TIMETZ AS f, 'v'::VARIANT AS g, "
        "340282366920938463463374607431768211455::UHUGEINT AS h"
    )
    found = run("-w", warehouse, "-e", rows, form)

    assert found.returncode == 0, found.stderr
    for text in ("1 month", "[1 day]", "101", "7", "5", "12:00:00+02", "v", "a_1", "34028236692"):
        assert text in found.stdout


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


ENDLESS = "SELECT count(*) AS n FROM range(100000000000) WHERE hash(range) = 3"
QUERIES = {
    "at the end": ENDLESS,
    "before the first row": f"FROM ({ENDLESS}) WHERE n > 0",
    "before a filter is pushed": f"SELECT * FROM shop.t WHERE id IN ({ENDLESS})",
    "in a statement that writes": f"INSERT INTO shop.t SELECT n, 'c' FROM ({ENDLESS})",
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_an_interrupt_stops_a_query_that_runs_in_duckdb(warehouse: str, query: str) -> None:
    program = "from lakecore.cli import main; main()"
    first = ("sql", "-w", warehouse, "--csv", "-e", "SELECT 1 AS x", "-e", query)
    with subprocess.Popen(
        [sys.executable, "-c", program, *first],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["x\n", "1\n"]
        seconds = cpu_seconds(process.pid)
        before = next(seconds)
        # The query is running: its threads have used processor time since the first statement.
        while next(seconds) < before + 0.5:
            assert process.poll() is None, process.stderr
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)

    assert (process.returncode, out, err) == (130, "", "interrupted\n")
    assert lc.connect(warehouse).get_table("shop.t").count() == 2


def cpu_seconds(process_id: int) -> Iterator[float]:
    """Yields the processor time that all threads of a process have used so far."""
    while True:
        fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
        yield (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        threading.Event().wait(0.02)


def test_a_query_without_a_table_loads_no_tables_and_no_unused_catalogs() -> None:
    """Loading all of lakecore would take longer than everything else that `select 1` does."""
    code = (
        "import sys\nfrom lakecore.cli import main\n"
        "try: main(['sql', '--csv', '-e', 'SELECT 1 AS x'])\n"
        "except SystemExit as ended: assert not ended.code\n"
        "print(*sys.modules, sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rows, one, *loaded = done.stdout.splitlines()

    assert (rows, one) == ("x", "1")
    heavy = re.compile(
        r"lakecore\.(table\.(?!publication$)|merge|lsm|plan|rows|scalar\.(?!infinity$|syntax_trees$)|sql\.(procedures|run_)|"
        r"catalog\.(hive|jdbc|rest))|pyarrow\.dataset|urllib\.request"
    )
    # Not pandas: Arrow imports it, if it is installed, to convert its first value.
    assert list(filter(heavy.match, loaded)) == []


def test_a_table_is_named_by_its_path_without_a_warehouse(warehouse: str) -> None:
    clean = {key: text for key, text in os.environ.items() if not key.startswith("LAKECORE_")}
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from lakecore.cli import main; main()", "sql", "--csv"),
            *("-e", f"SELECT count(*) AS n FROM '{warehouse}/shop.db/t'", "-e", "FROM nowhere"),
        ],
        env={**clean, "XDG_CONFIG_HOME": warehouse},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "n\n2\n")
    assert "CREATE CATALOG" in done.stderr


@pytest.mark.parametrize(
    "second",
    [
        "selct 2",
        "SELECT * FORM x y",
        "UPDATE shop.t SET v = = 1",
        "DELETE FROM shop.t WHERE id = AND",
    ],
)
def test_a_syntax_error_is_found_before_the_first_statement_runs(
    warehouse: str, second: str
) -> None:
    rows = lc.connect(warehouse).sql("SELECT count(*) FROM shop.t").fetchall()
    done = run("-w", warehouse, "-e", f"INSERT INTO shop.t VALUES (3, 'c');\n{second}")

    assert done.returncode == 1
    assert lc.connect(warehouse).sql("SELECT count(*) FROM shop.t").fetchall() == rows


def test_a_syntax_error_of_a_later_statement_has_its_position(warehouse: str) -> None:
    session = lc.connect(warehouse)

    with pytest.raises(lc.InvalidRequest, match=r'at or near "x", at line 1, column 15\n'):
        session.sql("SELECT 1; SELECT * FORM x y")
    with pytest.raises(
        lc.InvalidRequest, match=r"line 2, column 12\n  WHERE id = = 2\n             \^"
    ):
        session.sql("SELECT 1; DELETE FROM t\nWHERE id = = 2")


def test_two_results_are_no_parquet_file(warehouse: str) -> None:
    done = run("-w", warehouse, "--output", "parquet", "-e", "SELECT 1", "-e", "SELECT 2")

    assert done.returncode == 1
    assert "one statement" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("form", ["--json", "--csv"])
def test_the_first_answer_of_a_streaming_query_is_printed_once(warehouse: str, form: str) -> None:
    streaming = "SET 'execution.runtime-mode' = 'streaming'; SELECT id FROM shop.t LIMIT 2"
    done = run("-w", warehouse, form, "-e", streaming)

    assert sum("+I" in line for line in done.stdout.splitlines()) == 2


def test_a_byte_order_mark_is_no_part_of_a_statement(tmp_path: Path) -> None:
    file = tmp_path / "marked.sql"
    file.write_bytes(b"\xef\xbb\xbfSELECT 1 AS x;\n\xef\xbb\xbfSELECT 2 AS x;\n")

    assert run(str(file), "--csv").stdout == "x\n1\nx\n2\n"
