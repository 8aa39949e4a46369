from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.io.json_lines import bad_record, line_of_record

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('{"a": 1}\n\n{"a": [\n2]} {"a": 3}\n{"a": 4}', [1, 3, 4, 5, None]),
        ('[{"a": 1},\n{"a": "}]"},\n\n7]', [1, 2, 4, None]),
        ("", [None]),
    ],
)
def test_record_begins_at_a_line(text: str, lines: list[int | None], tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)

    found = [line_of_record(str(path), row) for row in range(len(lines))]
    assert found == [{} if line is None else {"line": line} for line in lines]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"a": 1}\n[1]', 2),
        ('{"a": 1}\n{"a": 2}', None),
        ("\n{x}", 2),
        ('[{"a": 1},\n{"a": 2}]\n', None),
        ('[{"a": 1},\n7]', 2),
        ('[{"a": 1}\n] 7', 2),
        ('{"a": 1}\n]', 2),
    ],
)
def test_first_record_that_is_no_object_is_found(
    text: str, line: int | None, tmp_path: Path
) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)

    assert bad_record(str(path)) == ({} if line is None else {"line": line})
