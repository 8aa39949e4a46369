"""What the messages of a commit may change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakecore.errors import InvalidRequest
from lakecore.model.files import CommitMessage, IndexFile
from lakecore.model.manifest import FileKind
from lakecore.table.commits.commit import CommitRequest
from lakecore.table.commits.commit_change import changes, delete_other_indexes
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
