"""Writes that compact: APPEND, then COMPACT; the rows never depend on it."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import lakecore as lc
from lakecore.errors import CorruptTable
from lakecore.format.layout import Layout
from lakecore.io.ambient import seeded
from lakecore.memory import Budget
from lakecore.model.evolution import evolve
from lakecore.model.manifest import FileKind
from lakecore.model.schema_change import SchemaChange
from lakecore.table.handle import load_table
from lakecore.table.publication import write_schema
from tests.stores import FailingStore, MeddledStore, StoreFailure
from tests.tables import held, in_directory, new_table, put, reopened, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lakecore.model.files import CommitMessage, DataFile
    from lakecore.table.handle import Table

VALUES = {"id": "INT NOT NULL", "a": "INT", "b": "STRING"}
DAYS = {"day": "STRING NOT NULL", "id": "INT NOT NULL", "v": "STRING"}
LOOKUPS: dict[str, dict[str, Any]] = {
    "lookup": {"changelog_producer": "lookup"},
    "first-row": {"merge_engine": "first-row"},
    "force-lookup": {"force_lookup": "true"},
    "force-up-level-0": {"compaction__force_up_level_0": "true"},
}
ENGINES: dict[str, dict[str, Any]] = {
    "deduplicate": {},
    "partial-update": {
        "merge_engine": "partial-update",
        "partial_update__remove_record_on_delete": "true",
    },
    "aggregation": {
        "merge_engine": "aggregation",
        "fields__a__aggregate_function": "sum",
        "aggregation__remove_record_on_delete": "true",
    },
    "input": {"changelog_producer": "input"},
}
COMMITS = (
    "1 10 a | 2 20 b | 3 30 c",
    "1 11 _ | 4 40 d | -D 2 20 _",
    "-D 4 40 _ | 1 _ x | 5 50 e",
    "9 21 z | 5 _ E",
    "6 60 f | 1 12 _",
    "-D 3 30 _ | 7 70 g",
    "7 71 _ | 8 80 h | 9 41 D",
)
ALWAYS: dict[str, Any] = {"num_sorted_run__compaction_trigger": "1", "num_levels": "6"}
"""Two runs are compacted, whatever their sizes."""
AT_ONCE = {"num-sorted-run.compaction-trigger": "1", "num-levels": "6"}


def live(table: Table) -> list[DataFile]:
    """The live files."""
    history = table.context.history
    snapshot = history.latest_snapshot()
    assert snapshot is not None
    return [entry.file for entry in history.live_entries(snapshot)]


def levels(table: Table) -> list[int]:
    return sorted(file.level for file in live(table))


def kinds(table: Table) -> str:
    """The first letter of each snapshot's kind."""
    return "".join(str(kind)[0] for kind in table.inspect.snapshots()["commit_kind"])


def prepared(table: Table, text: str) -> list[CommitMessage]:
    """The messages of a write that waits for its commit, as they come out of another process."""
    with table.new_write() as writer:
        writer.write(rows(table.schema, text))
        messages: list[CommitMessage] = pickle.loads(pickle.dumps(writer.prepare_commit()))
    return messages


def filled(count: int = 4, **options: Any) -> Table:
    """A table with so many runs at level 0; the next write of one with four compacts."""
    table = new_table(**options)
    for number in range(count):
        put(table.copy({"write-only": "true"}), f"{number} old | 9 {number}")
    return table


# --- what a write makes -------------------------------------------------------------------------


def test_write_that_finds_runs_enough_makes_two_snapshots_of_one_commit() -> None:
    table = filled(4)

    result = table.write(rows(table.schema, "4 new | 9 new"), commit_user="me", identifier=7)

    history = table.context.history
    first, second = (history.snapshot(number) for number in result.snapshot_ids)
    added = [e.file for e in history.entries(history.delta_manifests(first))]
    replaced = history.entries(history.delta_manifests(second))
    assert kinds(table) == "AAAAAC"
    assert (first.commit_user, first.commit_identifier) == ("me", 7)
    assert (second.commit_user, second.commit_identifier) == ("me", 7)
    assert [file.level for file in added] == [0]
    assert [e.file.level for e in replaced if e.kind is FileKind.DELETE] == [0] * 5
    assert added[0].name in {e.file.name for e in replaced if e.kind is FileKind.DELETE}
    assert levels(table) == [5]
    assert second.total_record_count == 6
    assert second.delta_record_count == -4
    assert held(table) == "0 old | 1 old | 2 old | 3 old | 4 new | 9 new"
    assert held(table, snapshot_id=5) == held(table)


