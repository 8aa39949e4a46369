"""Each flag that a message names is a flag of the command that says it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer._click.core import Context
from typer.core import TyperGroup
from typer.main import get_group

import lakecore
from lakecore.cli.app import app, flags_of, in_flags
from lakecore.cli.registry import COMMANDS
from lakecore.errors import LakecoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(lakecore.__file__).parent
FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")
OTHER = re.compile(r"lakecore ([a-z][a-z-]+)([^`;]*)")
# Their flags are those of Paimon's actions, and their modules check them.
BY_ACTION = ("action", "cdc")


@cache
def texts(path: Path) -> tuple[str, ...]:
    """The strings of a module; the parts of an f-string are joined, each value as `X`."""
    tree = ast.parse(path.read_text())
    inner = {
        part for each in ast.walk(tree) if isinstance(each, ast.JoinedStr) for part in each.values
    }
    return tuple(
        text
        for each in ast.walk(tree)
        if each not in inner and (text := _text(each)) and "\n\n" not in text
    )


def _text(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) or "X" for part in parts)
    return ""


def modules(*below: str) -> Iterator[Path]:
    return ROOT.joinpath(*below).rglob("*.py")


PROPOSED = re.compile(r"\b[a-z]\w*=True\b")
PROPOSALS = [text for path in modules() for text in texts(path) if PROPOSED.search(text)]
PROPOSALS += [text for text in texts(ROOT / "sql/file_rows.py") if FLAG.search(text)]


def verbs(command: str) -> Iterator[list[str]]:
    """The command, and each of its verbs."""
    found = get_group(app)
    here = found.get_command(Context(found), command)
    yield [command]
    if isinstance(here, TyperGroup):
        yield from ([command, verb] for verb in here.commands)


def flags(arguments: list[str]) -> frozenset[str]:
    found = flags_of(arguments)
    assert found is not None
    return found


def check_others(text: str) -> str:
    """The text without the commands that it names, each of which has its flags."""
    for name, rest in OTHER.findall(text):
        if name in COMMANDS and name not in BY_ACTION:
            assert set(FLAG.findall(rest)) <= frozenset[str]().union(*map(flags, verbs(name))), text
    return OTHER.sub("", text)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in BY_ACTION])
def test_an_error_proposes_only_flags_that_the_command_has(command: str) -> None:
    for arguments in verbs(command):
        for text in PROPOSALS:
            said = check_others(in_flags(LakecoreError(text, fact="a=True"), flags(arguments)))
            assert set(FLAG.findall(said)) <= flags(arguments)
            assert said.endswith(". fact=a=True")


def test_a_proposal_is_a_flag_or_another_command() -> None:
    error = LakecoreError("gone; connect(..., create=True) makes one; use compact(full=True)", at=1)

    assert (
        in_flags(error, {"--create"})
        == "gone; --create makes one; use `lakecore compact --full`. at=1"
    )
    for other in ({"--other"}, None):
        assert in_flags(error, other) == "gone; use `lakecore compact --full`. at=1"
    assert len(PROPOSALS) > 5


def test_commands_that_texts_name_have_their_flags() -> None:
    for path in modules():
        for text in texts(path):
            check_others(text)


@pytest.mark.parametrize(
    "module", sorted({module for module, _ in COMMANDS.values()} - {"programs"})
)
def test_messages_of_a_command_name_flags_of_its_module(module: str) -> None:
    names = [name for name, (where, _) in COMMANDS.items() if where == module]
    known = frozenset[str]().union(*(flags(each) for name in names for each in verbs(name)))
    named = {
        flag
        for text in texts(ROOT / f"cli/{module}.py")
        for flag in FLAG.findall(check_others(text))
    }
    assert named <= known
