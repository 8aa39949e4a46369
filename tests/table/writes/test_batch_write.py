"""Commits of messages that other processes wrote, and writes to real buckets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import CorruptTable
from lakecore.model.files import CommitMessage
from lakecore.table.writes import batch_write
from lakecore.table.writes.batch_write import (
    Author,
    author,
    batch_writer,
    commit_append,
    committed_before,
    in_one_snapshot,
)
from tests.retention import data_files
from tests.tables import files, held, new_table, reopened, rows

if TYPE_CHECKING:
    from lakecore.table.handle import Table


def written(table: Table, text: str) -> list[CommitMessage]:
    with table.new_write() as writer:
        writer.write(rows(table.schema, text))
        return writer.prepare_commit()


def test_messages_of_others_are_committed_once() -> None:
    table = new_table()
    context, by = table.context, Author(user="job", identifier=7)
    assert committed_before(context, by) is None

    done = commit_append(context, written(table, "1 a"), by)
    assert (done.snapshot_ids, held(reopened(table))) == ((1,), "1 a")
    snapshot = context.history.snapshot(1)
    assert (snapshot.commit_user, snapshot.commit_identifier) == ("job", 7)
    before = committed_before(context, by)
    assert before is not None
    assert (before.snapshot_ids, before.facts) == ((1,), {"already_committed": 1})
    # Batch jobs have no identifier by which a commit could be found again.
    assert committed_before(context, author(context, "job")) is None


@pytest.mark.parametrize("skip_empty", [False, True])
def test_commit_without_messages_records_its_identifier_if_asked(*, skip_empty: bool) -> None:
    context = new_table().context

    def made(by: Author) -> tuple[int, ...]:
        return commit_append(context, (), by, skip_empty=skip_empty).snapshot_ids

    assert made(author(context, "job")) == ()
    assert made(Author(user="job", identifier=7)) == (() if skip_empty else (1,))


def test_files_of_a_write_to_real_buckets_that_fails_go(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(bucket="-2")

    def fails(*_: object) -> object:
        raise CorruptTable("a file of the write is damaged")

    with batch_writer(table.context) as writer:
        assert writer.write(rows(table.schema, "1 a | 2 b")) == 2
        assert writer.row_count == 2
        monkeypatch.setattr(batch_write, "postponed_rows", fails)
        with pytest.raises(CorruptTable):
            writer.prepare_commit()
    assert data_files(table) == set()


def test_results_of_compactions_become_new_files_where_level_0_is_hidden() -> None:
    new, other, made = files("L0 a-m | L0 n-z | L5 a-m")
    message = CommitMessage(
        partition=bytes(12),
        bucket=0,
        total_buckets=1,
        new_files=(new, other),
        compact_before=(new,),
        compact_after=(made,),
    )
    of_others = replace(message, new_files=(other,))
    hiding = new_table(deletion_vectors__enabled="true").context

    (one, same) = in_one_snapshot(hiding, [message, of_others])
    assert (one.new_files, one.compact_before, one.compact_after) == ((other, made), (), ())
    assert same == of_others
    assert in_one_snapshot(new_table().context, [message]) == [message]
