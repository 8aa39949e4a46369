"""Commits: what snapshots say, who wins a race, what a repeated or lost one does."""

from __future__ import annotations

import logging
import re
from collections import Counter
from contextlib import closing
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

import pytest

from lakecore.errors import (
    AlreadyExists,
    CommitConflict,
    CommitUnknown,
    InvalidRequest,
    LakecoreError,
    StorageError,
)
from lakecore.io.ambient import seeded
from lakecore.io.stores.store import MemoryStore
from lakecore.model.files import (
    DELETION_VECTORS,
    EMPTY_ROW,
    HASH_INDEX,
    CommitMessage,
    IndexFile,
)
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind
from lakecore.table.commits import commit as commit_module
from lakecore.table.commits import commit_change as committed_module
from lakecore.table.commits.commit import CommitRequest, attempts, commit, log_lost_compaction
from tests.stores import FailingStore, MeddledStore, ReadCounter, StoreFailure
from tests.tables import files, held, in_directory, new_table, put, reopened, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.io.stores.store import Store
    from lakecore.model.manifest import IndexEntry
    from lakecore.model.snapshot import CommitResult, Snapshot
    from lakecore.table.handle import Table


class LostReply(FailingStore):
    """Loses the replies of the first publications; they may have been carried out, or not."""

    def __init__(self, inner: Store, *, done: bool, readable: bool = True) -> None:
        super().__init__(inner)
        self.done = done
        self.readable = readable
        self.lost = False

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if self.lost:
            return super().put_if_absent(path, data)
        self.lost = True
        if self.done:
            self.inner.put_if_absent(path, data)
        raise CommitUnknown("no reply", path=path)

    def read(self, path: str) -> bytes:
        if self.lost and not self.readable:
            raise StorageError("no network", path=path)
        return super().read(path)


class BusyStore(FailingStore):
    """Does something each time that so many manifests were read, until many were."""

    def __init__(
        self, inner: Store, deed: Callable[[], object], reads: int, calm_after: int
    ) -> None:
        super().__init__(inner)
        self.deed = deed
        self.reads = reads
        self.calm_after = calm_after
        self.count = 0
        self.lock = Lock()

    def read(self, path: str) -> bytes:
        if re.match(r"manifest-[0-9a-f]{8}-", path.rpartition("/")[2]):
            with self.lock:
                self.count += 1
                if self.count % self.reads == 0 and self.count <= self.calm_after:
                    self.deed()
        return super().read(path)


def written(table: Table, text: str) -> list[CommitMessage]:
    """The messages of a writer, not yet committed."""
    with table.new_write() as writer:
        writer.write(rows(table.schema, text))
        return writer.prepare_commit()


def latest(table: Table) -> Snapshot:
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    return snapshot


def with_compaction(table: Table) -> tuple[CommitMessage, list[str]]:
    """The message of a compaction that moves all files of the bucket to level 5 as they are."""
    live = [entry.file for entry in table.context.history.live_entries(latest(table))]
    message = CommitMessage(
        partition=bytes(12),
        bucket=0,
        total_buckets=1,
        compact_before=tuple(live),
        compact_after=tuple(replace(file, level=5) for file in live),
        base_snapshot_id=latest(table).id,
    )
    return message, [file.name for file in live]


# --- what a snapshot says -----------------------------------------------------------------------


def named_manifests(table: Table) -> set[str]:
    """The names of all manifests and manifest lists that snapshots name."""
    history = table.context.history
    return {
        name
        for snapshot in map(history.snapshot, history.snapshot_ids())
        for name in (
            snapshot.base_manifest_list,
            snapshot.delta_manifest_list,
            *(manifest.name for manifest in history.manifests(snapshot)),
        )
    }


def test_first_snapshot_has_nothing_before_it() -> None:
    table = new_table()
    result = table.write(rows(table.schema, "1 a | 2 b"), commit_user="me")
    snapshot = latest(table)
    history = table.context.history

    assert (snapshot.id, snapshot.commit_kind, snapshot.commit_user) == (1, CommitKind.APPEND, "me")
    assert (snapshot.total_record_count, snapshot.delta_record_count) == (2, 2)
    assert snapshot.changelog_record_count is None
    assert snapshot.commit_identifier == BATCH_COMMIT_IDENTIFIER
    assert list(history.manifest_list(snapshot.base_manifest_list)) == []
    assert (result.snapshot_ids, result.rows, result.files_added) == ((1,), 2, 1)
    assert (result.attempts, result.commit_user, result.facts) == (1, "me", {})
    assert result.bytes_added == sum(e.file.size_bytes for e in history.live_entries(snapshot))


def test_record_counts_are_those_of_the_files_not_of_the_merged_rows() -> None:
    table = new_table()
    for text in ("1 a | 2 b", "1 c", "-D 2 b"):
        put(table, text)

    assert held(table) == "1 c"
    assert (latest(table).total_record_count, latest(table).delta_record_count) == (4, 1)


