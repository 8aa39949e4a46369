"""The statements of `cases/*.test`, each file on a warehouse of its own.

A case is a block of lines. Its first line says what follows:

- `ok`: the statement succeeds; `-- source: URL` above it names the page that shows it;
- `rows`: after `----`, the rows, with ` | ` between the values; `rows sorted` compares sorted rows;
- `error TEXT`: the statement raises an error of lakecore whose message holds the text, or one of
  several, between which stands ` || `: versions of DuckDB name causes differently.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lakecore as lc

if TYPE_CHECKING:
    from collections.abc import Iterator

CASES = Path(__file__).parent / "cases"
FILES = sorted(CASES.glob("*.test"))


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_each_statement_gives_what_its_case_says(file: Path, tmp_path: Path) -> None:
    catalog = lc.connect(tmp_path / "warehouse", create=True)
    for line, kind, statement, expected in blocks(file.read_text()):
        place = f"{file.name}:{line}: {statement}"
        text = statement.replace("${dir}", str(tmp_path))
        if kind.startswith("error"):
            with pytest.raises(lc.LakecoreError) as caught:
                catalog.sql(text).fetchall()
            texts = kind.removeprefix("error").split(" || ")
            assert any(each.strip() in str(caught.value) for each in texts), place
            continue
        try:
            relation = catalog.sql(text)
            found = [" | ".join(map(str, row)) for row in relation.fetchall()]
            rows = [row.replace(str(tmp_path), "${dir}") for row in found]
        except lc.LakecoreError as error:
            pytest.fail(f"{place}\n{error}")
        if kind.startswith("rows"):
            if "sorted" in kind:
                rows.sort()
            assert "\n".join(rows) == "\n".join(expected), place


def blocks(text: str) -> Iterator[tuple[int, str, str, list[str]]]:
    """Line number, kind, statement and expected rows of each case of a file."""
    lines = text.splitlines()
    place = 0
    while place < len(lines):
        if not lines[place].strip() or lines[place].startswith("--"):
            place += 1
            continue
        start = place
        block = []
        while place < len(lines) and lines[place].strip():
            block.append(lines[place])
            place += 1
        kind, *body = block
        assert kind.split()[0] in {"ok", "rows", "error"}, f"line {start + 1}: {kind}"
        cut = body.index("----") if "----" in body else len(body)
        yield start + 1, kind, "\n".join(body[:cut]), body[cut + 1 :]


def test_there_are_cases() -> None:
    count = sum(1 for file in FILES for _ in blocks(file.read_text()))
    assert count >= 400
