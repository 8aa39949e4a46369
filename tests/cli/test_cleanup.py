"""`lakecore orphans`, `lakecore repair` and `lakecore partition-done`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.cli import main

if TYPE_CHECKING:
    from pathlib import Path

ORPHANS = ("--older-than", "2100-01-01", "--force")


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    catalog = lc.connect(tmp_path / "w", create=True)
    catalog.create_database("shop")
    for name in ("a", "b"):
        table = catalog.create_table(
            f"shop.{name}", {"id": "INT", "day": "STRING"}, partition_keys=["day"]
        )
        table.write([{"id": 1, "day": "x"}])
        (tmp_path / "w/shop.db" / name / "manifest/manifest-left-over-0").write_bytes(b"1234")
    return str(tmp_path / "w")


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    assert not ended.value.code


def test_a_dry_run_prints_the_paths(warehouse: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("orphans", "shop.a", "-w", warehouse, *ORPHANS, "--dry-run", "--json")

    out, err = capsys.readouterr()
    (row,) = map(json.loads, out.splitlines())
    assert row["path"].endswith("manifest-left-over-0")
    assert "found 1 orphan files (4 B) in 1 tables" in err


def test_all_tables_of_a_database_are_cleaned(
    warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run("orphans", "shop.*", "-w", warehouse, *ORPHANS, "--yes")
    assert "deleted 2 orphan files (8 B) in 2 tables" in capsys.readouterr().out

    run("orphans", "shop.*", "-w", warehouse, *ORPHANS, "--yes")
    assert "deleted 0 orphan files" in capsys.readouterr().out


def test_nothing_is_deleted_without_consent(
    warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["orphans", "shop.a", "-w", warehouse, *ORPHANS])

    assert ended.value.code == 1
    assert "--yes" in capsys.readouterr().err
    table = lc.connect(warehouse).get_table("shop.a")
    assert table.remove_orphan_files("2100-01-01", force=True, dry_run=True).files == 1


def test_an_age_below_an_hour_is_refused_without_force(
    warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["orphans", "shop.a", "-w", warehouse, "--older-than", "5 min", "--yes"])

    assert ended.value.code == 1
    assert "last hour" in capsys.readouterr().err


def test_a_partition_is_marked(warehouse: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("partition-done", "shop.a", "-w", warehouse, "--partition", "day=x", "--csv")

    assert capsys.readouterr().out == "partition\nday=x\n"


def test_repair_lists_the_tables_of_a_warehouse_in_a_catalog(
    warehouse: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = f"jdbc:sqlite:{tmp_path}/catalog.db"
    options = {"metastore": "jdbc", "uri": uri, "warehouse": warehouse}
    assert lc.connect(options, create=True).list_databases() == ()
    given = ("-w", warehouse, "-o", "metastore=jdbc", "-o", f"uri={uri}")
    run("repair", "shop.a", *given, "--json")

    assert json.loads(capsys.readouterr().out) == {"table": "shop.a"}
    run("repair", *given)
    assert lc.connect(options).list_tables("shop") == ("a", "b")
