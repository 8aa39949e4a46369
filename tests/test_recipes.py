"""What docs/recipes.md claims beyond its blocks."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard

import lakecore as lc
from lakecore.cli import main

OPENING, *RECIPES = re.split(
    r"^## ", (Path(__file__).parents[1] / "docs/recipes.md").read_text(), flags=re.MULTILINE
)

_FRAME = re.escape(b"\x28\xb5\x2f\xfd")  # how a Zstandard frame begins


def files_with(root: Path, word: str) -> set[str]:
    """The kinds of files (data, manifest, ...) that hold a word, decompressed."""
    found = set()
    for path in root.rglob("*"):
        if path.suffix == ".parquet":
            held = word in repr(pl.read_parquet(path).rows())
        else:
            held = path.is_file() and word.encode() in _plain(path.read_bytes())
        if held:
            found.add(path.name.partition("-")[0])
    return found


def _plain(data: bytes) -> bytes:
    """The bytes of a file, and those of each Zstandard frame in it."""
    starts = [frame.start() for frame in re.finditer(_FRAME, data)]
    frames = (zstandard.ZstdDecompressor().decompressobj().decompress(data[at:]) for at in starts)
    return b"".join([data, *frames])


def blocks_of(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run_commands(text: str) -> None:
    for command in re.findall(r"^\$ lakecore (.*)$", text, re.MULTILINE):
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(command))
        assert ended.value.code == 0, command


@pytest.mark.parametrize("in_terminal", [False, True])
def test_a_person_that_is_deleted_by_the_recipe_is_in_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_terminal: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (recipe,) = [each for each in RECIPES if each.startswith("Delete a person")]
    names: dict[str, Any] = {}
    opening, deletion, steps = [*blocks_of(OPENING), *blocks_of(recipe)]
    for block in (opening, deletion):
        exec(block, names)  # noqa: S102 - ours
    people = names["people"]
    people.create_tag("monthly", snapshot_id=1)
    people.create_branch("trial", "monthly")
    people.reset_consumer("reader", 1)
    assert files_with(tmp_path, "Cleopatra") >= {"data", "manifest"}

    if in_terminal:
        people.delete_branch("trial")
        people.delete_tag("monthly")
        run_commands(recipe)
    else:
        exec(steps, names)  # noqa: S102 - ours

    assert files_with(tmp_path, "Cleopatra") == set()
    assert people.to_polars().rows() == [(1, "Ada")]


@pytest.mark.parametrize("in_terminal", [False, True])
def test_a_backup_by_the_recipe_holds_the_tag_and_the_branches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_terminal: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (recipe,) = [each for each in RECIPES if each.startswith("Back up")]
    names: dict[str, Any] = {}
    exec(blocks_of(OPENING)[0], names)  # noqa: S102 - ours
    names["orders"].create_tag("monthly", snapshot_id=1)
    names["orders"].create_branch("trial", "monthly")

    if in_terminal:
        (script,) = re.findall(r"^```text\n(.*?)^```$", recipe, re.MULTILINE | re.DOTALL)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(["/bin/sh", "-ec", script], check=True, env={**os.environ, "PATH": path})
    else:
        exec(blocks_of(recipe)[0], names)  # noqa: S102 - ours

    copy = lc.open_table("copy")
    assert [tag.name for tag in copy.tags()] == ["monthly"]
    assert (copy.count(), copy.branch("trial").count()) == (2, 2)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.partition("\n")[0])
def test_a_recipe_runs_alone_after_the_opening_lines(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = OPENING + recipe
    code = "\n".join(blocks_of(text))
    exec(compile(code, "recipes.md", "exec"), {})  # noqa: S102 - ours
    if not Path("warehouse/shop.db/items").exists():
        lc.open_table("warehouse/shop.db/items", create=True, schema={"id": "INT"})
    run_commands(text)
