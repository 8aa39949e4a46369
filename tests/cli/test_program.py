"""The program as a process: pipes, terminals, exit codes, and what it costs to start."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import resource
import struct
import subprocess
import sys
import termios
from typing import TYPE_CHECKING

import polars as pl
import pytest

import lakecore as lc
from lakecore.cli.registry import COMMANDS
from tests.versions import DUCKDB_1

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROGRAM = [sys.executable, "-c", "from lakecore.cli import main; main()"]
HEAVY = ("duckdb", "fastavro", "fsspec", "numpy", "pandas", "polars", "pyarrow", "rich", "sqlglot")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("warehouse")
    session = lc.connect(home)
    session.create_database("shop")
    table = session.create_table(
        "shop.orders",
        {"id": "BIGINT NOT NULL", "customer": "STRING", "remark": "STRING", "price": "DOUBLE"},
        primary_keys=["id"],
        options={"bucket": "1"},
    )
    texts = {"customer": "Ada Lovelace", "remark": "many words " * 12}
    table.write(pl.DataFrame({"id": range(30), "price": [1.5] * 30}).with_columns(**as_lits(texts)))
    table.write([{"id": 1}])
    return home


def as_lits(texts: dict[str, str]) -> dict[str, pl.Expr]:
    return {name: pl.lit(text) for name, text in texts.items()}


def run(*arguments: object, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout, done.stderr


def in_terminal(columns: int, *arguments: object) -> str:
    """What a person sees at a terminal of that width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
    with subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        stdout=slave,
        stderr=subprocess.DEVNULL,
        env={**environment, "TERM": "xterm", "PYTHONIOENCODING": "utf-8"},
    ) as process:
        os.close(slave)
        seen = b""
        while True:
            try:
                part = os.read(master, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen += part
    os.close(master)
    assert process.returncode == 0
    return seen.decode()


def test_help_imports_nothing_that_does_the_work() -> None:
    code = (
        "import sys\nfrom lakecore.cli import main\n"
        f"for name in {['', *COMMANDS]}:\n"
        "    try: main([*([name] if name else []), '--help'])\n"
        "    except SystemExit as ended: assert not ended.code\n"
        "print(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(re.findall(r"'([^']+)'", done.stderr))

    assert done.stdout.count("Usage: lakecore") == 1 + len(COMMANDS)
    assert not loaded & set(HEAVY)
    assert {name for name in loaded if name.startswith("lakecore.table")} == set()


def test_a_query_without_tables_loads_no_more_than_it_needs() -> None:
    """pydantic is loaded by Typer. Polars only prints dates and nested values."""
    code = (
        "import sys; sys.argv = ['lakecore', 'sql', '-e', 'SELECT 1 AS n']\n"
        "from lakecore.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    heavy = {
        "polars",
        "pandas",
        "fastavro",
        "fsspec",
        "asyncio",
        "ssl",
        "prompt_toolkit",
        "sqlglot",
    }
    of_arrow = {"pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "pyarrow.orc"}
    own = {
        "lakecore.session",
        "lakecore.options",
        "lakecore.io",
        "lakecore.table",
        "lakecore.model",
    }

    if DUCKDB_1:  # loads them itself
        loaded -= {"pandas", "pyarrow.compute"}
    assert "n" in done.stdout
    assert not loaded & (heavy | of_arrow | own)


def cpu_seconds(work: Callable[[], object]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_starts_fast() -> None:
    """It takes 0.12 s of CPU; with Polars, DuckDB and Arrow it took 2 s."""
    assert min(cpu_seconds(lambda: run("--help")) for _ in range(3)) < 0.35


def test_package_itself_is_imported_at_no_cost() -> None:
    def own_seconds() -> float:
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", "import lakecore"],
            capture_output=True,
            text=True,
            check=True,
        )
        (line,) = (line for line in done.stderr.splitlines() if line.endswith(" lakecore"))
        return int(line.split("|")[0].split(":")[1]) / 1e6

    assert min(own_seconds() for _ in range(3)) < 0.05


def test_version_flag_and_command_say_the_same() -> None:
    for arguments in (["--version"], ["version"], ["version", "--output", "table"]):
        assert run(*arguments) == (0, f"{lc.__version__}\n", "")
    assert json.loads(run("version", "--json")[1]) == {"version": lc.__version__}
    assert run("version", "--csv")[1].splitlines() == ["version", lc.__version__]
    by_module = [sys.executable, "-m", "lakecore", "version"]
    assert subprocess.check_output(by_module, text=True) == f"{lc.__version__}\n"


def test_grid_fits_the_terminal_and_shows_nulls(warehouse: Path) -> None:
    table = warehouse / "shop.db" / "orders"
    seen = in_terminal(100, "read", table, "--where", "id < 2")
    plain = re.sub(r"\x1b\[\d*m", "", seen)
    lines = plain.split("\r\n")

    assert "\x1b[2mNULL" in seen
    assert {len(line) for line in lines if line} == {100}
    assert len(lines) == 4 + 2 + 1
    assert "Ada Lovelace" in plain
    assert "…" in plain
    narrow = re.sub(r"\x1b\[\d*m", "", in_terminal(40, "read", table, "--where", "id < 2"))
    assert "── row 2 ──" in narrow
    assert max(len(line) for line in narrow.split("\r\n")) <= 40


def test_pipe_gets_whole_cells_and_notes_go_to_standard_error(warehouse: Path) -> None:
    environment = {"COLUMNS": "", "LAKECORE_WAREHOUSE": str(warehouse)}
    code, out, err = run("read", "shop.orders", **environment)

    assert code == 0
    assert "…" not in out
    assert "many words " * 11 in out
    assert len(out.splitlines()) == 20 + 4
    assert err == "the first 20 rows; --limit N shows more, --json or --csv prints all\n"
    _, out, err = run("read", "shop.orders", "--limit", 25, **environment)
    assert (len(out.splitlines()), err) == (25 + 4, "")
    assert "\x1b" not in out


@pytest.mark.parametrize("flags", [[], ["--json"], ["--csv"]])
def test_reader_that_leaves_early_is_no_error(flags: list[str], tmp_path: Path) -> None:
    table = lc.open_table(tmp_path / "t", create=True, schema={"n": "BIGINT", "text": "STRING"})
    table.write(pl.DataFrame({"n": range(50_000)}).with_columns(text=pl.lit("x" * 20)))
    with subprocess.Popen(
        [*PROGRAM, "read", table.path, "--limit", "50000", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10)
        process.stdout.close()
        complaints = process.stderr.read()

    assert (process.returncode, complaints) == (0, b"")


@pytest.mark.parametrize(
    "arguments",
    [
        ["read"],
        ["nosuch"],
        ["read", "t", "--output", "xml"],
        ["read", "t", "--json", "--csv"],
        ["read", "t", "--limit", "-1"],
        ["read", "t", "--limit", "many"],
        ["show", "t", "--csv"],
        ["compact", "t", "--watch", "--csv"],
        ["compact", "t", "--watch", "--interval", "nan"],
    ],
)
def test_wrong_usage_is_exit_code_2_and_prints_no_data(arguments: list[str]) -> None:
    code, out, err = run(*arguments)

    assert (code, out) == (2, "")
    assert err.startswith("Usage: lakecore")
    assert "Traceback" not in err


def test_ctrl_c_while_the_program_is_imported_shows_no_traceback() -> None:
    code = (
        "import sys\nfrom lakecore.cli import main\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "main(['sql', '-e', 'SELECT 1'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
