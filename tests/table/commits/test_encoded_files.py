"""New files that tasks hand on as encoded manifests are committed as if by messages."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import AlreadyExists, CommitConflict, InvalidRequest
from lakecore.io.ambient import of_job
from lakecore.table.commits.commit import CommitRequest, commit
from lakecore.table.commits.commit_change import (
    AllEntries,
    EncodedFiles,
    delete_files,
    encode_files,
)
from lakecore.table.writes.batch_write import Author, at_last_level, commit_append, commit_overwrite
from lakecore.table.writes.write import TableWrite
from tests.stores import MeddledStore
from tests.tables import held, in_directory, new_table, put, reopened, rows, with_options

if TYPE_CHECKING:
    from lakecore.model.files import CommitMessage
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.handle import Table

JOB = "5a23e36b-0000-4000-8000-000000000000"
COLUMNS = {"p": "INT NOT NULL", "id": "INT NOT NULL", "v": "STRING"}
ME = Author(user="me")
PARTS = ("1 1 a | 1 2 b | 2 1 c", "3 1 d | 2 7 e", "4 9 _")


def partitioned(**options: str) -> Table:
    options |= {"write_only": "true", "bucket": "2"}
    return new_table(COLUMNS, keys=("p", "id"), partitions=("p",), **options)  # type: ignore[arg-type]


def messages_of(table: Table, text: str, *, overwrite: bool = False) -> list[CommitMessage]:
    """The messages of a task of a job; nothing is committed."""
    context = replace(table.context, ambient=of_job(JOB, table.context.ambient))
    with TableWrite(context, overwrite=overwrite) as writer:
        writer.write(rows(table.schema, text))
        return writer.prepare_commit()


def encoded(table: Table, text: str, *, overwrite: bool = False) -> EncodedFiles:
    """What a task of a job hands on."""
    messages = messages_of(table, text, overwrite=overwrite)
    lifted = at_last_level(table.context, messages) if overwrite else messages
    found = encode_files(table.context, lifted, JOB)
    assert found is not None
    received: EncodedFiles = pickle.loads(pickle.dumps(found))
    return received


def latest(table: Table) -> Snapshot:
    snapshot = reopened(table).context.history.latest_snapshot()
    assert snapshot is not None
    return snapshot


def facts(snapshot: Snapshot) -> tuple[object, ...]:
    return (
        snapshot.id,
        snapshot.commit_kind,
        snapshot.total_record_count,
        snapshot.delta_record_count,
        snapshot.changelog_record_count,
        snapshot.schema_id,
    )


@pytest.mark.parametrize("form", ["avro", "parquet", "orc"])
@pytest.mark.parametrize("producer", ["none", "input"])
@pytest.mark.parametrize("is_mixed", [False, True])
def test_append_of_encoded_files_is_that_of_their_messages(
    form: str, producer: str, *, is_mixed: bool
) -> None:
    tables = [
        partitioned(
            manifest__format=form, changelog_producer=producer, manifest__compression="zstd"
        )
        for _ in range(2)
    ]
    for table in tables:
        put(table, "1 1 old | 9 9 z")
    one, other = tables
    messages = [message for text in PARTS for message in messages_of(one, text)]
    expected = commit_append(one.context, messages, ME)
    some = messages_of(other, PARTS[0]) if is_mixed else []
    left = [encoded(other, text) for text in PARTS[is_mixed:]]
    result = commit_append(other.context, some, ME, encoded=left)

    assert held(other) == held(one)
    assert replace(result, bytes_added=0) == replace(expected, bytes_added=0)
    assert result.bytes_added == sum(
        entry.file.size_bytes
        for entry in other.context.history.entries(
            other.context.history.delta_manifests(latest(other))
        )
    )
    assert facts(latest(other)) == facts(latest(one))
    lists = [table.context.history.manifests(latest(table)) for table in tables]
    counts = [sum(each.added_count for each in found) for found in lists]
    assert counts[0] == counts[1]
    bounds = [
        (min(m.bucket_min or 0 for m in each), max(m.bucket_max or 0 for m in each))
        for each in lists
    ]
    assert bounds == [(0, 1), (0, 1)]
    read = [reopened(table).changes(1).collect().sort("p", "id") for table in tables]
    assert read[0].equals(read[1])
    assert held(reopened(other), where="p = 2") == held(one, where="p = 2")


@pytest.mark.parametrize(
    ("partition", "dynamic"), [({}, False), ({}, True), ({"p": 2}, False), ({"p": 8}, False)]
)
def test_overwrite_with_encoded_files_is_that_of_their_messages(
    partition: dict[str, object], *, dynamic: bool
) -> None:
    texts = ("2 1 c | 2 7 e", "2 8 f") if partition else PARTS
    tables = [partitioned() for _ in range(2)]
    for table in tables:
        put(table, "1 1 old | 2 2 old | 9 9 z")
    one, other = tables
    if partition == {"p": 8}:
        left = [encoded(other, text, overwrite=True) for text in texts]
        with pytest.raises(InvalidRequest, match="outside the partition"):
            commit_overwrite(other.context, [], partition, ME, encoded=left, dynamic=dynamic)
        assert held(other) == held(one)
        assert len(in_directory(other, "p=2/bucket-1")) == len(in_directory(one, "p=2/bucket-1"))
        return
    # One task has all rows of a bucket.
    together = [" | ".join(texts)]
    messages = [m for text in together for m in messages_of(one, text, overwrite=True)]
    expected = commit_overwrite(one.context, messages, partition, ME, dynamic=dynamic)
    left = [encoded(other, text, overwrite=True) for text in together]
    result = commit_overwrite(other.context, [], partition, ME, encoded=left, dynamic=dynamic)

    assert held(other) == held(one)
    assert replace(result, bytes_added=0, bytes_deleted=0) == replace(
        expected, bytes_added=0, bytes_deleted=0
    )
    assert facts(latest(other)) == facts(latest(one))
    levels = [set(table.inspect.files()["level"]) for table in (reopened(each) for each in tables)]
    assert levels[0] == levels[1]


def test_manifests_of_many_tasks_have_the_target_size() -> None:
    table = partitioned(manifest__target_file_size="3 kb")
    left = [encoded(table, f"{number} {number} v") for number in range(10, 40)]
    commit_append(table.context, [], ME, encoded=left)
    sizes = [each.size_bytes for each in table.context.history.manifests(latest(table))]

    assert 1 < len(sizes) < len(left)
    assert min(sizes) >= 3 << 10
    assert held(table) == " | ".join(f"{number} {number} v" for number in range(10, 40))


def test_what_more_than_adds_files_stays_messages() -> None:
    table = partitioned()
    messages = messages_of(table, PARTS[0])
    assert encode_files(table.context, messages, JOB) is not None

    [first, *_] = messages
    compacted = replace(first, compact_before=first.new_files)
    assert encode_files(table.context, [compacted, *messages], JOB) is None
    assert encode_files(table.context, [compacted], JOB) is None
    other_base = replace(first, base_snapshot_id=7)
    assert encode_files(table.context, [other_base, *messages], JOB) is None
    assert encode_files(table.context, [], JOB) is None
    dynamic = new_table(bucket="-1")
    assert encode_files(dynamic.context, messages_of(dynamic, "1 a"), JOB) is None
    tracked = new_table(keys=(), row_tracking__enabled="true")
    assert encode_files(tracked.context, messages_of(tracked, "1 a"), JOB) is None


def test_lost_race_writes_the_manifests_once_and_leaves_none() -> None:
    table = partitioned()
    left = [encoded(table, text) for text in PARTS]
    store = MeddledStore(table.context.store, lambda: put(reopened(table), "5 5 o"))
    slow = reopened(table, store=store)
    result = commit_append(slow.context, [], ME, encoded=left)

    assert result.attempts == 2
    assert held(table) == "1 1 a | 1 2 b | 2 1 c | 2 7 e | 3 1 d | 4 9 _ | 5 5 o"
    written = [path.rpartition("/")[2] for call, path in store.calls if call == "put"]
    assert len([name for name in written if re.match(r"manifest-[0-9a-f]{8}-", name)]) == 1
    named = {each.name for each in table.context.history.manifests(latest(table))}
    assert named <= in_directory(table, "manifest")


def test_files_are_committed_once() -> None:
    table = partitioned()
    left = [encoded(table, text) for text in PARTS]
    commit_append(table.context, [], ME, encoded=left)

    with pytest.raises(AlreadyExists, match="committed before"):
        commit(reopened(table).context, CommitRequest(messages=(), user="me", encoded=left))
    again = commit_append(table.context, [], Author(user="n", identifier=1), encoded=[])
    done = commit_append(table.context, [], Author(user="n", identifier=1), encoded=[])
    assert (again.facts, done.facts) == ({}, {"already_committed": 1})
    assert held(table) == "1 1 a | 1 2 b | 2 1 c | 2 7 e | 3 1 d | 4 9 _"


def test_repeated_commit_removes_its_files() -> None:
    table = partitioned()
    by = Author(user="me", identifier=4)
    commit_append(table.context, messages_of(table, "1 1 a"), by)
    there = in_directory(table, "p=1/bucket-1") | in_directory(table, "p=1/bucket-0")
    result = commit_append(table.context, [], by, encoded=[encoded(table, "1 1 a | 1 2 b")])

    assert result.facts == {"already_committed": 1}
    assert in_directory(table, "p=1/bucket-1") | in_directory(table, "p=1/bucket-0") == there


def test_other_number_of_buckets_is_a_conflict_that_removes_the_files() -> None:
    table = partitioned()
    put(table, "2 2 b")
    left = [encoded(table, PARTS[0])]
    with_options(table, bucket="3")
    other = reopened(table)
    other.overwrite(rows(table.schema, "1 1 x"), {"p": 1})
    there = {name for number in range(3) for name in in_directory(table, f"p=1/bucket-{number}")}

    with pytest.raises(CommitConflict, match="number of buckets"):
        commit_append(reopened(table).context, [], ME, encoded=left)
    assert held(reopened(table)) == "1 1 x | 2 2 b"
    mine = {entry.file.name for entry in left[0].new.entries()}
    after = {name for number in range(3) for name in in_directory(table, f"p=1/bucket-{number}")}
    assert mine & there
    assert not mine & after


def test_rules_that_the_first_snapshot_fixed_hold_for_encoded_files() -> None:
    table = partitioned()
    left = [encoded(table, PARTS[0])]
    with_options(table, merge_engine="first-row")
    put(reopened(table), "7 7 g")

    with pytest.raises(CommitConflict, match="options have changed"):
        commit_append(reopened(table).context, [], ME, encoded=left)


def test_entries_of_a_proposal_can_be_read_twice() -> None:
    table = partitioned()
    left = [encoded(table, text) for text in PARTS]
    every = AllEntries((), left)
    names = [entry.file.name for entry in every]

    assert names == [entry.file.name for entry in every]
    assert set(names) == {name for each in left for name in each.file_names()}
    delete_files(table.context, (m for each in left for m in each.messages()))
    assert not in_directory(table, "p=1/bucket-0") | in_directory(table, "p=1/bucket-1")
