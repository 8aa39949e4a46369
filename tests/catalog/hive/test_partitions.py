"""What is stated of partitions in a metastore."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import lakecore as lc
from lakecore.catalog.hive.metastore import HivePartitions
from lakecore.catalog.identifier import Identifier
from lakecore.io.ambient import SYSTEM
from lakecore.model.manifest import FileKind

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT = "__DEFAULT_PARTITION__"


class Client:
    """A metastore that lists every partition, and keeps the parameters that it is given."""

    def __init__(self) -> None:
        self.stated: dict[str, dict[str, str]] = {}
        self.dropped: list[list[str]] = []

    def partition(self, database: str, table: str, values: list[str]) -> Any:
        del database, table
        return SimpleNamespace(values=values, parameters={"own": "kept"})

    def alter_statistics(self, database: str, table: str, partition: Any) -> None:
        del database, table
        self.stated[partition.values[0]] = partition.parameters

    def drop_partition(self, database: str, table: str, values: list[str]) -> bool:
        del database, table
        self.dropped.append(values)
        return True


def test_partitions_of_one_spec_are_counted_together(tmp_path: Path) -> None:
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    columns = {"id": "INT", "dt": "STRING"}
    table = session.create_table("d.t", columns, partition_keys=["dt"])
    table.write([{"id": 1, "dt": None}, {"id": 2, "dt": " "}, {"id": 3, "dt": "x"}])
    context = table.context
    snapshot = context.history.latest_snapshot()
    assert snapshot is not None
    client = Client()

    HivePartitions(client=cast("Any", client), ambient=SYSTEM).report(
        Identifier(database="d", table="t"),
        context.history,
        context.schema,
        snapshot,
        {(("dt", DEFAULT),): 5_999, (("dt", "gone"),): 7_000},
    )

    assert client.stated.keys() == {DEFAULT, "gone"}
    both, gone = client.stated[DEFAULT], client.stated["gone"]
    assert int(both.pop("totalSize")) > 0
    times = {"lastUpdateTime": "5", "transient_lastDdlTime": "5"}
    counts = {"numFiles": "2", "numRows": "2", "totalBuckets": "-1"}
    assert both == {"own": "kept", **counts, **times}
    assert [gone[key] for key in ("numFiles", "numRows", "totalSize", "totalBuckets")] == ["0"] * 4


def test_partition_with_files_stays_listed_when_another_of_its_spec_is_emptied(
    tmp_path: Path,
) -> None:
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    columns = {"id": "INT", "dt": "STRING"}
    table = session.create_table("d.t", columns, partition_keys=["dt"])
    table.write([{"id": 1, "dt": None}, {"id": 2, "dt": " "}, {"id": 3, "dt": "x"}])
    context = table.context
    written = context.history.latest_snapshot()
    assert written is not None
    emptied = [
        replace(entry, kind=FileKind.DELETE)
        for entry in context.history.live_entries(written)
        if context.partitions.values([entry.partition]).to_pylist() != [{"dt": None}]
    ]
    table.delete("id > 1")
    client = Client()

    HivePartitions(client=cast("Any", client), ambient=SYSTEM).follow(
        Identifier(database="d", table="t"),
        context.history,
        context.schema,
        cast("Any", SimpleNamespace(delta=emptied, snapshot=context.history.latest_snapshot())),
    )

    assert len(emptied) == 2
    assert client.dropped == [["x"]]