def test_result_tells_what_was_compacted() -> None:
    table = filled(4)

    result = table.write(rows(table.schema, "4 new"))

    assert result.snapshot_ids == (5, 6)
    assert (result.files_added, result.files_deleted) == (2, 5)
    assert result.rows == 1
    assert result.facts == {"buckets_compacted": 1, "files_compacted": 5, "rows_compacted": 9}


def test_table_that_is_write_only_is_left_to_others() -> None:
    table = new_table(write_only="true")
    for number in range(8):
        put(table, f"{number} x")

    assert kinds(table) == "A" * 8
    assert levels(table) == [0] * 8


def test_write_only_is_one_writers_own_choice() -> None:
    table = filled(4)

    assert put(table.copy({"write-only": "true"}), "4 x") == 5
    assert kinds(table) == "A" * 5
    put(table, "5 x")
    assert levels(table) == [5]


def test_more_runs_than_the_trigger_never_stay() -> None:
    table = filled(20)

    put(table, "7 x")

    assert len(live(table)) <= 5
    assert kinds(table) == "A" * 21 + "C"


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_are_those_of_a_table_that_is_never_compacted(engine: str) -> None:
    options = ENGINES[engine]
    table = new_table(VALUES, **{**ALWAYS, **options})
    plain = new_table(VALUES, write_only="true", **options)
    for text in COMMITS:
        put(table, text)
        put(plain, text)

        assert held(table) == held(plain)
    assert "C" in kinds(table)


def test_changelog_of_input_comes_with_the_rows_alone() -> None:
    table = new_table(changelog_producer="input", **ALWAYS)
    for number in range(4):
        put(table, f"{number} x | 9 y")

    counts = table.inspect.snapshots()["changelog_record_count"].to_list()
    assert kinds(table) == "AACACAC"
    assert [count or 0 for count in counts] == [2, 2, 0, 2, 0, 2, 0]


@pytest.mark.parametrize("options", LOOKUPS.values(), ids=LOOKUPS)
def test_level_0_is_empty_after_every_write(options: dict[str, Any]) -> None:
    table = new_table(**options)
    for number in range(7):
        put(table, f"{number} x | {number + 1} y")

        assert 0 not in levels(table)
    assert kinds(table) == "AC" * 7
    assert held(table).count("y" if "merge_engine" in options else "x") == 7


def test_only_buckets_that_were_written_are_compacted() -> None:
    table = new_table(DAYS, keys=("day", "id"), partitions=("day",))
    for number in range(4):
        put(table.copy({"write-only": "true"}), f"x {number} a | y {number} a")

    result = table.write(rows(table.schema, "x 8 b"))

    by_partition = table.inspect.files().group_by("partition").agg(pl.col("level").sort())
    assert dict(by_partition.rows()) == {"{x}": [5], "{y}": [0, 0, 0, 0]}
    assert result.facts["buckets_compacted"] == 1


@pytest.mark.parametrize("budget_bytes", [1 << 30, 1 << 10])
def test_buckets_of_a_partition_are_compacted_at_once_or_in_turn(budget_bytes: int) -> None:
    table = new_table(bucket="4", budget_bytes=budget_bytes, **ALWAYS)
    text = " | ".join(f"{number} a" for number in range(40))
    put(table, text)

    result = table.write(rows(table.schema, text.replace("a", "b")))

    assert result.facts["buckets_compacted"] == 4
    assert levels(table) == [5] * 4
    assert held(table).count("b") == 40
    assert table.context.budget.used_bytes == 0


def test_dynamic_buckets_keep_their_keys_and_indexes() -> None:
    options: dict[str, Any] = {"bucket": "-1", "dynamic_bucket__target_row_num": "2"}
    table = new_table(**{**ALWAYS, **options})
    for number in range(5):
        put(table, f"1 v{number} | 2 v{number} | {number + 3} v{number}")

    assert held(table) == "1 v4 | 2 v4 | 3 v0 | 4 v1 | 5 v2 | 6 v3 | 7 v4"
    assert {file.level for file in live(table)} <= {0, 5}
    assert "C" in kinds(table)


