"""Messages that are given up: their files go, unless they were committed."""

from __future__ import annotations

import pytest

from lakecore.errors import InvalidRequest
from lakecore.io.ambient import seeded
from tests.tables import held, in_directory, new_table, put, reopened, rows


def test_messages_are_aborted_after_commits_of_others() -> None:
    table = new_table()
    with table.new_write() as writer:
        writer.write(rows(table.schema, "1 mine"))
        messages = writer.prepare_commit()
        other = reopened(table, ambient=seeded(5))
        for text in ("2 other", "3 other"):
            put(other, text)
        writer.abort(messages)

    assert held(table) == "2 other | 3 other"
    assert len([name for name in in_directory(table, "bucket-0") if "data-" in name]) == 2


def test_messages_that_were_committed_stay_however_many_commits_followed() -> None:
    table = new_table()
    with table.new_write() as writer:
        writer.write(rows(table.schema, "1 mine"))
        messages = writer.prepare_commit()
        other = reopened(table, ambient=seeded(5))
        put(other, "2 other")
        table.commit(messages)
        for text in ("3 other", "4 other"):
            put(other, text)

        with pytest.raises(InvalidRequest, match=r"were committed.* snapshot_id=2"):
            writer.abort(messages)

    assert held(table) == "1 mine | 2 other | 3 other | 4 other"
