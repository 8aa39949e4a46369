"""On a storage without conditional puts, commits are made under a lock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.errors import Unsupported
from lakecore.io.ambient import SYSTEM

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stores import S3Service

WRITERS = 3
COMMITS = 3


@pytest.fixture
def options(s3: S3Service, tmp_path: Path) -> dict[str, str]:
    """A JDBC catalog over a warehouse on OSS, which has no conditional put."""
    return {
        "metastore": "jdbc",
        "uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
        "warehouse": f"oss://bucket/{SYSTEM.new_uuid()}",
        "fs.oss.endpoint": s3.endpoint,
        "fs.oss.accessKeyId": "key",
        "fs.oss.accessKeySecret": "secret",
        "lock-check-max-sleep": "50 ms",
    }


def test_writers_under_the_lock_lose_nothing(options: dict[str, str]) -> None:
    session = lc.connect(options, create=True)
    session.create_database("d")
    session.create_table(
        "d.t", {"id": "INT NOT NULL"}, primary_keys=["id"], options={"bucket": "1"}
    )

    def write(writer: int) -> None:
        for number in range(COMMITS):
            table = lc.connect(options).get_table("d.t")
            table.write([{"id": writer * COMMITS + number}])

    with ThreadPoolExecutor(WRITERS) as threads:
        list(threads.map(write, range(WRITERS)))

    found = session.get_table("d.t").to_polars()["id"].sort().to_list()
    assert found == list(range(WRITERS * COMMITS))


def test_without_the_lock_commits_are_refused(options: dict[str, str]) -> None:
    session = lc.connect({**options, "lock.enabled": "false"}, create=True)
    session.create_database("d")

    with pytest.raises(Unsupported, match=r"commit\.single-writer"):
        session.create_table("d.t", {"id": "INT"})
