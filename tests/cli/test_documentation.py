"""Every example of the pages about the command line is run, and prints what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from lakecore.cli import main
from lakecore.cli.registry import COMMANDS

DOCS = Path(__file__).parents[2] / "docs"
ALL = (  # in the order in which they run: later ones use the tables of earlier ones
    "command-line",
    "advise",
    "command-line-settings",
    "command-line-rows",
    "sql-shell",
    "command-line-operate",
)
PAGES = "\n".join((DOCS / f"{name}.md").read_text() for name in ALL)
FILES = re.findall(r"this file, `([^`]+)`:\n\n```\w+\n(.*?)^```", PAGES, re.MULTILINE | re.DOTALL)
BLOCKS = re.findall(r"^```(python|console)\n(.*?)^```", PAGES, re.MULTILINE | re.DOTALL)


def examples(block: str) -> list[tuple[str, str]]:
    """The commands of a block, each with the lines it should print."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def matches(shown: str, printed: str) -> bool:
    """Whether the text is the one on the page, where `...` stands for any text in a line."""
    pattern = re.escape(shown).replace(re.escape("..."), "[^\n]*")
    return re.fullmatch(pattern, printed) is not None


def test_every_example_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("LAKECORE_WAREHOUSE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name, content in FILES:
        (tmp_path / name).write_text(content)
    run = 0
    for language, block in BLOCKS:
        if language == "python":
            exec(compile(block, "command-line.md", "exec"), {})  # noqa: S102 - ours
            continue
        for command, shown in examples(block):
            program, *arguments = shlex.split(command)
            assert program == "lakecore"
            with pytest.raises(SystemExit) as ended:
                main(arguments)
            out, err = capfd.readouterr()
            failed = shown.startswith("error: ")
            assert ended.value.code == (1 if failed else 0), (command, err)
            assert matches(shown, err if failed else out), (command, out, err)
            run += 1

    assert run >= 15


def test_every_command_is_on_the_page() -> None:
    assert [name for name in COMMANDS if f"| `lakecore {name}` |" not in PAGES] == []
