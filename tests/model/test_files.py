from __future__ import annotations

from lakecore.model.files import CommitMessage
from tests.tables import files


def test_message_shows_how_many_files_of_each_kind_it_has() -> None:
    one, two = tuple(files("L0 a-b")), tuple(files("L5 a-b | L5 c-d"))
    message = CommitMessage(
        partition=b"", bucket=1, total_buckets=2, new_files=one, compact_after=two
    )

    assert repr(message) == "CommitMessage(bucket=1, 1 new_files, 2 compact_after)"
