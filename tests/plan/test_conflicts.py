"""What stands against a commit; files as `L0 a-m`, see `tests/tables.py`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakecore.errors import AlreadyExists, CommitConflict
from lakecore.model.files import (
    DELETION_VECTORS,
    HASH_INDEX,
    CommitMessage,
    IndexFile,
    VectorRange,
)
from lakecore.model.manifest import FileKind, IndexEntry, ManifestEntry
from lakecore.plan.conflicts import (
    check_bucket_counts,
    check_files,
    check_hash_indexes,
    check_levels,
    check_newest,
    check_vectors,
)
from tests.tables import KEY, entries, entry, files

OTHER = b"\0" * 12 + b"other"


def change(deleted: str, added: str) -> list[ManifestEntry]:
    return [*entries(deleted, FileKind.DELETE), *entries(added)]


@pytest.mark.parametrize(
    ("live", "deleted", "added"),
    [
        ("", "", "L0 a-z"),
        ("L0 a-z | L5 a-z", "", "L0 b-c"),
        ("L0 a-m 5..9 | L5 a-z 0..4", "L0 a-m 5..9 | L5 a-z 0..4", "L5 a-z 0..9"),
        ("L5 a-m | L5 n-z", "L5 a-m", "L5 a-f | L5 g-m"),
        ("L0 a-m | L5 n-z", "L0 a-m", "L5 a-m"),
        ("L4 a-z | L5 a-z", "", ""),
    ],
)
def test_change_that_fits_is_let_through(live: str, deleted: str, added: str) -> None:
    check_files(entries(live), change(deleted, added), [KEY])


@pytest.mark.parametrize("live", ["", "L0 a-z", "L4 a-m | L5 n-z"])
def test_file_to_be_replaced_must_be_there_on_its_level(live: str) -> None:
    with pytest.raises(CommitConflict, match=r"is gone: .* level=5"):
        check_files(entries(live), entries("L5 a-m", FileKind.DELETE), [KEY])


def test_file_to_be_added_must_not_be_there() -> None:
    with pytest.raises(CommitConflict, match=r"is there already\. file=L0 a-z"):
        check_files(entries("L0 a-z"), entries("L0 a-z"), [KEY])


def test_file_may_change_its_level() -> None:
    (file,) = files("L0 a-m")
    delta = [entry(file, FileKind.DELETE), entry(replace(file, level=5))]

    check_files([entry(file)], delta, [KEY])


@pytest.mark.parametrize(
    ("live", "added"), [("L5 a-m", "L5 m-z"), ("L5 a-z", "L5 f-g"), ("L1 f-g | L1 x-z", "L1 a-z")]
)
def test_files_of_a_level_above_zero_must_not_overlap(live: str, added: str) -> None:
    with pytest.raises(CommitConflict, match="would overlap"):
        check_files(entries(live), entries(added), [KEY])


def test_files_of_other_buckets_partitions_and_levels_may_overlap() -> None:
    (file,) = files("L5 a-m")
    live = [
        entry(replace(file, name="1"), bucket=1),
        entry(replace(file, name="2"), partition=OTHER),
        entry(replace(file, name="3", level=4)),
    ]

    check_files(live, [entry(file)], [KEY])


def test_overlap_in_a_bucket_that_is_not_touched_is_not_this_commits_fault() -> None:
    first, second = files("L5 a-m | L5 b-c")
    live = [entry(first, bucket=1), entry(second, bucket=1)]

    check_files(live, entries("L5 a-z"), [KEY])


def test_files_of_an_append_table_have_no_keys_to_overlap() -> None:
    check_files(entries("L5 a-m"), entries("L5 a-z"), [])


def compacting_write(text: str) -> CommitMessage:
    """A write that has compacted its own files, the first of a line, with the others."""
    own, *others = files(text)
    return replace(message(1), new_files=(own,), compact_before=(own, *others))


@pytest.mark.parametrize(
    "live",
    [
        "L0 a-m 5..9",
        "L5 a-z 0..4 | L0 a-m 5..9",
        "L0 n-z 2..3 | L0 a-m 5..9",
        "L0 a-m 5..9 | L0 a-m 2..3",
        "L0 a-m 5..9 | L0 f-g 5..9",
        "L0 a-m 10..12 | L0 a-m 5..9",
    ],
)
def test_write_may_compact_what_are_the_newest_rows_of_its_keys(live: str) -> None:
    check_newest(entries(live), [compacting_write("L0 a-m 5..9")], [KEY])
    check_newest(entries(live), [compacting_write("L0 a-m 5..9 | L5 a-z 0..4")], [])


@pytest.mark.parametrize(
    "live", ["L0 a-z 2..3 | L0 a-m 5..9", "L0 m-z 5..5 | L0 a-m 5..9", "L0 f-g 9..99 | L0 a-m 5..9"]
)
def test_write_may_not_compact_past_rows_that_came_before_it(live: str) -> None:
    with pytest.raises(CommitConflict, match=r"before the write that compacts it.* file=L0 \w-\w"):
        check_newest(entries(live), [compacting_write("L0 a-m 5..9")], [KEY])

    other = [entry(each, bucket=1) for each in files(live)]
    check_newest([*other, *entries("L0 a-m 5..9")], [compacting_write("L0 a-m 5..9")], [KEY])


def message(buckets: int, partition: bytes = bytes(12)) -> CommitMessage:
    return CommitMessage(partition=partition, bucket=0, total_buckets=buckets)


def test_partition_keeps_its_number_of_buckets() -> None:
    check_bucket_counts({bytes(12): 4, OTHER: 8}, [message(4), message(8, OTHER)])
    check_bucket_counts({}, [message(4)])
    check_bucket_counts({bytes(12): 4}, [replace(message(-2), bucket=-2)])

    with pytest.raises(CommitConflict, match=r"number of buckets.* buckets=4 written_with=8"):
        check_bucket_counts({bytes(12): 4}, [message(8)])


def index(name: str, kind: str = HASH_INDEX, partition: bytes = bytes(12)) -> IndexEntry:
    file = IndexFile(index_type=kind, name=name, size_bytes=4, row_count=1)
    return IndexEntry(partition=partition, bucket=3, file=file)


@pytest.mark.parametrize(
    ("before", "now"),
    [([], [index("a")]), ([index("a")], []), ([index("a")], [index("b")])],
    ids=["new", "gone", "replaced"],
)
def test_hash_index_must_be_the_one_the_keys_were_dealt_by(
    before: list[IndexEntry], now: list[IndexEntry]
) -> None:
    with pytest.raises(CommitConflict, match=r"dynamic buckets.* buckets=\[3\]"):
        check_hash_indexes(before, now, [message(-1)])


def test_other_indexes_and_other_partitions_may_change() -> None:
    now = [index("a"), index("v", DELETION_VECTORS), index("b", partition=OTHER)]

    check_hash_indexes([index("a")], now, [message(-1)])


# --- files that were looked up --------------------------------------------------------------------


def looked_up(before: str, beside: str | None) -> CommitMessage:
    """A compaction of some files, beside others of the levels above 0."""
    there = None if beside is None else tuple(file.name for file in files(beside))
    return replace(message(1), compact_before=tuple(files(before)), compact_unchanged=there)


@pytest.mark.parametrize(
    ("live", "beside"),
    [
        ("L0 a-m | L0 b-c | L4 a-d | L5 a-z", "L4 a-d | L5 a-z"),
        ("L0 a-m", ""),
        ("L0 a-m | L4 a-d | L5 a-z", None),
    ],
)
def test_levels_that_are_as_they_were_looked_up_are_let_through(
    live: str, beside: str | None
) -> None:
    check_levels(entries(live), [looked_up("L0 a-m", beside)])


@pytest.mark.parametrize(
    ("live", "beside", "changed"),
    [
        ("L0 a-m | L4 a-d | L5 a-z", "L5 a-z", "L4 a-d"),
        ("L0 a-m | L5 a-z", "L4 a-d | L5 a-z", "L4 a-d"),
        ("L0 a-m | L5 a-z", "", "L5 a-z"),
        ("L0 a-m", "L5 a-z", "L5 a-z"),
    ],
    ids=["one more", "one gone", "the first", "the last"],
)
def test_level_that_is_not_as_it_was_looked_up_is_a_conflict(
    live: str, beside: str, changed: str
) -> None:
    with pytest.raises(CommitConflict, match="whose rows were looked up") as conflict:
        check_levels(entries(live), [looked_up("L0 a-m", beside)])

    assert conflict.value.facts["files"] == [changed]


def test_files_that_the_compaction_takes_are_not_beside_it() -> None:
    live = entries("L0 a-m | L4 a-d | L5 a-z")

    check_levels(live, [looked_up("L0 a-m | L4 a-d", "L5 a-z")])
    check_levels([*live, entry(files("L5 k-z")[0], bucket=1)], [looked_up("L4 a-d", "L5 a-z")])


def vector_index(name: str, data_file: str, partition: bytes = bytes(12)) -> IndexEntry:
    found = index(name, DELETION_VECTORS, partition)
    vectors = (VectorRange(data_file=data_file, offset=1, length=4),)
    return replace(found, bucket=0, file=replace(found.file, vectors=vectors))


VECTORS = CommitMessage(
    partition=bytes(12),
    bucket=0,
    total_buckets=1,
    vectors_read=(("L5 a-m", "old"), ("L5 n-z", None)),
    deleted_index_files=("old",),
    new_index_files=(index("new", DELETION_VECTORS).file,),
)


def test_vectors_that_nobody_changed_are_replaced() -> None:
    now = [vector_index("old", "L5 a-m"), vector_index("other", "L5 n-z", OTHER)]

    check_vectors(entries("L5 a-m | L5 n-z"), now, [VECTORS])


@pytest.mark.parametrize(
    ("live", "now"),
    [
        ("L5 a-m", [vector_index("old", "L5 a-m")]),
        ("L5 a-m | L5 n-z", []),
        ("L5 a-m | L5 n-z", [vector_index("theirs", "L5 a-m"), index("old", DELETION_VECTORS)]),
        ("L5 a-m | L5 n-z", [vector_index("old", "L5 a-m"), vector_index("theirs", "L5 n-z")]),
    ],
    ids=["file gone", "vector gone", "vector replaced", "vector added"],
)
def test_vectors_that_another_commit_changed_are_not_replaced(
    live: str, now: list[IndexEntry]
) -> None:
    with pytest.raises(CommitConflict, match="deleted or compacted rows of a data file"):
        check_vectors(entries(live), now, [VECTORS])


def test_messages_with_vectors_are_committed_once() -> None:
    now = [vector_index("new", "L5 a-m")]

    with pytest.raises(AlreadyExists, match="were committed before"):
        check_vectors(entries("L5 a-m | L5 n-z"), now, [VECTORS])
