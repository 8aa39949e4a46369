"""Tags: a tag is there or it is not, names the snapshot that was asked for, and keeps its rows."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lakecore.errors import (
    AlreadyExists,
    CommitConflict,
    CommitUnknown,
    InvalidRequest,
    LakecoreError,
    NotFound,
)
from lakecore.format import metadata
from lakecore.io.ambient import seeded
from lakecore.io.stores.guarded import unguarded
from lakecore.io.stores.store import MemoryStore
from lakecore.model.retention import TagDeletion
from tests.stores import FailingStore, StoreFailure
from tests.tables import held, in_directory, new_table, put, reopened

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.io.stores.store import Store
    from lakecore.table.handle import Table


def table_with(snapshots: int = 3, **options: Any) -> Table:
    """A table with that many snapshots, a second apart; the n-th adds the row `n n`."""
    ambient = seeded(7)
    table = new_table(ambient=ambient, store=MemoryStore(ambient), **options)
    for number in range(1, snapshots + 1):
        put(table, f"{number} {number}")
        ambient.sleep(1.0)
    return table


def expire(table: Table, *snapshots: int) -> None:
    """Let snapshots go, as another engine does; their files stay, as a tag would keep them."""
    for number in snapshots:
        table.context.store.delete(table.context.layout.snapshot(number))
    table.context.store.put(table.context.layout.earliest_hint, str(max(snapshots) + 1).encode())


def test_tag_names_the_latest_snapshot() -> None:
    table = table_with(2)

    tag = table.create_tag("a")

    assert (tag.name, tag.snapshot_id, tag.create_time, tag.retained_seconds) == (
        "a",
        2,
        None,
        None,
    )
    assert repr(tag) == "Tag('a', snapshot_id=2)"
    put(table, "3 3")
    assert table.scan(tag="a").collect().height == 2
    assert reopened(table).tags() == (tag,)


def test_tag_without_a_time_has_the_bytes_of_its_snapshot() -> None:
    table = table_with()
    table.create_tag("a", snapshot_id=2)
    layout, store = table.context.layout, table.context.store

    assert store.read(layout.tag("a")) == store.read(layout.snapshot(2))


@pytest.mark.parametrize("given", ["1 d", timedelta(days=1)])
def test_tag_with_a_time_says_when_it_was_made_and_how_long_it_stays(
    given: str | timedelta,
) -> None:
    table = table_with(1)

    tag = table.create_tag("a", time_retained=given)

    assert tag.retained_seconds == 86_400
    assert tag.create_time == (2023, 11, 14, 22, 13, 21, 0)
    stored = json.loads(table.context.store.read(table.context.layout.tag("a")))
    assert stored["tagCreateTime"] == [*tag.create_time]
    assert stored["tagTimeRetained"] == 86_400
    assert table.tags() == (tag,)


def test_default_time_holds_for_new_tags_but_not_for_replaced_ones() -> None:
    table = table_with(1, tag__default_time_retained="2 h")

    assert table.create_tag("a").retained_seconds == 7_200
    assert table.create_tag("b", time_retained="1 h").retained_seconds == 3_600
    assert table.replace_tag("a").retained_seconds is None


def test_tag_of_a_time_names_the_first_snapshot_since() -> None:
    table = table_with(3)
    times = [table.context.history.snapshot(number).time_ms for number in (1, 2, 3)]

    assert table.create_tag("a", timestamp=0).snapshot_id == 1
    assert table.create_tag("b", timestamp=times[1]).snapshot_id == 2
    assert table.create_tag("c", timestamp=times[1] + 1).snapshot_id == 3
    with pytest.raises(NotFound, match=r"at or after this time.* latest="):
        table.create_tag("d", timestamp=times[2] + 1)


def test_expired_snapshot_is_tagged_if_another_tag_keeps_it() -> None:
    table = table_with(3)
    first = table.create_tag("first", snapshot_id=1)
    expire(table, 1, 2)

    assert table.create_tag("again", snapshot_id=1).snapshot == first.snapshot
    assert table.create_tag("then", timestamp=0).snapshot_id == 1
    with pytest.raises(NotFound, match=r"does not exist or has expired.*live=3\.\.3"):
        table.create_tag("gone", snapshot_id=2)


def test_table_without_a_snapshot_cannot_be_tagged() -> None:
    with pytest.raises(NotFound, match="no snapshot to tag"):
        new_table().create_tag("a")


def test_tag_that_exists_is_not_made_again() -> None:
    table = table_with(2)
    table.create_tag("a", snapshot_id=1)

    with pytest.raises(AlreadyExists, match="tag=a"):
        table.create_tag("a")
    assert [tag.snapshot_id for tag in table.tags()] == [1]


def test_replaced_tag_names_another_snapshot() -> None:
    table = table_with(3)
    table.create_tag("a", snapshot_id=1)

    assert table.replace_tag("a", snapshot_id=2).snapshot_id == 2
    assert table.replace_tag("a", time_retained="1 d").retained_seconds == 86_400
    assert [tag.snapshot_id for tag in table.tags()] == [3]
    with pytest.raises(NotFound, match=r"no such tag.* tags=\[a\]"):
        table.replace_tag("b")


def test_renamed_tag_keeps_what_it_says() -> None:
    table = table_with(2)
    table.create_tag("a", time_retained="1 d")
    table.create_tag("b")

    renamed = table.rename_tag("a", "c")

    assert renamed.name == "c"
    assert renamed.retained_seconds == 86_400
    assert [tag.name for tag in table.tags()] == ["b", "c"]
    with pytest.raises(AlreadyExists, match="tag=b"):
        table.rename_tag("c", "b")
    with pytest.raises(NotFound, match="no such tag"):
        table.rename_tag("a", "d")


def test_deleted_tag_is_gone_and_a_dry_run_leaves_it() -> None:
    table = table_with(2)
    table.create_tag("a", snapshot_id=1)

    assert table.delete_tag("a", dry_run=True) == TagDeletion(name="a", snapshot_id=1, dry_run=True)
    assert table.delete_tag("a") == TagDeletion(name="a", snapshot_id=1)
    assert table.tags() == ()
    with pytest.raises(NotFound, match="no such tag"):
        table.delete_tag("a")
    assert held(table) == "1 1 | 2 2"


@pytest.mark.parametrize("verb", ["create_tag", "delete_tag", "replace_tag"])
@pytest.mark.parametrize("name", ["", " \t", "a/b", "x" * 300, "\n", "success-file", 7, None])
def test_name_that_is_none_is_refused(verb: str, name: object) -> None:
    table = table_with(1)

    with pytest.raises(InvalidRequest, match="name"):
        getattr(table, verb)(name)
    with pytest.raises(InvalidRequest, match="name"):
        table.rename_tag("a", name)  # type: ignore[arg-type]
    assert table.tags() == ()


@pytest.mark.parametrize("name", ["20240101", "2024-01-01 10", "..", "é", "a.b"])
def test_names_that_paimon_takes_are_taken(name: str) -> None:
    table = table_with(1)
    table.create_tag(name)

    assert [tag.name for tag in reopened(table).tags()] == [name]
    assert table.scan(tag=name).collect().height == 1


@pytest.mark.parametrize("given", ["soon", "-1 d", timedelta(seconds=-1), 3, True])
def test_time_that_is_no_duration_is_refused(given: Any) -> None:
    table = table_with(1)

    with pytest.raises(InvalidRequest, match="time_retained"):
        table.create_tag("a", time_retained=given)
    assert table.tags() == ()


def test_snapshot_is_named_in_one_way() -> None:
    with pytest.raises(InvalidRequest, match="in one way only"):
        table_with(1).create_tag("a", snapshot_id=1, timestamp=0)


def test_success_file_follows_its_tag() -> None:
    table = table_with(2, tag__create_success_file="true")
    table.create_tag("a")
    layout, store = table.context.layout, table.context.store
    made = json.loads(store.read(layout.tag_success("a")))

    assert made["creationTime"] == made["modificationTime"]
    assert in_directory(table, "tag") == {"tag-a", "tag-success-file"}
    assert [tag.name for tag in table.tags()] == ["a"]
    assert table.inspect.tags().height == 1
    table.delete_tag("a")
    assert in_directory(table, "tag/tag-success-file") == set()


def test_name_of_an_automatic_tag_is_given_to_a_snapshot_once() -> None:
    table = table_with(2, tag__automatic_creation="watermark")
    table.create_tag("2024-01-01", snapshot_id=1)

    with pytest.raises(InvalidRequest, match="automatic_tag=2024-01-01"):
        table.create_tag("2024-01-02", snapshot_id=1)
    table.create_tag("by-hand", snapshot_id=1)
    table.create_tag("2024-01-02", snapshot_id=2)
    assert table.replace_tag("2024-01-02", snapshot_id=2).snapshot_id == 2


def test_dropped_table_is_not_tagged() -> None:
    table = table_with(1)
    unguarded(table.context.store).delete_directory(table.path)

    for verb in (table.create_tag, table.delete_tag, table.replace_tag):
        with pytest.raises(NotFound, match="not there any more"):
            verb("a")
    assert table.context.store.list(table.path) == ()


def test_snapshot_that_expires_while_it_is_tagged_leaves_no_tag() -> None:
    table = table_with(2)

    class Expiring(MemoryStore):
        """Loses the first snapshot as soon as the tag is announced."""

        def put(self, path: str, data: bytes) -> None:
            super().put(path, data)
            if "/tag/" in path:
                self.delete(table.context.layout.snapshot(1))

    store = Expiring()
    store._files = table.context.store._files  # type: ignore[attr-defined]  # noqa: SLF001
    slow = reopened(table, store=store)

    with pytest.raises(NotFound, match="expired during the call"):
        slow.create_tag("a", snapshot_id=1)
    assert slow.tags() == ()
    assert store.list(table.context.layout.tag_dir) == ()


# --- crashes --------------------------------------------------------------------------------------

DEEDS: dict[str, tuple[Callable[[Table], object], dict[str, int], dict[str, int]]] = {
    "create": (lambda table: table.create_tag("c"), {"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}),
    "replace": (lambda table: table.replace_tag("a"), {"a": 1, "b": 2}, {"a": 3, "b": 2}),
    "rename": (lambda table: table.rename_tag("a", "c"), {"a": 1, "b": 2}, {"c": 1, "b": 2}),
    "delete": (lambda table: table.delete_tag("a"), {"a": 1, "b": 2}, {"b": 2}),
}


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
@pytest.mark.parametrize("verb", [*DEEDS])
def test_crash_at_any_store_call_leaves_whole_tags(verb: str, *, after: bool) -> None:
    deed, before, done = DEEDS[verb]
    half = before | done if verb == "rename" else before
    call = 0
    seen: list[Exception | None] = []
    while not seen or seen[-1] is not None:
        call += 1
        table = table_with(3, tag__create_success_file="true")
        table.create_tag("a", snapshot_id=1)
        table.create_tag("b", snapshot_id=2)
        failing = FailingStore(table.context.store, fail_at=call, after=after)
        seen.append(_tried(deed, reopened(table, store=failing)))
        there = reopened(table)
        tags = {tag.name: tag.snapshot_id for tag in there.tags()}

        assert tags in (before, half, done)
        assert held(there) == "1 1 | 2 2 | 3 3"
        for name, rows in tags.items():
            assert there.scan(tag=name).collect().height == rows
    assert tags == done
    assert call > 1


def _tried(deed: Callable[[Table], object], table: Table) -> Exception | None:
    try:
        deed(table)
    except (LakecoreError, StoreFailure) as error:
        return error
    return None


def test_lost_reply_of_a_tag_that_was_made_is_no_failure() -> None:
    table = table_with(1)

    class Silent(MemoryStore):
        """Creates the file, and cannot say so."""

        def put_if_absent(self, path: str, data: bytes) -> bool:
            super().put_if_absent(path, data)
            raise CommitUnknown("the reply was lost", path=path)

    store = Silent()
    store._files = table.context.store._files  # type: ignore[attr-defined]  # noqa: SLF001
    unsure: Store = store

    tag = reopened(table, store=unsure).create_tag("a")

    assert reopened(table).tags() == (tag,)
    assert metadata.encode_tag(tag)


def test_replaced_tag_comes_back_if_a_rollback_takes_its_new_snapshot() -> None:
    table = table_with(4)
    table.create_tag("t", 1)
    other = reopened(table)

    class Meddled(FailingStore):
        gone = False

        def put(self, path: str, data: bytes) -> None:
            if path.endswith("/tag-t") and not self.gone:
                self.gone = True
                other.rollback_to(2)
            super().put(path, data)

    with pytest.raises(CommitConflict, match="rolled back"):
        reopened(table, store=Meddled(table.context.store)).replace_tag("t", 4)
    assert table.context.history.tag("t").snapshot.id == 1
