"""The Hive catalog: names, columns, partitions and locks in a Hive Metastore, by Thrift."""

from __future__ import annotations
