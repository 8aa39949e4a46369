"""Following a table: what comes next, what has gone, and what a look costs."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lakecore.errors import InvalidRequest, NotFound
from lakecore.format.layout import Layout
from lakecore.format.metadata import encode_snapshot
from lakecore.io.stores.guarded import unguarded
from lakecore.io.stores.store import FileStatus, MemoryStore
from lakecore.model.snapshot import CommitKind
from lakecore.model.types import Field, parse_type
from lakecore.table.changes.follow import Follower, Found, Nothing
from lakecore.table.changes.starts import Origin
from lakecore.table.publication import write_schema
from tests.tables import changed, new_table, put, reopened, rolled_back, rows

if TYPE_CHECKING:
    from lakecore.table.handle import Table


class Lacking(MemoryStore):
    """Does not list a file yet, but opens it."""

    lacks = ""

    def list(self, directory: str) -> tuple[FileStatus, ...]:
        found = super().list(directory)
        return tuple(each for each in found if not each.path.endswith(f"/{self.lacks}"))


class Counted(MemoryStore):
    """A store that counts its requests."""

    requests = 0

    def read(self, path: str) -> bytes:
        self.requests += 1
        return super().read(path)

    def exists(self, path: str) -> bool:
        self.requests += 1
        return super().exists(path)

    def list(self, directory: str) -> tuple[FileStatus, ...]:
        self.requests += 1
        return super().list(directory)


def history(*lines: str, **options: Any) -> Table:
    table = new_table(**options)
    for line in lines:
        put(table, line)
    return table


def follow(table: Table, last: int | None = None, **options: Any) -> Follower:
    stated = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    context = table.copy(stated).context
    return Follower(context, Origin(options=context.options), last)


def next_of(follower: Follower) -> str | Nothing:
    found = follower.step()
    if isinstance(found, Nothing):
        return found
    names = found.source.schema.names
    lines = [
        " ".join(str(row[name]) for name in names)
        for batch in found.source.batches()
        for row in batch.to_pylist()
    ]
    return f"{found.snapshot_id}: " + " | ".join(lines)


def test_snapshots_are_found_when_they_are_committed() -> None:
    table = history("1 a")
    follower = follow(table, scan__snapshot_id="1")

    assert next_of(follower) == "1: +I 1 a"
    assert [follower.step(), follower.step()] == [Nothing.YET, Nothing.YET]
    put(table, "2 b")
    put(table, "3 c")
    assert [next_of(follower), next_of(follower)] == ["2: +I 2 b", "3: +I 3 c"]
    assert (follower.step(), follower.next_id) == (Nothing.YET, 4)


def test_table_without_snapshots_is_followed_from_its_first_one() -> None:
    starts: list[dict[str, Any]] = [{}, {"scan__mode": "latest"}, {"scan__snapshot_id": "1"}]
    for options in starts:
        table = new_table()
        follower = follow(table, **options)

        assert [follower.step() for _ in range(40)] == [Nothing.YET] * 40
        put(table, "1 a")
        assert next_of(follower) == "1: +I 1 a"


def test_stream_ends_after_its_last_snapshot() -> None:
    table = history("1 a", "2 b")
    follower = follow(table, 3, scan__snapshot_id="2")

    assert next_of(follower) == "2: +I 2 b"
    assert follower.step() is Nothing.YET
    put(table, "3 c")
    put(table, "4 d")
    assert next_of(follower) == "3: +I 3 c"
    assert [follower.step(), follower.step()] == [Nothing.MORE, Nothing.MORE]


def test_stream_up_to_the_latest_snapshot_of_an_empty_table_ends() -> None:
    follower = follow(new_table(), 0)

    assert follower.step() is Nothing.MORE


def test_stream_ends_before_the_first_snapshot_beyond_the_watermark() -> None:
    table = new_table()
    for number, watermark in enumerate((10, None, 20, 30), start=1):
        writer = table.new_write()
        writer.write(rows(table.schema, f"{number} a"))
        table.commit(writer.prepare_commit(), watermark=watermark)

    follower = follow(table, scan__snapshot_id="1", scan__bounded__watermark="20")
    assert [next_of(follower)[:1] for _ in range(3)] == ["1", "2", "3"]  # type: ignore[index]
    assert [follower.step(), follower.next_id] == [Nothing.MORE, 4]
    # The state is read even if it is beyond; nothing after it is.
    full = follow(table, scan__bounded__watermark="20")
    assert str(next_of(full)).startswith("4: ")
    assert full.step() is Nothing.MORE
    ended = follow(table, scan__mode="latest", scan__bounded__watermark="20")
    assert ended.step() is Nothing.MORE


def test_snapshot_is_read_once_it_has_the_age_of_the_delay() -> None:
    table = history("1 a")
    follower = follow(table, scan__snapshot_id="1", streaming__read__snapshot__delay="10 s")

    assert follower.step() is Nothing.YET
    table.context.ambient.sleep(9.9)
    assert follower.step() is Nothing.YET
    table.context.ambient.sleep(0.1)
    assert next_of(follower) == "1: +I 1 a"


def test_newer_schema_is_read_from_its_first_snapshot_on() -> None:
    table = history("1 a")
    follower = follow(table, scan__mode="from-snapshot", scan__snapshot_id="1")
    assert next_of(follower) == "1: +I 1 a"

    put(widened(table), "2 b 7")
    put(table, "3 c")

    assert next_of(follower) == "2: +I 2 b 7"
    assert next_of(follower) == "3: +I 3 c None"


def widened(table: Table) -> Table:
    """The table with one more column."""
    schema = table.schema
    added = Field(id=schema.highest_field_id + 1, name="n", type=parse_type("INT"))
    newer = replace(
        schema,
        id=schema.id + 1,
        fields=(*schema.fields, added),
        highest_field_id=added.id,
    )
    assert write_schema(table.context.store, Layout(root=table.path), newer)
    return reopened(table)


# --- what has gone --------------------------------------------------------------------------------


def expire(table: Table, *snapshot_ids: int, changelog: bool = False) -> None:
    store, layout = table.context.store, table.context.layout
    for number in snapshot_ids:
        if changelog:
            store.put(layout.changelog(number), store.read(layout.snapshot(number)))
        store.delete(layout.snapshot(number))


def test_expired_snapshot_is_read_from_its_changelog() -> None:
    table = history("1 a")
    follower = follow(table, scan__snapshot_id="1")
    assert next_of(follower) == "1: +I 1 a"
    put(table, "2 b")
    put(table, "3 c")
    expire(table, 1, 2, changelog=True)

    assert [next_of(follower), next_of(follower)] == ["2: +I 2 b", "3: +I 3 c"]


def test_snapshot_that_expired_before_it_was_read_is_an_error() -> None:
    table = history("1 a")
    follower = follow(table, scan__snapshot_id="1")
    next_of(follower)
    put(table, "2 b")
    put(table, "3 c")
    expire(table, 1, 2)

    with pytest.raises(NotFound, match=r"expired.* snapshot_id=2 earliest=3 latest=3"):
        follower.step()


def test_snapshot_that_expires_during_a_wait_is_noticed_soon() -> None:
    table = history("1 a")
    follower = follow(table, scan__snapshot_id="1")
    next_of(follower)
    assert follower.step() is Nothing.YET
    put(table, "2 b")
    put(table, "3 c")
    expire(table, 1, 2)

    looks = iter(follower.step, None)
    with pytest.raises(NotFound, match="expired"):
        next(found for number, found in enumerate(looks) if number > 16)  # each 16th look notices


def test_rollback_behind_the_stream_is_an_error() -> None:
    table = history("1 a", "2 b", "3 c")
    follower = follow(table, scan__snapshot_id="3")
    next_of(follower)
    rolled_back(table, 1)

    with pytest.raises(NotFound, match=r"the table was rolled back.* snapshot_id=3 latest=1"):
        follower.step()


def test_rollback_is_noticed_though_others_took_the_numbers() -> None:
    table = history("1 a", "2 b", "3 c")
    follower = follow(table, scan__snapshot_id="3")
    next_of(follower)
    assert follower.step() is Nothing.YET
    after = rolled_back(table, 1)
    for line in ("4 d", "5 e", "6 f"):
        put(after, line)

    with pytest.raises(NotFound, match=r"the table was rolled back.* snapshot_id=3"):
        follower.step()


def test_rollback_is_noticed_after_a_state_and_after_the_start_latest() -> None:
    starts: list[dict[str, Any]] = [{}, {"scan__mode": "latest"}]
    for options in starts:
        table = history("1 a", "2 b")
        follower = follow(table, **options)
        if not options:
            assert next_of(follower) == "2: +I 1 a | +I 2 b"
        after = rolled_back(table, 1)
        put(after, "3 c")
        put(after, "4 d")

        with pytest.raises(NotFound, match=r"the table was rolled back.* snapshot_id=2"):
            follower.step()


def test_stream_whose_last_snapshot_was_rolled_back_does_not_wait_for_it() -> None:
    table = history("1 a", "2 b", "3 c")
    follower = follow(table, last=3, scan__snapshot_id="2")
    endless = follow(table, scan__snapshot_id="2")
    later = follow(table, last=4, scan__snapshot_id="2")
    for each in (follower, endless, later):
        next_of(each)
    rolled_back(table, 2)

    with pytest.raises(NotFound, match=r"the table was rolled back.* snapshot_id=3 latest=2"):
        follower.step()
    assert endless.step() is Nothing.YET
    assert later.step() is Nothing.YET


def test_stream_whose_end_was_rolled_back_while_it_began_does_not_wait_for_it() -> None:
    table = history("1 a", "2 b", "3 c")
    context = table.copy({"scan.snapshot-id": "2"}).context
    rolled_back(table, 2)
    follower = Follower(context, Origin(options=context.options), last=3, latest=3)
    next_of(follower)

    with pytest.raises(NotFound, match=r"the table was rolled back.* snapshot_id=3 latest=2"):
        follower.step()


def test_snapshot_that_a_listing_lacks_has_not_expired() -> None:
    store = Lacking()
    table = new_table(store=store)
    for line in ("1 a", "2 b", "3 c", "4 d"):
        put(table, line)
    store.lacks = "snapshot-3"

    assert next_of(follow(table, scan__snapshot_id="2")) == "2: +I 2 b"


def test_table_that_was_dropped_or_replaced_is_an_error() -> None:
    table = history("1 a")
    follower = follow(table, scan__mode="latest")
    store = table.context.store
    unguarded(store).delete_directory(table.path)

    with pytest.raises(NotFound, match="not there any more"):
        follower.step()


def test_overwrite_that_changed_no_file_is_skipped() -> None:
    table = history("1 a").copy({"streaming-read-overwrite": "true"})
    follower = follow(table, scan__mode="latest", streaming_read_overwrite="true")
    table.truncate()
    table.truncate()
    put(table, "2 b")

    assert next_of(follower) == "2: -D 1 a"
    assert str(next_of(follower)).endswith(": +I 2 b")


# --- what a look costs ----------------------------------------------------------------------------


def test_empty_looks_cost_about_one_request_each() -> None:
    starts: list[dict[str, Any]] = [{"scan__mode": "latest"}, {"scan__snapshot_id": "1"}]
    for options in starts:
        table = history("1 a", store=Counted())
        follower = follow(table, **options)
        while isinstance(follower.step(), Found):
            pass
        store = unguarded(table.context.store)
        assert isinstance(store, Counted)
        before = store.requests

        assert [follower.step() for _ in range(1000)] == [Nothing.YET] * 1000
        assert store.requests - before < 1500


def test_empty_looks_at_a_table_without_snapshots_cost_about_one_request_each() -> None:
    store = Counted()
    follower = follow(new_table(store=store))
    before = store.requests

    assert [follower.step() for _ in range(1000)] == [Nothing.YET] * 1000
    assert store.requests - before < 1500


def test_skipped_snapshots_leave_nothing_in_memory() -> None:
    table = history("1 a")
    context = table.context
    first = context.history.snapshot(1)
    follower = follow(table, scan__mode="latest")

    def skip(count: int) -> None:
        """Commit and follow snapshots of the kind that a stream skips."""
        assert follower.next_id is not None
        for number in range(follower.next_id, follower.next_id + count):
            made = replace(first, id=number, commit_kind=CommitKind.COMPACT)
            path = context.layout.snapshot(number)
            context.store.put(path, encode_snapshot(made))
            if number > 2:
                context.store.delete(context.layout.snapshot(number - 2))
            if number == follower.next_id:
                assert follower.step() is Nothing.YET

    skip(50)
    gc.collect()
    tracemalloc.start()
    skip(1)
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(300):
        skip(1)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert grown < 100_000


@pytest.mark.parametrize("last", [0, 1])
def test_end_before_the_start_is_refused(last: int) -> None:
    table = history("1 a", "2 b", "3 c")

    with pytest.raises(InvalidRequest, match=f"begins after its end.* until={last}"):
        follow(table, last, scan__snapshot_id="3")


def test_changes_of_a_found_snapshot_are_those_of_the_frame() -> None:
    table = history("1 a", "2 b")

    ((number, frame),) = table.stream(2, 2)
    assert (number, changed(frame)) == (2, "+I 2 b")