@pytest.mark.parametrize("drops", [False, True])
def test_deleted_files_may_be_listed_without_statistics(*, drops: bool) -> None:
    table = new_table(manifest__delete_file_drop_stats=str(drops).lower())
    put(table, "1 a | 2 b")
    put(table, "2 c")
    table.compact(full=True)
    history = table.context.history
    entries = history.entries(history.delta_manifests(latest(table)))
    known = {entry.kind.name: entry.file.value_stats.min_values != EMPTY_ROW for entry in entries}

    assert known == {"ADD": True, "DELETE": not drops}
    assert held(table) == held(table.copy({"scan.snapshot-id": "2"})) == "1 a | 2 c"


def test_total_is_counted_where_an_older_snapshot_does_not_say_it() -> None:
    table = new_table()
    put(table, "1 a | 2 b")
    history = table.context.history
    before = latest(table)
    table.context.history.latest_snapshot = (  # type: ignore[method-assign]
        lambda: replace(before, total_record_count=None)
    )
    put(table, "3 c")

    assert history.snapshot(2).total_record_count == 3


def test_commit_without_changes_makes_no_snapshot() -> None:
    table = new_table()

    assert table.commit([]).snapshot_ids == ()
    assert table.write(rows(table.schema, "")).snapshot_ids == ()
    assert table.context.history.snapshot_ids() == ()


def test_numbered_commit_without_changes_is_on_record() -> None:
    table = new_table(snapshot__ignore_empty_commit="false")

    assert table.commit([], identifier=7, commit_user="job").snapshot_ids == (1,)
    assert table.last_identifier("job") == 7
    assert held(table) == ""


def test_write_without_rows_is_on_record_where_its_number_or_the_option_says_so() -> None:
    table = new_table()
    none = rows(table.schema, "")
    asked, refused = (new_table(snapshot__ignore_empty_commit=text) for text in ("false", "true"))

    assert table.write(none, identifier=7, commit_user="job").snapshot_ids == (1,)
    assert table.last_identifier("job") == 7
    assert (asked.commit([]).snapshot_ids, asked.write(none).snapshot_ids) == ((1,), (2,))
    assert refused.commit([], identifier=7, commit_user="job").snapshot_ids == ()
    assert refused.write(none, identifier=7, commit_user="job").snapshot_ids == ()


def test_hints_name_the_first_and_the_last_snapshot() -> None:
    table = new_table()
    for text in ("1 a", "2 b"):
        put(table, text)
    store, layout = table.context.store, table.context.layout

    assert (store.read(layout.earliest_hint), store.read(layout.latest_hint)) == (b"1", b"2")


def test_commit_looks_once_for_the_newest_snapshot() -> None:
    store = ReadCounter(MemoryStore())
    table = new_table(store=store)
    put(table, "1 a")
    with closing(table.new_write()) as writer:
        writer.write(rows(table.schema, "2 b"))
        messages = writer.prepare_commit()
    store.reads.clear()
    table.commit(messages, identifier=1, commit_user="job")

    assert store.reads.count("LATEST") == 1
    assert store.reads.count("EARLIEST") == 0  # its base was still there: it has not expired


def test_watermark_never_goes_back() -> None:
    table = new_table()
    for watermark in (5, None, 3, 9):
        table.commit(written(table, "1 a"), watermark=watermark)

    ids = table.context.history.snapshot_ids()
    assert [table.context.history.snapshot(n).watermark for n in ids] == [5, 5, 5, 9]


def test_properties_are_of_their_own_snapshot() -> None:
    table = new_table()
    table.commit(written(table, "1 a"), properties={"a": "b"})
    assert latest(table).properties == {"a": "b"}
    put(table, "2 b")

    assert latest(table).properties is None


def test_one_event_a_snapshot_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    table = new_table()
    with caplog.at_level(logging.INFO, logger="lakecore.commit"):
        put(table, "1 a")

    (message,) = caplog.messages
    assert re.fullmatch(
        r"committed table=memory://\S+ snapshot=1 kind=APPEND "
        r"files_added=1 files_deleted=0 attempts=1",
        message,
    )


def test_same_calls_write_the_same_bytes() -> None:
    def content(seed: int) -> dict[str, bytes]:
        store = MemoryStore(seeded(seed))
        table = new_table(store=store, ambient=seeded(seed), partitions=["v"], keys=["id", "v"])
        put(table, "1 a | 2 b | 3 c | 4 d")
        put(table, "1 b")
        return {path: store.read(path) for path in store._files}  # noqa: SLF001

    assert content(5) == content(5)
    assert content(5).keys() != content(6).keys()


# --- races --------------------------------------------------------------------------------------


