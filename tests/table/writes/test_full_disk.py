"""A write that certainly failed leaves none of its files, whichever store call had no space."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakecore.catalog.catalog import Catalog
from lakecore.catalog.filesystem import DirectoryNames
from lakecore.catalog.options import parse_catalog_options
from lakecore.errors import LakecoreError, StorageError
from lakecore.io.ambient import seeded
from lakecore.io.stores.store import MemoryStore
from lakecore.table.handle import Table
from tests.stores import FailingStore, files_below
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

PATH = "w/t"


class FullDisk(FailingStore):
    """A disk on which the k-th call that writes, and all after it, find no space."""

    def __init__(self, inner: MemoryStore, full_at: int) -> None:
        super().__init__(inner)
        self.left = full_at

    def _need(self, path: str) -> None:
        self.left -= 1
        if self.left <= 0:
            raise StorageError("the storage refused", path=path, reason="No space left on device")

    def put(self, path: str, data: bytes) -> None:
        self._need(path)
        super().put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._need(path)
        return super().put_if_absent(path, data)

    @contextmanager
    def open_output(self, path: str) -> Iterator[pa.NativeFile]:
        self._need(path)
        with self.inner.open_output(path) as sink:
            yield sink
            self._need(path)


DEEDS: dict[str, Callable[[Table], object]] = {
    "write": lambda table: table.write([{"id": 5, "v": "x"}, {"id": 6, "v": "y"}]),
    "overwrite": lambda table: table.overwrite([{"id": 5, "v": "x"}]),
    "delete": lambda table: table.delete("id = 1"),
    "update": lambda table: table.update({"v": "z"}, "id = 1"),
    "merge": lambda table: (
        table.merge([{"id": 1, "v": "m"}], on=["id"]).when_matched_update_all().execute()
    ),
    "compact": lambda table: table.compact(full=True),
}


@pytest.mark.parametrize("keys", [["id"], []], ids=["keyed", "append"])
@pytest.mark.parametrize("deed", [*DEEDS])
def test_full_disk_leaves_no_file_of_a_write_that_failed(deed: str, keys: list[str]) -> None:
    call, failures = 0, 0
    while True:
        call += 1
        store = MemoryStore()
        table = new_table(keys=keys, store=store, path=PATH, bucket="1" if keys else "-1")
        for number in range(3):
            table.write([{"id": number, "v": "a"}])
        before = set(files_below(store, PATH))
        full = FullDisk(store, call)
        try:
            DEEDS[deed](Table(replace(table.context, store=full)))
        except LakecoreError:
            assert set(files_below(store, PATH)) == before, f"call {call}"
            failures += 1
        else:
            if full.left > 0:
                break
    assert failures > 2


VERBS: dict[str, Callable[[Table], object]] = {
    "create_tag": lambda table: table.create_tag("new"),
    "rename_tag": lambda table: table.rename_tag("old", "new"),
    "delete_tag": lambda table: table.delete_tag("old"),
    "create_branch": lambda table: table.create_branch("new", tag="old"),
    "rename_branch": lambda table: table.rename_branch("b", "c"),
    "delete_branch": lambda table: table.delete_branch("b"),
    "fast_forward": lambda table: table.fast_forward("b"),
    "rollback": lambda table: table.rollback_to(2),
    "rollback to a tag": lambda table: table.rollback_to(tag="old"),
    "expire": lambda table: table.expire_snapshots(retain_max=1, retain_min=1),
    "reset_consumer": lambda table: table.reset_consumer("c", 2),
}


@pytest.mark.parametrize("verb", [*VERBS])
def test_a_verb_on_a_full_disk_names_the_file_and_the_reason_and_its_repeat_succeeds(
    verb: str,
) -> None:
    call = 0
    while True:
        call += 1
        store = MemoryStore()
        table = new_table(keys=["id"], store=store, path=PATH, bucket="1")
        for number in range(3):
            table.write([{"id": number, "v": "a"}])
        table.create_tag("old", 1)
        table.create_branch("b", tag="old")
        full = FullDisk(store, call)
        failed: StorageError | None = None
        try:
            VERBS[verb](Table(replace(table.context, store=full)))
        except StorageError as error:
            failed = error
        if failed is not None:
            assert failed.facts["reason"] == "No space left on device"
            assert PATH in str(failed.facts["path"])
            VERBS[verb](table)
        if full.left > 0:
            break


def test_a_table_whose_first_rows_had_no_space_is_whole_or_said_to_be_empty() -> None:
    options = parse_catalog_options({"warehouse": "w"})
    outcomes: list[str] = []
    while not outcomes or outcomes[-1] != "made":
        store = MemoryStore()
        store.make_directory("w/d.db")
        full = FullDisk(store, len(outcomes) + 1)
        catalog = Catalog(DirectoryNames("w", full, options, seeded(1)))
        failed: StorageError | None = None
        try:
            catalog.create_table("d.t", {"id": "INT"}, data=[{"id": 1}])
        except StorageError as error:
            failed = error
        says_so = failed is not None and "none of these rows is in it" in str(failed)
        assert says_so == (failed is not None and catalog.table_exists("d.t"))
        outcomes.append("made" if failed is None else "empty" if says_so else "none")

    assert {*outcomes} == {"none", "empty", "made"}
    assert catalog.get_table("d.t").count() == 1
