"""The files of consumers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.io.ambient import seeded
from lakecore.io.stores.local import LocalStore
from lakecore.io.stores.store import MemoryStore
from lakecore.model.snapshot import Consumer
from lakecore.table.maintenance.consumers import (
    clear_consumers,
    delete_consumer,
    expire_consumers,
    list_consumers,
    read_consumer,
    write_consumer,
)
from tests.tables import new_table

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.table.context import TableContext

START_MS = 1_700_000_000_000


def table_with(consumers: dict[str, int], **options: Any) -> TableContext:
    context = new_table(**options).context
    for name, number in consumers.items():
        write_consumer(context, name, number)
    return context


def test_consumer_is_one_file_that_java_reads() -> None:
    context = table_with({"job": 7})

    assert context.store.read(f"{context.layout.root}/consumer/consumer-job").split() == [
        b"{",
        b'"nextSnapshot"',
        b":",
        b"7",
        b"}",
    ]


def test_consumers_are_listed_by_id_with_their_times() -> None:
    context = table_with({"b": 2, "a": 5})

    assert list_consumers(context) == (
        Consumer(consumer_id="a", next_snapshot=5, modified_ms=START_MS),
        Consumer(consumer_id="b", next_snapshot=2, modified_ms=START_MS),
    )
    assert list_consumers(table_with({})) == ()


def test_foreign_files_are_no_consumers() -> None:
    context = table_with({"a": 1})
    context.store.put(f"{context.layout.consumer_dir}/.consumer-a.tmp", b"x")
    context.store.put(f"{context.layout.consumer_dir}/consumer-", b"x")
    context.store.put(f"{context.layout.consumer_dir}/consumer-d/file", b"x")

    assert [each.consumer_id for each in list_consumers(context)] == ["a"]


def test_progress_is_overwritten_and_deleted() -> None:
    context = table_with({"a": 1})
    write_consumer(context, "a", 9)

    assert read_consumer(context, "a") == 9
    delete_consumer(context, "a")
    delete_consumer(context, "a")
    assert read_consumer(context, "a") is None


def test_consumers_state_what_expiry_must_keep() -> None:
    found = list_consumers(table_with({"a": 8, "b": 3, "c": 12}))
    assert min(each.next_snapshot for each in found) == 3
    assert list_consumers(table_with({})) == ()


def test_damaged_consumer_is_read_again_and_never_counts_as_absent() -> None:
    context = table_with({"a": 8})
    context.store.put(context.layout.consumer("a"), b"{")
    before = context.ambient.now_ms()

    with pytest.raises(CorruptTable, match="consumer-a"):
        list_consumers(context)
    assert context.ambient.now_ms() - before == 9 * 200


def test_consumer_that_is_being_overwritten_is_read_once_it_is_whole() -> None:
    context = table_with({})
    path = context.layout.consumer("a")
    context.store.put(path, b'{"nextSn')

    def writer_ends(seconds: float) -> None:
        del seconds
        context.store.put(path, b'{"nextSnapshot" : 4}')

    waiting = replace(context, ambient=replace(context.ambient, sleep=writer_ends))
    assert read_consumer(waiting, "a") == 4


@pytest.mark.parametrize("name", ["", "  ", "../x", "a/b", None, 3])
def test_id_that_is_no_file_name_is_refused(name: object) -> None:
    context = table_with({})

    with pytest.raises(InvalidRequest):
        read_consumer(context, name)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        write_consumer(context, name, 1)  # type: ignore[arg-type]


def test_consumers_are_cleared_by_patterns_of_their_whole_id() -> None:
    context = table_with({"job-1": 1, "job-2": 2, "my-job-1": 3, "other": 4})

    assert clear_consumers(context, "job-.*", "job-2", dry_run=True) == ("job-1",)
    assert clear_consumers(context, "job-.*", "job-2") == ("job-1",)
    assert clear_consumers(context, excluding="other") == ("job-2", "my-job-1")
    assert clear_consumers(context) == ("other",)
    assert clear_consumers(context) == ()


def test_pattern_that_is_no_regular_expression_is_refused() -> None:
    context = table_with({"a": 1})

    with pytest.raises(InvalidRequest, match=r"excluding.*\*a"):
        clear_consumers(context, "a", "*a")
    assert read_consumer(context, "a") == 1


def test_idle_consumers_expire_and_recorded_ones_do_not() -> None:
    context = table_with({"idle": 1, "busy": 1}, consumer__expiration_time="1 h")
    context.ambient.sleep(3600)
    write_consumer(context, "busy", 2)

    assert expire_consumers(context) == ()  # exactly the age is not over it
    context.ambient.sleep(0.001)
    assert expire_consumers(context) == ("idle",)
    assert [each.consumer_id for each in list_consumers(context)] == ["busy"]


def test_a_consumer_that_goes_on_while_others_expire_stays() -> None:
    context = table_with({"a": 1, "b": 1, "c": 1}, consumer__expiration_time="1 h")
    context.ambient.sleep(3601)

    class Going(MemoryStore):
        """Lets the consumer b record its progress while a is deleted."""

        def delete(self, path: str) -> None:
            super().delete(path)
            if path.endswith("-a"):
                write_consumer(context, "b", 2)

    store = Going(context.ambient)
    store._files = context.store._files  # type: ignore[attr-defined]  # noqa: SLF001

    assert expire_consumers(replace(context, store=store)) == ("a", "c")
    assert [(each.consumer_id, each.next_snapshot) for each in list_consumers(context)] == [
        ("b", 2)
    ]


def test_without_the_option_no_consumer_expires() -> None:
    context = table_with({"idle": 1})
    context.ambient.sleep(1e9)

    assert expire_consumers(context) == ()


def test_consumers_of_a_local_table(tmp_path: Path) -> None:
    context = new_table(
        store=LocalStore(), path=f"{tmp_path}/t", ambient=seeded(2), consumer__expiration_time="1 h"
    ).context
    write_consumer(context, "a", 3)

    assert (tmp_path / "t/consumer/consumer-a").exists()
    assert [each.next_snapshot for each in list_consumers(context)] == [3]
    assert expire_consumers(context) == ()