def test_who_loses_the_race_comes_after_the_winner() -> None:
    table = new_table()
    put(table, "1 a")
    other = reopened(table)
    slow = reopened(table, store=MeddledStore(table.context.store, lambda: put(other, "2 b")))
    result = slow.write(rows(table.schema, "3 c"))

    assert (result.snapshot_ids, result.attempts) == ((3,), 2)
    assert held(table) == "1 a | 2 b | 3 c"


def test_who_loses_leaves_no_manifests_behind() -> None:
    table = new_table()
    other = reopened(table)
    slow = reopened(table, store=MeddledStore(table.context.store, lambda: put(other, "2 b")))
    put(slow, "3 c")

    assert in_directory(table, "manifest") == named_manifests(table)


def test_who_loses_a_race_writes_its_own_manifests_once() -> None:
    table = new_table()
    others = [lambda number=number: put(reopened(table), f"{number} x") for number in range(3)]
    store = MeddledStore(table.context.store, *others)
    put(reopened(table, store=store), "9 z")
    written = [path.rpartition("/")[2] for call, path in store.calls if call == "put"]

    assert len([name for name in written if name.startswith("manifest-list")]) == 4 + 1
    assert len([name for name in written if re.match(r"manifest-[0-9a-f]{8}-", name)]) == 1


def test_who_loses_a_race_reads_what_came_between_once() -> None:
    table = new_table()

    def others(numbers: range) -> None:
        for number in numbers:
            put(reopened(table), f"{number} x")

    store = ReadCounter(table.context.store)
    deeds = (lambda: others(range(8)), lambda: others(range(8, 9)))
    put(reopened(table, store=MeddledStore(store, *deeds)), "9 z")
    reads = Counter(store.reads)

    assert held(table) == " | ".join(f"{number} x" for number in range(9)) + " | 9 z"
    assert {reads[f"snapshot-{number}"] for number in range(4, 8)} == {1}  # 2, 3: do they expire?
    assert reads["snapshot-9"] == 3, "it was looked for twice before it was there"


def beside_a_busy_writer(reads: int, write_only: str = "false") -> tuple[Table, CommitResult]:
    """Commits a row beside one who commits whenever so many manifests are read, and in waits."""
    table = new_table(commit__max_retries="3", write_only=write_only)
    messages = written(table, "9 z")
    busy = reopened(table)
    store = BusyStore(table.context.store, lambda: put(busy, "0 x"), reads, calm_after=1000)

    def ten(_: float) -> None:
        for _ in range(10):
            put(busy, "0 x")

    ten(0)
    slow = reopened(table, store=store, ambient=replace(seeded(3), sleep=ten))
    return table, slow.commit(messages)


def test_who_is_far_behind_looks_again_before_it_races() -> None:
    table, result = beside_a_busy_writer(reads=4)

    assert result.attempts == 1
    assert held(table) == "0 x | 9 z"


def test_who_comes_no_nearer_does_not_look_for_ever() -> None:
    with pytest.raises(CommitConflict, match=r"lost every race.* attempts=4"):
        beside_a_busy_writer(reads=1, write_only="true")


def test_overwrite_that_lost_a_race_leaves_no_manifests_behind() -> None:
    table = new_table()
    put(table, "1 a")
    other = reopened(table)
    slow = reopened(table, store=MeddledStore(table.context.store, lambda: put(other, "2 b")))
    slow.overwrite(rows(table.schema, "3 c"))

    assert held(table) == "3 c"
    assert in_directory(table, "manifest") == named_manifests(table)


def test_losing_every_race_is_a_conflict_that_leaves_nothing() -> None:
    table = new_table(commit__max_retries="2")
    others = [lambda number=number: put(reopened(table), f"{number} x") for number in range(3)]
    slow = reopened(table, store=MeddledStore(table.context.store, *others))
    with pytest.raises(CommitConflict, match=r"lost every race.* attempts=3"):
        put(slow, "9 z")
    live = {e.file.name for e in table.context.history.live_entries(latest(table))}

    assert held(table) == "0 x | 1 x | 2 x"
    assert in_directory(table, "bucket-0") == live
    assert in_directory(table, "manifest") == named_manifests(table)


def test_waits_between_attempts_grow_up_to_the_longest() -> None:
    ambient = seeded(3)
    waits: list[float] = []
    counted = replace(ambient, sleep=waits.append, random=lambda: 0.5)
    table = new_table(
        commit__max_retries="4", commit__min_retry_wait="10ms", commit__max_retry_wait="50ms"
    )
    others = [lambda number=number: put(reopened(table), f"{number} x") for number in range(4)]
    put(reopened(table, store=MeddledStore(table.context.store, *others), ambient=counted), "9 z")

    assert waits == [0.01, 0.02, 0.04, 0.05]


