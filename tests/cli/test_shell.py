"""The commands of the shell, typed into a terminal that is a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import lakecore as lc
from lakecore.cli.app import main
from lakecore.cli.arguments import Format
from lakecore.cli.shell import SqlCompleter, run_shell
from lakecore.session import sql_engine

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.sql.engine import SqlEngine


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlEngine:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    session = lc.connect(tmp_path / "w", create=True)
    engine = sql_engine(session)
    engine.run("CREATE TABLE words (word STRING, n INT); INSERT INTO words VALUES ('a', 1)")
    return engine


def typed(engine: SqlEngine, capsys: pytest.CaptureFixture[str], *lines: str) -> str:
    """What the shell prints after these lines, on both outputs."""
    with create_pipe_input() as pipe:
        pipe.send_text("".join(f"{line}\r" for line in (*lines, "exit")))
        with create_app_session(input=pipe, output=DummyOutput()):
            run_shell(engine, Format.TABLE, None)
    return "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("help", ".tables [TEXT]"),
        (".help", "\\dt"),
        ("\\?", ".once FILE"),
        (".tables", "words"),
        ("\\dt", "words"),
        (".tables wor", "words"),
        (".databases", "default"),
        ("\\l", "default"),
        (".schema words", "CREATE TABLE"),
        ("\\d words", "CREATE TABLE"),
        (".read s.sql", "42"),
        ("\\i s.sql", "42"),
        (".read none.sql", "the file cannot be read"),
        (".show", "limit"),
        (".output json\rSELECT 7 AS n;", '{"n":7}'),
        (".limit all\r.show", "limit        all"),
        (".timing off\r.pager off\r.show", "timing       off"),
        (".tabels", "did_you_mean=.tables"),
        (".schema", "name the table"),
        ("\\z", "unknown command"),
        (".once no/such/file\rSELECT 1;", "cannot be written"),
    ],
)
def test_commands_of_the_shell(
    engine: SqlEngine,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    line: str,
    shown: str,
) -> None:
    (tmp_path / "s.sql").write_text("SELECT 42 AS n;")

    assert shown in typed(engine, capsys, *line.split("\r"))


def test_once_writes_the_rows_of_one_statement(
    engine: SqlEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (".output csv", ".once out.csv", "SELECT 5 AS n;", "SELECT 6 AS n;")

    assert "6" in typed(engine, capsys, *lines)
    assert (tmp_path / "out.csv").read_text() == "n\n5\n"


def test_a_long_table_is_shown_by_the_pager(
    engine: SqlEngine, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER", "sed s/41/by-the-pager/")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = (".limit all", ".pager on", "SELECT * FROM range(100);")
    with create_pipe_input() as pipe:
        pipe.send_text("".join(f"{line}\r" for line in (*lines, "exit")))
        with create_app_session(input=pipe, output=DummyOutput()):
            run_shell(engine, Format.TABLE, None)

    assert "by-the-pager" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("start", "name"),
    [
        ("SELECT regexp_extr", "regexp_extract_all"),
        ("CALL sys.expire_snap", "sys.expire_snapshots"),
        ("SELECT n FROM wo", "words"),
    ],
)
def test_functions_and_procedures_are_completed(engine: SqlEngine, start: str, name: str) -> None:
    found = SqlCompleter(engine).get_completions(Document(start), CompleteEvent())

    assert name in [each.text for each in found]


@pytest.mark.parametrize("flags", [["-c", "SELECT 40 + 2 AS n"], ["-f", "s.sql"], ["s.sql"]])
def test_statements_are_given_as_psql_users_type(
    engine: SqlEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    del engine
    (tmp_path / "s.sql").write_text("SELECT 42 AS n;")
    with pytest.raises(SystemExit) as ended:
        main(["sql", "-w", str(tmp_path / "w"), *flags, "--csv"])

    assert (ended.value.code, capsys.readouterr().out) == (0, "n\n42\n")
