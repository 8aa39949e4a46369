"""Tables that an Iceberg REST catalog lists: Iceberg's own server, read by PyIceberg."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import StaticTable

import lakecore as lc
from lakecore.errors import AlreadyExists, InvalidRequest, StorageError, Unsupported
from tests.interop.iceberg_rows import plain_rows
from tests.interop.protocol import REPOSITORY

if TYPE_CHECKING:
    from tests.interop.protocol import Peer
    from tests.services.servers import Server

TYPES = {"k": "INT NOT NULL", "s": "STRING"}
VECTORS = {
    "bucket": "1",
    "deletion-vectors.enabled": "true",
    "deletion-vectors.bitmap64": "true",
    "metadata.iceberg.format-version": "3",
}


class Listed:
    """A warehouse with one table, and the database in which the server lists it."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.uri = f"http://127.0.0.1:{server.port}"
        self.database = f"d{uuid.uuid4().hex[:8]}"
        self.session = lc.connect(
            {"warehouse": str(folder / "w"), "lakecore.iceberg-uris": self.uri}, create=True
        )
        self.session.create_database(self.database, ignore_if_exists=True)
        self.name = f"{self.database}.t"

    def create(self, *, keyed: bool = False, **options: str) -> lc.Table:
        return self.session.create_table(
            self.name,
            TYPES,
            primary_keys=["k"] if keyed else [],
            options={
                "metadata.iceberg.storage": "rest-catalog",
                "metadata.iceberg.rest.uri": self.uri,
                "snapshot.num-retained.min": "2",
                "snapshot.num-retained.max": "4",
                **(VECTORS if keyed else {}),
                **{key.replace("__", ".").replace("_", "-"): each for key, each in options.items()},
            },
        )

    def seen(self, reader: Peer, name: str = "") -> Any:
        catalog = {"type": "rest", "uri": self.uri}
        return reader.ask("listed", catalog=catalog, name=name or self.name)


@pytest.fixture
def listed(iceberg_rest: Server, tmp_path: Path) -> Listed:
    return Listed(iceberg_rest, tmp_path)


def rows_of(table: lc.Table) -> list[str]:
    return plain_rows(table.to_arrow().to_pylist())


def without_nulls(rows: list[str]) -> list[dict[str, Any]]:
    """The values of rows: after a rollback, the snapshot's schema lacks the columns added later."""
    found = [json.loads(row) for row in rows]
    return [{name: each for name, each in row.items() if each is not None} for row in found]


def tags_of(table: lc.Table) -> dict[str, int]:
    """The tags that the newest document names."""
    path = table.export_iceberg().metadata_path
    assert path is not None
    refs = json.loads(Path(path).read_text())["refs"]
    return {name: each["snapshot-id"] for name, each in refs.items()}


def test_a_plain_pyiceberg_reads_manifests_in_deflate(tmp_path: Path) -> None:
    table = lc.open_table(tmp_path / "t", schema=TYPES, create=True)
    table.write([{"k": each, "s": "x"} for each in range(3)])

    def read(compression: str) -> list[str]:
        written = table.copy({"metadata.iceberg.manifest-compression": compression})
        path = written.export_iceberg(rebuild=True).metadata_path
        return plain_rows(StaticTable.from_metadata(path).scan().to_arrow().to_pylist())

    assert read("deflate") == rows_of(table)
    with pytest.raises(ImportError, match=r"pyiceberg\[snappy\]"):
        read("snappy")


@pytest.mark.parametrize("kind", ["append", "key"])
@pytest.mark.parametrize("seed", range(2))
def test_the_entry_follows_random_histories(
    kind: str, seed: int, listed: Listed, reader: Peer
) -> None:
    draw, table, done = random.Random(seed), listed.create(keyed=kind == "key"), list[str]()
    table.write([{"k": 0, "s": "first"}])
    for turn in range(14):
        names = table.schema.names
        verb = draw.choice(["write", "write", "write", "delete", "tag", "untag", "add", "rollback"])
        if verb == "delete":
            table.delete(f"k % 3 = {draw.randrange(3)}")
        elif verb == "tag":
            table.create_tag(f"t{turn}")
        elif verb == "untag" and table.tags():
            table.delete_tag(table.tags()[0].name)
        elif verb == "add":
            change = lc.SchemaChange.add_column(f"c{len(names)}", "INT")
            listed.session.alter_table(listed.name, [change])
        elif verb == "rollback":
            ids = table.inspect.snapshots()["snapshot_id"].to_list()
            table.rollback_to(snapshot_id=draw.choice(ids))
        table = table.refresh()
        if verb in {"write", "add"}:
            row = dict.fromkeys(table.schema.names) | {"k": draw.randrange(9), "s": f"{turn}"}
            table.write([row])
        done.append(verb)
        found, latest = listed.seen(reader), table.inspect.snapshots()["snapshot_id"].max()

        assert found["snapshot"] == latest, done
        assert without_nulls(found["rows"]) == without_nulls(rows_of(table)), done
        assert found["refs"] == {"main": latest, **tags_of(table)}, done


