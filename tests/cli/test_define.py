"""`lakecore db`, `table` and `alter`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.cli import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("LAKECORE_WAREHOUSE", str(tmp_path / "w"))
    return tmp_path


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exited:
        main(list(arguments))
    out, err = capfd.readouterr()
    return exited.value.code or 0, out, err  # type: ignore[return-value]  # an int or None


def made(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(capfd, "db", "create", "shop")[0] == 0
    code, out, err = run(
        *(capfd, "table", "create", "shop.t", "id BIGINT", "price DECIMAL(10, 2)", "dt STRING"),
        *("--primary-key", "id,dt", "--partition-by", "dt", "--bucket", "2", "--comment", "c"),
    )
    assert (code, out, err) == (0, "", "created the table shop.t\n")


def test_databases_are_created_listed_described_and_dropped(
    capfd: pytest.CaptureFixture[str],
) -> None:
    made(capfd)
    assert run(capfd, "db", "create", "shop")[0] == 1
    assert run(capfd, "db", "create", "shop", "--if-not-exists")[0] == 0
    assert run(capfd, "db", "list", "--csv")[1] == "database,tables\nshop,1\n"
    assert json.loads(run(capfd, "db", "describe", "shop", "--json")[1])["tables"] == ["t"]
    code, _, err = run(capfd, "db", "drop", "shop", "-y")
    assert (code, "--cascade drops its tables, too" in err) == (1, True)
    code, _, err = run(capfd, "db", "drop", "shop", "--cascade")
    assert (code, "drop the database shop with 1 tables?" in err) == (1, True)
    assert run(capfd, "db", "drop", "shop", "--cascade", "--dry-run")[0] == 0
    assert run(capfd, "db", "drop", "shop", "--cascade", "-y")[2] == "dropped the database shop\n"

    assert run(capfd, "db", "drop", "shop", "--if-exists")[0] == 0
    assert run(capfd, "db", "drop", "shop", "-y")[0] == 1
    assert run(capfd, "db", "describe", "shop")[0] == 1


def test_table_is_described_for_people_and_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    made(capfd)
    _, out, _ = run(capfd, "table", "describe", "shop.t")
    found = json.loads(run(capfd, "table", "show", "shop.t", "--json")[1])

    assert "partitioned by  dt\n" in out
    assert found["primary_key"] == ["id", "dt"]
    assert found["options"] == {"bucket": "2"}
    assert found["columns"][1]["type"] == "DECIMAL(10, 2)"
    ddl = run(capfd, "table", "ddl", "w/shop.db/t")[1]
    assert ddl.startswith("CREATE TABLE `paimon`.`shop`.`t` (\n  `id` BIGINT NOT NULL,")
    assert ddl.endswith(");\n")


def test_table_is_renamed_emptied_and_dropped(
    capfd: pytest.CaptureFixture[str], place: Path
) -> None:
    made(capfd)
    table = lc.connect(place / "w").get_table("shop.t")
    table.write([{"id": n, "dt": dt} for n in (1, 2) for dt in "abc"])
    drop = ("table", "drop-partition", "shop.t", "--partition", "dt=a")
    assert run(capfd, *drop)[0] == 1
    assert run(capfd, *drop, "--partition", "dt=b", "-y")[1] == "shop.t: snapshot 2\n"
    assert table.count() == 2
    code, _, err = run(capfd, "table", "truncate", "shop.t")
    assert (code, "remove all 2 rows of shop.t?" in err) == (1, True)
    assert run(capfd, "table", "truncate", "shop.t", "-y")[1] == "shop.t: snapshot 3\n"
    assert run(capfd, "table", "purge", "shop.t", "-y", "--json")[0] == 0
    assert run(capfd, "table", "repair-hints", "shop.t")[2].startswith("earliest 4")
    assert run(capfd, "table", "rename", "shop.t", "u")[2] == "renamed shop.t to shop.u\n"
    assert run(capfd, "table", "list", "shop", "--csv")[1] == "database,table\nshop,u\n"
    assert run(capfd, "table", "drop", "shop.u", "--dry-run")[0] == 0
    assert run(capfd, "table", "drop", "shop.u")[0] == 1
    assert run(capfd, "table", "drop", "shop.u", "-y")[2] == "dropped the table shop.u\n"

    assert run(capfd, "table", "drop", "shop.u", "-y")[0] == 1
    assert run(capfd, "table", "drop", "shop.u", "--if-exists")[0] == 0
    assert run(capfd, "table", "rename", "shop.u", "v", "--if-exists")[0] == 0


def test_alter_makes_all_changes_at_once(capfd: pytest.CaptureFixture[str], place: Path) -> None:
    made(capfd)
    changes = (
        *(
            "--rename",
            "price=cost",
            "--type",
            "cost=DECIMAL(12, 2)",
            "--add",
            "note STRING AFTER id",
        ),
        *("--add", "n INT FIRST", "--default", "n=7", "--column-comment", "n=a number"),
        *("--set", "snapshot.num-retained.max=20", "--comment", "orders"),
    )
    code, out, err = run(capfd, "alter", "shop.t", *changes, "--dry-run")
    assert (code, out) == (0, ""), err
    code, _, err = run(capfd, "alter", "shop.t", *changes)

    assert (code, err) == (0, "schema 1 of shop.t\n")
    schema = lc.connect(place / "w").get_table("shop.t").schema
    assert [field.name for field in schema.fields] == ["n", "id", "note", "cost", "dt"]
    assert str(schema.fields[3].type) == "DECIMAL(12, 2)"
    assert (schema.fields[0].default_value, schema.fields[0].description) == ("7", "a number")
    assert schema.comment == "orders"
    assert schema.stated_options["snapshot.num-retained.max"] == "20"
    assert run(capfd, "alter", "shop.t", "--drop", "note")[0] == 1
    undo = ("--drop", "note", "--unset", "snapshot.num-retained.max", "--comment", "", "-y")
    assert run(capfd, "alter", "shop.t", *undo)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table", "create", "shop.x", "id"], "a column is written 'NAME TYPE'"),
        (["table", "create", "shop.x", "id INT", "id INT"], "a column is stated twice"),
        (["table", "create", "none.x", "id INT"], "lakecore db create none makes it"),
        (["table", "create", "x", "id INT"], "name the table DATABASE.TABLE"),
        (["table", "create", "shop.x", "id INTT"], "INTT"),
        (["alter", "shop.t", "--rename", "price"], "--rename is written OLD=NEW"),
        (["alter", "shop.t", "--drop", "none", "-y"], "none"),
        (["alter", "shop.t", "--set", "snapshot.num-retaned.max=3"], "snapshot.num-retained.max"),
        (["alter", "shop.t", "-o", "bucket=3", "--comment", "x"], "--set stores an option"),
    ],
)
def test_wrong_definitions_say_what_to_do(
    capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    made(capfd)
    code, out, err = run(capfd, *arguments)

    assert (code, out) == (1, "")
    assert message in err