# --- overwrites ---------------------------------------------------------------------------------


def test_overwrite_compacts_the_new_files_alone() -> None:
    table = filled(8, target_file_size="1 b")
    before = in_directory(table, "bucket-0")
    text = " | ".join(f"{number} new" for number in range(50))

    small = reopened(table, budget_bytes=1000)
    result = small.overwrite(rows(table.schema, text))

    history = table.context.history
    second = history.snapshot(result.snapshot_ids[1])
    taken = {
        entry.file.name
        for entry in history.entries(history.delta_manifests(second))
        if entry.kind is FileKind.DELETE
    }
    assert kinds(table)[8:] == "OC"
    assert not taken & before
    assert held(table).count("new") == 50
    assert "old" not in held(table)


def test_overwrite_of_a_table_that_takes_look_ups_shows_its_rows_and_tells_nothing() -> None:
    table = new_table(changelog_producer="lookup")
    put(table, "1 a | 2 b")

    table.overwrite(rows(table.schema, "2 c"))

    assert kinds(table) == "ACOC"
    assert levels(table) == [5]
    assert held(table) == "2 c"
    assert table.inspect.snapshots()["changelog_record_count"].to_list()[2:] in ([0, 0], [None] * 2)


# --- when ---------------------------------------------------------------------------------------


def test_every_so_many_commits_a_full_compaction_follows() -> None:
    table = new_table(full_compaction__delta_commits="3")
    for number in range(8):
        put(table, f"{number} x")

    assert kinds(table) == "AAACAAACAA"
    assert levels(table) == [0, 0, 5]


def test_commits_are_counted_by_bucket_and_whoever_compacts_counts() -> None:
    table = new_table(
        DAYS, keys=("day", "id"), partitions=("day",), full_compaction__delta_commits="3"
    )
    put(table, "x 1 a | y 1 a")
    put(table, "x 2 a")
    table.compact(full=True, partitions=[{"day": "x"}])

    put(table, "x 3 a | y 3 a")

    by_partition = table.inspect.files().group_by("partition").agg(pl.col("level").sort())
    assert dict(by_partition.rows()) == {"{x}": [0, 5], "{y}": [5]}


def test_where_the_log_was_cut_off_a_full_compaction_is_due() -> None:
    table = new_table(full_compaction__delta_commits="4")
    put(table, "1 a")
    put(table, "2 b")
    table.context.store.delete(table.context.layout.snapshot(1))

    put(table, "3 c")

    assert levels(table) == [5]


def test_first_commits_of_a_table_are_counted_from_its_beginning() -> None:
    table = new_table(full_compaction__delta_commits="4")
    for number in range(3):
        put(table, f"{number} x")

    assert kinds(table) == "AAA"


def test_optimization_interval_begins_with_the_newest_file_of_the_last_level() -> None:
    ambient = seeded(1)
    table = new_table(ambient=ambient, compaction__optimization_interval="1 h")
    put(table, "1 a")
    put(table, "2 b")

    assert kinds(table) == "AAC"
    put(table, "3 c")
    assert kinds(table) == "AACA"
    ambient.sleep(3601)
    put(table, "4 d")
    assert kinds(table) == "AACAAC"
    assert levels(table) == [5]


@pytest.mark.parametrize("option", ["commit__force_compact", "lookup_wait"])
def test_a_write_waits_for_its_compaction_whatever_these_options_say(option: str) -> None:
    value = "true" if option == "commit__force_compact" else "false"
    options: dict[str, Any] = {option: value}
    table = new_table(changelog_producer="lookup", **options)

    put(table, "1 a")

    assert kinds(table) == "AC"


