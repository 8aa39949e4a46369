"""Names that clients of storage may misread, and buckets that are not there."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import LakecoreError, NotFound
from lakecore.io.stores.open import open_store

if TYPE_CHECKING:
    from tests.services.storage_servers import Lake

FOLDERS = itertools.count()
NAMES = [
    "dt=2024-01-01 10%3A00",
    "a b",
    "plus+and&amp",
    "hash#and?mark",
    "percent%20",
    "brackets[1]",
    "star*",
    "über-日本",
    "quote'and\"",
    "semi;colon,comma",
    "~tilde@at",
    "braces{x}",
]


@pytest.fixture(params=["s3", "gcs", "azure", "hdfs"])
def lake(request: pytest.FixtureRequest) -> Lake:
    found: Lake = request.getfixturevalue(request.param)
    return found


def test_files_of_any_name_are_written_listed_read_and_deleted(lake: Lake) -> None:
    store = open_store(lake.root, lake.options)
    folder = lake.folder(f"names/{next(FOLDERS)}")
    for name in NAMES:
        store.put(f"{folder}/{name}/{name}", name.encode())
        assert store.put_if_absent(f"{folder}/{name}/new", b"")

    listed = [each.path for each in store.list(folder)]
    assert listed == sorted(f"{folder}/{name}" for name in NAMES)
    for name in NAMES:
        path = f"{folder}/{name}/{name}"
        assert store.read(path) == name.encode()
        assert store.open_input(path).read() == name.encode()
        assert [each.path for each in store.list(f"{folder}/{name}")] == sorted(
            [path, f"{folder}/{name}/new"]
        )
        store.delete(path)
        assert not store.exists(path)
    store.delete_directory(f"{folder}/star*")
    assert len(store.list(folder)) == len(NAMES) - 1, "a star is no pattern"
    store.delete_directory(folder)
    assert store.list(folder) == ()


@pytest.mark.parametrize("name", ["gcs", "azure"])
def test_absent_bucket_is_not_found(name: str, request: pytest.FixtureRequest) -> None:
    lake: Lake = request.getfixturevalue(name)
    root = lake.root.replace("://lake", "://no-such-lake")
    store = open_store(root, lake.options)

    assert store.list(f"{root}/w") == ()
    assert not store.exists(f"{root}/w")
    with pytest.raises(NotFound):
        store.read(f"{root}/w/file")
    for write in (store.put, store.put_if_absent):
        with pytest.raises(LakecoreError):
            write(f"{root}/w/file", b"")