def test_wait_after_a_lost_attempt_is_as_long_as_that_took() -> None:
    waits: list[float] = []
    clock = iter(range(0, 10**9, 100))
    slow = replace(seeded(3), sleep=waits.append, random=lambda: 0.5, now_ms=lambda: next(clock))
    options = new_table(commit__max_retries="3", commit__max_retry_wait="350ms").context.options

    assert [*attempts(options, slow)] == [0, 1, 2, 3]
    assert waits == [0.1, 0.2, 0.35, 0.35]


def test_time_limit_ends_the_attempts() -> None:
    table = new_table(commit__timeout="25ms", commit__min_retry_wait="20ms")
    others = [lambda number=number: put(reopened(table), f"{number} x") for number in range(9)]
    slow = reopened(table, store=MeddledStore(table.context.store, *others))
    with pytest.raises(CommitConflict, match="lost every race"):
        put(slow, "9 z")

    assert len(table.context.history.snapshot_ids()) < 4


@pytest.mark.parametrize("number", [BATCH_COMMIT_IDENTIFIER, 4])
def test_lost_reply_of_a_commit_that_was_made_counts_once(number: int) -> None:
    table = new_table()
    lost = reopened(table, store=LostReply(table.context.store, done=True))
    result = lost.write(rows(table.schema, "1 a"), commit_user="job", identifier=number)

    assert result.snapshot_ids == (1,)
    assert held(table) == "1 a"


def test_base_that_cannot_be_looked_up_after_the_commit_is_unknown() -> None:
    class Deaf(FailingStore):
        def read(self, path: str) -> bytes:
            if path.endswith("/snapshot-1") and ("put_if_absent", second) in self.calls:
                raise StorageError("no answer", path=path)
            return super().read(path)

    table = new_table()
    put(table, "1 a")
    second = table.context.layout.snapshot(2)
    with pytest.raises(CommitUnknown):
        put(reopened(table, store=Deaf(table.context.store)), "2 b")
    assert held(reopened(table)) == "1 a | 2 b"


def test_lost_reply_of_a_commit_that_was_not_made_is_unknown_and_deletes_nothing() -> None:
    table = new_table()
    lost = reopened(table, store=LostReply(table.context.store, done=False))
    with pytest.raises(CommitUnknown, match=r"look for the snapshot.* snapshot_id=1.*user=job"):
        put(lost, "1 a", commit_user="job", identifier=4)

    assert len(in_directory(table, "bucket-0")) == 1
    assert len(in_directory(table, "manifest")) == 3
    assert put(table, "1 a", commit_user="job", identifier=4) == 1


@pytest.mark.parametrize("done", [False, True])
def test_lost_reply_that_cannot_be_looked_up_is_unknown(*, done: bool) -> None:
    table = new_table()
    store = LostReply(table.context.store, done=done, readable=False)
    with pytest.raises(CommitUnknown):
        put(reopened(table, store=store), "1 a", commit_user="job", identifier=4)
    again = table.write(rows(table.schema, "1 a"), commit_user="job", identifier=4)

    assert again.facts == ({"already_committed": 1} if done else {})
    assert held(table) == "1 a"


def test_error_of_the_system_while_publishing_is_unknown() -> None:
    table = new_table()
    calls = FailingStore(table.context.store)
    put(reopened(table, store=calls), "1 a")
    publishing = [call for call, _ in calls.calls].index("put_if_absent") + 1
    dying = FailingStore(table.context.store, fail_at=publishing, after=True)
    with pytest.raises(CommitUnknown) as raised:
        put(reopened(table, store=dying), "2 b")

    assert isinstance(raised.value.__cause__, StoreFailure)
    assert held(table) == "1 a | 2 b"


def test_refused_publication_is_the_error_of_the_storage() -> None:
    class Refusing(FailingStore):
        def put_if_absent(self, path: str, data: bytes) -> bool:
            raise StorageError("no permission", path=path, size_bytes=len(data))

    table = new_table()
    with pytest.raises(StorageError, match="no permission"):
        put(reopened(table, store=Refusing(table.context.store)), "1 a")

    assert table.context.history.snapshot_ids() == ()
    assert in_directory(table, "manifest") == set()


def test_hint_that_cannot_be_written_fails_no_commit() -> None:
    class NoHints(FailingStore):
        def put(self, path: str, data: bytes) -> None:
            if path.endswith(("LATEST", "EARLIEST")):
                raise StorageError("no permission", path=path)
            super().put(path, data)

    table = new_table()

    assert put(reopened(table, store=NoHints(table.context.store)), "1 a") == 1
    assert held(table) == "1 a"


# --- again --------------------------------------------------------------------------------------


