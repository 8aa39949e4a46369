"""Converts the options of HDFS (Paimon's and Hadoop's keys) to settings of the client.

- `hadoop-conf-dir`: the directory with `core-site.xml` and `hdfs-site.xml`. Without it, the client
  reads the directory that the environment names: `HADOOP_CONF_DIR`, or `HADOOP_HOME/etc/hadoop`.
- `hadoop.KEY` sets KEY, as in Paimon; `dfs.*`, `hadoop.security.*` and `fs.defaultFS` need no
  prefix. Options override files.

INVARIANT: no option is accepted and ignored. A key that the client does not read raises
`Unsupported`, which names the keys that it reads. Files may hold any keys, because servers read
them too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.stores.timeouts import ANSWER_OPTION, timeouts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "HADOOP_CONF_DIR",
    "HDFS",
    "HdfsSettings",
    "check_hdfs_options",
    "hdfs_settings",
    "is_hdfs_option",
]

HDFS = "hdfs"
HADOOP_CONF_DIR = "hadoop-conf-dir"
PREFIX = "hadoop."
DEFAULT_FS = "fs.defaultFS"

# The keys that the client reads. The name of a name service follows a key that ends with a dot.
KEYS = (
    DEFAULT_FS,
    "dfs.client.block.write.replace-datanode-on-failure.best-effort",
    "dfs.client.block.write.replace-datanode-on-failure.enabled",
    "dfs.client.block.write.replace-datanode-on-failure.policy",
    "dfs.client.failover.max.attempts",
    "dfs.client.failover.proxy.provider.",
    "dfs.client.failover.random.order.",
    "dfs.client.failover.resolve-needed.",
    "dfs.client.failover.resolver.useFQDN.",
    "dfs.client.failover.sleep.base.millis",
    "dfs.client.failover.sleep.max.millis",
    "dfs.client.socket-timeout",
    "dfs.client.use.datanode.hostname",
    "dfs.data.transfer.protection",
    "dfs.ha.namenodes.",
    "dfs.namenode.rpc-address.",
    "hadoop.security.authentication",
    "hadoop.security.key.provider.path",
)
# The key that lists the name services.
NAMESERVICES = "dfs.nameservices"


_SOCKET_TIMEOUT = "dfs.client.socket-timeout"
ATTEMPTS_OPTION = "dfs.client.failover.max.attempts"
ATTEMPTS_OF_ONE = 2
"""The connection attempts to a single name node; Hadoop's default, 15, takes three minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HdfsSettings:
    """The HDFS address `hdfs://HOST`, the client's settings, and Hadoop's configuration directory.

    The directory holds `core-site.xml` and `hdfs-site.xml`.
    """

    address: str
    config: Mapping[str, str] = field(default_factory=dict)
    directory: str | None = None


def is_hdfs_option(option: str) -> bool:
    """Whether a catalog option is an option of Hadoop or HDFS."""
    return option in {HADOOP_CONF_DIR, DEFAULT_FS} or option.startswith((PREFIX, "dfs."))


def check_hdfs_options(options: Mapping[str, str]) -> None:
    """Raise Unsupported for a key of Hadoop that the client does not read."""
    for option in filter(is_hdfs_option, options):
        if option != HADOOP_CONF_DIR:
            _hadoop_key(option)


def hdfs_settings(uri: str, options: Mapping[str, str]) -> HdfsSettings:
    """The settings of the client for paths below `hdfs://HOST/...`.

    Raises InvalidRequest if `hadoop-conf-dir` is not a directory, or if two options set one key.
    """
    check_hdfs_options(options)
    config: dict[str, str] = {}
    for option in filter(is_hdfs_option, options):
        if option == HADOOP_CONF_DIR:
            continue
        key = _hadoop_key(option)
        if config.setdefault(key, options[option]) != options[option]:
            raise InvalidRequest("two options set the same value differently; keep one", option=key)
    config.pop(NAMESERVICES, None)
    directory = options.get(HADOOP_CONF_DIR)
    if directory is not None:
        directory = os.path.expanduser(directory)
        if not os.path.isdir(directory):
            raise InvalidRequest(
                "the directory with core-site.xml and hdfs-site.xml is not there",
                option=HADOOP_CONF_DIR,
                value=directory,
            )
    authority = uri.partition("://")[2].partition("/")[0]
    if ":" in authority:
        config.setdefault(ATTEMPTS_OPTION, str(ATTEMPTS_OF_ONE))
    if ":" in authority or ANSWER_OPTION in options:
        config.setdefault(_SOCKET_TIMEOUT, str(round(timeouts_of(options).answer * 1000)))
    return HdfsSettings(address=f"hdfs://{authority}", config=config, directory=directory)


def _hadoop_key(option: str) -> str:
    """The key of Hadoop that an option sets."""
    key = option
    if (
        option.startswith(PREFIX) and not option.startswith("hadoop.security.")
    ) or option.startswith(PREFIX + PREFIX):
        key = option.removeprefix(PREFIX)
    if key == NAMESERVICES:
        return key
    if not any(key.startswith(each) if each.endswith(".") else key == each for each in KEYS):
        raise Unsupported(
            "the client of HDFS does not read this option of Hadoop",
            option=option,
            known=[
                HADOOP_CONF_DIR,
                NAMESERVICES,
                *(f"{each}NAME" if each.endswith(".") else each for each in KEYS),
            ],
        )
    return key
