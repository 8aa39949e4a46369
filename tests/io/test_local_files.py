"""Local copies of files of another storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakecore.io.local_files import local_files
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