def test_number_is_committed_once() -> None:
    table = new_table()
    first = table.write(rows(table.schema, "1 a"), commit_user="job", identifier=1)
    put(table, "2 b", commit_user="job", identifier=2)
    put(table, "3 c", commit_user="another", identifier=1)
    for number, wanted in ((1, first.snapshot_ids), (2, (2,)), (0, ())):
        again = table.write(rows(table.schema, "1 z"), commit_user="job", identifier=number)
        assert (again.snapshot_ids, again.facts) == (wanted, {"already_committed": 1})

    assert held(table) == "1 a | 2 b | 3 c"
    assert len(in_directory(table, "bucket-0")) == 3
    assert table.last_identifier("job") == 2
    assert table.last_identifier("nobody") is None


def test_commit_without_a_number_hides_no_numbered_one() -> None:
    table = new_table()
    put(table, "1 a", commit_user="job", identifier=1)
    put(table, "2 b", commit_user="job")

    assert table.last_identifier("job") == 1
    assert put(table, "3 c", commit_user="job", identifier=2) == 3
    assert held(table) == "1 a | 2 b | 3 c"


def test_both_snapshots_of_a_commit_are_found_again() -> None:
    table = new_table()
    put(table, "1 a")
    message, _ = with_compaction(table)
    (appended,) = written(table, "2 b")
    both = replace(
        appended, compact_before=message.compact_before, compact_after=message.compact_after
    )
    first = table.commit([both], identifier=1, commit_user="job")
    put(table, "3 c")
    again = table.commit([both], identifier=1, commit_user="job")

    assert (first.snapshot_ids, again.snapshot_ids) == ((2, 3), (2, 3))
    kinds = [table.context.history.snapshot(n).commit_kind for n in (2, 3)]
    assert kinds == [CommitKind.APPEND, CommitKind.COMPACT]


def test_number_that_another_process_took_meanwhile_is_not_committed_again() -> None:
    table = new_table()
    twin = reopened(table)
    deed = lambda: put(twin, "1 a", commit_user="job", identifier=1)  # noqa: E731
    slow = reopened(table, store=MeddledStore(table.context.store, deed))
    result = slow.write(rows(table.schema, "1 z"), commit_user="job", identifier=1)

    assert (result.snapshot_ids, result.facts) == ((1,), {"already_committed": 1})
    assert held(table) == "1 a"
    assert len(in_directory(table, "bucket-0")) == 1


def test_number_that_lands_just_after_the_look_for_it_is_not_committed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = new_table()
    put(table, "9 z")
    twin = reopened(table)
    look = committed_module.committed

    def look_and_be_late(*given: Any) -> CommitResult | None:
        found = look(*given)
        monkeypatch.setattr(commit_module, "committed", look)
        put(twin, "1 a", commit_user="job", identifier=1)
        return found

    monkeypatch.setattr(commit_module, "committed", look_and_be_late)
    result = table.write(rows(table.schema, "1 z"), commit_user="job", identifier=1)

    assert (result.snapshot_ids, result.facts) == ((2,), {"already_committed": 1})
    assert held(table) == "1 a | 9 z"


def test_messages_are_committed_once() -> None:
    table = new_table()
    messages = written(table, "1 a")
    table.commit(messages)
    put(table, "2 b")
    for target in (table, reopened(table)):
        with pytest.raises(AlreadyExists, match="committed before"):
            target.commit(messages)

    assert held(table) == "1 a | 2 b"


def test_messages_whose_snapshot_has_expired_are_still_known() -> None:
    table = new_table()
    messages = written(table, "1 a")
    table.commit(messages)
    for text in ("2 b", "3 c"):
        put(table, text)
    table.context.store.delete(table.context.layout.snapshot(1))
    with pytest.raises(AlreadyExists, match="committed before"):
        table.commit(messages)

    assert held(table) == "1 a | 2 b | 3 c"


def test_overwriting_messages_are_committed_once() -> None:
    table = new_table()
    messages = written(table, "1 a")
    request = CommitRequest(
        messages=messages, user="u", overwrite=lambda found: [True] * len(found)
    )
    commit(table.context, request)
    with pytest.raises(AlreadyExists, match="committed before"):
        commit(table.context, request)

    assert held(table) == "1 a"


def test_messages_that_bring_a_file_twice_are_refused() -> None:
    table = new_table()
    messages = written(table, "1 a")
    with pytest.raises(InvalidRequest, match="bring a data file twice"):
        table.commit([*messages, *messages])

    assert table.context.history.snapshot_ids() == ()


# --- compaction ---------------------------------------------------------------------------------


def test_compaction_follows_the_rows_it_came_with_as_a_snapshot_of_its_own() -> None:
    table = new_table()
    (message,) = written(table, "1 a")
    (file,) = message.new_files
    result = table.commit(
        [replace(message, compact_before=(file,), compact_after=(replace(file, level=5),))]
    )
    history = table.context.history

    assert result.snapshot_ids == (1, 2)
    assert [e.file.level for e in history.live_entries(history.snapshot(1))] == [0]
    assert [e.file.level for e in history.live_entries(history.snapshot(2))] == [5]
    assert held(table) == "1 a"


