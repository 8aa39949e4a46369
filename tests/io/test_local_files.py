"""Local copies of files of another storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakecore.io.local_files import (
    array_start,
    line_of_row,
    local_files,
    undecodable,
    uneven_line,
)
from lakecore.io.stores.store import MemoryStore


@pytest.mark.parametrize(
    ("name", "ending"), [("a.csv", "csv"), ("a.csv.gz", "gz"), ("gz", "copy"), ("a.", "copy")]
)
def test_copy_has_the_ending_of_its_file(name: str, ending: str) -> None:
    store = MemoryStore()
    store.put(f"d.x/{name}", b"data")

    with local_files(store, [f"d.x/{name}"]) as (path,):
        assert path.rpartition(".")[2] == ending
        assert Path(path).read_bytes() == b"data"
    assert not Path(path).exists()


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b' [{"a": 1}]', (True, False)),
        (b"\xef\xbb\xbf[1]", (True, True)),
        (b'{"a": 1}', (False, False)),
        (None, (False, False)),
    ],
)
def test_start_of_a_file_says_what_it_holds(
    tmp_path: Path, data: bytes | None, found: tuple[bool, bool]
) -> None:
    path = tmp_path / "a.json"
    if data is not None:
        path.write_bytes(data)

    assert array_start(str(path), path.name) == found


@pytest.mark.parametrize(
    ("text", "delimiter", "found"),
    [
        ("a,b\n1,2\n3\n4", None, (3, 1, 2)),
        ("a;b,c\n1;2\n1;2;3\n", ";", (3, 3, 2)),
        ('a|b|c,d\n"x\ny"|2|3\n4|5\n', None, (4, 2, 3)),
        ("a,b\n1,2\n", None, None),
        ("", None, None),
    ],
)
def test_first_line_of_other_values_is_named(
    text: str, delimiter: str | None, found: tuple[int, int, int] | None, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)

    names = ("line", "values", "values_of_first_line")
    wanted = {} if found is None else dict(zip(names, found, strict=True))
    assert uneven_line(str(path), delimiter) == wanted


@pytest.mark.parametrize("header", [True, False])
def test_row_of_a_csv_file_begins_at_a_line(*, header: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('a;b\n"1\n2";3\n4;5\n')
    lines = [2, 4] if header else [1, 2, 4]

    found = [line_of_row(str(path), row, ";", header=header) for row in range(len(lines) + 1)]
    assert found == [*({"line": line} for line in lines), {}]


def test_byte_that_is_no_utf_8_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"ab\n\xc3\xa9c\xff\n")

    assert undecodable(str(path)) == {"line": 2, "column": 4, "byte": "0xff"}
    path.write_bytes(b"ab\n")
    assert undecodable(str(path)) == undecodable(str(path / "absent")) == {}
