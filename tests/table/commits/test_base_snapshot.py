"""What was made from a snapshot that was rolled back, and whose id others have taken since."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lakecore.errors import CommitConflict, CorruptTable, NotFound
from lakecore.io.ambient import seeded
from lakecore.model.evolution import evolve
from lakecore.model.schema_change import SchemaChange
from lakecore.table.commits.commit import CommitRequest, commit
from lakecore.table.commits.commit_change import committed_since, is_there, was_rolled_back
from lakecore.table.publication import write_schema
from tests.stores import MeddledStore
from tests.tables import held, in_directory, new_table, put, reopened, rolled_back, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from lakecore.model.snapshot import Snapshot
    from lakecore.table.handle import Table

WRITE_ONLY: Any = {"write_only": "true"}


class Meddled(MeddledStore):
    """Another acts when the first data file is about to be written."""

    @contextmanager
    def open_output(self, path: str) -> Iterator[pa.NativeFile]:
        if self.deeds:
            self.deeds.pop(0)()
        with super().open_output(path) as sink:
            yield sink


def test_snapshot_is_rolled_back_if_its_id_is_gone_or_another_s() -> None:
    table = new_table(**WRITE_ONLY)
    for text in ("1 a", "2 b", "3 c"):
        put(table, text)
    history = table.context.history
    first, second, third = (history.snapshot(number) for number in (1, 2, 3))

    def gone(latest_id: int, snapshot_id: int, uuid: str | None) -> bool:
        return was_rolled_back(history, (snapshot_id, uuid), history.snapshot(latest_id))

    assert not gone(3, 2, second.uuid)
    assert not gone(3, 3, third.uuid)
    assert gone(3, 3, "another")
    assert gone(3, 2, "another")
    assert gone(2, 3, third.uuid)
    assert gone(2, 3, None)
    assert not gone(3, 2, None), "of a writer that gives no uuids"
    table.context.store.delete(table.context.layout.snapshot(1))
    assert not gone(3, 1, first.uuid), "expired"
    assert not is_there(history, first, third)
    assert is_there(history, second, third)
    assert is_there(history, third, third)
    assert not is_there(history, replace(third, uuid="another"), third)


def test_rows_that_were_read_before_a_rollback_do_not_replace_those_written_since() -> None:
    table = new_table(**WRITE_ONLY)
    put(table, "1 a")
    put(table, "2 b")
    other = reopened(table)

    def go_back() -> None:
        put(rolled_back(other, 1), "2 other")

    late = reopened(table, store=Meddled(table.context.store, go_back))

    with pytest.raises(CommitConflict, match="rolled back"):
        late.update({"v": "late"}, "id = 2")
    assert held(reopened(table)) == "1 a | 2 other"


def test_rows_that_are_only_added_do_not_mind() -> None:
    table = new_table(**WRITE_ONLY)
    put(table, "1 a")
    put(table, "2 b")
    with table.new_write() as writer:
        writer.write(rows(table.schema, "3 c"))
        messages = writer.prepare_commit()
    back = rolled_back(table, 1)
    put(back, "2 other")

    back.commit(messages)

    assert held(back) == "1 a | 2 other | 3 c"


def test_number_of_buckets_is_compared_with_all_that_is_there_after_a_rollback() -> None:
    table = new_table(bucket="2", **WRITE_ONLY)
    put(table, "1 a")
    put(table, "2 b")
    with table.new_write() as writer:
        writer.write(rows(table.schema, "3 c"))
        messages = writer.prepare_commit()
    rolled_back(table, 1)
    change = SchemaChange.set_option("bucket", "3")
    schema = evolve(table.schema, [change], now_ms=0, has_snapshots=True)
    assert write_schema(table.context.store, table.context.layout, schema)
    reopened(table).overwrite(rows(table.schema, "9 z"))

    with pytest.raises(CommitConflict, match="number of buckets"):
        table.commit(messages)


def test_keys_of_dynamic_buckets_are_dealt_again_after_a_rollback() -> None:
    table = new_table(bucket="-1", **WRITE_ONLY)
    put(table, "1 a")
    put(table, "2 b")
    with table.new_write() as writer:
        writer.write(rows(table.schema, "3 c"))
        messages = writer.prepare_commit()
    back = rolled_back(table, 1)
    put(back, "3 other")

    with pytest.raises(CommitConflict, match="rolled back"):
        back.commit(messages)


@pytest.mark.parametrize("since", ["", "2 other", "2 other | 3 c"])
def test_compaction_of_a_snapshot_that_is_rolled_back_meanwhile_is_made_anew(since: str) -> None:
    table = new_table(**WRITE_ONLY)
    for text in ("1 a | 2 a", "1 b", "2 b"):
        put(table, text)

    def go_back() -> None:
        back = rolled_back(table, 2)
        if since:
            put(back, since)

    late = reopened(table, store=Meddled(table.context.store, go_back))
    result = late.compact(full=True)
    names = in_directory(table, "bucket-0")
    found = reopened(table)

    wanted = {"": "1 b | 2 a", "2 other": "1 b | 2 other", "2 other | 3 c": "1 b | 2 other | 3 c"}
    assert held(found) == wanted[since]
    assert (result.attempts, result.files_after) == (2, 1)
    assert found.explain().raw_files == 1
    assert len(names) == 4 + bool(since), "what the first plan wrote is removed"


def test_compaction_whose_files_are_all_there_still_is_not_committed_after_a_rollback() -> None:
    table = new_table(**WRITE_ONLY)
    put(table, "1 a")
    put(table, "1 b")
    before = reopened(table)
    put(table, "2 c")
    with before.new_write() as writer:
        writer.write(rows(table.schema, "5 e"))
        (message,) = writer.prepare_commit()
    history = before.context.history
    (old,) = history.live_entries(history.snapshot(1))
    upgraded = replace(
        message,
        new_files=(),
        compact_before=(old.file,),
        compact_after=(replace(old.file, level=5),),
    )
    back = rolled_back(table, 1)
    put(back, "1 other")

    with pytest.raises(CommitConflict, match="rolled back"):
        commit(back.context, CommitRequest(messages=[upgraded], user="me"))
    assert held(back) == "1 other"


# --- snapshots that expire meanwhile --------------------------------------------------------------


def with_commits(count: int) -> Table:
    table = new_table(write_only="true")
    for number in range(1, count + 1):
        put(table, f"{number} a")
    return table


def latest_of(table: Table) -> Snapshot:
    found = table.context.history.latest_snapshot()
    assert found is not None
    return found


def test_snapshots_since_another_come_newest_first() -> None:
    table = with_commits(4)
    found = committed_since(reopened(table).context.history, 1, latest_of(table))

    assert [(snapshot.id, len(entries)) for snapshot, entries in found] == [(4, 1), (3, 1), (2, 1)]


def test_snapshots_that_expired_since_are_missed() -> None:
    table = with_commits(5)
    latest = latest_of(table)
    for expired in (1, 2, 3):
        table.context.store.delete(table.context.layout.snapshot(expired))

    with pytest.raises(NotFound, match=r"has expired\. snapshot_id=3"):
        list(committed_since(reopened(table).context.history, 1, latest))
    assert len([*committed_since(reopened(table).context.history, 3, latest)]) == 2


def test_snapshot_that_expires_while_its_changes_are_read_has_expired() -> None:
    table = with_commits(3)
    context = reopened(table).context
    context.history.commits.after(1, latest_of(table))
    gone = context.history.snapshot(2)
    for manifest in context.history.delta_manifests(gone):
        context.store.delete(context.layout.manifest(manifest.name))

    with pytest.raises(CorruptTable):
        list(committed_since(context.history, 1, latest_of(table)))
    context.store.delete(context.layout.snapshot(2))
    with pytest.raises(NotFound, match=r"has expired\. snapshot_id=2"):
        list(committed_since(context.history, 1, latest_of(table)))


def test_rows_are_added_though_the_snapshot_they_were_written_from_expires() -> None:
    table = with_commits(2)
    with table.new_write() as writer:
        writer.write(rows(table.schema, "9 mine"))
        messages = writer.prepare_commit()
    other = reopened(table, ambient=seeded(7))
    for number in (3, 4, 5):
        put(other, f"{number} a")
    for expired in (1, 2, 3):
        table.context.store.delete(table.context.layout.snapshot(expired))
    table.commit(messages)

    assert held(reopened(table)) == "1 a | 2 a | 3 a | 4 a | 5 a | 9 mine"
