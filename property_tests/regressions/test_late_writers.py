"""Rows of a writer that came between another's look at the table and its commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.tables import held, new_table, put, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.files import CommitMessage
    from lakecore.table.handle import Table


def _prepared(table: Table, text: str) -> Sequence[CommitMessage]:
    with table.new_write() as writer:
        writer.write(rows(table.schema, text))
        return writer.prepare_commit()


def test_compaction_of_a_write_does_not_bring_back_what_the_write_has_deleted() -> None:
    table = new_table(num_sorted_run__compaction_trigger="1")
    # It begins at the empty table, so its row is older than the deletion.
    late = _prepared(table.copy({"write-only": "true"}), "2 late")
    put(table, "1 first")
    deletion = _prepared(table, "-D 2 _")
    table.commit(late)
    done = table.commit(deletion)

    assert held(table, snapshot_id=done.snapshot_ids[0]) == "1 first"
    assert held(table) == "1 first"
    assert done.facts == {"compaction_lost": 1}

    table.compact(full=True)

    assert held(table) == "1 first"


def test_compaction_of_a_write_does_not_decide_between_rows_of_one_number() -> None:
    table = new_table(force_lookup="true")
    first = _prepared(table.copy({"write-only": "true"}), "1 first")
    second = _prepared(table, "1 second | -D 2 _")
    table.commit(first)
    done = table.commit(second)

    assert held(table, snapshot_id=done.snapshot_ids[0]) == "1 second"
    assert held(table) == "1 second"

    table.compact(full=True)

    assert held(table) == "1 second"


def test_write_compacts_anew_with_the_rows_of_who_came_between() -> None:
    table = new_table(num_sorted_run__compaction_trigger="1")
    late = _prepared(table.copy({"write-only": "true"}), "2 late")
    put(table, "1 first")
    deletion = _prepared(table, "-D 2 _")
    table.commit(late)
    table.commit(deletion)
    put(table, "3 next")

    assert held(table) == "1 first | 3 next"
    assert table.explain().merged_files == 0
