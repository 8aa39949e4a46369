"""Local copies of files of another storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakecore.io.local_files import array_start, local_files
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
