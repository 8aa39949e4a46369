"""JDBC catalogs of lakecore, Java and pypaimon on one database."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.catalog.jdbc import metastore as sql
from lakecore.io.ambient import SYSTEM
from tests.interop.setup_peers import python
from tests.services.java import java
from tests.services.jdbc import JdbcServer, sqlite_file
from tests.services.setup import PAIMON

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = {"id": "INT NOT NULL", "v": "STRING", "dt": "STRING NOT NULL"}
WRITERS, COMMITS = 4, 4


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> JdbcServer:
    if request.param == "sqlite":
        return sqlite_file(tmp_path)
    found: JdbcServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def options(place: JdbcServer, tmp_path: Path) -> dict[str, str]:
    """Options that lakecore and Java share, but for the URI."""
    return {
        **place.options,
        "warehouse": str(tmp_path / "w"),
        "catalog-key": SYSTEM.new_uuid()[:8],
        "lock.enabled": "true",
        "lock-check-max-sleep": "100 ms",
    }


def rows(table: lc.Table) -> list[int]:
    return sorted(table.to_polars()["id"].to_list())


def row(number: int) -> list[dict[str, object]]:
    return [{"id": number, "v": "lakecore", "dt": "x"}]


def test_what_one_engine_does_is_right_for_the_other(
    place: JdbcServer, options: dict[str, str]
) -> None:
    ours = lc.connect(options, create=True)
    theirs = place.for_java(options)
    ours.create_database("shop")
    ours.create_table("shop.a", COLUMNS, primary_keys=["id"], options={"bucket": "1"})
    ours.get_table("shop.a").write(row(1))
    ours.create_table("shop.b", COLUMNS)

    assert java(
        PAIMON,
        theirs,
        "databases",
        "tables shop",
        "read shop.a",
        "write shop.a 2 1",
        "add-column shop.a n",
        "set-option shop.a write-only true",
        "rename shop.b shop.c",
        "create-database more",
        "create more.d",
        "write more.d 7 1",
        "rename shop.a more.a",
        "drop shop.c",
    ) == ["[shop]", "[a, b]", "[1]", *["ok"] * 9]
    assert ours.list_databases() == ("more", "shop")
    assert (ours.list_tables("shop"), ours.list_tables("more")) == ((), ("a", "d"))
    table = ours.get_table("more.a")
    assert rows(table) == [1, 2]
    assert table.schema.names == ("id", "v", "dt", "n")

    table.write([{"id": 3, "v": "lakecore", "dt": "x", "n": 1}])
    ours.alter_table("more.a", [lc.SchemaChange.remove_option("write-only")])
    ours.rename_table("more.d", "shop.e")
    assert java(
        PAIMON, theirs, "read more.a", "options more.a", "read shop.e", "tables more", "drop shop.e"
    )[::2] == ["[1, 2, 3]", "[7]", "ok"]
    assert ours.list_tables("shop") == ()
    ours.drop_database("more", cascade=True)
    assert java(PAIMON, theirs, "databases") == ["[shop]"]
    held = f"SELECT lock_id FROM {sql.LOCKS} WHERE lock_id LIKE '{options['catalog-key']}%'"
    assert place.database().rows(held, {}) == []


def test_properties_are_those_that_java_writes(place: JdbcServer, options: dict[str, str]) -> None:
    ours = lc.connect(options, create=True)
    ours.create_database("d")
    ours.create_table(
        "d.ours", COLUMNS, primary_keys=["id", "dt"], partition_keys=["dt"], options={"bucket": "1"}
    )
    java(PAIMON, place.for_java(options), "create d.theirs partitioned")
    found = place.database().rows(
        f"SELECT table_name, property_key, property_value FROM {sql.TABLE_PROPERTIES}"
        " WHERE catalog_key = :key ORDER BY property_key",
        {"key": options["catalog-key"]},
    )

    assert [each[1:] for each in found if each[0] == "ours"] == [
        each[1:] for each in found if each[0] == "theirs"
    ]


@pytest.mark.parametrize("place", ["postgresql", "mysql"], indirect=True)
@pytest.mark.sampled(2)
def test_writers_of_two_engines_lose_nothing(place: JdbcServer, options: dict[str, str]) -> None:
    """SQLite is left out: the Java processes would fail, because their driver does not wait."""
    ours = lc.connect(options, create=True)
    ours.create_database("d")
    ours.create_table(
        "d.t", COLUMNS, primary_keys=["id"], options={"bucket": "1", "write-only": "true"}
    )

    def commit(writer: int) -> None:
        for number in range(COMMITS):
            lc.connect(options).get_table("d.t").write(row(writer * COMMITS + number))

    with ThreadPoolExecutor(WRITERS + 1) as threads:
        race = f"race d.t {WRITERS * COMMITS} {WRITERS} {COMMITS}"
        done: list[Future[Any]] = [
            threads.submit(java, PAIMON, place.for_java(options), race),
            *(threads.submit(commit, each) for each in range(WRITERS)),
        ]
    for each in done:
        each.result()

    assert rows(ours.get_table("d.t")) == list(range(2 * WRITERS * COMMITS))
    held = f"SELECT lock_id FROM {sql.LOCKS} WHERE lock_id LIKE '{options['catalog-key']}%'"
    assert place.database().rows(held, {}) == []


PYPAIMON = """
import json, sys
import pyarrow as pa
from pypaimon import CatalogFactory, Schema
options = json.loads(sys.argv[1])
catalog = CatalogFactory.create(options)
def read(name):
    builder = catalog.get_table(name).new_read_builder()
    table = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return sorted(table["id"].to_pylist())
schema = pa.schema([pa.field("id", pa.int32(), False), ("v", pa.string())])
found = [sorted(catalog.list_tables("d")), read("d.ours")]
catalog.create_table("d.theirs", Schema.from_pyarrow_schema(
    schema, primary_keys=["id"], options={"bucket": "1"}), False)
builder = catalog.get_table("d.theirs").new_batch_write_builder()
write = builder.new_write()
write.write_arrow(pa.table({"id": [5], "v": ["p"]}, schema=schema))
builder.new_commit().commit(write.prepare_commit())
catalog.drop_table("d.gone", False)
print(json.dumps(found))
"""


def test_pypaimon_shares_a_sqlite_catalog(tmp_path: Path) -> None:
    options = {**sqlite_file(tmp_path).options, "warehouse": str(tmp_path / "w")}
    ours = lc.connect(options, create=True)
    ours.create_database("d")
    for name in ("d.ours", "d.gone"):
        ours.create_table(
            name,
            {"id": "INT NOT NULL", "v": "STRING"},
            primary_keys=["id"],
            options={"bucket": "1"},
        )
    ours.get_table("d.ours").write([{"id": 1, "v": "a"}])
    done = subprocess.run(
        [str(python()), "-c", PYPAIMON, json.dumps(options)],
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=240,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [["gone", "ours"], [1]]
    assert ours.list_tables("d") == ("ours", "theirs")
    assert rows(ours.get_table("d.theirs")) == [5]
