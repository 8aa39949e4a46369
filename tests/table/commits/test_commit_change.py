"""What the messages of a commit may change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakecore.errors import InvalidRequest
from lakecore.model.files import CommitMessage, IndexFile
from lakecore.model.manifest import FileKind
from lakecore.model.snapshot import CommitResult
from lakecore.table.commits.commit import CommitRequest
from lakecore.table.commits.commit_change import (
    changes,
    check_not_committed,
    committed,
    delete_other_indexes,
    may_go_on,
)
from tests.tables import files, held, in_directory, new_table, put


def replacing() -> CommitMessage:
    return CommitMessage(
        partition=bytes(12),
        bucket=0,
        total_buckets=1,
        new_files=tuple(files("L0 n-z")),
        deleted_files=tuple(files("L0 a-m")),
    )


def test_plain_commit_takes_no_file_away() -> None:
    with pytest.raises(InvalidRequest, match=r"only an overwrite takes files away.*L0 a-m"):
        changes(CommitRequest(messages=[replacing()], user="me"))


def test_overwrite_takes_files_away() -> None:
    first, _ = changes(
        CommitRequest(messages=[replacing()], user="me", overwrite=lambda all_: [True] * len(all_))
    )

    assert [entry.kind for entry in first.delta] == [FileKind.DELETE, FileKind.ADD]


def test_table_keeps_the_files_that_a_plain_commit_would_delete() -> None:
    table = new_table()
    put(table, "1 a")
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    (entry,) = table.context.history.live_entries(snapshot)
    message = CommitMessage(
        partition=bytes(12), bucket=0, total_buckets=1, deleted_files=(entry.file,)
    )

    with pytest.raises(InvalidRequest, match="only an overwrite"):
        table.commit([message])

    assert held(table) == "1 a"
    assert entry.file.name in in_directory(table, "bucket-0")


@pytest.mark.parametrize(
    ("is_replaced", "left"),
    [
        ((), {"index-0", "index-1"}),
        ((False, False), {"index-0", "index-1"}),
        ((False, True), {"index-0"}),
        ((True, True), set()),
    ],
)
def test_only_the_indexes_of_replaced_messages_go(
    is_replaced: tuple[bool, ...], left: set[str]
) -> None:
    context = new_table().context
    store, layout = context.store, context.layout
    indexes = [
        IndexFile(index_type="HASH", name=f"index-{at}", size_bytes=1, row_count=1) for at in (0, 1)
    ]
    paths = {index.name: layout.live_index_file("", 0, index) for index in indexes}
    for path in paths.values():
        assert store.put_if_absent(path, b"x")
    messages = [replace(replacing(), compact_index_files=(index,)) for index in indexes]
    replaced = zip(messages, is_replaced, strict=False)
    later = [replace(message) if is_other else message for message, is_other in replaced]

    delete_other_indexes(context, messages, later)

    assert {name for name, path in paths.items() if store.exists(path)} == left


# --- earlier commits -----------------------------------------------------------------------------


def test_messages_of_a_base_that_was_rolled_back_are_looked_for_everywhere() -> None:
    table = new_table()
    put(table, "1 a")
    put(table, "2 b")
    context = table.context
    (entry,) = context.history.live_entries(context.history.snapshot(1))
    message = replace(replacing(), new_files=(entry.file,), deleted_files=())

    check_not_committed(context, [replace(message, base_snapshot_id=1)])
    for base in (None, 0, 3):
        with pytest.raises(InvalidRequest, match=r"messages were committed.* snapshot_id=1"):
            check_not_committed(context, [replace(message, base_snapshot_id=base)])


def test_commits_of_other_users_are_none_of_ones_own() -> None:
    table = new_table(write_only="true")
    for user, identifier in (("me", 5), ("you", 5), ("me", 6), ("you", 6)):
        put(table, "1 a", commit_user=user, identifier=identifier)
    latest = table.context.history.latest_snapshot()

    def found(user: str, identifier: int) -> tuple[int, ...] | None:
        request = CommitRequest(messages=(), user=user, identifier=identifier)
        done = committed(table.context, request, latest)
        return None if done is None else done.snapshot_ids

    assert [found("me", number) for number in (4, 5, 6, 7)] == [(), (1,), (3,), None]
    assert [found("you", number) for number in (5, 6)] == [(2,), (4,)]
    assert found("she", 5) is None


def test_compaction_goes_on_only_after_the_snapshot_of_its_files() -> None:
    table = new_table(write_only="true")
    put(table, "1 a")
    put(table, "1 b")
    context = table.context
    live = tuple(entry.file for entry in context.history.live_entries(context.history.snapshot(2)))
    table.copy({"write-only": "false"}).compact(full=True)
    after = tuple(e.file for e in context.history.live_entries(context.history.snapshot(3)))
    message = replace(
        replacing(),
        new_files=live[1:],
        deleted_files=(),
        compact_before=live,
        compact_after=after,
    )

    def goes_on(snapshot_id: int) -> bool:
        request = CommitRequest(messages=[message], user="me")
        done = CommitResult(snapshot_ids=(snapshot_id,), commit_user="me")
        return may_go_on(context, request, done)

    assert [goes_on(number) for number in (1, 2, 3, 9)] == [False, True, False, False]