def test_compaction_that_came_too_late_is_a_conflict() -> None:
    table = new_table()
    put(table, "1 a")
    message, _ = with_compaction(table)
    table.overwrite(rows(table.schema, "2 b"))
    with pytest.raises(CommitConflict, match="is gone: another commit compacted or overwrote it"):
        table.commit([message])

    assert held(table) == "2 b"


def test_rows_stay_if_only_their_compaction_clashes() -> None:
    table = new_table()
    put(table, "1 a")
    message, old = with_compaction(table)
    (appended,) = written(table, "2 b")
    (made,) = files("L5 a-z")
    table.context.store.put(f"{table.path}/bucket-0/{made.name}", b"made by the compaction")
    both = replace(
        appended,
        compact_before=message.compact_before,
        compact_after=(*message.compact_after, made),
    )
    other = reopened(table)
    other.commit([message])
    result = table.commit([both])

    assert (result.snapshot_ids, result.facts) == ((3,), {"compaction_lost": 1})
    assert held(table) == "1 a | 2 b"
    assert in_directory(table, "bucket-0") == {*old, *(f.name for f in appended.new_files)}


# --- indexes ------------------------------------------------------------------------------------


def index(name: str, kind: str = DELETION_VECTORS) -> IndexFile:
    vectors = () if kind == DELETION_VECTORS else None
    return IndexFile(index_type=kind, name=name, size_bytes=4, row_count=1, vectors=vectors)


def indexes(table: Table) -> list[str]:
    found: list[IndexEntry] = list(table.context.history.index_entries(latest(table)))
    return sorted(f"{entry.bucket} {entry.file.index_type} {entry.file.name}" for entry in found)


def test_indexes_are_carried_from_snapshot_to_snapshot() -> None:
    table = new_table(bucket="2")
    for bucket, kind, name in (
        (0, DELETION_VECTORS, "a"),
        (0, HASH_INDEX, "b"),
        (1, HASH_INDEX, "c"),
    ):
        message = CommitMessage(
            partition=bytes(12),
            bucket=bucket,
            total_buckets=2,
            new_index_files=(index(name, kind),),
        )
        table.commit(
            [replace(message, base_snapshot_id=table.context.history.latest_snapshot_id())]
        )
    before = latest(table).index_manifest
    put(table, "1 a")

    assert latest(table).index_manifest == before
    assert indexes(table) == ["0 DELETION_VECTORS a", "0 HASH b", "1 HASH c"]


def test_index_file_replaces_the_one_of_its_bucket_and_type() -> None:
    table = new_table()
    for name in ("a", "b"):
        message = CommitMessage(
            partition=bytes(12), bucket=0, total_buckets=1, compact_index_files=(index(name),)
        )
        table.commit([message])
    assert indexes(table) == ["0 DELETION_VECTORS b"]
    table.truncate()

    assert indexes(table) == []
    assert latest(table).index_manifest is None


def test_two_index_files_of_a_bucket_are_refused() -> None:
    table = new_table()
    message = CommitMessage(
        partition=bytes(12), bucket=0, total_buckets=1, new_index_files=(index("a"), index("b"))
    )
    with pytest.raises(InvalidRequest, match=r"index file of the same bucket.* buckets=\[0\]"):
        table.commit([message])


# --- manifests ----------------------------------------------------------------------------------


def test_small_manifests_are_merged_when_there_are_enough() -> None:
    table = new_table(manifest__merge_min_count="4", write_only="true")
    counts = []
    for number in range(9):
        put(table, f"{number} x")
        counts.append(len(table.context.history.manifests(latest(table))))

    assert counts == [1, 2, 3, 4, 2, 3, 4, 2, 3]
    assert held(table).count("x") == 9


def test_overwritten_files_leave_the_manifests_when_they_are_merged() -> None:
    table = new_table(manifest__merge_min_count="2")
    for number in range(6):
        table.overwrite(rows(table.schema, f"{number} x"))
    history = table.context.history
    manifests = history.manifests(latest(table))

    assert held(table) == "5 x"
    assert sum(manifest.added_count for manifest in manifests) == 2
    assert sum(manifest.deleted_count for manifest in manifests) == 1


@pytest.mark.parametrize("threshold", ["1 b", "1 gb"])
def test_manifests_larger_than_the_target_are_not_written_again(threshold: str) -> None:
    table = new_table(
        partitions=["v"],
        keys=["id", "v"],
        manifest__target_file_size="2 kb",
        manifest__full_compaction_threshold_size=threshold,
    )
    put(table, " | ".join(f"{number} p{number}" for number in range(99)))
    large = {m.name: m for m in table.context.history.manifests(latest(table))}
    assert len(large) > 1
    assert all(manifest.size_bytes >= 2 << 10 for manifest in large.values())
    for number in range(3):
        put(table, f"{number} q")

    assert large.keys() <= {m.name for m in table.context.history.manifests(latest(table))}