def test_an_entry_goes_with_its_table(listed: Listed, reader: Peer) -> None:
    listed.create().write([{"k": 1, "s": "a"}])
    renamed = f"{listed.database}.u"
    listed.session.rename_table(listed.name, renamed)
    with pytest.raises(Exception, match="NoSuchTable"):
        listed.seen(reader)
    table = listed.session.get_table(renamed)
    table.write([{"k": 2, "s": "b"}])
    assert listed.seen(reader, renamed)["rows"] == rows_of(table)

    listed.session.drop_table(renamed)
    with pytest.raises(Exception, match="NoSuchTable"):
        listed.seen(reader, renamed)


def test_an_entry_of_another_table_is_left_alone(
    listed: Listed, iceberg_rest: Server, reader: Peer, tmp_path: Path
) -> None:
    listed.create().write([{"k": 1, "s": "a"}])
    other = Listed(iceberg_rest, tmp_path / "other")
    table = other.create(metadata__iceberg__database=listed.database)

    assert table.write([{"k": 2, "s": "b"}]).facts["iceberg_failed"] == 1
    with pytest.raises(AlreadyExists, match="another table"):
        table.export_iceberg()
    other.session.drop_table(other.name)
    assert listed.seen(reader)["snapshot"] == 1


def test_a_server_that_is_down_fails_no_commit(
    listed: Listed, reader: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = listed.create()
    table.write([{"k": 1, "s": "a"}])
    with monkeypatch.context() as down:
        down.setattr("lakecore.table.maintenance.iceberg_rest._TIMEOUT_S", 1e-6)
        down.setattr("requests.Session.send", _down)
        for number in (2, 3, 4):
            assert table.write([{"k": number, "s": "a"}]).facts["iceberg_failed"] == 1
        with pytest.raises(StorageError, match="REST catalog"):
            table.export_iceberg()

    assert listed.seen(reader)["snapshot"] == 1
    table.export_iceberg()
    assert listed.seen(reader)["rows"] == rows_of(table)


def _down(*_arguments: object, **_named: object) -> None:
    raise OSError("down")


def test_what_cannot_be_listed_is_refused_before_the_commit(listed: Listed) -> None:
    table = listed.create()
    stranger = lc.connect(listed.session.warehouse).get_table(listed.name)
    with pytest.raises(InvalidRequest, match=r"lakecore\.iceberg-uris"):
        stranger.write([{"k": 1, "s": "a"}])
    for key in ("py-io-impl", "auth", "oauth2-server-uri", "ssl"):
        with pytest.raises(Unsupported, match=key):
            table.copy({f"metadata.iceberg.rest.{key}": "x"}).write([{"k": 1, "s": "a"}])
    with pytest.raises(InvalidRequest, match="one database"):
        table.copy({"metadata.iceberg.database": "a;b"}).write([{"k": 1, "s": "a"}])

    assert table.count() == 0


def test_a_property_of_the_table_loads_no_code(listed: Listed, tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass C: pass\n")
    table = listed.create(metadata__iceberg__table_properties__py_io_impl="evil.C")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        for number in range(2):
            assert "iceberg_failed" not in table.write([{"k": number, "s": "a"}]).facts

    assert not (tmp_path / "ran").exists()


WRITER = """
import sys, lakecore as lc
folder, uri, name, first = sys.argv[1:]
table = lc.connect({"warehouse": folder, "lakecore.iceberg-uris": uri}).get_table(name)
for number in range(8):
    table.write([{"k": int(first) + number, "s": "x"}])
"""


def test_the_entry_never_goes_back_while_two_processes_publish(
    listed: Listed, reader: Peer
) -> None:
    table = listed.create()
    table.write([{"k": -1, "s": "x"}])
    arguments = [listed.session.warehouse, listed.uri, listed.name]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, *arguments, first], cwd=REPOSITORY)
        for first in ("0", "1000")
    ]
    seen = [1]
    while any(each.poll() is None for each in writers):
        seen.append(listed.seen(reader)["snapshot"])

    assert [each.returncode for each in writers] == [0, 0]
    assert seen == sorted(seen)
    assert listed.seen(reader)["snapshot"] == 17
    assert listed.seen(reader)["rows"] == rows_of(table)
