from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.io.store import MemoryStore
from tests.stores import FailingStore, StoreFailure, s3_service

if TYPE_CHECKING:
    from lakecore.io.store import Store


def write_everything(store: Store) -> None:
    store.make_directory("t")
    with store.open_output("t/data") as sink:
        sink.write(b"data")
    store.put("t/hint", b"1")
    store.put_if_absent("t/snapshot", b"2")
    store.delete("t/hint")
    store.rename_directory("t", "u")
    store.delete_directory("u")


CALLS = [
    ("make_directory", "t"),
    ("open_output", "t/data"),
    ("close_output", "t/data"),
    ("put", "t/hint"),
    ("put_if_absent", "t/snapshot"),
    ("delete", "t/hint"),
    ("rename_directory", "t"),
    ("delete_directory", "u"),
]

# what is there after each call
STATES: list[dict[str, bytes]] = [
    {},
    {},
    {"t/data": b""},
    {"t/data": b"data"},
    {"t/data": b"data", "t/hint": b"1"},
    {"t/data": b"data", "t/hint": b"1", "t/snapshot": b"2"},
    {"t/data": b"data", "t/snapshot": b"2"},
    {"u/data": b"data", "u/snapshot": b"2"},
    {},
]


def files(store: Store) -> dict[str, bytes]:
    listed = (*store.list("t"), *store.list("u"))
    return {status.path: store.read(status.path) for status in listed}


def test_every_change_is_counted() -> None:
    store = FailingStore(MemoryStore())
    write_everything(store)

    assert store.calls == CALLS
    assert not store.is_dead


@pytest.mark.parametrize("fail_at", range(1, len(CALLS) + 1))
@pytest.mark.parametrize("after", [False, True])
def test_failing_call_has_no_effect_or_all_of_it(fail_at: int, *, after: bool) -> None:
    inner = MemoryStore()
    store = FailingStore(inner, fail_at, after=after)

    with pytest.raises(StoreFailure, match=CALLS[fail_at - 1][0]):
        write_everything(store)

    assert store.calls == CALLS[:fail_at]
    assert files(inner) == STATES[fail_at if after else fail_at - 1]


def test_dead_process_does_nothing_more() -> None:
    inner = MemoryStore()
    inner.put("t/a", b"a")
    store = FailingStore(inner, 1)
    with pytest.raises(StoreFailure):
        store.put("t/b", b"b")

    for call in (store.read, store.exists, store.list, store.delete, store.open_input):
        with pytest.raises(StoreFailure, match="died"):
            call("t/a")
    with pytest.raises(StoreFailure, match="died"):
        store.put_if_absent("t/c", b"")
    with pytest.raises(StoreFailure, match="died"), store.open_output("t/d"):
        pass
    assert files(inner) == {"t/a": b"a"}


def test_death_while_an_output_is_open_leaves_a_torn_file() -> None:
    inner = MemoryStore()
    store = FailingStore(inner, 2)

    def write() -> None:
        with store.open_output("t/data") as sink:
            sink.write(b"data")
            store.put("t/other", b"")

    with pytest.raises(StoreFailure):
        write()

    assert files(inner) == {"t/data": b""}


def test_error_of_the_writer_is_no_death() -> None:
    inner = MemoryStore()
    store = FailingStore(inner)

    def write() -> None:
        with store.open_output("t/data") as sink:
            sink.write(b"data")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()

    assert store.calls == [("open_output", "t/data"), ("remove_output", "t/data")]
    assert files(inner) == {}


def test_s3_service_begins_empty() -> None:
    for _ in range(2):
        with s3_service() as service, service.client() as client:
            assert client.list_buckets()["Buckets"] == []
            client.create_bucket(Bucket="bucket")
