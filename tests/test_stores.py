from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.io.stores.store import MemoryStore
from tests.stores import FailingStore, StoreFailure, s3_service

if TYPE_CHECKING:
    from lakecore.io.stores.store import Store


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
    ("delete", "u/snapshot"),
    ("delete", "u/data"),
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
    {"u/data": b"data"},
    {},
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
    state, undone = STATES[fail_at if after else fail_at - 1], files(inner)
    assert state.items() <= undone.items()
    # The deletions of a directory are no sooner on the disk than something else is put into it.
    lost = (
        {"u/data": b"data", "u/snapshot": b"2"} if fail_at > 8 or (after and fail_at == 8) else {}
    )
    renamed = fail_at > 7 or (after and fail_at == 7)
    hint = {"u/hint" if renamed else "t/hint": b"1"}
    assert undone.items() <= {**state, **lost, **hint}.items()


def test_deletions_that_were_not_synced_may_come_back_and_synced_ones_do_not() -> None:
    def left(*, synced: bool, seed: int) -> int:
        inner = MemoryStore()
        for number in range(20):
            inner.put(f"t/{number}", b"")
        store = FailingStore(inner, 21 + synced, seed=seed)
        for number in range(20):
            store.delete(f"t/{number}")
        if synced:
            store.put("t/other", b"")
        with pytest.raises(StoreFailure):
            store.put("elsewhere/x", b"")
        return len(inner.list("t"))

    assert {left(synced=True, seed=seed) for seed in range(5)} == {1}
    assert 1 < left(synced=False, seed=1) < 20
    assert len({left(synced=False, seed=seed) for seed in range(5)}) > 1


@pytest.mark.parametrize("call", ["rename_directory", "copy_directory", "delete_directory"])
def test_directory_operation_of_an_object_store_is_torn(call: str) -> None:
    torn = set()
    for seed in range(4):
        inner = MemoryStore(renames_at_once=False)
        for name in "abcd":
            inner.put(f"t/x/{name}", b"")
        store = FailingStore(inner, 3, seed=seed)
        with pytest.raises(StoreFailure):
            getattr(store, call)(*(["t"] if call == "delete_directory" else ["t", "u"]))
        left = (len(inner.list("t/x")), len(inner.list("u/x")))
        assert left == ((2, 0) if call == "delete_directory" else (4, 2))
        torn.add(tuple(each.path for each in (*inner.list("t/x"), *inner.list("u/x"))))
    assert len(torn) > 1, "the order is drawn"


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
