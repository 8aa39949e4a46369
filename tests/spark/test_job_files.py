"""Only files of lost attempts are removed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.io.ambient import SYSTEM, of_job
from lakecore.table.writes.write import TableWrite
from spark_bridge.job_commit import remove_files_of_job, remove_leftovers
from tests.spark.frames import files_of, held, table_at

if TYPE_CHECKING:
    from pathlib import Path

    import lakecore as lc
    from lakecore.model.files import CommitMessage


def attempt(table: lc.Table, job: str) -> list[CommitMessage]:
    """The messages of an attempt of a task."""
    context = replace(table.context, ambient=of_job(job))
    with TableWrite(context) as writer:
        writer.write([{"id": 1, "b": b"one"}])
        return writer.prepare_commit()


def test_managed_files_of_a_committed_job_stay(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", {"id": "BIGINT NOT NULL", "b": "BLOB"}, bucket="1")
    job = SYSTEM.new_uuid()
    attempt(table, job)
    messages = attempt(table, job)
    table.commit(messages)

    assert remove_leftovers(table.context, job, messages) == 2
    assert held(table) == [(1, b"one")]
    lost = {name for name in files_of(table) if name.endswith(".managed.blob")}
    assert len(lost) == 2, "one of them is of the lost attempt: rows may refer to any"


def test_managed_files_of_a_failed_job_are_removed(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", {"id": "BIGINT NOT NULL", "b": "BLOB"}, bucket="1")
    job = SYSTEM.new_uuid()
    messages = attempt(table, job)
    buckets = [(message.partition, message.bucket) for message in messages]

    assert remove_leftovers(table.context, job, (), buckets) == 3
    attempt(table, job)
    assert remove_files_of_job(table.context, job) == 3
    assert files_of(table) == set()
