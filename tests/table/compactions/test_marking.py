"""Deletion vectors that the compactions of a primary-key table make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakecore.errors import AlreadyExists, CommitUnknown, CorruptTable
from lakecore.model.files import DELETION_VECTORS, DataFile
from tests.stores import FailingStore, MeddledStore, StoreFailure
from tests.tables import PATH, changed, held, in_directory, new_table, put, reopened

if TYPE_CHECKING:
    from lakecore.table.handle import Table

COLUMNS = {"id": "INT NOT NULL", "v": "STRING"}
MARKED: dict[str, Any] = {"deletion_vectors__enabled": "true"}
LAZY = {"write-only": "true"}
LEVELS: dict[str, Any] = {**MARKED, "num_levels": "4", "num_sorted_run__compaction_trigger": "9"}
"""Enough levels and runs that a write compacts level 0 alone."""


def live(table: Table) -> list[DataFile]:
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    return [entry.file for entry in table.context.history.live_entries(snapshot)]


def marked(table: Table) -> list[int]:
    """How many rows each deletion vector marks."""
    history = table.context.history
    entries = history.index_entries(history.latest_snapshot())
    found = [e.file for e in entries if e.file.index_type == DELETION_VECTORS]
    assert len({entry.bucket for entry in entries}) == len(entries)
    return sorted(vector.cardinality or 0 for file in found for vector in file.vectors or ())


def large(table: Table, first: int, count: int, text: str) -> None:
    """Write many rows, so that a level stays where it is when few rows come."""
    rows = pa.table({"id": pa.array(range(first, first + count), pa.int32())})
    table.write(rows.append_column("v", pa.array([f"{text} {n}" for n in range(count)])))


def test_compaction_of_level_0_marks_older_rows_above_and_leaves_their_file() -> None:
    table = new_table(COLUMNS, **LEVELS)
    large(table, 0, 3000, "old")
    (old,) = live(table)
    put(table, "5 new | 7 new | 4000 new")

    assert (old.level, next(file.name for file in live(table))) == (3, old.name)
    assert marked(table) == [2]
    assert table.count() == 3001
    assert held(table, where="id in (5, 6, 7)") == "5 new | 6 old 6 | 7 new"
    assert table.explain().merged_files == 0
    put(table, "5 newer | 8 newer")
    assert table.count() == 3001
    assert held(table, where="id in (5, 7, 8)") == "5 newer | 7 new | 8 newer"


def test_deletion_marks_the_row_and_stores_nothing() -> None:
    table = new_table(COLUMNS, **LEVELS)
    large(table, 0, 3000, "old")
    assert table.delete("id < 3").rows_deleted == 3

    assert ([file.row_count for file in live(table)], marked(table)) == ([3000], [3])
    assert table.count() == 2997
    put(table, "1 back")
    assert held(table, where="id < 4") == "1 back | 3 old 3"
    table.compact(full=True)
    assert (marked(table), sum(file.row_count for file in live(table))) == ([], 2998)


def test_rows_of_level_0_are_not_visible_before_they_are_compacted() -> None:
    table = new_table(COLUMNS, **LEVELS)
    put(table, "1 a | 2 b")
    lazy = table.copy(LAZY)
    put(lazy, "2 c | 3 d")
    assert held(table) == "1 a | 2 b"
    assert held(table.copy({"deletion-vectors.merge-on-read": "true"})) == "1 a | 2 c | 3 d"
    found = table.explain()
    assert (found.files_hidden_at_level_0, found.rows_hidden_at_level_0) == (1, 2)
    assert "1 hidden at level 0 (2 rows, 50%, not compacted yet)" in str(found)
    table.compact()

    assert held(table) == "1 a | 2 c | 3 d"
    assert table.explain().files_hidden_at_level_0 == 0


@pytest.mark.parametrize(
    ("options", "lines", "wanted"),
    [
        ({"sequence.field": "v"}, ("1 c | 2 a", "1 b | 2 b"), "1 c | 2 b"),
        ({"merge-engine": "partial-update"}, ("1 c | 2 a", "1 _ | 2 b"), "1 c | 2 b"),
        (
            {"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"},
            ("1 c | 2 a", "1 x | 2 b"),
            "1 c,x | 2 a,b",
        ),
    ],
    ids=lambda given: "" if isinstance(given, tuple) else str(given)[:30],
)
def test_row_above_is_merged_before_it_is_marked(
    options: dict[str, str], lines: tuple[str, str], wanted: str
) -> None:
    stated: dict[str, Any] = {**LEVELS, **options}
    table = new_table(COLUMNS, **stated)
    large(table, 100, 3000, "old")
    put(table, lines[0])
    large(table, 4000, 3000, "old")
    put(table, lines[1])

    assert held(table, where="id < 10") == wanted
    assert table.count() == 6002
    assert marked(table)


@pytest.mark.parametrize(
    ("options", "line", "wanted"),
    [
        # A row that retracts becomes the row of its key, as functions make of it.
        ({"merge-engine": "aggregation"}, "-U 1 a | -D 2 b", "1 _ | 2 _"),
        (
            {"merge-engine": "aggregation", "aggregation.remove-record-on-delete": "true"},
            "-U 1 a | -D 2 b",
            "1 _",
        ),
        (
            {"merge-engine": "partial-update", "fields.s.sequence-group": "v"},
            "-U 1 a | -D 2 b",
            "",
        ),
        (
            {
                "merge-engine": "partial-update",
                "partial-update.remove-record-on-delete": "true",
            },
            "-U 1 a | -D 2 b | 3 c",
            "3 c",
        ),
        ({}, "-U 1 a | -D 2 b | 3 c", "3 c"),
        # Without a row that retracts, the file only changes its level.
        (
            {"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"},
            "1 _ | 2 b",
            "1 _ | 2 b",
        ),
    ],
    ids=lambda given: "" if isinstance(given, str) else str(given)[:60],
)
def test_single_row_of_a_key_goes_through_the_functions(
    options: dict[str, str], line: str, wanted: str
) -> None:
    grouped = "sequence-group" in str(options)
    columns = {**COLUMNS, "s": "INT"} if grouped else COLUMNS
    stated: dict[str, Any] = {**MARKED, **options}
    table = new_table(columns, changelog_producer="lookup", **stated)
    if grouped:
        line = " | ".join(f"{row} 1" for row in line.split(" | "))
    number = put(table, line)
    assert number is not None

    latest = table.context.history.latest_snapshot()
    assert latest is not None
    assert latest.commit_kind == "COMPACT"
    assert held(table) == wanted
    told = " | ".join(f"+I {row}" for row in wanted.split(" | ") if row)
    assert changed(table.changes(0, latest.id)) == told


def test_changelog_is_written_together_with_the_marks() -> None:
    table = new_table(COLUMNS, changelog_producer="lookup", **LEVELS)
    large(table, 0, 3000, "old")
    put(table, "5 new | -D 6 x | 4000 new")
    latest = table.context.history.latest_snapshot()
    assert latest is not None

    changes = table.changes(latest.id - 1, latest.id)
    assert changed(changes) == "-U 5 old 5 | +U 5 new | -D 6 old 6 | +I 4000 new"
    assert marked(table) == [2]


def test_upgraded_file_keeps_its_vector() -> None:
    table = new_table(COLUMNS, target_file_size="1 b", **LEVELS)
    large(table, 0, 3000, "old")
    put(table, "5 new | 2999 new")
    assert marked(table) == [2]
    large(table, 10_000, 3000, "other")

    assert table.count() == 6000
    assert held(table, where="id in (5, 2999)") == "2999 new | 5 new"


def test_dynamic_buckets_keep_hashes_beside_vectors() -> None:
    options: dict[str, Any] = {**LEVELS, "bucket": "-1", "dynamic_bucket__target_row_num": "2000"}
    table = new_table(COLUMNS, **options)
    large(table, 0, 3000, "old")
    put(table, "5 new | 2999 new | 9000 new")
    history = table.context.history
    kinds = [e.file.index_type for e in history.index_entries(history.latest_snapshot())]

    assert sorted(kinds) == [DELETION_VECTORS] * 2 + ["HASH"] * 2
    assert table.count() == 3001
    assert held(table, where="id in (5, 2999, 9000)") == "2999 new | 5 new | 9000 new"


@pytest.mark.parametrize("deed", ["compact", "write", "delete"])
def test_compaction_that_another_one_comes_before_is_done_again(deed: str) -> None:
    table = new_table(COLUMNS, **LEVELS)
    large(table, 0, 3000, "old")
    put(table.copy(LAZY), "5 lazy | 6 lazy")

    def other() -> None:
        again = reopened(table)
        if deed == "compact":
            again.compact()
        elif deed == "write":
            put(again, "6 other | 7 other")
        else:
            again.delete("id = 8")

    store = MeddledStore(table.context.store, other)
    put(reopened(table, store=store), "5 mine | -D 9 x")
    after = reopened(table)
    wanted = {
        "compact": "5 mine | 6 lazy | 7 old 7 | 8 old 8",
        "write": "5 mine | 6 other | 7 other | 8 old 8",
        "delete": "5 mine | 6 lazy | 7 old 7",
    }

    assert held(after, where="id > 4 and id < 10") == wanted[deed]
    assert after.count() == (2998 if deed == "delete" else 2999)
    on_read = after.copy({"deletion-vectors.merge-on-read": "true"})
    assert held(on_read, where="id > 4 and id < 10") == wanted[deed]


def test_crash_at_each_call_never_shows_two_rows_of_a_key() -> None:
    states = {
        "1 a | 2 old 2 | 3 old 3",
        "1 a | 2 new",  # compacted
    }
    seen: set[str] = set()
    for call in range(1, 100):
        table = new_table(COLUMNS, **LEVELS)
        large(table, 2, 1000, "old")
        put(table, "1 a")
        store = FailingStore(table.context.store, call)
        try:
            put(reopened(table, store=store), "2 new | -D 3 x")
        except (StoreFailure, CommitUnknown):
            assert store.is_dead
        after = reopened(table)
        text = held(after, where="id < 4").replace("old 0", "old 2").replace("old 1", "old 3")
        seen.add(text)
        assert text in states, call
        after.compact()
        assert after.count() in {1000, 1001}
        if not store.is_dead:
            break
    assert seen == states


def test_missing_index_file_stops_the_compaction() -> None:
    table = new_table(COLUMNS, **LEVELS)
    large(table, 0, 3000, "old")
    put(table, "5 new")
    for name in in_directory(table, "index"):
        table.context.store.delete(f"{PATH}/index/{name}")

    with pytest.raises(CorruptTable, match="index-"):
        put(table, "6 new")
    with pytest.raises(CorruptTable, match="index-"):
        table.compact(full=True)


def test_messages_with_vectors_are_committed_once() -> None:
    table = new_table(COLUMNS, **LEVELS)
    large(table, 0, 3000, "old")
    with table.new_write() as writer:
        writer.write(pa.table({"id": pa.array([5], pa.int32()), "v": ["new"]}))
        messages = writer.prepare_commit()
        table.commit(messages)
        with pytest.raises(AlreadyExists, match="committed before"):
            table.commit(messages)

    assert held(table, where="id = 5") == "5 new"
    assert table.count() == 3000
