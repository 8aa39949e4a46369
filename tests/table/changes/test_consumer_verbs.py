"""Consumers as a user sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, NotFound
from lakecore.io.stores.guarded import unguarded
from tests.stores import FailingStore, StoreFailure
from tests.tables import new_table, put, reopened

if TYPE_CHECKING:
    from collections.abc import Callable


class OnConsumers(FailingStore):
    """Calls `before` before a consumer's file changes, and may lose the replies of the changes."""

    def __init__(
        self, table: lc.Table, before: Callable[[], object] = int, *, loses: bool = False
    ) -> None:
        super().__init__(table.context.store)
        self.before = before
        self.loses = loses

    def put(self, path: str, data: bytes) -> None:
        self._at(path)
        super().put(path, data)
        self._lose(path)

    def delete(self, path: str) -> None:
        self._at(path)
        super().delete(path)
        self._lose(path)

    def _at(self, path: str) -> None:
        if "/consumer-" in path:
            before, self.before = self.before, int
            before()

    def _lose(self, path: str) -> None:
        if self.loses and "/consumer-" in path:
            raise StoreFailure(path)


def table_with(*names: str, **options: Any) -> lc.Table:
    table = new_table(**options)
    for line in ("1 a", "2 b", "3 c"):
        put(table, line)
    for name in names:
        table.reset_consumer(name, 2)
    return table


def test_consumers_are_listed_with_their_next_snapshot() -> None:
    table = table_with("b", "a")

    assert [(each.consumer_id, each.next_snapshot) for each in table.consumers()] == [
        ("a", 2),
        ("b", 2),
    ]
    assert isinstance(table.consumers()[0], lc.Consumer)
    assert table_with().consumers() == ()


def test_consumer_goes_on_where_it_is_set() -> None:
    table = table_with("a")
    table.reset_consumer("a", 3)

    assert [number for number, _ in table.stream(until="latest", consumer_id="a")] == [3]
    table.reset_consumer("a", 4)
    assert list(table.stream(until="latest", consumer_id="a")) == []


def test_consumer_is_deleted_without_a_next_snapshot() -> None:
    table = table_with("a", "b")
    table.reset_consumer("a")

    assert [each.consumer_id for each in table.consumers()] == ["b"]
    with pytest.raises(NotFound, match=r"no such consumer.* consumer_id=a consumers=\[b\]"):
        table.reset_consumer("a")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("a", 5), NotFound, r"next_snapshot=5 earliest=1 latest=3"),
        (("a", 0), NotFound, r"next_snapshot=0 earliest=1 latest=3"),
        (("a", True), InvalidRequest, "must be a snapshot id"),
        (("a", "2"), InvalidRequest, "must be a snapshot id"),
        (("a/b", 2), InvalidRequest, "leads out of its directory"),
        (("", 2), InvalidRequest, "not blank"),
    ],
)
def test_wrong_positions_and_names_are_refused(
    arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    table = table_with("a")

    with pytest.raises(error, match=message):
        table.reset_consumer(*arguments)
    assert [each.next_snapshot for each in table.consumers()] == [2]


def test_consumer_of_a_table_without_snapshots_waits_for_the_first() -> None:
    table = new_table()
    table.reset_consumer("a", 1)
    put(table, "1 a")

    assert [number for number, _ in table.stream(until="latest", consumer_id="a")] == [1]
    with pytest.raises(NotFound, match="earliest=1 latest=0"):
        new_table().reset_consumer("a", 2)


def test_snapshot_of_which_the_changelog_is_left_can_be_next() -> None:
    table = table_with("a")
    store, layout = table.context.store, table.context.layout
    store.put(layout.changelog(1), store.read(layout.snapshot(1)))
    store.delete(layout.snapshot(1))

    table.reset_consumer("a", 1)
    assert [number for number, _ in table.stream(until="latest", consumer_id="a")] == [1, 2, 3]


def test_consumers_are_cleared_by_pattern() -> None:
    table = table_with("job-1", "job-2", "other")

    assert table.clear_consumers("job-.*", "job-2", dry_run=True) == ("job-1",)
    assert len(table.consumers()) == 3
    assert table.clear_consumers("job-.*", "job-2") == ("job-1",)
    assert table.clear_consumers() == ("job-2", "other")
    assert table.consumers() == ()


def test_consumers_of_a_dropped_table_are_not_there() -> None:
    table = table_with("a")
    other = reopened(table)
    unguarded(table.context.store).delete_directory(table.path)

    for verb in (other.consumers, other.clear_consumers, lambda: other.reset_consumer("a", 1)):
        with pytest.raises(NotFound, match="not there any more"):
            verb()


def test_a_lost_reply_is_no_failure() -> None:
    table = table_with("a")
    seen = reopened(table, store=OnConsumers(table, loses=True))

    seen.reset_consumer("b", 3)
    assert [each.next_snapshot for each in table.consumers()] == [2, 3]
    seen.reset_consumer("a")
    assert [each.consumer_id for each in table.consumers()] == ["b"]


@pytest.mark.parametrize("names", [[], ["a"]])
def test_a_snapshot_that_expires_during_the_call_is_refused(names: list[str]) -> None:
    table = table_with()
    for name in names:
        table.reset_consumer(name, 4)

    def expire() -> None:
        table.expire_snapshots(retain_max=1, retain_min=1, older_than="2100-01-01")

    seen = reopened(table, store=OnConsumers(table, expire))
    with pytest.raises(NotFound, match="has expired"):
        seen.reset_consumer("a", 2)
    assert [each.next_snapshot for each in table.consumers()] == [4] * len(names)
