"""Hive catalogs of lakecore and Java on one metastore, and what the metastore shows."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.catalog import metastore_catalog
from lakecore.catalog.hive.metastore import HiveMetastore
from lakecore.errors import AlreadyExists, InvalidRequest, NotFound, StorageError, Unsupported
from lakecore.io.hive.client import types
from tests.services.hive import client, empty, hive_options
from tests.services.java import java
from tests.services.setup import PAIMON_HIVE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.servers import Server

COLUMNS = {"id": "INT NOT NULL", "v": "STRING", "dt": "STRING NOT NULL"}
PARTITIONED = {"bucket": "1", "metastore.partitioned-table": "true"}
WRITERS, COMMITS = 4, 3


@pytest.fixture
def options(hive: Server, tmp_path: Path) -> dict[str, str]:
    empty(hive)
    return {**hive_options(hive, tmp_path), "lock.enabled": "true"}


@pytest.fixture
def ours(options: dict[str, str]) -> lc.Session:
    session = lc.connect(options, create=True)
    session.create_database("d")
    return session


def rows(table: lc.Table) -> list[int]:
    return sorted(table.to_polars()["id"].to_list())


def row(number: int, dt: str = "x") -> list[dict[str, object]]:
    return [{"id": number, "v": "lakecore", "dt": dt}]


def shown(hive: Server, name: str) -> Any:
    return client(hive).table("d", name)


def partitions(hive: Server, name: str) -> dict[str, str]:
    """The partitions that the metastore lists, by their values."""
    return {"/".join(p.values): p.sd.location for p in client(hive).partitions("d", name)}


# --- both ways with Java --------------------------------------------------------------------------


def test_what_one_engine_does_is_right_for_the_other(
    ours: lc.Session, options: dict[str, str]
) -> None:
    ours.create_table("d.a", COLUMNS, primary_keys=["id"], options={"bucket": "1"})
    ours.get_table("d.a").write(row(1))
    ours.create_table("d.b", COLUMNS)

    assert java(
        PAIMON_HIVE,
        options,
        "tables d",
        "read d.a",
        "write d.a 2 1",
        "add-column d.a n",
        "set-option d.a write-only true",
        "rename d.b d.c",
        "create d.e",
        "write d.e 7 1",
        "rename d.a d.f",
        "drop d.c",
    ) == ["[a, b]", "[1]", *["ok"] * 8]
    assert ours.list_tables("d") == ("e", "f")
    table = ours.get_table("d.f")
    assert rows(table) == [1, 2]
    assert table.schema.names == ("id", "v", "dt", "n")

    table.write([{"id": 3, "v": "lakecore", "dt": "x", "n": 1}])
    ours.rename_table("d.e", "d.g")
    assert java(PAIMON_HIVE, options, "read d.f", "read d.g", "tables d", "drop d.g") == [
        "[1, 2, 3]",
        "[7]",
        "[f, g]",
        "ok",
    ]
    assert ours.list_tables("d") == ("f",)


def test_table_looks_as_java_makes_it(
    ours: lc.Session, options: dict[str, str], hive: Server
) -> None:
    java(PAIMON_HIVE, options, "create d.theirs partitioned metastore.partitioned-table=true")
    ours.create_table(
        "d.ours",
        COLUMNS,
        primary_keys=["id", "dt"],
        partition_keys=["dt"],
        options=PARTITIONED,
        comment="made by Java",
    )
    a, b = shown(hive, "ours"), shown(hive, "theirs")

    volatile = {"transient_lastDdlTime", "totalSize", "numFiles"}
    parameters = [
        {key: text for key, text in each.parameters.items() if key not in volatile}
        for each in (a, b)
    ]
    assert parameters[0] == parameters[1]
    assert [(c.name, c.type) for c in a.sd.cols] == [(c.name, c.type) for c in b.sd.cols]
    assert [(c.name, c.type) for c in a.partitionKeys] == [
        (c.name, c.type) for c in b.partitionKeys
    ]
    assert a.sd.location.rsplit("/", 1) == [b.sd.location.rsplit("/", 1)[0], "ours"]
    for each in (
        lambda t: t.tableType,
        lambda t: t.retention,
        lambda t: t.owner,
        lambda t: (t.sd.inputFormat, t.sd.outputFormat, t.sd.serdeInfo.serializationLib),
    ):
        assert each(a) == each(b)


def test_writers_of_two_engines_lose_nothing(ours: lc.Session, options: dict[str, str]) -> None:
    ours.create_table(
        "d.t", COLUMNS, primary_keys=["id"], options={"bucket": "1", "write-only": "true"}
    )

    def commit(writer: int) -> None:
        for number in range(COMMITS):
            lc.connect(options).get_table("d.t").write(row(writer * COMMITS + number))

    with ThreadPoolExecutor(WRITERS + 1) as threads:
        race = f"race d.t {WRITERS * COMMITS} {WRITERS} {COMMITS}"
        done: list[Future[Any]] = [
            threads.submit(java, PAIMON_HIVE, options, race),
            *(threads.submit(commit, each) for each in range(WRITERS)),
        ]
    for each in done:
        each.result()

    assert rows(ours.get_table("d.t")) == list(range(2 * WRITERS * COMMITS))


# --- columns, partitions, locations ---------------------------------------------------------------


def test_columns_and_options_follow_the_schema(ours: lc.Session, hive: Server) -> None:
    ours.create_table("d.t", COLUMNS, options={"write-only": "true"})
    ours.alter_table(
        "d.t",
        [
            lc.SchemaChange.add_column("n", "DECIMAL(8, 2)", comment="two\nlines"),
            lc.SchemaChange.remove_option("write-only"),
        ],
    )
    table = shown(hive, "t")

    assert [(c.name, c.type, c.comment) for c in table.sd.cols][-1] == (
        "n",
        "decimal(8,2)",
        "two lines",
    )
    assert "write-only" not in table.parameters


def test_schema_that_the_metastore_refuses_is_not_published(ours: lc.Session, hive: Server) -> None:
    ours.create_table("d.t", {"a": "INT", "b": "STRING", "c": "INT"})
    with pytest.raises(InvalidRequest, match=r"refused a change.*incompatible"):
        ours.alter_table("d.t", [lc.SchemaChange.drop_column("a")])

    assert ours.get_table("d.t").schema.names == ("a", "b", "c")
    assert [c.name for c in shown(hive, "t").sd.cols] == ["a", "b", "c"]


def test_partitions_come_and_go_with_their_files(ours: lc.Session, hive: Server) -> None:
    table = ours.create_table(
        "d.t", COLUMNS, primary_keys=["id", "dt"], partition_keys=["dt"], options=PARTITIONED
    )
    table.write([*row(1, "a"), *row(2, "b/c")])
    assert {value: place.rsplit("/", 1)[1] for value, place in partitions(hive, "t").items()} == {
        "a": "dt=a",
        "b/c": "dt=b%2Fc",
    }
    table.write(row(3, "a"))
    table.drop_partition({"dt": "b/c"})
    assert list(partitions(hive, "t")) == ["a"]

    ours.rename_table("d.t", "d.u")
    assert partitions(hive, "u")["a"].endswith("/d.db/u/dt=a")
    client(hive).drop_partition("d", "u", ["a"])
    ours.repair("d.u")
    assert list(partitions(hive, "u")) == ["a"]


def test_table_without_the_option_has_no_partitions(ours: lc.Session, hive: Server) -> None:
    table = ours.create_table(
        "d.t", COLUMNS, primary_keys=["id", "dt"], partition_keys=["dt"], options={"bucket": "1"}
    )
    table.write(row(1, "a"))

    assert shown(hive, "t").partitionKeys == []
    assert [c.name for c in shown(hive, "t").sd.cols] == ["id", "v", "dt"]


def test_external_table_keeps_its_files(ours: lc.Session, options: dict[str, str]) -> None:
    external = lc.connect({**options, "table.type": "external"})
    table = external.create_table("d.t", COLUMNS)
    table.write(row(1))
    external.drop_table("d.t")

    assert ours.list_tables("d") == ()
    assert rows(lc.open_table(table.path)) == [1]
    assert external.repair("d") == ("d.t",)
    assert rows(external.get_table("d.t")) == [1]


def test_location_may_be_a_property(
    ours: lc.Session, options: dict[str, str], hive: Server
) -> None:
    session = lc.connect({**options, "location-in-properties": "true"})
    table = session.create_table("d.t", COLUMNS)

    assert shown(hive, "t").parameters["paimon_location"] == table.path
    table.write(row(1))
    assert rows(ours.get_table("d.t")) == [1]


def test_table_on_another_storage_is_read_there(ours: lc.Session, hive: Server) -> None:
    ours.create_table("d.t", COLUMNS)
    beside = lc.connect("memory://elsewhere/w", create=True)
    beside.create_database("d", ignore_if_exists=True)
    beside.drop_table("d.t", ignore_if_not_exists=True)
    there = beside.create_table("d.t", COLUMNS)
    there.write(row(9))
    table = shown(hive, "t")
    table.parameters["paimon_location"] = there.path
    client(hive).alter_table("d", "t", table, {})

    assert rows(ours.get_table("d.t")) == [9]
    ours.get_table("d.t").write(row(10))
    assert rows(beside.get_table("d.t")) == [9, 10]
    ours.rename_table("d.t", "d.u")  # only a table in the directory of its name moves
    assert ours.get_table("d.u").path == there.path
    ours.drop_table("d.u")
    assert not beside.table_exists("d.t")


def test_killed_rename_is_read_at_its_old_place_and_finished(
    ours: lc.Session, hive: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours.create_table("d.t", COLUMNS, partition_keys=["dt"], options=PARTITIONED | {"bucket": "-1"})
    ours.get_table("d.t").write(row(1))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for owner, step in ((metastore_catalog, "move_table"), (HiveMetastore, "moved")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, step, killed)
            with pytest.raises(KeyboardInterrupt):
                ours.rename_table("d.t", "d.u")
        assert rows(ours.get_table("d.u")) == [1]
        assert not ours.table_exists("d.t")
        ours.rename_table("d.t", "d.u")
        assert "lakecore.renamed-from" not in shown(hive, "u").parameters
        assert [place.rsplit("/", 2)[1] for place in partitions(hive, "u").values()] == ["u"]
        assert rows(ours.get_table("d.u")) == [1]
        ours.rename_table("d.u", "d.t")


# --- what is not Paimon's -------------------------------------------------------------------------


def test_tables_of_others_are_neither_listed_nor_touched(ours: lc.Session, hive: Server) -> None:
    kinds = types()
    descriptor = kinds.StorageDescriptor(
        cols=[kinds.FieldSchema(name="a", type="int", comment="")],
        inputFormat="org.apache.hadoop.mapred.TextInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        serdeInfo=kinds.SerDeInfo(serializationLib="x", parameters={}),
        parameters={},
    )
    client(hive).create_table(
        kinds.Table(
            tableName="csv", dbName="d", sd=descriptor, partitionKeys=[], parameters={}, owner="x"
        )
    )
    assert ours.list_tables("d") == ()
    assert not ours.table_exists("d.csv")
    with pytest.raises(Unsupported, match="not a table of Paimon"):
        ours.get_table("d.csv")
    with pytest.raises(Unsupported, match="not a table of Paimon"):
        ours.drop_table("d.csv")
    with pytest.raises(AlreadyExists):
        ours.create_table("d.csv", COLUMNS)
    with pytest.raises(InvalidRequest, match=r"not Paimon's.*others=\[csv\]"):
        ours.drop_database("d", cascade=True)
    assert shown(hive, "csv") is not None


@pytest.mark.parametrize("name", ["d.Upper", "d.a-b", "d.ä"])
def test_name_that_hive_cannot_hold_is_refused(ours: lc.Session, name: str) -> None:
    with pytest.raises(InvalidRequest, match="lower-case letters"):
        ours.create_table(name, COLUMNS)


def test_name_in_another_case_is_another_name(ours: lc.Session) -> None:
    ours.create_table("d.t", COLUMNS)
    with pytest.raises(NotFound):
        ours.get_table("d.T")
    with pytest.raises(NotFound):
        ours.drop_table("D.t")


# --- faults ---------------------------------------------------------------------------------------


def test_metastore_that_is_gone_is_a_storage_error(options: dict[str, str]) -> None:
    with pytest.raises(StorageError, match=r"server=HiveClient\(127\.0\.0\.1:1\)"):
        lc.connect({**options, "uri": "thrift://127.0.0.1:1"}, create=True)


def test_second_server_answers_for_the_first(options: dict[str, str]) -> None:
    uri = f"thrift://127.0.0.1:1,{options['uri']}"

    assert lc.connect({**options, "uri": uri}, create=True).database_exists("default")


def test_lock_that_others_hold_makes_a_commit_wait_and_fail(
    ours: lc.Session, options: dict[str, str], hive: Server
) -> None:
    ours.create_table("d.t", COLUMNS)
    lock, held = client(hive).lock("d", "t", "them", "there")
    assert held
    hurried = lc.connect({**options, "lock-acquire-timeout": "300 ms"})
    with pytest.raises(lc.CommitConflict, match="other processes hold the lock"):
        hurried.get_table("d.t").write(row(1))
    assert ours.get_table("d.t").inspect.snapshots().height == 0

    client(hive).unlock(lock)
    hurried.get_table("d.t").write(row(1))
    assert rows(ours.get_table("d.t")) == [1]