def test_full_merge_leaves_only_live_files() -> None:
    table = new_table(manifest__full_compaction_threshold_size="1 b")
    for number in range(5):
        table.overwrite(rows(table.schema, f"{number} x"))
    base = table.context.history.manifest_list(latest(table).base_manifest_list)

    assert [(manifest.added_count, manifest.deleted_count) for manifest in base] == [(1, 0)]
    assert held(table) == "4 x"


def test_manifest_says_what_is_in_it() -> None:
    table = new_table(partitions=["v"], keys=["id", "v"], bucket="4")
    put(table, " | ".join(f"{number} p{number % 3}" for number in range(20)))
    (manifest,) = table.context.history.manifests(latest(table))
    live = table.context.history.live_entries(latest(table))
    values = [
        table.context.partitions.values([row]).to_pydict()
        for row in (manifest.partition_stats.min_values, manifest.partition_stats.max_values)
    ]

    assert (manifest.added_count, manifest.deleted_count) == (len(live), 0)
    assert (manifest.bucket_min, manifest.bucket_max) == (0, 3)
    assert (manifest.level_min, manifest.level_max) == (0, 0)
    assert values == [{"v": ["p0"]}, {"v": ["p2"]}]
    assert manifest.partition_stats.null_counts == (0,)


# --- dynamic buckets and bucket counts ----------------------------------------------------------


def test_two_writers_of_new_keys_in_dynamic_buckets_are_a_conflict() -> None:
    table = new_table(bucket="-1")
    put(table, "1 a")
    with closing(table.new_write()) as writer:
        writer.write(rows(table.schema, "2 b"))
        messages = writer.prepare_commit()
    put(reopened(table), "3 c")
    with pytest.raises(CommitConflict, match="dynamic buckets"):
        table.commit(messages)

    assert held(table) == "1 a | 3 c"


def test_known_keys_of_dynamic_buckets_may_be_written_by_two() -> None:
    table = new_table(bucket="-1")
    put(table, "1 a | 2 b")
    messages = written(table, "1 c")
    put(reopened(table), "3 d")
    table.commit(messages)

    assert held(table) == "1 c | 2 b | 3 d"


def test_keys_of_dynamic_buckets_that_were_dealt_anew_are_a_conflict() -> None:
    table = new_table(bucket="-1", dynamic_bucket__target_row_num="1")
    put(table, "1 a | 2 b")
    messages = written(table, "1 c")
    reopened(table).overwrite(rows(table.schema, "2 x | 1 x"))
    with pytest.raises(CommitConflict, match="dynamic buckets"):
        table.commit(messages)

    assert held(table) == "1 x | 2 x"


def test_bucket_count_that_changed_meanwhile_is_a_conflict() -> None:
    table = new_table(bucket="2")
    put(table, "1 a")
    messages = written(table, "2 b")
    put(table, "3 c")
    (live, *_) = table.context.history.live_entries(latest(table))
    message = CommitMessage(
        partition=bytes(12), bucket=0, total_buckets=3, new_files=(replace(live.file, name="x"),)
    )
    request = CommitRequest(
        messages=[message], user="u", overwrite=lambda found: [True] * len(found)
    )
    commit(table.context, request)
    with pytest.raises(CommitConflict, match=r"number of buckets.* buckets=3 written_with=2"):
        table.commit(messages)


def test_result_counts_what_an_overwrite_took_away() -> None:
    table = new_table()
    put(table, "1 a | 2 b")
    before = table.context.history.live_entries(latest(table))
    result: CommitResult = table.overwrite(rows(table.schema, "3 c"))

    assert (result.files_added, result.files_deleted, result.rows) == (1, 1, 1)
    assert result.bytes_deleted == before[0].file.size_bytes
    assert latest(table).delta_record_count == -1


def test_messages_of_another_table_are_refused() -> None:
    store = MemoryStore()
    mine = new_table(store=store)
    other = new_table(store=store, path="memory://warehouse/shop.db/other")
    with mine.new_write() as writer:
        writer.write(rows(mine.schema, "1 a"))
        messages = writer.prepare_commit()

    with pytest.raises(InvalidRequest, match="another table's, or were aborted or rolled back"):
        other.commit(messages)

    assert other.context.history.latest_snapshot() is None
    mine.commit(messages)
    assert held(mine) == "1 a"


def test_messages_that_were_aborted_are_refused() -> None:
    table = new_table()
    put(table, "1 a")
    writer = table.new_write()
    writer.write(rows(table.schema, "2 b"))
    messages = writer.prepare_commit()
    writer.abort(messages)

    with pytest.raises(InvalidRequest, match="another table's, or were aborted or rolled back"):
        table.commit(messages)

    assert held(table) == "1 a"


