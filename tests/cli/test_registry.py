"""The table of commands agrees with the commands."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from lakecore.cli.app import app
from lakecore.cli.registry import COMMANDS, SECTIONS


def shown(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    return " ".join(done.output.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_of_a_command_is_the_first_line_of_its_help(name: str) -> None:
    assert f"{name} " in shown(name, "--help")
    assert COMMANDS[name][1] in shown(name, "--help")


def test_the_help_lists_every_command_under_its_subject() -> None:
    text = shown("--help")

    assert all(f"{title}:" in text for title in SECTIONS)
    assert all(f" {name} {summary}" in text for name, (_, summary) in COMMANDS.items())


def test_an_unknown_command_names_the_nearest() -> None:
    assert "No such command 'tabels'. Did you mean 'tables'?" in shown("tabels")
    assert "`lakecore --help` lists them" in shown("zzzzzz")
