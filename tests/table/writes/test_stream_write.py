"""Stream writes: checkpoints in flight, committed in order, each exactly once."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.errors import CommitConflict, CommitUnknown, InvalidRequest, StorageError
from lakecore.model.manifest import FileKind
from tests.stores import FailingStore, StoreFailure
from tests.tables import held, new_table, put, reopened, rows

if TYPE_CHECKING:
    from lakecore.io.stores.store import Store
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.handle import Table

ALWAYS: dict[str, Any] = {"num_sorted_run__compaction_trigger": "1", "num_levels": "4"}


def snapshots(table: Table) -> list[Snapshot]:
    history = table.context.history
    return [history.snapshot(number) for number in history.snapshot_ids()]


def commits(table: Table) -> str:
    """Kind and identifier of each snapshot: `A1 C1 A2`."""
    return " ".join(f"{each.commit_kind[0]}{each.commit_identifier}" for each in snapshots(table))


def fill(writer: lc.StreamWrite, table: Table, checkpoint: int, text: str) -> list[Any]:
    writer.write(rows(table.schema, text))
    return writer.prepare_commit(checkpoint)


def data_files(table: Table) -> list[str]:
    listed = table.context.store.list(f"{table.path}/bucket-0")
    return [status.path.rpartition("/")[2] for status in listed]


def test_each_checkpoint_is_a_snapshot_of_its_number() -> None:
    table = new_table()
    with table.new_stream_write("job") as writer:
        for checkpoint, text in enumerate(("1 a | 2 b", "2 B", "3 c"), start=1):
            fill(writer, table, checkpoint, text)
            result = writer.commit(checkpoint)

            assert (result.identifier, result.snapshot_ids) == (checkpoint, (checkpoint,))
            assert writer.committed() == checkpoint

    assert held(table) == "1 a | 2 B | 3 c"
    assert commits(table) == "A1 A2 A3"
    assert {each.commit_user for each in snapshots(table)} == {"job"}


def test_rows_are_visible_only_after_the_commit() -> None:
    table = new_table()
    with table.new_stream_write("job") as writer:
        fill(writer, table, 7, "1 a")

        assert writer.committed() is None
        assert writer.in_flight == (7,)
        assert held(table) == ""


def test_commit_of_a_checkpoint_commits_those_before_it_in_order() -> None:
    table = new_table()
    with table.new_stream_write("job") as writer:
        fill(writer, table, 1, "1 a | 2 a")
        fill(writer, table, 2, "1 b")
        fill(writer, table, 5, "1 c | 3 c")
        writer.write(rows(table.schema, "9 later"))
        result = writer.commit(5)

        assert (result.identifier, result.snapshot_ids, result.rows) == (5, (1, 2, 3), 5)
        assert (result.attempts, result.files_added, result.files_deleted) == (3, 3, 0)
        assert writer.in_flight == ()

    assert held(table) == "1 c | 2 a | 3 c"
    assert commits(table) == "A1 A2 A5"


def test_later_checkpoint_wins_if_prepared_before_the_earlier_commit() -> None:
    table = new_table(**ALWAYS)
    with table.new_stream_write("job") as writer:
        for checkpoint in range(1, 9):
            fill(writer, table, checkpoint, f"1 v{checkpoint} | {checkpoint + 10} x")
            if checkpoint > 2:
                writer.commit(checkpoint - 2)
        writer.commit(8)

    assert held(table) == " | ".join(["1 v8", *(f"{n} x" for n in range(11, 19))])


@pytest.mark.parametrize("producer", ["none", "input", "lookup", "full-compaction"])
def test_bucket_in_compaction_is_left_alone_until_its_commit(producer: str) -> None:
    table = new_table(changelog_producer=producer, **ALWAYS)
    with table.new_stream_write("job") as writer:
        fill(writer, table, 1, "1 a")
        writer.commit(1)
        first = fill(writer, table, 2, "1 b")
        second = fill(writer, table, 3, "-D 1 b")
        writer.commit(3)
        third = fill(writer, table, 4, "2 d")
        writer.commit(4)

    assert first[0].compact_before
    assert not second[0].compact_before
    assert third[0].compact_before
    assert held(table) == "2 d"


def test_lost_compaction_in_flight_does_not_bring_deleted_rows_back() -> None:
    table = new_table(**ALWAYS)
    put(table, "1 a")
    with table.new_stream_write("job") as writer:
        fill(writer, table, 1, "-D 1 a")
        fill(writer, table, 2, "-D 1 a | 2 b")
        reopened(table).compact(full=True)
        writer.commit(2)
        fill(writer, table, 3, "3 c")
        writer.commit(3)

    assert held(table) == held(reopened(table)) == "2 b | 3 c"


def test_compaction_that_is_made_again_has_the_number_of_its_checkpoint() -> None:
    table = new_table(**ALWAYS)
    put(table, "1 a")
    with table.new_stream_write("job") as writer:
        fill(writer, table, 1, "2 b")
        reopened(table).compact(full=True)
        writer.commit(1)

    own = [each for each in snapshots(table) if each.commit_user == "job"]
    assert [(str(each.commit_kind), each.commit_identifier) for each in own] == [
        ("APPEND", 1),
        ("COMPACT", 1),
    ]


def test_older_file_of_another_writer_stays_below_a_compaction_in_flight() -> None:
    table = new_table(**ALWAYS)
    put(table, "1 a | 2 a")
    with table.new_stream_write("job") as writer:
        only_written = reopened(table).copy({"write-only": "true"})
        fill(writer, table, 1, "1 mine")
        put(only_written, "1 other | 2 other")
        writer.commit(1)

    first, second = held(table), held(reopened(table))
    reopened(table).compact(full=True)

    assert first == second == held(reopened(table))


def test_buckets_without_new_rows_are_compacted_in_full_when_due() -> None:
    table = new_table(
        bucket="8", changelog_producer="full-compaction", full_compaction__delta_commits="3"
    )
    with table.new_stream_write("job") as writer:
        fill(writer, table, 1, "1 a | 2 a | 3 a | 4 a")
        writer.commit(1)
        for checkpoint in (2, 3, 4):
            writer.prepare_commit(checkpoint)
            writer.commit(checkpoint)

    levels = table.inspect.files()["level"].to_list()
    assert set(levels) == {table.options.level_count - 1}
    assert len(table.changes().collect()) == 4


def test_full_compaction_that_a_crashed_process_owed_is_made_by_the_next() -> None:
    table = new_table(full_compaction__delta_commits="3")
    with table.new_stream_write("job") as writer:
        fill(writer, table, 1, "1 a")
        writer.commit(1)
    with reopened(table).new_stream_write("job") as writer:
        for checkpoint in (2, 3):
            writer.prepare_commit(checkpoint)
            writer.commit(checkpoint)

    assert table.inspect.files()["level"].to_list() == [5]


def test_write_only_stream_leaves_compaction_to_others() -> None:
    table = new_table(write_only="true", **ALWAYS)
    with table.new_stream_write("job") as writer:
        for checkpoint in range(1, 8):
            fill(writer, table, checkpoint, f"{checkpoint} x")
            writer.commit(checkpoint)

    assert table.inspect.files()["level"].to_list() == [0] * 7


def test_runs_of_a_bucket_stay_below_the_stop_trigger() -> None:
    table = new_table(num_sorted_run__compaction_trigger="3")
    most = 0
    with table.new_stream_write("job") as writer:
        for checkpoint in range(1, 31):
            fill(writer, table, checkpoint, f"{checkpoint % 7} {checkpoint}")
            if checkpoint > 1:
                writer.commit(checkpoint - 1)
            most = max(most, len(table.inspect.files()))

    assert most <= table.options.stop_trigger


# --- empty checkpoints, watermarks ---------------------------------------------------------------


def test_checkpoint_without_rows_makes_an_empty_snapshot() -> None:
    table = new_table()
    with table.new_stream_write("job") as writer:
        assert writer.prepare_commit(4) == []
        assert writer.commit(4).snapshot_ids == (1,)
        assert writer.committed() == 4

    assert commits(table) == "A4"


def test_checkpoint_without_rows_makes_no_snapshot_if_empty_commits_are_ignored() -> None:
    table = new_table(snapshot__ignore_empty_commit="true")
    with table.new_stream_write("job") as writer:
        writer.prepare_commit(4)

        assert writer.commit(4).snapshot_ids == ()
        assert writer.committed() is None


def test_watermark_and_properties_are_stored_and_the_watermark_never_falls() -> None:
    table = new_table()
    with table.new_stream_write("job") as writer:
        for checkpoint, watermark in enumerate((100, 50, None, 200), start=1):
            writer.prepare_commit(checkpoint)
            writer.commit(checkpoint, watermark=watermark, properties={"at": str(checkpoint)})

    found = snapshots(table)
    assert [each.watermark for each in found] == [100, 100, 100, 200]
    assert [dict(each.properties or {}) for each in found][-1] == {"at": "4"}


# --- restarts ------------------------------------------------------------------------------------


def test_prepared_checkpoint_is_committed_by_the_next_process() -> None:
    table = new_table()
    stored: dict[int, bytes] = {}
    with table.new_stream_write("job") as writer:
        for checkpoint, text in ((1, "1 a"), (2, "2 b"), (3, "3 c")):
            stored[checkpoint] = pickle.dumps(fill(writer, table, checkpoint, text))
        writer.commit(1)

    prepared = {each: pickle.loads(data) for each, data in stored.items()}
    with reopened(table).new_stream_write("job") as writer:
        assert list(writer.filter_committed(prepared)) == [2, 3]
        results = writer.recover(prepared)
        fill(writer, table, 4, "4 d")
        writer.commit(4)

    assert [(each.identifier, each.snapshot_ids) for each in results][1:] == [(2, (2,)), (3, (3,))]
    assert results[0].facts == {"already_committed": 1}
    assert held(table) == "1 a | 2 b | 3 c | 4 d"
    assert commits(table) == "A1 A2 A3 A4"


def test_checkpoint_that_is_written_again_counts_once_and_leaves_no_files() -> None:
    table = new_table(merge_engine="aggregation", fields__v__aggregate_function="listagg")
    for _ in range(3):
        with reopened(table).new_stream_write("job") as writer:
            fill(writer, table, 1, "1 a")
            result = writer.commit(1)

    assert result.facts == {"already_committed": 1}
    assert held(table) == "1 a"
    assert len(data_files(table)) == 1


def test_lost_reply_is_settled_by_committing_again() -> None:
    table = new_table()
    store = LostReply(table.context.store)
    with reopened(table, store=store).new_stream_write("job") as writer:
        fill(writer, table, 1, "1 a")
        store.loses = True
        with pytest.raises(CommitUnknown):
            writer.commit(1)
        store.loses = store.is_away = False

        assert writer.in_flight == (1,)
        assert writer.commit(1).facts == {"already_committed": 1}
        writer.abort()

    assert held(reopened(table)) == "1 a"


def test_abort_after_a_lost_reply_keeps_the_files() -> None:
    table = new_table()
    store = LostReply(table.context.store)
    with reopened(table, store=store).new_stream_write("job") as writer:
        fill(writer, table, 1, "1 a")
        store.loses = True
        with pytest.raises(CommitUnknown):
            writer.commit(1)
        store.loses = store.is_away = False
        writer.abort()

    assert held(reopened(table)) == "1 a"


def test_abort_removes_the_files_in_flight() -> None:
    table = new_table()
    with table.new_stream_write("job") as writer:
        fill(writer, table, 1, "1 a")
        fill(writer, table, 2, "2 b")
        writer.write(rows(table.schema, "3 c"))
        writer.abort()

        assert writer.in_flight == ()
        assert data_files(table) == []
        fill(writer, table, 3, "4 d")
        writer.commit(3)

    assert held(table) == "4 d"


def test_crash_at_any_store_call_leaves_whole_checkpoints_that_the_next_process_continues() -> None:
    texts = ["1 a | 2 a", "1 b | -D 2 a", "3 c", "1 d | 4 d"]
    seen = set()
    call = 0
    while True:
        call += 1
        table = new_table(**ALWAYS)
        failing = FailingStore(table.context.store, fail_at=call, after=call % 2 == 0)
        stored: dict[int, bytes] = {}
        try:
            run(reopened(table, store=failing), texts, stored)
        except (StoreFailure, lc.LakecoreError):
            assert failing.is_dead
        done = reopened(table).new_stream_write("job").committed() or 0
        seen.add(done)
        for checkpoint in range(1, done + 1):
            assert held(reopened(table), snapshot_id=last_of(table, checkpoint))
        resumed = reopened(table)
        prepared = {each: pickle.loads(data) for each, data in stored.items()}
        run(resumed, texts, {}, prepared)

        assert held(reopened(table)) == "1 d | 3 c | 4 d"
        added = [
            each.commit_identifier for each in snapshots(resumed) if each.commit_kind == "APPEND"
        ]
        assert added == [1, 2, 3, 4]
        if not failing.is_dead:
            break

    assert seen == {0, 1, 2, 3, 4}


def run(
    table: Table,
    texts: list[str],
    stored: dict[int, bytes],
    prepared: dict[int, list[Any]] | None = None,
) -> None:
    """A job with one checkpoint in flight while the next one is written."""
    with table.new_stream_write("job") as writer:
        writer.recover(prepared or {})
        done = max([writer.committed() or 0, *(prepared or {})])
        for checkpoint in range(done + 1, len(texts) + 1):
            stored[checkpoint] = pickle.dumps(
                fill(writer, table, checkpoint, texts[checkpoint - 1])
            )
            if checkpoint - 1 in writer.in_flight:
                writer.commit(checkpoint - 1)
        if writer.in_flight:
            writer.commit(writer.in_flight[-1])


def last_of(table: Table, checkpoint: int) -> int:
    return max(
        each.id for each in snapshots(reopened(table)) if each.commit_identifier == checkpoint
    )


# --- dynamic buckets -----------------------------------------------------------------------------


DYNAMIC: dict[str, Any] = {"bucket": "-1", "dynamic_bucket__target_row_num": "2"}


def test_keys_of_checkpoints_in_flight_keep_their_dynamic_buckets() -> None:
    table = new_table(**DYNAMIC)
    with table.new_stream_write("job") as writer:
        for checkpoint in range(1, 7):
            fill(
                writer,
                table,
                checkpoint,
                f"1 v{checkpoint} | {checkpoint + 10} x | 9 w{checkpoint}",
            )
            if checkpoint > 2:
                writer.commit(checkpoint - 2)
        writer.commit(6)
        fill(writer, table, 7, "1 last")
        writer.commit(7)

    assert held(reopened(table)) == "1 last | " + " | ".join(
        [*(f"{n} x" for n in range(11, 17)), "9 w6"]
    )
    live = table.context.history.live_entries(snapshots(table)[-1])
    assert all(entry.kind is FileKind.ADD for entry in live)


def test_keys_that_another_writer_added_meanwhile_are_a_conflict() -> None:
    table = new_table(**DYNAMIC)
    with table.new_stream_write("job") as writer:
        fill(writer, table, 1, "1 a")
        fill(writer, table, 2, "2 b")
        put(reopened(table), "3 c | 2 c")
        with pytest.raises(CommitConflict):
            writer.commit(2)

        assert writer.in_flight == (1, 2)

    assert held(reopened(table)) == "2 c | 3 c"


def test_keys_that_another_writer_added_between_checkpoints_are_known() -> None:
    table = new_table(**DYNAMIC)
    with table.new_stream_write("job") as writer:
        for checkpoint in range(1, 5):
            fill(writer, table, checkpoint, f"1 a{checkpoint} | {checkpoint} b | 30 m{checkpoint}")
            writer.commit(checkpoint)
            put(reopened(table), f"1 o{checkpoint} | {checkpoint + 1} o | 20 o")

    assert held(reopened(table)) == "1 o4 | 2 b | 20 o | 3 b | 30 m4 | 4 b | 5 o"


# --- wrong calls ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [-1, 1.5, True, "1", None, 2**63 - 1, 2**63])
def test_number_that_no_checkpoint_can_have_is_refused(number: Any) -> None:
    writer = new_table().new_stream_write("job")

    with pytest.raises(InvalidRequest, match=r"checkpoint|identifier"):
        writer.prepare_commit(number)


def test_numbers_of_checkpoints_rise() -> None:
    writer = new_table().new_stream_write("job")
    writer.prepare_commit(5)

    with pytest.raises(InvalidRequest, match="the numbers of checkpoints rise"):
        writer.prepare_commit(5)


def test_commit_of_a_checkpoint_that_is_not_prepared_is_refused() -> None:
    writer = new_table().new_stream_write("job")

    with pytest.raises(InvalidRequest, match="not prepared"):
        writer.commit(1)


def test_commit_without_some_of_its_messages_is_refused() -> None:
    table = new_table(bucket="4")
    writer = table.new_stream_write("job")
    messages = fill(writer, table, 1, "1 a | 2 b | 3 c | 4 d")

    with pytest.raises(InvalidRequest, match="their rows would be lost"):
        writer.commit(1, messages[1:])
    writer.commit(1, messages)

    assert held(table) == "1 a | 2 b | 3 c | 4 d"


def test_messages_of_several_writers_are_one_commit() -> None:
    table = new_table(keys=())
    writers = [table.new_write() for _ in range(2)]
    messages = []
    for number, each in enumerate(writers):
        each.write(rows(table.schema, f"{number} w"))
        messages += each.prepare_commit()
    driver = table.new_stream_write("job")

    assert driver.commit(1, messages).snapshot_ids == (1,)
    assert driver.commit(1, messages).facts == {"already_committed": 1}
    assert held(table) == "0 w | 1 w"


def test_recover_after_a_write_is_refused() -> None:
    table = new_table()
    writer = table.new_stream_write("job")
    writer.write(rows(table.schema, "1 a"))

    with pytest.raises(InvalidRequest, match="before the first write"):
        writer.recover({})


def test_recover_names_files_that_are_gone() -> None:
    table = new_table()
    writer = table.new_stream_write("job")
    messages = fill(writer, table, 1, "1 a")
    writer.abort()

    with pytest.raises(InvalidRequest, match="are not there"):
        reopened(table).new_stream_write("job").recover({1: messages})


@pytest.mark.parametrize("prepared", [None, [1], {"1": []}, {1: None}, {1: [7]}])
def test_recover_takes_messages_by_checkpoint(prepared: Any) -> None:
    with pytest.raises(InvalidRequest):
        new_table().new_stream_write("job").recover(prepared)


@pytest.mark.parametrize("user", [None, "", 7])
def test_stream_write_needs_a_commit_user(user: Any) -> None:
    with pytest.raises(InvalidRequest, match="user"):
        new_table().new_stream_write(user)


def test_row_that_does_not_fit_ends_the_writing_but_not_the_commits() -> None:
    table = new_table()
    writer = table.new_stream_write("job")
    fill(writer, table, 1, "1 a")
    with pytest.raises(InvalidRequest):
        writer.write([{"id": None, "v": "b"}])
    with pytest.raises(InvalidRequest, match="the writer has ended"):
        writer.prepare_commit(2)
    writer.commit(1)

    assert held(table) == "1 a"


def test_threads_take_turns() -> None:
    table = new_table(keys=())
    with table.new_stream_write("job") as writer, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: writer.write(rows(table.schema, f"{n} x")), range(40)))
        writer.prepare_commit(1)
        writer.commit(1)

    assert table.count() == 40


class LostReply:
    """A store that goes away just after it has stored a snapshot, until it is back."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.loses = False
        self.is_away = False

    def put_if_absent(self, path: str, data: bytes) -> bool:
        made = self._inner.put_if_absent(path, data)
        if self.loses and "/snapshot/" in path:
            self.is_away = True
            raise StorageError("no reply", path=path)
        return made

    def read(self, path: str) -> bytes:
        if self.is_away:
            raise StorageError("nobody there", path=path)
        return self._inner.read(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
