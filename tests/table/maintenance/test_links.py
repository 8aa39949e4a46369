"""A symbolic link within a table leads nobody out of it: nothing behind it is deleted or read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, LakecoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VERBS: dict[str, Callable[[lc.Table], object]] = {
    "orphans": lambda table: table.remove_orphan_files(
        older_than=datetime.now(UTC) + timedelta(days=1), force=True
    ),
    "purge": lambda table: table.purge_files(),
    "rollback": lambda table: table.rollback_to(snapshot_id=1),
    "expire": lambda table: (
        table.compact(full=True),
        table.expire_snapshots(retain_max=1, retain_min=1, older_than=datetime.now(UTC)),
    ),
}


@pytest.mark.parametrize("linked", ["p=a", "p=a/bucket-0"])
@pytest.mark.parametrize("verb", VERBS)
def test_nothing_is_deleted_through_a_link(tmp_path: Path, verb: str, linked: str) -> None:
    table = lc.open_table(
        tmp_path / "t",
        create=True,
        schema={"id": "INT NOT NULL", "p": "STRING NOT NULL"},
        primary_keys=["id", "p"],
        partition_keys=["p"],
        options={"bucket": "1"},
    )
    for _ in range(3):
        table.write([{"id": 1, "p": "a"}])
    (tmp_path / "home").mkdir()
    (tmp_path / "t" / linked).rename(tmp_path / "home" / "there")
    (tmp_path / "t" / linked).symlink_to(tmp_path / "home" / "there")
    before = sorted((tmp_path / "home").rglob("*.parquet"))

    try:
        VERBS[verb](table)
    except LakecoreError as error:
        assert isinstance(error, InvalidRequest), error  # noqa: PT017 - some verbs meet no link

    assert set(before) <= set((tmp_path / "home").rglob("*.parquet"))


def test_a_descriptor_follows_no_link_out_of_its_place(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "secret").write_bytes(b"key")
    (tmp_path / "images" / "link").symlink_to(tmp_path / "secret")
    table = lc.open_table(
        tmp_path / "t",
        create=True,
        schema={"id": "INT", "b": "BLOB"},
        options={
            "blob-descriptor-field": "b",
            "row-tracking.enabled": "true",
            "data-evolution.enabled": "true",
        },
    )
    link = lc.BlobDescriptor(f"{tmp_path}/images/link").to_bytes()
    table.write([{"id": 1, "b": link}])

    with pytest.raises(InvalidRequest, match="symbolic link"):
        table.copy({"lakecore.blob-paths": f"{tmp_path}/images"}).to_arrow()
    both = table.copy({"lakecore.blob-paths": f"{tmp_path}/images,{tmp_path}"})
    assert both.to_arrow()["b"].to_pylist() == [b"key"]
