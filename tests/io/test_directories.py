"""Directories that are created and dropped where others act at the same time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from lakecore.format.layout import Layout
from lakecore.io.ambient import seeded
from lakecore.io.directories import create_directory, finish_drop
from lakecore.io.stores.store import MemoryStore
from tests.stores import FailingStore, files_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PLACE = "memory://w/t"
MARK = Layout(root=PLACE).dropped_mark
FILES = {"schema/schema-0": b"s", "snapshot/LATEST": b"1"}


class Before(FailingStore):
    """Does something before the first call of that name."""

    def __init__(self, inner: MemoryStore, name: str, deed: Callable[[], object]) -> None:
        super().__init__(inner)
        self.name, self.deeds = name, [deed]

    @contextmanager
    def call(self, name: str, path: str) -> Iterator[None]:
        if name == self.name and self.deeds:
            self.deeds.pop()()
        with super().call(name, path):
            yield


@pytest.mark.parametrize("renames", [True, False])
def test_directory_has_its_files_and_is_created_once(*, renames: bool) -> None:
    store = MemoryStore(renames_at_once=renames)

    assert create_directory(store, PLACE, FILES, seeded(1))
    assert {path: store.read(path) for path in files_below(store, "memory://w")} == {
        f"{PLACE}/{name}": data for name, data in FILES.items()
    }
    assert not create_directory(store, PLACE, {"other": b""}, seeded(2))
    assert len(files_below(store, "memory://w")) == 2


@pytest.mark.parametrize(
    ("renames", "call", "theirs"),
    [
        (False, "put_if_absent", MARK),
        (False, "put_if_absent", f"{PLACE}/schema/schema-0"),
        (True, "rename_directory", f"{PLACE}/schema/schema-0"),
    ],
)
def test_another_who_creates_the_directory_first_keeps_it(
    renames: bool,  # noqa: FBT001
    call: str,
    theirs: str,
) -> None:
    inner = MemoryStore(renames_at_once=renames)
    store = Before(inner, call, lambda: inner.put(theirs, b"theirs"))

    assert not create_directory(store, PLACE, FILES, seeded(1))
    assert files_below(inner, "memory://w") == [theirs]
    assert inner.read(theirs) == b"theirs"


def test_drop_that_is_finished_leaves_nothing() -> None:
    store = MemoryStore(renames_at_once=False)
    names = ("schema/schema-0", "schema/x", "snapshot/LATEST", "bucket-0/f", "README", ".hidden")
    for name in names:
        store.put(f"{PLACE}/{name}", b"")
    store.put(f"{PLACE}2/schema/schema-0", b"")

    assert not finish_drop(store, PLACE)
    assert len(files_below(store, PLACE)) == len(names)
    store.put(MARK, b"")
    watched = FailingStore(store)
    assert finish_drop(watched, PLACE)
    assert files_below(store, "memory://w") == [f"{PLACE}2/schema/schema-0"]
    deleted = [path for name, path in watched.calls if name == "delete"]
    assert deleted[0] == f"{PLACE}/schema/schema-0"
    assert {f"{PLACE}/README", f"{PLACE}/.hidden", f"{PLACE}/schema/x"} <= set(deleted)
    assert deleted[-1] == MARK
