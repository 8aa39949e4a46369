"""The bits of deletion vectors: read once, and again if the index file changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import CorruptTable
from lakecore.io.stores.guarded import unguarded
from lakecore.io.stores.local import LocalStore
from lakecore.table.file_reader.split_files import SplitFiles
from tests.table.splits.test_read import source_of
from tests.tables import new_table

if TYPE_CHECKING:
    from lakecore.io.stores.store import Store


def marked(
    store: Store | None, path: str, monkeypatch: pytest.MonkeyPatch, file_count: int = 1
) -> tuple[SplitFiles, list[str]]:
    """The files of a table, each with the rows 0 to 19, and what is read from now on.

    Every third row is marked.
    """
    table = new_table(
        {"id": "INT"},
        keys=[],
        store=store,
        path=path,
        bucket="-1",
        deletion_vectors__enabled="true",
    )
    for _ in range(file_count):
        table.write([{"id": number} for number in range(20)])
    table.delete("id % 3 = 0")
    own = unguarded(table.context.store)
    found: list[str] = []
    read = own.read

    def noted(name: str) -> bytes:
        found.append(name)
        return read(name)

    monkeypatch.setattr(type(own), "read", lambda _store, name: noted(name))
    source = source_of(table)
    (split,) = source.plan().splits
    files = SplitFiles(split, source.read_plan([split], None), own)
    found.clear()  # planning reads the schema, unless it is cached
    return files, found


def again(files: SplitFiles) -> SplitFiles:
    """The same files, opened by another reader."""
    return SplitFiles(files.split, files.plan, files.store)


def test_bits_of_a_local_file_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, read = marked(LocalStore(), str(tmp_path / "t"), monkeypatch)
    (file,) = files.split.files
    expected = [number % 3 == 0 for number in range(20)]
    for _ in range(3):
        mask = again(files).mask(file)
        assert mask is not None
        assert mask.flags.tolist() == [not each for each in expected]
    assert len(read) == 1


def test_a_file_that_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, read = marked(LocalStore(), str(tmp_path / "t"), monkeypatch)
    (file,) = files.split.files
    assert files.mask(file)
    place = Path(read[0].removeprefix("file:"))
    whole = place.read_bytes()
    os.truncate(place, len(whole) - 4)
    with pytest.raises(CorruptTable):
        again(files).mask(file)
    place.unlink()
    with pytest.raises(CorruptTable, match="missing"):
        again(files).mask(file)


def test_bits_of_another_store_are_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    files, read = marked(None, "memory://warehouse/shop.db/marked", monkeypatch)
    (file,) = files.split.files
    for _ in range(2):
        assert again(files).mask(file)
    assert len(read) == 2


def test_a_reader_reads_the_index_of_several_files_once(monkeypatch: pytest.MonkeyPatch) -> None:
    files, read = marked(None, "memory://warehouse/shop.db/several", monkeypatch, file_count=3)
    masks = [files.mask(file) for file in files.split.files]

    assert [mask and mask.count for mask in masks] == [13, 13, 13]
    assert len(read) == 1


def test_a_file_without_a_vector_has_no_bits(tmp_path: Path) -> None:
    table = new_table({"id": "INT"}, keys=[], store=LocalStore(), path=str(tmp_path / "t"))
    table.write([{"id": 1}])
    source = source_of(table)
    (split,) = source.plan().splits
    files = SplitFiles(split, source.read_plan([split], None), table.context.store)

    assert files.mask(split.files[0]) is None
