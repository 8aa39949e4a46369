"""Tables that a Hive Metastore lists for readers of Iceberg."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.errors import AlreadyExists, InvalidRequest, StorageError, Unsupported
from tests.interop.iceberg_rows import plain_rows
from tests.interop.protocol import REPOSITORY
from tests.services.hive import client, empty, hive_options

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.protocol import Peer
    from tests.services.servers import Server

TYPES = {"k": "INT NOT NULL", "s": "STRING"}


@pytest.fixture
def uri(hive: Server) -> str:
    empty(hive)
    return f"thrift://127.0.0.1:{hive.port}"


def warehouse(folder: Path, uri: str) -> lc.Session:
    session = lc.connect(
        {"warehouse": str(folder / "w"), "lakecore.iceberg-uris": uri}, create=True
    )
    session.create_database("d", ignore_if_exists=True)
    return session


def created(session: lc.Session, uri: str, **options: str) -> lc.Table:
    stated = {each.replace("_", "-"): text for each, text in options.items()}
    return session.create_table(
        "d.t",
        TYPES,
        options={
            "metadata.iceberg.storage": "hive-catalog",
            "metadata.iceberg.uri": uri,
            **{f"metadata.iceberg.{key}": text for key, text in stated.items()},
        },
    )


def row(number: int) -> list[dict[str, Any]]:
    return [{"k": number, "s": f"s{number}"}]


def listed(reader: Peer, uri: str, name: str = "d.t") -> Any:
    return reader.ask("listed", catalog={"type": "hive", "uri": uri}, name=name)


def entry(hive: Server, name: str = "t", database: str = "d") -> Any:
    return client(hive).table(database, name)


def test_readers_of_the_metastore_see_each_commit(
    uri: str, hive: Server, reader: Peer, tmp_path: Path
) -> None:
    table = created(warehouse(tmp_path, uri), uri)
    for number in range(3):
        table.write(row(number))
        seen = listed(reader, uri)

        assert seen["snapshot"] == number + 1
        assert seen["rows"] == plain_rows(table.to_arrow().to_pylist())

    table.create_tag("kept")
    table.rollback_to(snapshot_id=2)

    assert listed(reader, uri)["refs"] == {"main": 2}
    assert listed(reader, uri)["rows"] == plain_rows(table.to_arrow().to_pylist())
    parameters = entry(hive).parameters
    assert parameters["previous_metadata_location"].endswith(
        "/iceberg/d/t/metadata/v3.metadata.json"
    )
    assert parameters["table_type"] == "ICEBERG"
    assert [(each.name, each.type) for each in entry(hive).sd.cols] == [
        ("k", "int"),
        ("s", "string"),
    ]


def test_schema_and_names_of_the_entry_follow_the_options(
    uri: str, hive: Server, reader: Peer, tmp_path: Path
) -> None:
    session = warehouse(tmp_path, uri)
    table = created(session, uri, database="a; b", table="named", storage_location="table-location")
    table.write(row(1))
    session.alter_table("d.t", [lc.SchemaChange.rename_column("s", "text")])
    table = table.refresh()
    table.write([{"k": 2, "text": "x"}])

    for database in ("a", "b"):
        seen = listed(reader, uri, f"{database}.named")
        assert seen["metadata"] == f"{table.path}/metadata/v2.metadata.json"
        assert seen["rows"] == plain_rows(table.to_arrow().to_pylist())
        assert [each.name for each in entry(hive, "named", database).sd.cols] == ["k", "text"]
    assert entry(hive) is None


def test_an_entry_goes_with_its_table(uri: str, hive: Server, tmp_path: Path) -> None:
    session = warehouse(tmp_path, uri)
    created(session, uri).write(row(1))
    session.rename_table("d.t", "d.u")

    assert entry(hive) is None
    session.get_table("d.u").write(row(2))
    assert (
        entry(hive, "u").parameters["metadata_location"].endswith("/d/u/metadata/v2.metadata.json")
    )
    session.drop_table("d.u")
    assert entry(hive, "u") is None

    created(session, uri).write(row(1))
    session.drop_database("d", cascade=True)
    assert entry(hive) is None


def test_an_entry_of_another_table_is_left_alone(
    uri: str, hive: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = created(warehouse(tmp_path / "first", uri), uri)
    first.write(row(1))
    before = entry(hive).parameters["metadata_location"]
    session = warehouse(tmp_path / "second", uri)
    second = created(session, uri)
    with caplog.at_level(logging.WARNING, "lakecore.iceberg"):
        assert second.write(row(2)).facts["iceberg_failed"] == 1

    assert "another table of that name" in caplog.text
    assert second.count() == 1
    with pytest.raises(AlreadyExists, match="another table"):
        second.export_iceberg()
    session.drop_table("d.t")
    assert entry(hive).parameters["metadata_location"] == before


def test_the_entry_of_paimons_hive_catalog_serves_both(
    uri: str, hive: Server, reader: Peer, tmp_path: Path
) -> None:
    options = {**hive_options(hive, tmp_path), "lakecore.iceberg-uris": uri}
    session = lc.connect(options, create=True)
    session.create_database("d")
    table = created(session, uri, storage_location="table-location")
    table.write(row(1))
    assert listed(reader, uri)["rows"] == plain_rows(table.to_arrow().to_pylist())

    session.alter_table("d.t", [lc.SchemaChange.add_column("more", "INT")])
    assert listed(reader, uri)["snapshot"] == 1
    session.get_table("d.t").write([{"k": 2, "s": None, "more": 3}])
    assert listed(reader, uri)["snapshot"] == 2
    assert session.list_tables("d") == ("t",)

    session.rename_table("d.t", "d.u")
    assert entry(hive, "u").parameters["table_type"] == "PAIMON"
    table = session.get_table("d.u")
    table.write([{"k": 3, "s": None, "more": 3}])
    assert listed(reader, uri, "d.u")["rows"] == plain_rows(table.to_arrow().to_pylist())


def test_a_metastore_that_is_down_fails_no_commit(
    uri: str, tmp_path: Path, reader: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(warehouse(tmp_path, uri), uri)
    table.write(row(1))
    first = listed(reader, uri)["metadata"]
    with monkeypatch.context() as down:
        down.setattr(
            "lakecore.io.hive.client.HiveClient._open_at",
            lambda *_: (_ for _ in ()).throw(OSError("down")),
        )
        for number in (2, 3, 4):
            assert table.write(row(number)).facts["iceberg_failed"] == 1
        with pytest.raises(StorageError, match="Hive Metastore"):
            table.export_iceberg()

    # The document that the entry names is kept, so its readers see the earlier snapshot.
    assert listed(reader, uri) | {"rows": 0} == {
        "metadata": first,
        "snapshot": 1,
        "refs": {"main": 1},
        "rows": 0,
    }
    table.export_iceberg()
    assert listed(reader, uri)["rows"] == plain_rows(table.to_arrow().to_pylist())


def test_what_cannot_be_listed_is_refused_before_the_commit(uri: str, tmp_path: Path) -> None:
    created(warehouse(tmp_path, uri), uri)
    stranger = lc.connect(tmp_path / "w").get_table("d.t")
    with pytest.raises(InvalidRequest, match=r"lakecore\.iceberg-uris"):
        stranger.write(row(1))
    for allowed in (uri[:-1], "thrift://127.0.0.1"):
        with pytest.raises(InvalidRequest, match=r"lakecore\.iceberg-uris"):
            stranger.copy({"lakecore.iceberg-uris": allowed}).write(row(1))
    by_path = lc.open_table(stranger.path, options={"lakecore.iceberg-uris": uri})
    with pytest.raises(InvalidRequest, match="opened by its path"):
        by_path.write(row(1))
    with pytest.raises(Unsupported, match=r"hive-conf-dir"):
        stranger.copy({"metadata.iceberg.hive-conf-dir": "/etc/hive"}).write(row(1))
    with pytest.raises(InvalidRequest, match="name the Iceberg catalog"):
        stranger.copy({"metadata.iceberg.uri": ""}).write(row(1))

    assert by_path.count() == 0
    by_path.copy({"metadata.iceberg.database": "d", "metadata.iceberg.table": "t"}).write(row(1))


WRITER = """
import sys, lakecore as lc
folder, uri, first, many = sys.argv[1:]
table = lc.connect({"warehouse": folder, "lakecore.iceberg-uris": uri}).get_table("d.t")
print("ready", flush=True)
for number in range(int(many)):
    table.write([{"k": int(first) + number, "s": "x"}])
