from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.stores.service_settings import hdfs_settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("dfs.ha.namenodes.lake", "dfs.ha.namenodes.lake"),
        ("hadoop.dfs.namenode.rpc-address.lake.nn1", "dfs.namenode.rpc-address.lake.nn1"),
        ("hadoop.fs.defaultFS", "fs.defaultFS"),
        ("fs.defaultFS", "fs.defaultFS"),
        ("hadoop.security.authentication", "hadoop.security.authentication"),
        ("hadoop.hadoop.security.authentication", "hadoop.security.authentication"),
    ],
)
def test_keys_of_hadoop_need_a_prefix_only_where_paimon_wants_one(option: str, key: str) -> None:
    assert hdfs_settings("hdfs://lake/w", {option: "x"}).config == {key: "x"}


def test_name_services_are_known_by_their_keys() -> None:
    settings = hdfs_settings("hdfs://lake/w", {"dfs.nameservices": "lake", "s3.region": "x"})

    assert (settings.address, settings.config, settings.directory) == ("hdfs://lake", {}, None)


def test_one_name_node_is_not_asked_for_minutes() -> None:
    attempts, timeout = "dfs.client.failover.max.attempts", "dfs.client.socket-timeout"
    given = {attempts: "7", "lakecore.answer-timeout": "3 s"}

    assert hdfs_settings("hdfs://host:8020/w", {}).config == {attempts: "2", timeout: "15000"}
    assert hdfs_settings("hdfs://host:8020/w", given).config == {attempts: "7", timeout: "3000"}
    assert hdfs_settings("hdfs://lake/w", {timeout: "9"}).config == {timeout: "9"}


@pytest.mark.parametrize("option", ["dfs.replication", "hadoop.io.file.buffer.size"])
def test_key_that_the_client_does_not_read_is_refused(option: str) -> None:
    with pytest.raises(Unsupported, match=option):
        hdfs_settings("hdfs://lake/w", {option: "3"})


def test_two_spellings_may_agree_and_may_not_differ() -> None:
    both = {"dfs.client.socket-timeout": "1", "hadoop.dfs.client.socket-timeout": "1"}

    assert len(hdfs_settings("hdfs://lake/w", both).config) == 1
    with pytest.raises(InvalidRequest, match="keep one"):
        hdfs_settings("hdfs://lake/w", {**both, "dfs.client.socket-timeout": "2"})


def test_directory_of_hadoops_files_has_to_be_there(tmp_path: Path) -> None:
    settings = hdfs_settings("hdfs://lake/w", {"hadoop-conf-dir": str(tmp_path)})

    assert settings.directory == str(tmp_path)
    with pytest.raises(InvalidRequest, match="hadoop-conf-dir"):
        hdfs_settings("hdfs://lake/w", {"hadoop-conf-dir": str(tmp_path / "no")})
