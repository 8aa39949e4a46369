"""What lakecore says of a table's metadata is what Java Paimon says of it."""

from __future__ import annotations

import json
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import lakecore as lc
from lakecore.catalog.system_database import GLOBAL_TABLES
from lakecore.table.system.system_columns import SYSTEM_TABLES
from tests.interop import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakecore.table.handle import Table
    from tests.interop.engines import PeerEngine

pytestmark = pytest.mark.interop


@pytest.fixture(autouse=True)
def _zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")  # that of the peer
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def written(path: Path) -> Table:
    """A partitioned table with keys, several snapshots and values of many types."""
    table = lc.open_table(
        path,
        create=True,
        schema={
            "id": "INT NOT NULL",
            "day": "DATE NOT NULL",
            "region": "STRING NOT NULL",
            "price": "DECIMAL(10, 2)",
            "rate": "DOUBLE",
            "small": "FLOAT",
            "at": "TIMESTAMP(6)",
            "seen": "TIMESTAMP(3) WITH LOCAL TIME ZONE",
            "ok": "BOOLEAN",
            "note": "STRING",
            "tags": "ARRAY<STRING>",
        },
        primary_keys=["id", "day", "region"],
        partition_keys=["day", "region"],
        options={"bucket": "2"},
        comment="of many types",
    )
    rows = pl.DataFrame(
        {
            "id": [1, 2, 3, 4],
            "day": [date(2024, 1, 2), date(1969, 12, 31), date(2024, 1, 2), date(2024, 1, 2)],
            "region": ["eu", "a/b", "eu", "us"],
            "price": [Decimal("1.50"), None, Decimal("-20.00"), Decimal("0.01")],
            "rate": [1e10, 0.1, None, -0.0],
            "small": [1.1, None, 3.4e38, 1e-5],
            "at": [datetime(2024, 1, 2, 3, 4, 5, 123456), None, datetime(1960, 1, 1), None],
            "seen": [datetime(2024, 1, 2, 3, 4, tzinfo=UTC), None, None, None],
            "ok": [True, None, False, True],
            "note": ["x" * 40, "é", None, ""],
            "tags": [["a"], None, [], ["b", "c"]],
        }
    )
    table.write(rows)
    table.write(rows.head(2).with_columns(note=pl.lit("again")))
    return table


def shown(table: Table, name: str) -> list[list[Any]]:
    rows = [list(row) for row in getattr(table.inspect, name)().rows()]
    return _settled([[_cell(value) for value in row] for row in rows], name)


def _cell(value: object) -> object:
    return value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else value


def _settled(rows: list[list[Any]], name: str) -> list[list[Any]]:
    """Rows and the options in them in an order of their own: Java's is that of a hash map."""
    if name == "schemas":
        rows = [[*row[:4], json.loads(row[4]), *row[5:]] for row in rows]
    return sorted(rows, key=lambda row: json.dumps(row[:3]))


@pytest.mark.parametrize("name", SYSTEM_TABLES)
def test_java_shows_the_same_system_table(
    name: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    table = written(tmp_path / "t")
    answer = peers(limits.JAVA).peer.ask("system_table", path=table.path, name=name)
    assert isinstance(answer, dict)
    columns = [[column.name, column.type] for column in SYSTEM_TABLES[name]]
    rows = [
        [
            _cell(datetime.fromisoformat(cell)) if cell and "TIMESTAMP" in kind else cell
            for cell, (_, kind) in zip(row, columns, strict=True)
        ]
        for row in answer["rows"]
    ]

    assert answer["columns"] == columns
    assert shown(table, name) == _settled(rows, name)


@pytest.mark.parametrize("name", GLOBAL_TABLES)
def test_java_shows_the_same_table_of_the_catalog(
    name: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    for database in ("a", "b"):
        session.create_database(database)
        written(tmp_path / "w" / f"{database}.db" / "t")
    session.create_table("b.plain", {"x": "INT"})
    warehouse = str(tmp_path / "w")
    answer = peers(limits.JAVA).peer.ask("global_table", warehouse=warehouse, name=name)
    assert isinstance(answer, dict)
    ours = session.get_table(f"sys.{name}")

    assert [[f.name, str(f.type)] for f in ours.schema.fields] == answer["columns"]
    assert sorted(map(str, ours.to_polars().rows())) == sorted(
        str(tuple(row)) for row in answer["rows"]
    )