def test_gentle_look_ups_wait_for_some_commits_of_one_writer() -> None:
    options: dict[str, Any] = {"lookup_compact": "gentle", "lookup_compact__max_interval": "3"}
    table = new_table(
        changelog_producer="lookup", num_sorted_run__compaction_trigger="3", **options
    )
    found = []
    with table.new_write() as writer:
        for _ in range(6):
            writer.write(rows(table.schema, "1 a"))
            found.append(len(table.commit(writer.prepare_commit()).snapshot_ids))

    # The third finds three runs, the fourth has waited for three times, the sixth finds three runs.
    assert found == [1, 1, 2, 2, 1, 2]


# --- verbs --------------------------------------------------------------------------------------


def test_delete_update_and_merge_compact_as_a_write_does() -> None:
    table = filled(4)

    deleted = table.delete("id = 1")
    updated = table.copy(AT_ONCE).update({"v": "up"}, "id = 2")
    merged = (
        table.copy(AT_ONCE)
        .merge(rows(table.schema, "3 m | 5 m"), ["id"])
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )

    assert (deleted.rows_deleted, deleted.snapshot_ids) == (1, (5, 6))
    assert (updated.rows_updated, updated.snapshot_ids) == (1, (7, 8))
    assert (merged.rows_updated, merged.rows_inserted, merged.snapshot_ids) == (1, 1, (9, 10))
    assert [each.facts["buckets_compacted"] for each in (deleted, updated, merged)] == [1, 1, 1]
    assert held(table) == "0 old | 2 up | 3 m | 5 m | 9 3"
    assert kinds(table) == "AAAAACACAC"


# --- schemas ------------------------------------------------------------------------------------


def test_columns_that_others_have_added_stay() -> None:
    table = new_table(**ALWAYS)
    context = table.context
    change = [SchemaChange.add_column("w", "INT")]
    newest = evolve(context.schema, change, now_ms=1, has_snapshots=True)
    write_schema(context.store, Layout(root=table.path), newest)
    put(table.refresh(), "1 a 7")

    put(table, "2 b")  # opened before the column was there

    assert levels(table) == [5]
    assert held(table.refresh()) == "1 a 7 | 2 b _"


def test_newest_schema_may_say_that_others_compact() -> None:
    table = filled(4)
    context = table.context
    change = [SchemaChange.set_option("write-only", "true")]
    newest = evolve(context.schema, change, now_ms=1, has_snapshots=True)
    write_schema(context.store, Layout(root=table.path), newest)

    put(table, "4 x")

    assert levels(table) == [0] * 5


# --- in two phases ------------------------------------------------------------------------------


def test_abandoned_messages_leave_no_file() -> None:
    table = filled(4)
    before = in_directory(table, "bucket-0")
    with table.new_write() as writer:
        writer.write(rows(table.schema, "4 x"))
        messages = writer.prepare_commit()
        assert messages[0].compact_after
        writer.abort(messages)

    assert in_directory(table, "bucket-0") == before
    assert held(table).count("old") == 4


def test_writers_of_different_buckets_are_committed_together() -> None:
    table = new_table(DAYS, keys=("day", "id"), partitions=("day",))
    for number in range(4):
        put(table.copy({"write-only": "true"}), f"x {number} a | y {number} a")

    messages = [*prepared(table, "x 8 b"), *prepared(table, "y 8 b")]
    result = table.commit(messages, identifier=1, commit_user="me")

    assert len(result.snapshot_ids) == 2
    assert result.facts["buckets_compacted"] == 2
    assert levels(table) == [5, 5]


def test_commit_that_is_repeated_changes_nothing() -> None:
    table = filled(4)
    messages = prepared(table, "4 x")
    first = table.commit(messages, identifier=1, commit_user="me")

    again = table.commit(messages, identifier=1, commit_user="me")

    assert again.snapshot_ids == first.snapshot_ids == (5, 6)
    assert again.facts == {"already_committed": 1}
    assert kinds(table) == "AAAAAC"


def died_between(table: Table, messages: Sequence[CommitMessage]) -> None:
    """Commit as a process does that dies when its rows are in and its compaction is not."""

    class Dying(FailingStore):
        def put_if_absent(self, path: str, data: bytes) -> bool:
            if self.fail_at is None and path.endswith("snapshot-6"):
                self.is_dead = True
                raise KeyboardInterrupt
            return super().put_if_absent(path, data)

    with pytest.raises(KeyboardInterrupt):
        reopened(table, store=Dying(table.context.store)).commit(
            messages, identifier=1, commit_user="me"
        )
    assert kinds(table) == "AAAAA"


