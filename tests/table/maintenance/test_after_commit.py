from __future__ import annotations

import ast
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lakecore
from lakecore.table.maintenance import after_commit
from tests.retention import consumer, copied, data_files, files_read
from tests.stores import FailingStore
from tests.tables import held, new_table, put, reopened, with_options

if TYPE_CHECKING:
    from lakecore.table.handle import Table


def short_lived(**more: str) -> Table:
    """A table that keeps two snapshots."""
    table = new_table()
    with_options(table, snapshot__num_retained__min="1", snapshot__num_retained__max="2", **more)
    return reopened(table)


def live(table: Table) -> tuple[int, ...]:
    return table.context.history.snapshot_ids()


def test_write_expires_snapshots() -> None:
    table = short_lived()
    for number in range(4):
        put(table, f"{number} a")

    assert live(table) == (3, 4)
    assert data_files(table) == files_read(table)
    assert held(reopened(table)) == "0 a | 1 a | 2 a | 3 a"


def test_every_verb_expires_snapshots() -> None:
    table = short_lived()
    put(table, "1 a | 2 b")
    table.update({"v": "c"}, "id = 1")
    table.delete("id = 2")
    assert live(table) == (2, 3)

    table.compact(full=True)
    assert live(table) == (3, 4)

    table.truncate()
    assert live(table) == (4, 5)

    writer = table.new_write()
    writer.write({"id": [7], "v": ["x"]})
    table.commit(writer.prepare_commit())
    assert live(table) == (5, 6)


def test_all_commits_above_go_through_the_housekeeping() -> None:
    root = Path(lakecore.__file__).parent
    paths = [*root.rglob("*.py"), *(root.parent / "spark_bridge").rglob("*.py")]
    found = [
        str(path.relative_to(root.parent))
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and node.module == "lakecore.table.commits.commit"
        and any(alias.name == "commit" for alias in node.names)
    ]

    assert {path.rpartition("/")[0] for path in found} == {"lakecore/table/maintenance"}


def test_write_only_table_leaves_it_to_others() -> None:
    table = short_lived(write_only="true")
    for number in range(4):
        put(table, f"{number} a")

    assert live(table) == (1, 2, 3, 4)


def test_paimons_defaults_keep_an_hour_and_ten_snapshots() -> None:
    table = new_table(num_sorted_run__compaction_trigger="100")
    for number in range(12):
        put(table, f"{number} a")
    assert live(table)[0] == 1

    table.context.ambient.sleep(2 * 3600)
    put(table, "13 a")

    assert live(table) == tuple(range(4, 14))


def test_failure_leaves_the_commit_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    table = short_lived()
    put(table, "1 a")
    put(table, "2 b")
    store = table.context.store
    store.put(table.context.layout.consumer("job"), b"{")
    with caplog.at_level(logging.WARNING, "lakecore.expire"):
        done = table.write({"id": [3], "v": ["c"]})

    assert done.facts["housekeeping_failed"] == 1
    assert "the commit succeeded" in caplog.text
    assert held(table) == "1 a | 2 b | 3 c"
    store.delete(table.context.layout.consumer("job"))
    assert "housekeeping_failed" not in table.write({"id": [4], "v": ["d"]}).facts
    assert live(table) == (3, 4)


def test_storage_that_dies_while_it_expires_does_not_fail_the_commit() -> None:
    table = short_lived()
    put(table, "1 a")
    put(table, "2 b")
    counted = FailingStore(copied(table.context.store))
    put(reopened(table, store=counted), "3 c")
    published = [path for _, path in counted.calls].index(table.context.layout.snapshot(3)) + 1

    for call in range(published + 2, len(counted.calls) + 1):  # after the hint
        inner = copied(table.context.store)
        done = reopened(table, store=FailingStore(inner, fail_at=call)).write(
            {"id": [3], "v": ["c"]}
        )

        assert (done.snapshot_id, done.facts) == (3, {"housekeeping_failed": 1})
        assert held(reopened(table, store=inner)) == "1 a | 2 b | 3 c"


def test_idle_consumer_expires_before_it_holds_snapshots_back() -> None:
    table = short_lived(consumer__expiration_time="1 h")
    put(table, "1 a")
    put(table, "2 b")
    consumer(table, "gone", 1)
    put(table, "3 c")
    assert live(table)[0] == 1

    table.context.ambient.sleep(2 * 3600)
    put(table, "4 d")

    assert live(table) == (3, 4)


def join_background() -> None:
    for thread in threading.enumerate():
        if thread.name == "lakecore-housekeeping":
            thread.join()


def test_background_does_the_same() -> None:
    table = short_lived(snapshot__expire__execution_mode="async")
    for number in range(4):
        put(table, f"{number} a")
    join_background()

    assert live(table) == (3, 4)
    assert held(reopened(table)) == "0 a | 1 a | 2 a | 3 a"


def test_failure_in_the_background_is_told_by_the_next_commit() -> None:
    table = short_lived(snapshot__expire__execution_mode="async")
    table.context.store.put(table.context.layout.consumer("job"), b"{")
    for number in range(3):
        put(table, f"{number} a")
    join_background()

    assert table.write({"id": [9], "v": ["z"]}).facts["housekeeping_failed"] == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_bug_in_the_background_ends_its_thread_and_the_next_commit_begins_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object, **__: object) -> object:
        raise ZeroDivisionError("a bug")

    table = short_lived(snapshot__expire__execution_mode="async")
    with monkeypatch.context() as patch:
        patch.setattr(after_commit, "expire_consumers", broken)
        put(table, "1 a")
        join_background()
    done = [table.write({"id": [number], "v": ["z"]}) for number in (2, 3)]
    join_background()

    assert done[0].facts["housekeeping_failed"] == 1
    assert live(table) == (2, 3)


def test_commit_that_was_there_already_does_nothing_more() -> None:
    table = short_lived()
    for number in (1, 2):
        put(table, f"{number} a", commit_user="job", identifier=number)
    consumer(table, "held", 1)

    assert put(table, "2 a", commit_user="job", identifier=2) == 2
    assert live(table) == (1, 2)
