"""Files that descriptors name: which are opened, where, and how many stay open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.format.blob_references import BlobDescriptor
from lakecore.format.layout import Layout
from lakecore.io import referenced_blobs
from lakecore.io.referenced_blobs import ReferencedBlobs, store_of
from lakecore.io.stores.remote import RemoteStore
from lakecore.io.stores.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

TABLE = Layout(root="memory://w/d.db/t")


class Opened(MemoryStore):
    """Keeps the files that were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[pa.NativeFile] = []

    def open_input(self, path: str) -> pa.NativeFile:
        file = super().open_input(path)
        self.files.append(file)
        return file


def test_least_recently_used_files_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(referenced_blobs, "_OPEN_MAX", 2)
    store = Opened()
    for name in "abc":
        store.put(f"{TABLE.root}/{name}", name.encode() * 9)

    def named(name: str) -> bytes:
        return BlobDescriptor(f"{TABLE.root}/{name}", offset=1, length=2).to_bytes()

    with ReferencedBlobs(store, TABLE, {}) as blobs:
        for name in "abacb":
            assert blobs.read(named(name)) == name.encode() * 2
        # c takes the place of b, and the b that comes again that of a.
        assert len(store.files) == 4
        assert [file.closed for file in store.files] == [True, True, False, False]
    assert all(file.closed for file in store.files)


def test_managed_file_is_found_where_the_table_has_moved() -> None:
    store = MemoryStore()
    name = "day=1/bucket-0/f.managed.blob"
    store.put(f"{TABLE.root}/{name}", b"value")
    blobs = ReferencedBlobs(store, TABLE, {})

    for uri in (f"memory://w/d.db/old/{name}", f"{TABLE.root}/{name}"):
        assert blobs.read(BlobDescriptor(uri).to_bytes()) == b"value"
    with pytest.raises(InvalidRequest, match="outside the table"):
        blobs.read(BlobDescriptor("memory://w/d.db/old/day=1/bucket-0/g.managed.blob").to_bytes())
    with pytest.raises(CorruptTable, match="is missing"):
        blobs.read(BlobDescriptor(f"{TABLE.root}/bucket-0/g.managed.blob").to_bytes())


@pytest.mark.parametrize(
    ("path", "root", "options", "own"),
    [
        ("/a/f", "/w/t", {}, True),
        ("s3://b/x/f", "s3://b/w/t", {}, True),
        ("s3://b/x/f", "/w/t", {}, False),
        ("s3://c/f", "s3://b/w/t", {"s3.region": "eu-1"}, False),
        ("s3a://c/f", "s3://b/w/t", {}, None),
    ],
)
def test_storage_of_a_file_is_that_of_the_table_or_one_of_its_own(
    path: str, root: str, options: Mapping[str, str], *, own: bool | None
) -> None:
    store, layout = MemoryStore(), Layout(root=root)
    if own is None:
        with pytest.raises(InvalidRequest, match="another bucket than the table"):
            store_of(path, store, layout, options)
        return
    found = store_of(path, store, layout, options)
    assert (found is store) is own
    assert own or isinstance(found, RemoteStore)
