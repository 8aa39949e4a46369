"""Tags that a Hive Metastore lists as partitions, made and deleted by lakecore and by Java."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest
from tests.services.hive import client, empty, hive_options
from tests.services.java import java
from tests.services.setup import PAIMON_HIVE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.services.servers import Server

COLUMNS = {"id": "INT NOT NULL", "v": "STRING", "dt": "STRING NOT NULL"}
TAGS = {"metastore.tag-to-partition": "tag"}
BY_DAY = {"metastore.tag-to-partition.preview": "process-time", "sink.process-time-zone": "UTC"}


@pytest.fixture
def options(hive: Server, tmp_path: Path) -> dict[str, str]:
    empty(hive)
    return hive_options(hive, tmp_path)


@pytest.fixture
def ours(options: dict[str, str]) -> lc.Session:
    session = lc.connect(options, create=True)
    session.create_database("d")
    return session


def created(session: lc.Session, options: Mapping[str, str] = {}) -> lc.Table:
    table = session.create_table(
        "d.t", COLUMNS, primary_keys=["id"], options={"bucket": "1", **TAGS, **options}
    )
    table.write([{"id": 1, "v": "a", "dt": "x"}])
    return table


def shown(hive: Server, name: str = "t") -> Any:
    return client(hive).table("d", name)


def partitions(hive: Server, name: str = "t") -> dict[str, str]:
    found = client(hive).partitions("d", name)
    return {"/".join(each.values): each.sd.location.rsplit("/", 1)[1] for each in found}


def test_tag_is_a_partition_as_java_lists_it(
    ours: lc.Session, options: dict[str, str], hive: Server
) -> None:
    create = "create d.theirs metastore.tag-to-partition=tag"
    java(PAIMON_HIVE, options, create, "write d.theirs 1 1", "tag d.theirs a=b")
    table = created(ours)
    table.create_tag("a=b")

    ours_, theirs = shown(hive), shown(hive, "theirs")
    assert [(each.name, each.type) for each in ours_.partitionKeys] == [("tag", "string")]
    assert [(each.name, each.type) for each in theirs.partitionKeys] == [("tag", "string")]
    assert [each.name for each in ours_.sd.cols] == [each.name for each in theirs.sd.cols]
    assert partitions(hive) == partitions(hive, "theirs") == {"a=b": "tag=a%3Db"}
    (a,), (b,) = (client(hive).partitions("d", name) for name in ("t", "theirs"))
    assert (a.sd.inputFormat, a.sd.serdeInfo) == (b.sd.inputFormat, b.sd.serdeInfo)


def test_each_engine_deletes_the_partition_of_the_others_tag(
    ours: lc.Session, options: dict[str, str], hive: Server
) -> None:
    table = created(ours)
    table.create_tag("a")
    java(PAIMON_HIVE, options, "tag d.t b", "delete-tag d.t a")
    assert partitions(hive) == {"b": "tag=b"}
    table.delete_tag("b")

    assert partitions(hive) == {}


def test_partitions_follow_every_verb_that_changes_tags(ours: lc.Session, hive: Server) -> None:
    table = created(ours)
    table.create_tag("a")
    table.rename_tag("a", "b")
    table.replace_tag("b")
    assert partitions(hive) == {"b": "tag=b"}
    table.write([{"id": 2, "v": "a", "dt": "x"}])
    table.create_tag("late")
    assert sorted(partitions(hive)) == ["b", "late"]
    table.rollback_to(snapshot_id=1)
    assert sorted(partitions(hive)) == ["b"]

    table.create_branch("test", tag="b")
    branch = ours.get_table("d.t$branch_test")
    branch.write([{"id": 3, "v": "a", "dt": "x"}])
    branch.create_tag("of_branch")
    assert sorted(partitions(hive)) == ["b"]
    table.fast_forward("test")
    assert sorted(partitions(hive)) == ["b", "of_branch"]


def test_rename_of_the_table_takes_the_partitions_along(ours: lc.Session, hive: Server) -> None:
    created(ours).create_tag("a")
    ours.rename_table("d.t", "d.u")
    ours.get_table("d.u").create_tag("b")

    found = client(hive).partitions("d", "u")
    assert sorted(each.sd.location.split("/d.db/")[1] for each in found) == ["u/tag=a", "u/tag=b"]


def test_coming_tag_is_listed_at_each_commit(
    ours: lc.Session, options: dict[str, str], hive: Server
) -> None:
    before = datetime.now(UTC)
    table = created(ours, BY_DAY)
    days = {f"{each:%Y-%m-%d}" for each in (before, datetime.now(UTC))}
    (listed,) = partitions(hive)
    assert listed in days
    assert table.tags() == ()
    client(hive).drop_partition("d", "t", [listed])
    java(PAIMON_HIVE, options, "write d.t 2 1")

    assert set(partitions(hive)) <= days | {f"{datetime.now(UTC):%Y-%m-%d}"}
    assert len(partitions(hive)) == 1


def test_tags_that_were_not_copied_are_listed_by_a_repair(
    ours: lc.Session, hive: Server, caplog: pytest.LogCaptureFixture
) -> None:
    table = created(ours)
    publication: Any = table.context.publication
    there = publication.metastore.client.hosts
    publication.metastore.client.hosts = (("127.0.0.1", 1),)
    with caplog.at_level(logging.WARNING):
        table.create_tag("a")
    publication.metastore.client.hosts = there

    assert "tags not copied table=d.t" in caplog.text
    assert [tag.name for tag in table.tags()] == ["a"]
    assert partitions(hive) == {}
    ours.repair("d.t")
    assert partitions(hive) == {"a": "tag=a"}


def test_table_that_cannot_list_its_tags_is_not_created(ours: lc.Session) -> None:
    with pytest.raises(InvalidRequest, match="with partition keys"):
        ours.create_table(
            "d.t", COLUMNS, primary_keys=["id", "dt"], partition_keys=["dt"], options=TAGS
        )
    for key in ("v", "V", " "):
        with pytest.raises(InvalidRequest, match="no column has"):
            ours.create_table("d.t", COLUMNS, options={"metastore.tag-to-partition": key})

    assert ours.list_tables("d") == ()