def test_compaction_of_a_process_that_died_is_made_by_who_commits_again() -> None:
    table = filled(4)
    messages = prepared(table, "4 x")
    died_between(table, messages)

    again = table.commit(messages, identifier=1, commit_user="me")

    assert again.snapshot_ids == (5, 6)
    assert again.facts["already_committed"] == again.facts["buckets_compacted"] == 1
    assert kinds(table) == "AAAAAC"
    assert levels(table) == [5]
    assert held(table) == "0 old | 1 old | 2 old | 3 old | 4 x | 9 3"


def test_compaction_that_was_removed_meanwhile_is_not_made() -> None:
    table = filled(4)
    messages = prepared(table, "4 x")
    died_between(table, messages)
    (made,) = messages[0].compact_after
    table.context.store.delete(f"{table.path}/bucket-0/{made.name}")

    again = table.commit(messages, identifier=1, commit_user="me")

    assert again.snapshot_ids == (5,)
    assert kinds(table) == "AAAAA"
    assert held(table).count("old") == 4


def test_compaction_that_others_made_meanwhile_is_given_up() -> None:
    table = filled(4)
    messages = prepared(table, "4 x")
    died_between(table, messages)
    table.compact(full=True)

    again = table.commit(messages, identifier=1, commit_user="me")

    assert again.snapshot_ids == (5,)
    assert again.facts == {"already_committed": 1, "compaction_lost": 1}
    (made,) = messages[0].compact_after
    assert made.name not in in_directory(table, "bucket-0")
    assert held(table).count("old") == 4


def test_rows_written_anew_under_a_name_that_was_used_bring_no_compaction() -> None:
    table = filled(4)
    died_between(table, prepared(table, "4 x"))

    again = table.write(rows(table.schema, "4 x"), identifier=1, commit_user="me")

    assert again.facts == {"already_committed": 1}
    assert kinds(table) == "AAAAA"
    assert held(table) == "0 old | 1 old | 2 old | 3 old | 4 x | 9 3"


def test_writer_that_goes_on_compacts_what_it_has_committed() -> None:
    table = new_table()
    with table.new_write() as writer:
        for number in range(12):
            writer.write(rows(table.schema, f"{number} x"))
            table.commit(writer.prepare_commit(), identifier=number, commit_user="me")

    assert kinds(table).count("C") == 2
    assert held(table).count("x") == 12


# --- races and failures -------------------------------------------------------------------------


def meddled(table: Table, *deeds: Callable[[Table], object]) -> Table:
    """The table, before each of whose commits another does something."""
    other = reopened(table)
    return reopened(
        table,
        store=MeddledStore(table.context.store, *(lambda deed=deed: deed(other) for deed in deeds)),
    )


def nothing(other: Table) -> None:
    """Let the first commit pass."""


@pytest.mark.parametrize("then", ["before the rows", "before the compaction"])
def test_compaction_that_meets_another_is_given_up_and_the_rows_are_there(then: str) -> None:
    table = filled(4)
    deeds = [nothing] * (then == "before the compaction")

    result = meddled(table, *deeds, lambda other: other.compact(full=True)).write(
        rows(table.schema, "4 x")
    )

    assert result.facts == {"compaction_lost": 1}
    assert len(result.snapshot_ids) == 1
    assert held(table) == "0 old | 1 old | 2 old | 3 old | 4 x | 9 3"
    assert len(in_directory(table, "bucket-0")) == 6, "what compaction made in vain is removed"
    put(table.copy(AT_ONCE), "5 y")
    assert levels(table) == [5]


