"""`lakecore import`, `write`, `delete`, `update`, `merge` and `count`."""

from __future__ import annotations

import io
import json
import os
import sys
from decimal import Decimal
from typing import TYPE_CHECKING

import polars as pl
import pytest

import lakecore as lc
from lakecore.cli import main
from lakecore.frames.polars_versions import HAS_MAPS

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = "id,zip,price,day\n1,00501,1.5,2024-01-02\n2,10001,2,2024-02-03\n"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("LAKECORE_WAREHOUSE", str(tmp_path / "warehouse"))
    (tmp_path / "orders.csv").write_text(ORDERS)
    return tmp_path


def run(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """The exit code of the program, and what it wrote to its two outputs."""
    with pytest.raises(SystemExit) as exited:
        main([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    return exited.value.code or 0, out, err  # type: ignore[return-value]  # an int or None


def loaded(capfd: pytest.CaptureFixture[str], *more: str) -> None:
    code, _, err = run(
        capfd, "import", "shop.orders", "orders.csv", "--create", "--primary-key", "id", *more
    )
    assert code == 0, err


def rows(capfd: pytest.CaptureFixture[str], *more: str) -> list[dict[str, object]]:
    _, out, _ = run(capfd, "read", "shop.orders", "--json", *more)
    return sorted((json.loads(line) for line in out.splitlines()), key=lambda row: row["id"])


def table(place: Path) -> lc.Table:
    return lc.connect(place / "warehouse").get_table("shop.orders")


def test_import_creates_the_table_with_the_columns_of_the_file(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ("import", "shop.orders", "orders.csv", "--create", "--primary-key", "id")
    code, out, err = run(
        capfd, *arguments, "--bucket", 2, "--comment", "all orders", "-o", "file.format=orc"
    )

    assert (code, out, err) == (0, "created shop.orders with 2 rows: snapshot 1\n", "")
    made = table(place)
    assert {field.name: str(field.type) for field in made.schema.fields} == {
        "id": "BIGINT NOT NULL",
        "zip": "STRING",
        "price": "DOUBLE",
        "day": "DATE",
    }
    assert made.schema.comment == "all orders"
    assert made.options.texts == {"bucket": "2", "file.format": "orc"}
    assert rows(capfd)[0] == {"id": 1, "zip": "00501", "price": 1.5, "day": "2024-01-02"}


def test_import_upserts_and_reads_csv_in_the_types_of_the_table(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    loaded(capfd, "--column", "price=DECIMAL(10, 2)")
    (place / "more.csv").write_text("id,zip,price\n2,00042,7.25\n3,,9\n")
    code, out, _ = run(capfd, "import", "shop.orders", "more.csv")

    assert (code, out) == (0, "imported 2 rows into shop.orders: snapshot 2\n")
    found = {row["id"]: (row["zip"], row["price"]) for row in rows(capfd)}
    assert found == {1: ("00501", "1.50"), 2: ("00042", "7.25"), 3: (None, "9.00")}


def test_dry_run_shows_the_schema_and_writes_nothing(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(
        capfd, "import", "shop.orders", "orders.csv", "--create", "--dry-run", "--json"
    )

    assert code == 0
    assert [json.loads(line) for line in out.splitlines()][1] == {"column": "zip", "type": "STRING"}
    assert err == "2 rows\ndry run: shop.orders was not created\n"
    assert not (place / "warehouse").exists()


def test_standard_input_needs_a_format(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def given(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    loaded(capfd)
    given('{"id": 7, "zip": "x"}\n{"id": 8}\n')
    code, out, _ = run(capfd, "import", "shop.orders", "-", "-f", "json")
    assert (code, out) == (0, "imported 2 rows into shop.orders: snapshot 2\n")
    given("id\n9\n")
    code, _, err = run(capfd, "import", "shop.orders", "-")

    assert code == 1
    assert err == "error: say the format of the files: --format csv, json or parquet. files=[-]\n"


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_what_read_prints_can_be_imported(
    place: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    session = lc.connect(place / "warehouse", create=True)
    session.create_database("shop")
    schema = {
        "id": "BIGINT NOT NULL",
        "text": "STRING",
        "bytes": "BYTES",
        "price": "DECIMAL(10, 2)",
        "list": "ARRAY<STRING>",
        "map": "MAP<STRING, INT>",
        "row": "ROW<a INT, b STRING>",
        "at": "TIMESTAMP(6)",
        "day": "DATE",
        "yes": "BOOLEAN",
    }
    printed = [name for name in schema if HAS_MAPS or name != "map"]
    made = session.create_table("shop.orders", schema, primary_keys=["id"])
    copy = session.create_table("shop.copy", schema, primary_keys=["id"])
    made.write(
        [
            {
                "id": 1,
                "text": 'a "b", c\n',
                "bytes": b"\x00\xff",
                "price": Decimal("1.50"),
                "list": ["x, y", None],
                "map": {"k": 1},
                "row": {"a": 1, "b": ""},
                "yes": True,
            },
            {"id": 2, "text": ""},
            {"id": 3},
        ]
    )
    code = os.system(  # noqa: S605 - a shell with a pipe, as a user has it
        f"cd {place} && {sys.executable} -c 'from lakecore.cli import main; main()' read "
        f"shop.orders --columns {','.join(printed)} --output {kind} > rows.{kind}"
    )
    assert code == 0
    code, _, err = run(capfd, "import", "shop.copy", f"rows.{kind}")

    assert code == 0, err
    rows, expected = (each.to_arrow(printed).sort_by("id").to_pylist() for each in (copy, made))
    assert rows == expected


@pytest.mark.parametrize("keys", ["INT", "STRING"])
def test_a_map_that_is_printed_as_a_list_is_not_imported(
    place: Path, capfd: pytest.CaptureFixture[str], keys: str
) -> None:
    session = lc.connect(place / "warehouse", create=True)
    session.create_database("shop")
    schema = {"id": "INT", "m": f"MAP<{keys}, INT>"}
    key = 1 if keys == "INT" else "k"
    session.create_table("shop.orders", schema).write([{"id": 1, "m": {key: 2}}])
    copy = session.create_table("shop.copy", schema)
    _, printed, _ = run(capfd, "read", "shop.orders", "--json")
    (place / "rows.json").write_text(printed)
    code, _, err = run(capfd, "import", "shop.copy", "rows.json")

    if keys == "STRING" and HAS_MAPS:
        assert json.loads(printed) == {"id": 1, "m": {"k": 2}}
        assert (code, copy.to_polars().rows()) == (0, [(1, {"k": 2})])
    else:
        assert json.loads(printed) == {"id": 1, "m": [{"key": key, "value": 2}]}
        assert code == 1
        assert "Expected OBJECT, but got ARRAY" in err
        assert copy.count() == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("id,id\n1,2\n", "a name of its own"),
        ("id,nowhere\n1,2\n", "nowhere"),
        ("id,price\n1,cheap\n", "does not fit the type of its column"),
        ("price\n1.5\n", "id"),
        ('id,zip\n1,"a\n', "same number of values"),
    ],
)
def test_files_that_do_not_fit_are_refused_and_change_nothing(
    place: Path, capfd: pytest.CaptureFixture[str], content: str, message: str
) -> None:
    loaded(capfd)
    (place / "wrong.csv").write_text(content)
    code, out, err = run(capfd, "import", "shop.orders", "wrong.csv")

    assert (code, out) == (1, "")
    assert any(part in err for part in message.split("|")), err
    assert "Traceback" not in err
    assert len(table(place).context.history.snapshot_ids()) == 1


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("longer.csv", "id,name\n1,a\n2,b,c\n", "do not have the same number of values"),
        ("shorter.csv", "id,name\n1,a\n2\n", "do not have the same number of values"),
        ("open.csv", 'id,name\n1,"a\n', "do not have the same number of values"),
        ("twice.csv", "id,v,id\n1,2,3\n", "columns=[id]"),
        ("case.csv", "id,ID\n1,2\n", "columns=[id]"),
        ("values.json", '{"id": 1}\n3\n', "this is not a JSON object"),
        ("numbers.json", "[1, 2]", "this is not a JSON object"),
    ],
)
def test_file_whose_columns_are_not_certain_is_refused(
    capfd: pytest.CaptureFixture[str], place: Path, file: str, text: str, message: str
) -> None:
    (place / file).write_text(text)
    code, out, err = run(capfd, "import", "shop.other", file, "--create")

    assert (code, out) == (1, "")
    assert message in err
    assert not (place / "warehouse").exists()


def test_no_line_of_a_csv_file_is_passed_over(
    capfd: pytest.CaptureFixture[str], place: Path
) -> None:
    (place / "lines.csv").write_text(f"name,n\n#a,1\n# b,{'7' * 50}\nc,3\n")
    code, _, _ = run(capfd, "import", "shop.orders", "lines.csv", "--create")

    assert code == 0
    _, out, _ = run(capfd, "read", "shop.orders", "--json")
    found = [tuple(json.loads(line).values()) for line in out.splitlines()]
    assert found == [("#a", "1"), ("# b", "7" * 50), ("c", "3")]


def test_messages_call_standard_input_by_its_name(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = io.TextIOWrapper(io.BytesIO(b'{"id": 1}\n{"id":'))
    monkeypatch.setattr(sys, "stdin", given)
    code, _, err = run(capfd, "import", "shop.orders", "-", "--create", "--format", "json")

    assert code == 1
    assert "files=[standard input]" in err
    assert "lakecore-" not in err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["nowhere.csv"], "no such file"),
        (["ftp://host/x.csv"], "unknown kind of storage"),
        (["orders.csv", "--primary-key", "zip"], "the table exists and differs from --primary-key"),
        (["orders.csv", "--column", "price=INT"], "add --evolve-schema"),
        (["orders.csv", "--no-header"], "the file cannot be read|does not fit"),
        (["orders.csv", "-f", "xml"], "unknown format of files"),
    ],
)
def test_wrong_imports_say_what_to_do(
    capfd: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    loaded(capfd)
    code, _, err = run(capfd, "import", "shop.orders", *more)

    assert code == 1
    assert any(part in err for part in message.split("|")), err


def test_import_adds_columns_if_told(capfd: pytest.CaptureFixture[str], place: Path) -> None:
    loaded(capfd)
    (place / "more.csv").write_text("id,note,n\n3,x,5\n")
    more = ("--evolve-schema", "--column", "n=INT")
    code, _, err = run(capfd, "import", "shop.orders", "more.csv", *more)

    assert code == 0, err
    assert [str(field.type) for field in table(place).schema.fields[4:]] == ["STRING", "INT"]


def test_names_of_files_are_no_patterns(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    loaded(capfd)
    (place / "a[1]*'.csv").write_text("id\n50\n")
    code, _, err = run(capfd, "import", "shop.orders", "a[1]*'.csv")

    assert code == 0, err
    assert rows(capfd)[-1]["id"] == 50


def test_write_replaces_rows_after_consent(capfd: pytest.CaptureFixture[str], place: Path) -> None:
    loaded(capfd)
    (place / "new.json").write_text('{"id": 9}')
    code, _, err = run(capfd, "write", "shop.orders", "new.json", "--overwrite")
    assert (code, "replace the rows of shop.orders?" in err) == (1, True)
    code, out, _ = run(capfd, "write", "shop.orders", "new.json", "--overwrite", "--yes")

    assert (code, out) == (0, "replaced 1 row of shop.orders: snapshot 2\n")
    assert [row["id"] for row in rows(capfd)] == [9]


def test_write_takes_row_kinds(capfd: pytest.CaptureFixture[str], place: Path) -> None:
    loaded(capfd)
    (place / "kinds.csv").write_text("id,_row_kind\n1,-D\n4,+I\n")
    code, _, err = run(capfd, "write", "shop.orders", "kinds.csv")

    assert code == 0, err
    assert [row["id"] for row in rows(capfd)] == [2, 4]


def test_delete_counts_first_asks_and_deletes(capfd: pytest.CaptureFixture[str]) -> None:
    loaded(capfd)
    arguments = ("delete", "shop.orders", "--where", "id = 1")
    code, out, _ = run(capfd, *arguments, "--dry-run", "--json")
    assert (code, json.loads(out)["rows"]) == (0, 1)
    code, _, err = run(capfd, *arguments)
    assert (code, "delete 1 row of shop.orders?" in err) == (1, True)
    code, out, _ = run(capfd, *arguments, "-y")

    assert (code, out) == (0, "deleted 1 row from shop.orders: snapshot 2\n")
    assert [row["id"] for row in rows(capfd)] == [2]


def test_update_sets_expressions(capfd: pytest.CaptureFixture[str]) -> None:
    loaded(capfd)
    arguments = ("update", "shop.orders", "--set", "price=price * 2", "--set", "zip='a=b'")
    code, _, err = run(capfd, *arguments)
    assert (code, "update all rows of shop.orders?" in err) == (1, True)
    code, out, _ = run(capfd, *arguments, "--where", "id = 1")

    assert (code, out) == (0, "updated 1 row of shop.orders: snapshot 2\n")
    assert [(row["price"], row["zip"]) for row in rows(capfd)] == [(3.0, "a=b"), (2.0, "10001")]
    assert run(capfd, "update", "shop.orders", "--set", "price")[0] == 1


def test_merge_takes_clauses_of_sql(capfd: pytest.CaptureFixture[str], place: Path) -> None:
    loaded(capfd)
    (place / "new.csv").write_text("id,price,gone\n1,5,false\n2,0,true\n3,8,false\n")
    code, out, err = run(
        *(capfd, "merge", "shop.orders", "new.csv", "--on", "id"),
        *("--when-matched", "source.gone THEN DELETE"),
        *("--when-matched", "UPDATE SET price = CASE WHEN true THEN source.price END"),
        *("--when-not-matched", "AND source.price > 1 THEN INSERT (id) VALUES (source.id)"),
    )

    assert code == 0, err
    assert out == "merged into shop.orders: 1 inserted, 1 updated, 1 deleted: snapshot 2\n"
    assert [(row["id"], row["price"]) for row in rows(capfd)] == [(1, 5.0), (3, None)]


def test_merge_takes_a_table_and_upserts(capfd: pytest.CaptureFixture[str], place: Path) -> None:
    loaded(capfd)
    session = lc.connect(place / "warehouse")
    data = pl.DataFrame({"id": [2, 5], "zip": ["b", "e"], "price": [0.0, 0.5]})
    session.create_table("shop.more", data=data.with_columns(day=pl.lit(None, pl.Date)))
    code, out, err = run(capfd, "merge", "shop.orders", "shop.more", "--on", "id", "--upsert")

    assert code == 0, err
    assert "1 inserted, 1 updated, 0 deleted" in out
    assert run(capfd, "merge", "shop.orders", "shop.more", "--on", "id")[0] == 2


def test_a_file_that_fails_within_a_merge_is_named(
    capfd: pytest.CaptureFixture[str], place: Path
) -> None:
    loaded(capfd)
    (place / "new.csv").write_text("id,price\n1,NA\n")
    code, _, err = run(capfd, "merge", "shop.orders", "new.csv", "--on", "id", "--upsert")

    assert code == 1
    assert err.startswith("error: the value does not fit the type of its column. column=price")
    assert "Traceback" not in err
    assert len(table(place).context.history.snapshot_ids()) == 1


def test_count_counts_merged_rows(capfd: pytest.CaptureFixture[str]) -> None:
    loaded(capfd)
    loaded(capfd)

    assert run(capfd, "count", "shop.orders")[1] == "2\n"
    assert run(capfd, "count", "shop.orders", "--where", "id > 1", "--json")[1] == '{"rows":1}\n'


def test_parquet_goes_to_a_pipe(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    loaded(capfd)
    with (place / "out.parquet").open("w") as sink:
        before, sys.stdout = sys.stdout, sink
        try:
            with pytest.raises(SystemExit):
                main(["count", "shop.orders", "--output", "parquet"])
        finally:
            sys.stdout = before

    assert pl.read_parquet(place / "out.parquet").to_dicts() == [{"rows": 2}]
