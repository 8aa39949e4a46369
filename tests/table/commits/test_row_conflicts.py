"""Rows that replace others: what somebody else committed since they were read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.errors import CommitConflict
from lakecore.table.commits.commit import CommitRequest, commit
from tests.tables import held, new_table, put, reopened, rows

if TYPE_CHECKING:
    from lakecore.table.handle import Table

WIDE = {"day": "STRING NOT NULL", "k": "STRING NOT NULL", "n": "INT"}


def replacing(table: Table, line: str) -> CommitRequest:
    """A request to put rows in the place of those that are there now."""
    with table.new_write() as writer:
        writer.write(rows(table.schema, line))
        messages = writer.prepare_commit()
    return CommitRequest(messages=messages, user="me", replaces_rows=True)


def test_key_that_was_written_since_is_a_conflict() -> None:
    table = new_table(WIDE, keys=["day", "k"], partitions=["day"])
    put(table, "x a 1 | x b 1 | y a 1")
    request = replacing(table, "x a 2 | x c 2")
    put(table, "x b 5 | y a 5")
    put(table, "x c 5 | x d 5")

    with pytest.raises(CommitConflict, match=r"changed a row.* key=\[c\] rows=1"):
        commit(table.context, request)
    assert held(table) == "x a 1 | x b 5 | x c 5 | x d 5 | y a 5"


def test_other_keys_of_the_same_range_are_none() -> None:
    table = new_table(WIDE, keys=["day", "k"], partitions=["day"])
    put(table, "x a 1 | x c 1 | x e 1")
    request = replacing(table, "x a 2 | x c 2 | x e 2")
    put(table, "x b 5 | x d 5")
    commit(table.context, request)

    assert held(table) == "x a 2 | x b 5 | x c 2 | x d 5 | x e 2"


def test_deletion_of_a_key_is_a_change_of_it() -> None:
    table = new_table()
    put(table, "1 a | 2 b")
    request = replacing(table, "2 c")
    table.delete("id = 2")

    with pytest.raises(CommitConflict, match=r"key=\[2\]"):
        commit(table.context, request)


def test_keys_of_files_of_another_format_are_read() -> None:
    table = new_table(file__format="avro")
    put(table, "1 a")
    request = replacing(table, "1 b")
    put(reopened(table).copy({"file.format": "orc"}), "1 c")

    with pytest.raises(CommitConflict, match=r"key=\[1\]"):
        commit(table.context, request)


def test_rows_of_an_empty_table_meet_everything_since() -> None:
    table = new_table()
    first, second = replacing(table, "1 a"), replacing(table, "1 z")
    put(table, "2 b")
    commit(table.context, first)

    assert held(table) == "1 a | 2 b"
    with pytest.raises(CommitConflict, match=r"key=\[1\]"):
        commit(table.context, second)


def test_snapshot_that_is_gone_is_a_conflict() -> None:
    table = new_table()
    put(table, "1 a")
    request = replacing(table, "1 b")
    put(table, "2 b")
    put(table, "3 b")
    table.context.store.delete(table.context.layout.snapshot(2))

    with pytest.raises(CommitConflict, match="has expired"):
        commit(reopened(table).context, request)


def test_snapshot_that_was_rolled_back_is_a_conflict() -> None:
    table = new_table()
    put(table, "1 a")
    put(table, "2 b")
    request = replacing(table, "2 c")
    table.context.store.delete(table.context.layout.snapshot(2))
    table.context.store.put(table.context.layout.latest_hint, b"1")

    with pytest.raises(CommitConflict, match="rolled back"):
        commit(reopened(table).context, request)
