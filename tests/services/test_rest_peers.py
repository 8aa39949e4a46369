"""Java and pypaimon as clients of lakecore's REST server, and beside lakecore at Java's server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from lakecore.catalog.registry import open_catalog
from lakecore.errors import StorageError
from tests.interop import setup_peers
from tests.rest_servers import rest_server
from tests.services.rest import java, java_rest_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    import lakecore as lc
    from lakecore.catalog.catalog import Catalog

PYPAIMON = """
import json, sys
import pyarrow as pa
from pypaimon import CatalogFactory, Schema
options = json.loads(sys.argv[1])
catalog = CatalogFactory.create(options)
schema = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.string())])
catalog.create_table("shop.p", Schema.from_pyarrow_schema(
    schema, primary_keys=["id"], options={"bucket": "1"}), False)
table = catalog.get_table("shop.p")
builder = table.new_batch_write_builder()
writer, commit = builder.new_write(), builder.new_commit()
writer.write_arrow(pa.table({"id": pa.array([1, 2], pa.int64()), "v": ["a", "b"]}, schema=schema))
commit.commit(writer.prepare_commit())
reading = table.new_read_builder()
rows = reading.new_read().to_arrow(reading.new_scan().plan().splits())
functions = catalog.list_functions("shop")
print(json.dumps([sorted(rows["id"].to_pylist()), catalog.list_tables("shop"), functions]))
"""


@pytest.fixture
def behind(tmp_path: Path) -> Catalog:
    """The catalog of lakecore's server."""
    return open_catalog({"warehouse": str(tmp_path / "w")}, create=True)


@pytest.fixture
def client(behind: Catalog) -> Iterator[dict[str, str]]:
    with rest_server(behind) as options:
        yield options


def test_java_uses_a_server_of_lakecore_as_its_own(client: dict[str, str], behind: Catalog) -> None:
    said = java(
        client,
        *("create-database shop", "create shop.t", "write shop.t 1 3", "read shop.t"),
        *("add-column shop.t extra", "fields shop.t", "tag shop.t first", "rename shop.t shop.u"),
        *("tables shop", "read shop.u", "create shop.gone", "drop shop.gone", "databases"),
    )

    assert said == [
        *("ok", "ok", "ok", "[1, 2, 3]", "ok", "[id, v, dt, extra]", "ok", "ok"),
        *("[u]", "[1, 2, 3]", "ok", "ok", "[shop]"),
    ]
    table = behind.get_table("shop.u")
    assert sorted(table.to_polars()["id"].to_list()) == [1, 2, 3]
    assert table.schema.comment == "made by Java"
    assert behind.list_tags("shop.u") == ("first",)


def test_pypaimon_uses_a_server_of_lakecore(client: dict[str, str], behind: Catalog) -> None:
    behind.create_database("shop")
    setup_peers.set_up()
    done = subprocess.run(
        [str(setup_peers.python()), "-c", PYPAIMON, json.dumps(client)],
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [[1, 2], ["p"], []]
    assert sorted(behind.get_table("shop.p").to_polars()["id"].to_list()) == [1, 2]


def test_java_and_lakecore_write_one_table_in_turns(
    client: dict[str, str], behind: Catalog
) -> None:
    java(client, "create-database shop", "create shop.t")
    mine = open_catalog(client, create=False)
    for turn in range(2):
        java(client, f"write shop.t {10 * turn} 2")
        mine.get_table("shop.t").write(
            pl.DataFrame({"id": [10 * turn + 5], "v": ["lakecore"], "dt": ["x"]})
        )
    ids = [0, 1, 5, 10, 11, 15]

    assert java(client, "read shop.t") == [str(ids)]
    assert sorted(behind.get_table("shop.t").to_polars()["id"].to_list()) == ids


DEFAULT = "__DEFAULT_PARTITION__"


def partitions_that_share_a_spec(options: dict[str, str]) -> tuple[lc.Table, list[str]]:
    """The table, and what Java's client says of it before and after one of them is dropped."""
    catalog = open_catalog(options, create=False)
    catalog.create_database("shop")
    table = catalog.create_table(
        "shop.t",
        {"id": "INT NOT NULL", "v": "STRING", "dt": "STRING NOT NULL"},
        primary_keys=["id", "dt"],
        partition_keys=["dt"],
        options={"bucket": "1", "metastore.partitioned-table": "true"},
    )
    days = [" ", DEFAULT, DEFAULT, "x"]
    table.write(pl.DataFrame({"id": [1, 2, 3, 4], "v": ["a"] * 4, "dt": days}))
    table.write(pl.DataFrame({"id": [5], "v": ["b"], "dt": [" "]}))
    said = java(options, f"mark-done shop.t dt {DEFAULT}", "partitions shop.t")
    table.drop_partition({"dt": " "})
    said += java(options, "partitions shop.t")
    assert sorted(table.to_polars()["id"].to_list()) == [2, 3, 4]
    table.drop_partition({"dt": DEFAULT})
    return table, [*said, *java(options, "partitions shop.t")]


SAID = [
    "ok",
    *(f"[{{dt={DEFAULT}}} {rows} {files}, {{dt=x}} 1 1]" for rows, files in ((4, 3), (2, 1))),
    "[{dt=x} 1 1]",
]


def test_partitions_that_share_a_spec_are_counted_and_marked_together(
    client: dict[str, str],
) -> None:
    table, said = partitions_that_share_a_spec(client)

    assert said == SAID
    assert [path.parent.name for path in Path(table.path).glob("*/_SUCCESS")] == [f"dt={DEFAULT}"]


@pytest.mark.parametrize("version", ["1.4.2", "2.0.0"])
def test_javas_server_counts_partitions_that_share_a_spec_together(
    version: str, tmp_path: Path
) -> None:
    with java_rest_server(version, tmp_path) as options:
        assert partitions_that_share_a_spec(options)[1] == SAID


@pytest.mark.parametrize("version", ["1.4.2", "2.0.0"])
@pytest.mark.sampled(2)
def test_java_reads_what_lakecore_wrote_at_javas_server(version: str, tmp_path: Path) -> None:
    with java_rest_server(version, tmp_path) as options:
        catalog = open_catalog(options, create=False)
        catalog.create_database("shop")
        table = catalog.create_table(
            "shop.t",
            {"id": "INT NOT NULL", "v": "STRING", "dt": "STRING NOT NULL"},
            primary_keys=["id"],
            options={"bucket": "1"},
        )
        table.write(pl.DataFrame({"id": [1, 2], "v": ["a", "b"], "dt": ["x", "x"]}))
        assert java(options, "read shop.t") == ["[1, 2]"]
        if version == "1.4.2":  # a client of 1.4.2 cannot commit at a server of 2.0.0
            assert java(options, "write shop.t 7 1", "read shop.t") == ["ok", "[1, 2, 7]"]
            assert sorted(table.to_polars()["id"].to_list()) == [1, 2, 7]
        with pytest.raises(StorageError, match="does not know the token"):
            open_catalog({**options, "token": "wrong"}, create=False)
