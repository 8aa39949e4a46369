"""The database `sys`: tables that show the whole catalog."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.catalog.system_database import GLOBAL_TABLES
from lakecore.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakecore.session import Session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = lc.connect(
        {"warehouse": str(tmp_path / "w"), "s3.secret-key": "hidden", "table-default.bucket": "1"},
        create=True,
    )
    for database in ("b", "a"):
        made.create_database(database)
    days = made.create_table(
        "a.days",
        {"id": "INT NOT NULL", "day": "DATE NOT NULL"},
        primary_keys=["id", "day"],
        partition_keys=["day"],
        options={"bucket": "2"},
    )
    days.write([{"id": 1, "day": date(2024, 1, 2)}, {"id": 2, "day": date(2024, 1, 2)}])
    days.write([{"id": 3, "day": date(1970, 1, 1)}])
    made.create_table("b.plain", {"x": "INT"}, options={"bucket": "-1"})
    return made


def rows(session: Session, name: str) -> list[tuple[Any, ...]]:
    return session.get_table(f"sys.{name}").to_polars().rows()


def test_tables_lists_every_table(session: Session) -> None:
    nothing = (None,) * 9

    assert rows(session, "tables") == [
        ("a", "days", "table", True, True, *nothing),
        ("b", "plain", "table", False, False, *nothing),
    ]


def test_partitions_lists_those_of_partitioned_tables(session: Session) -> None:
    before = datetime.now(UTC).timestamp() * 1000
    found = session.get_table("sys.partitions").to_polars()

    assert found.drop("file_size_in_bytes", "last_file_creation_time").rows() == [
        ("a", "days", "day=0", 1, 1, False),
        ("a", "days", "day=19724", 2, 1, False),
    ]
    newest = found["last_file_creation_time"].max()
    assert isinstance(newest, int)
    assert 0 <= before - newest < 600_000


def test_all_table_options_has_each_option_and_the_path(session: Session) -> None:
    path = session.get_table("a.days").path

    assert ("a", "days", "bucket", "2") in rows(session, "all_table_options")
    assert ("a", "days", "path", path) in rows(session, "all_table_options")


def test_catalog_options_hides_secrets(session: Session) -> None:
    found = dict(rows(session, "catalog_options"))

    assert found["s3.secret-key"] == "***"
    assert found["table-default.bucket"] == "1"


def test_table_of_catalog_options_can_be_hidden(tmp_path: Path) -> None:
    options = {"warehouse": str(tmp_path), "catalog-options-table.enabled": "false"}
    hiding = lc.connect(options)

    assert hiding.list_tables("sys") == ("all_table_options", "partitions", "tables")
    assert not hiding.table_exists("sys.catalog_options")
    with pytest.raises(NotFound):
        hiding.get_table("sys.catalog_options")


def test_names_are_listed_and_found_in_any_case(session: Session) -> None:
    assert session.list_tables("sys") == tuple(sorted(GLOBAL_TABLES))
    assert session.list_databases() == ("a", "b")
    assert session.database_exists("sys")
    assert session.table_exists("sys.tables")
    assert not session.table_exists("sys.table")
    assert session.get_table("SYS.tables".lower()).identifier == "sys.tables"
    assert session.get_table("sys.TABLES").to_arrow().num_rows == 2


@pytest.mark.parametrize("name", ["sys.nosuch", "sys.tables$files", "sys.tables$branch_b1"])
def test_name_that_is_not_there_is_refused(session: Session, name: str) -> None:
    with pytest.raises(NotFound, match=r"tables=\[all_table_options, "):
        session.get_table(name)


def test_global_tables_can_only_be_read(session: Session) -> None:
    calls: list[Callable[[], object]] = [
        lambda: session.create_table("sys.mine", {"x": "INT"}),
        lambda: session.drop_table("sys.tables"),
        lambda: session.alter_table("sys.tables", []),
        lambda: session.rename_table("sys.tables", "a.tables"),
        lambda: session.rename_table("a.days", "sys.days"),
        lambda: session.create_database("sys"),
        lambda: session.get_table("sys.tables").write([]),
    ]
    for call in calls:
        with pytest.raises(InvalidRequest):
            call()


def test_they_are_read_by_sql(session: Session) -> None:
    found = session.sql("SELECT table_name FROM sys.tables WHERE primary_key").fetchall()

    assert found == [("days",)]


def test_empty_catalog_has_empty_tables(tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "empty", create=True)

    assert [len(rows(session, name)) for name in GLOBAL_TABLES] == [0, 0, 0, 1]