@pytest.mark.parametrize("losses", [1, 2, 3])
def test_compaction_that_was_lost_is_done_anew_if_it_is_still_due(losses: int) -> None:
    table = filled(4)

    def work(other: Table) -> None:
        other.compact(full=True)
        for number in range(4):
            put(other.copy({"write-only": "true"}), f"9 z{number}")

    result = meddled(table, *[nothing, *[work] * losses]).write(rows(table.schema, "4 x"))

    done = losses < 3
    assert result.facts.get("buckets_compacted") == (1 if done else None)
    assert result.facts.get("compaction_lost") == (None if done else 1)
    assert len(result.snapshot_ids) == 1 + done
    assert kinds(table).endswith("C" if done else "A")
    assert held(table) == "0 old | 1 old | 2 old | 3 old | 4 x | 9 z3"


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [("fields.a.aggregate-function", "max", "AA"), ("snapshot.num-retained.max", "99", "AAC")],
)
def test_compaction_by_other_rules_than_the_newest_is_given_up(
    key: str, value: str, kept: str
) -> None:
    table = new_table(
        VALUES, **ALWAYS, merge_engine="aggregation", fields__a__aggregate_function="sum"
    )
    put(table, "1 5 old")
    messages = prepared(table, "1 3 new")
    context = table.context
    change = [SchemaChange.set_option(key, value)]
    newest = evolve(context.schema, change, now_ms=1, has_snapshots=True)
    write_schema(context.store, Layout(root=table.path), newest)
    result = table.commit(messages)

    assert kinds(table) == kept
    assert ("compaction_lost" in result.facts) == (kept == "AA")
    assert held(table.refresh()) == ("1 5 new" if kept == "AA" else "1 8 new")


def test_files_that_only_go_up_a_level_stay_when_the_rules_of_levels_change(tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "wh", create=True)
    session.create_database("d")
    table = session.create_table(
        "d.t",
        VALUES,
        primary_keys=["id"],
        options={
            "bucket": "1",
            "merge-engine": "aggregation",
            "fields.a.aggregate-function": "sum",
            "num-sorted-run.compaction-trigger": "2",
            "compaction.max-size-amplification-percent": "1000",
            "compaction.small-file-ratio": "0",
        },
    )
    write_only = table.copy({"write-only": "true"})
    for line in ("|".join(f"{key} 1 {key:064}" for key in range(300)), "1 10 _", "9 20 _"):
        put(write_only, line)
        if line.startswith("0 "):
            table.compact(full=True)
    write = table.new_write()
    write.write(rows(table.schema, "10 30 _ | 19 40 _"))
    messages = write.prepare_commit()
    (message,) = messages
    assert [file.level for file in message.compact_before] == [0, 0, 0]
    assert [file.name for file in message.compact_after] == [
        file.name for file in message.compact_before
    ]

    session.alter_table("d.t", [SchemaChange.set_option("changelog-producer", "lookup")])
    result = table.commit(messages)

    assert result.facts["compaction_lost"] == 1
    sums = session.get_table("d.t").to_polars().sort("id")["a"].to_list()
    assert [sums[key] for key in (0, 1, 9, 10, 19)] == [1, 11, 21, 31, 41]


def test_rows_that_others_write_meanwhile_stay() -> None:
    table = filled(4)

    meddled(table, nothing, lambda other: put(other.copy({"write-only": "true"}), "9 z")).write(
        rows(table.schema, "4 x")
    )

    assert kinds(table) == "AAAAAAC"
    assert levels(table) == [0, 5]
    assert held(table) == "0 old | 1 old | 2 old | 3 old | 4 x | 9 z"


