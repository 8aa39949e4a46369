"""The shell and the commands in a real terminal: tmux types, and shows what a person sees."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.cdc.state import PipelineState, StateFiles
from lakecore.io.ambient import SYSTEM
from lakecore.io.stores.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow  # tmux is not on every machine that runs `make test`

SECONDS_MAX = 60


class Terminal:
    """A terminal of 100 columns, in which `lakecore` is a command of the shell."""

    def __init__(self, place: Path) -> None:
        program = shutil.which("tmux")
        assert program is not None, "these tests need tmux: install the package tmux"
        self._tmux = [program, "-S", str(place / "socket"), "-f", "/dev/null"]
        code = "from lakecore.cli import main; main()"
        (place / "rc").write_text(
            f"lakecore() {{ {sys.executable} -c '{code}' \"$@\"; }}\n"
            f"export XDG_CONFIG_HOME={place}/config XDG_STATE_HOME={place}/state\n"
            f"export LAKECORE_WAREHOUSE={place}/w PS1='ready> '\ncd {place}\n"
        )
        shell = f"bash --noprofile --rcfile {place}/rc -i"
        self._run("new-session", "-d", "-x", "100", "-y", "40", shell)
        self.wait("ready>")

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._tmux, *arguments], capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout

    def type(self, *keys: str) -> None:
        """Type text, or keys by their names, such as Enter, Tab and C-c."""
        # For tmux, a `;` at the end of an argument would begin another command.
        given = [f"{key[:-1]}\\;" if key.endswith(";") else key for key in keys]
        self._run("send-keys", *given)

    def seen(self) -> str:
        """What the terminal shows."""
        return self._run("capture-pane", "-p", "-J")

    def wait(self, text: str, times: int = 1) -> str:
        """What the terminal shows, once it shows this text so many times."""
        ends = time.monotonic() + SECONDS_MAX
        while (found := self.seen()).count(text) < times:
            assert time.monotonic() < ends, found
            time.sleep(0.05)
        return found

    def close(self) -> None:
        """End the terminal, with all that runs in it."""
        self._run("kill-server")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    found = Terminal(tmp_path)
    yield found
    found.close()


def test_shell_takes_lines_completes_shows_errors_and_remembers(terminal: Terminal) -> None:
    terminal.type("lakecore sql --create", "Enter")
    terminal.wait("lakecore>")
    terminal.type("CREATE TABLE words (word STRING, n INT);", "Enter")
    terminal.wait("0 rows,")
    terminal.type("INSERT INTO words", "Enter")
    terminal.wait("...>")
    terminal.type("VALUES ('a', 1), ('b', 2);", "Enter")
    assert "snapshot_id" in terminal.wait("1 rows,")
    terminal.type("SELECT word FROM wo", "Tab")
    terminal.wait("SELECT word FROM words")
    terminal.type(" ORDER BY n;", "Enter")
    found = terminal.wait("2 rows,")
    assert "│ a    │\n│ b    │" in found.replace("\n\n", "\n")
    terminal.type("SELECT nothing FROM words;", "Enter")
    terminal.wait("error: ")
    terminal.type("SELECT 'half", "C-c")
    terminal.type(".output json", "Enter", "SELECT 40 + 2 AS n;", "Enter")
    terminal.wait('{"n":42}')
    terminal.type("EXIT;", "Enter")
    terminal.wait("ready>", 2)

    terminal.type("clear; lakecore sql", "Enter")
    terminal.wait("lakecore>")
    terminal.type("Up", "Up")
    terminal.wait("SELECT 40 + 2 AS n;")
    terminal.type("C-c", "C-d")
    terminal.wait("ready>")


def test_commands_ask_and_obey_the_answer(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,v\n1,a\n2,b\n")
    terminal.type("lakecore import shop.t t.csv --create --primary-key id", "Enter")
    terminal.wait("created shop.t with 2 rows: snapshot 1")
    terminal.type("lakecore delete shop.t --where 'id = 1'", "Enter")
    terminal.wait("delete 1 row of shop.t? [y/N]")
    terminal.type("n", "Enter")
    terminal.wait("error: nothing was changed")
    terminal.type("lakecore delete shop.t --where 'id = 1'", "Enter")
    terminal.wait("delete 1 row of shop.t? [y/N]", 2)
    terminal.type("y", "Enter")
    terminal.wait("deleted 1 row from shop.t: snapshot 2")

    assert lc.connect(tmp_path / "w").get_table("shop.t").count() == 1


def test_interrupt_ends_a_stream_with_130(terminal: Terminal, tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("shop")
    session.create_table("shop.t", {"id": "INT"}).write([{"id": 5}])
    terminal.type("lakecore stream shop.t --columns id", "Enter")
    terminal.wait("│  5 │")
    terminal.type("C-c")
    terminal.wait("ready>", 2)
    terminal.type("echo code $?", "Enter")
    terminal.wait("code 130")
    terminal.type("lakecore read shop.t --output parquet", "Enter")
    terminal.wait("error: Parquet is no text for a terminal: add > FILE, or a pipe")


def test_status_of_pipelines_is_kept_up_to_date(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    files = StateFiles(LocalStore(), f"{tmp_path}/w/.cdc/p", SYSTEM)
    files.put(PipelineState(checkpoint=7, commit_user="u", metrics={"caught_up": True}))
    terminal.type("lakecore cdc status --watch --interval '0.1 s'", "Enter")
    terminal.wait("          7 ")
    files.put(PipelineState(checkpoint=12, commit_user="u", metrics={"caught_up": True}))
    shown = terminal.wait("         12 ")
    assert shown.count("pipeline") == 1
    terminal.type("C-c")
    terminal.wait("ready>", 2)