"""


def writer(folder: Path, uri: str, first: int, many: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder / "w"), uri, str(first), str(many)]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as answer:
        answer.readline()
    return process


def version(hive: Server) -> int:
    found = entry(hive)
    if found is None:
        return 0
    return int(found.parameters["metadata_location"].rpartition("/v")[2].partition(".")[0])


def test_the_entry_never_goes_back_while_two_processes_publish(
    uri: str, hive: Server, reader: Peer, tmp_path: Path
) -> None:
    table = created(warehouse(tmp_path, uri), uri)
    writers = [writer(tmp_path, uri, first, 8) for first in (0, 1000)]
    seen = [0]
    while any(each.poll() is None for each in writers):
        seen.append(version(hive))
    assert [each.returncode for each in writers] == [0, 0]

    assert seen == sorted(seen)
    assert version(hive) == 16
    found = listed(reader, uri)
    assert found["snapshot"] == 16
    assert found["rows"] == plain_rows(table.to_arrow().to_pylist())
    assert len(found["rows"]) == 16


def test_a_publisher_that_is_killed_leaves_a_table_that_the_next_one_repairs(
    uri: str, reader: Peer, tmp_path: Path
) -> None:
    table = created(warehouse(tmp_path, uri), uri)
    table.write(row(5000))
    for turn in range(2):
        killed, other = writer(tmp_path, uri, 0, 100), writer(tmp_path, uri, 1000, 4)
        time.sleep(0.3 + turn * 0.3)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        other.wait()
        assert other.returncode == 0

        done = table.export_iceberg()
        found = listed(reader, uri)
        assert found["metadata"] == done.metadata_path
        assert found["snapshot"] == done.snapshot_id
        assert found["rows"] == plain_rows(table.to_arrow().to_pylist())