class Hurried(MeddledStore):
    """A store in which another acts before a file is read."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return FailingStore.put_if_absent(self, path, data)

    def open_input(self, path: str) -> Any:
        if self.deeds:
            self.deeds.pop(0)()
        return super().open_input(path)


@pytest.mark.parametrize("plans_max", [3, 1])
def test_bucket_whose_files_others_take_is_planned_anew_or_left(
    plans_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakecore.table.writes.write_compaction.PLANS_MAX", plans_max)
    table = filled(4)
    store = table.context.store

    def work() -> None:
        names = [file.name for file in live(table)]
        for number in range(4):
            put(reopened(table).copy({"write-only": "true"}), f"9 z{number}")
        reopened(table).compact(full=True)
        for number in range(4):
            put(reopened(table).copy({"write-only": "true"}), f"9 y{number}")
        for name in names:
            store.delete(f"{table.path}/bucket-0/{name}")

    put(reopened(table, store=Hurried(store, work)), "4 x")

    assert held(table) == "0 old | 1 old | 2 old | 3 old | 4 x | 9 y3"
    assert kinds(table).endswith("AAAAAC" if plans_max > 1 else "A")


def test_damaged_file_stops_the_write_and_leaves_the_table_as_it_was() -> None:
    table = filled(4)
    before = in_directory(table, "bucket-0")
    (name, *_) = sorted(before)
    path = f"{table.path}/bucket-0/{name}"
    table.context.store.put(path, table.context.store.read(path)[:40])

    with pytest.raises(CorruptTable):
        put(table, "4 x")

    assert kinds(table) == "AAAA"
    assert in_directory(table, "bucket-0") == before
    put(table.copy({"write-only": "true"}), "4 x")
    assert kinds(table) == "AAAAA"


def test_store_that_fails_once_the_rows_are_in_fails_no_write() -> None:
    table = filled(4)

    class Full(FailingStore):
        """Full when the first snapshot is there, but for what is removed."""

        def put(self, path: str, data: bytes) -> None:
            if "/manifest/" in path and self.inner.exists(f"{table.path}/snapshot/snapshot-5"):
                raise StoreFailure
            super().put(path, data)

    result = reopened(table, store=Full(table.context.store)).write(rows(table.schema, "4 x"))

    assert result.facts == {"compaction_lost": 1}
    assert result.snapshot_ids == (5,)
    assert held(table) == "0 old | 1 old | 2 old | 3 old | 4 x | 9 3"
    assert len(in_directory(table, "bucket-0")) == 5


def test_failure_in_one_bucket_leaves_no_file_of_any() -> None:
    table = new_table(bucket="4", **ALWAYS)
    text = " | ".join(f"{number} a" for number in range(40))
    put(table, text)
    before = {f"bucket-{n}": in_directory(table, f"bucket-{n}") for n in range(4)}
    (name,) = before["bucket-3"]
    path = f"{table.path}/bucket-3/{name}"
    table.context.store.put(path, b"PAR1")

    with pytest.raises(CorruptTable):
        put(table, text)

    assert {bucket: in_directory(table, bucket) for bucket in before} == before
    assert table.context.budget.used_bytes == 0


def test_write_larger_than_memory_is_compacted_within_the_budget() -> None:
    table = new_table(**ALWAYS)
    text = " | ".join(f"{number} a" for number in range(3000))
    put(table, text)
    context = table.context
    small = load_table(
        context.store,
        table.path,
        dynamic_options={"write-buffer-size": "4 kb"},
        ambient=seeded(9),
        budget=Budget(20_000),
    )

    small.write(rows(table.schema, text.replace("a", "b")))

    assert levels(table) == [5]
    assert held(table).count("b") == 3000
    assert small.context.budget.used_bytes == 0


@pytest.mark.parametrize(
    "options",
    [{}, {"changelog-producer": "lookup"}, {"merge-engine": "first-row"}],
    ids=["deduplicate", "lookup", "first-row"],
)
def test_eight_writers_that_compact_lose_nothing(options: dict[str, str], tmp_path: Path) -> None:
    catalog = lc.connect(tmp_path)
    catalog.create_database("d")
    table = catalog.create_table(
        "d.t",
        {"id": "INT NOT NULL", "v": "INT"},
        primary_keys=["id"],
        options={
            "bucket": "2",
            "num-sorted-run.compaction-trigger": "2",
            "commit.min-retry-wait": "1 ms",
            "commit.max-retries": "100",
            **options,
        },
    )
    writers, turns = 8, 2

    def write(number: int) -> None:
        own = lc.open_table(table.path)
        for turn in range(turns):
            own.write([{"id": 10 * number + turn, "v": turn}, {"id": 10 * number + 9, "v": turn}])

    with ThreadPoolExecutor(writers) as pool:
        for each in [pool.submit(write, number) for number in range(writers)]:
            each.result()
    written = kinds(table)
    table.compact(full=True)

    last = 0 if "merge-engine" in options else turns - 1
    wanted = [
        (10 * number + key, last if key == 9 else key)
        for number in range(writers)
        for key in (*range(turns), 9)
    ]
    assert sorted(table.to_polars().rows()) == wanted
    assert written.count("A") == writers * turns
    assert "C" in written