@pytest.mark.parametrize("compacted", [False, True])
def test_abort_leaves_the_files_of_messages_that_were_committed(compacted: bool) -> None:  # noqa: FBT001
    table = new_table()
    put(table, "1 a")
    writer = table.new_write()
    writer.write(rows(table.schema, "2 b"))
    messages = writer.prepare_commit()
    committed = table.commit(messages).snapshot_id
    if compacted:
        table.compact(full=True)

    with pytest.raises(InvalidRequest, match="the messages were committed"):
        writer.abort(messages)

    assert held(table, snapshot_id=committed) == "1 a | 2 b"


@pytest.mark.parametrize(
    "bad",
    [
        {"properties": {"a": 1}},
        {"properties": ["a"]},
        {"watermark": "x"},
        {"identifier": "6"},
        {"identifier": 1 << 63},
        {"commit_user": 7},
        {"commit_user": ""},
    ],
)
def test_what_a_snapshot_cannot_hold_is_refused(bad: dict[str, Any]) -> None:
    table = new_table()
    put(table, "1 a")

    with pytest.raises(InvalidRequest):
        table.commit([], **{"commit_user": "nightly", "identifier": 1, **bad})

    assert held(reopened(table)) == "1 a"


@pytest.mark.parametrize("given", [None, "x", ["x"], 5])
def test_what_is_no_message_is_refused(given: Any) -> None:
    with pytest.raises(InvalidRequest, match="commit takes"):
        new_table().commit(given)


# --- others who commit under the same user --------------------------------------------------------


@pytest.mark.parametrize("user", ["me", "another"])
def test_batch_commits_under_one_user_are_two_commits(user: str) -> None:
    table = new_table(write_only="true")
    put(table, "0 old")
    other = reopened(table, ambient=seeded(9))

    def meddle() -> None:
        other.write(rows(other.schema, "2 theirs"), commit_user=user)

    mine = reopened(table, store=MeddledStore(table.context.store, meddle), ambient=seeded(8))
    result = mine.write(rows(table.schema, "1 mine"), commit_user="me")

    assert result.snapshot_ids == (3,)
    assert held(reopened(table)) == "0 old | 1 mine | 2 theirs"


@pytest.mark.parametrize("identifier", [BATCH_COMMIT_IDENTIFIER, 7])
def test_files_stay_if_another_has_committed_the_compaction_between_both_snapshots(
    identifier: int,
) -> None:
    table = new_table(num_sorted_run__compaction_trigger="2")
    put(table, "1 old")
    with table.new_write() as writer:
        writer.write(rows(table.schema, "1 new | 2 new"))
        messages = writer.prepare_commit()
    assert any(message.compact_before for message in messages)
    other = reopened(table, ambient=seeded(9))

    def nothing() -> None:
        """The first snapshot is this commit's own."""

    def meddle() -> None:
        other.commit([replace(message, new_files=()) for message in messages], commit_user="they")

    store = MeddledStore(table.context.store, nothing, meddle)
    mine = reopened(table, store=store, ambient=seeded(8))
    result = mine.commit(messages, commit_user="me", identifier=identifier)

    assert result.snapshot_ids == (2,)
    assert result.facts == {"compaction_lost": 1}
    assert held(reopened(table)) == "1 new | 2 new"


def test_who_commits_the_same_messages_between_both_snapshots_made_the_second() -> None:
    table = new_table(num_sorted_run__compaction_trigger="2")
    put(table, "1 old")
    with table.new_write() as writer:
        writer.write(rows(table.schema, "1 new | 2 new"))
        messages = writer.prepare_commit()
    other = reopened(table, ambient=seeded(9))
    again: list[tuple[int, ...]] = []

    def nothing() -> None:
        """The first snapshot is this commit's own."""

    def meddle() -> None:
        done = other.commit(messages, commit_user="me", identifier=7)
        again.append(done.snapshot_ids)

    store = MeddledStore(table.context.store, nothing, meddle)
    mine = reopened(table, store=store, ambient=seeded(8))
    result = mine.commit(messages, commit_user="me", identifier=7)

    assert again == [(2, 3)]
    assert result.snapshot_ids == (2, 3)
    assert held(reopened(table)) == "1 new | 2 new"


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (CommitConflict("another was first"), logging.DEBUG),
        (AlreadyExists("another made it"), logging.DEBUG),
        (StorageError("the disk is full"), logging.WARNING),
    ],
)
def test_lost_race_of_a_compaction_is_no_warning(
    error: LakecoreError, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="lakecore.commit"):
        log_lost_compaction(new_table().context, error)

    (record,) = caplog.records
    assert record.levelno == level
    assert record.getMessage().startswith("rows are committed")
