from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import lakecore as lc
from lakecore.cli import main
from tests.stores import s3_service


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    session = lc.connect(tmp_path)
    session.create_database("shop")
    table = session.create_table(
        "shop.orders",
        {"id": "BIGINT NOT NULL", "name": "STRING", "photo": "BYTES"},
        primary_keys=["id"],
        options={"bucket": "1"},
    )
    table.write(pl.DataFrame({"id": [1, 2, 3], "name": ["a", "b", "c"], "photo": [b"\x01"] * 3}))
    table.write(pl.DataFrame({"id": [2], "name": ["B"], "photo": [None]}))
    session.create_table("shop.empty", {"n": "INT"})
    return tmp_path


def run(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """The exit code of the program, and what it wrote to its two outputs."""
    with pytest.raises(SystemExit) as exited:
        main([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    code = exited.value.code
    assert code is None or isinstance(code, int)
    return code or 0, out, err


def orders(warehouse: Path) -> Path:
    return warehouse / "shop.db" / "orders"


def test_tables_lists_keys_snapshots_and_rows(
    warehouse: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capfd, "tables", warehouse)

    assert code == 0
    (line,) = [line for line in out.splitlines() if "shop.orders" in line]
    assert [cell.strip() for cell in line.strip("│").split("│")] == [
        "shop.orders",
        "id",
        "",
        "2",
        "4",
    ]
    assert "shop.empty" in out


def test_show_gives_schema_options_and_snapshots(
    warehouse: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capfd, "show", orders(warehouse))

    assert code == 0
    assert all(text in out for text in ("BIGINT NOT NULL", "primary key", "bucket", "APPEND"))
    assert ".parquet" not in out


def test_show_gives_what_its_flags_ask_for(
    warehouse: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    _, out, _ = run(capfd, "show", orders(warehouse), "--files")

    assert out.count(".parquet") == 2
    assert "APPEND" not in out
    assert "BIGINT" not in out


def test_show_counts_manifests_and_those_that_are_small(
    warehouse: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capfd, "show", orders(warehouse), "--manifests")

    assert out.count("manifest-") >= 2
    assert "smaller than 8.0 MiB (from 30 on they are merged), 0 with deletions" in " ".join(
        out.split()
    )


def test_read_prints_merged_rows(warehouse: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(
        capfd, "read", orders(warehouse), "--columns", "id, name", "--where", "id >= 2"
    )

    assert code == 0
    cells = [[c.strip() for c in line.strip("│").split("│")] for line in out.splitlines()]
    assert sorted(row for row in cells if row[0].isdigit()) == [["2", "B"], ["3", "c"]]


def test_read_writes_one_json_object_a_row(
    warehouse: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capfd, "read", orders(warehouse), "--json")
    rows = sorted((json.loads(line) for line in out.splitlines()), key=lambda row: row["id"])

    assert code == 0
    assert rows == [
        {"id": 1, "name": "a", "photo": "01"},
        {"id": 2, "name": "B", "photo": None},
        {"id": 3, "name": "c", "photo": "01"},
    ]


def test_read_travels_and_stops_at_its_limit(
    warehouse: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = orders(warehouse)
    _, first, _ = run(capfd, "read", path, "--json", "--snapshot-id", 1, "--where", "id = 2")
    _, few, _ = run(capfd, "read", path, "--json", "--limit", 2)
    _, by_option, _ = run(
        capfd, "read", path, "--json", "--where", "id = 2", "-o", "scan.snapshot-id=1"
    )

    assert json.loads(first)["name"] == "b"
    assert json.loads(by_option)["name"] == "b"
    assert len(few.splitlines()) == 2


def test_changes_prints_rows_with_their_kinds(
    warehouse: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lc.open_table(orders(warehouse)).delete("id = 3")
    code, out, _ = run(capfd, "changes", orders(warehouse), "--start", "1", "--columns", "id,name")
    shown, cells = out.splitlines(), [line.strip("│").split("│") for line in out.splitlines()]

    assert code == 0
    assert [[cell.strip() for cell in line] for line in cells if len(line) == 2][-2:] == [
        ["2", "B"],
        ["3", "NULL"],
    ]
    assert len(shown) == 6


def test_changes_between_points_are_json_lines(
    warehouse: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = orders(warehouse)
    _, out, _ = run(capfd, "changes", table, "--end", "1", "--where", "id > 1", "--json")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"_row_kind": "+I", "id": 2, "name": "b", "photo": "01"},
        {"_row_kind": "+I", "id": 3, "name": "c", "photo": "01"},
    ]

    for start, count in (("2000-01-01T00:00", 4), ("2999-01-01 00:00", 0), ("2026-01-01", 4)):
        _, out, _ = run(capfd, "changes", table, "--start", start, "--json")
        assert len(out.splitlines()) == count
    code, _, err = run(capfd, "changes", table, "--start", "nosuch")
    assert (code, err.startswith("error: no such tag, and neither")) == (1, True)


def test_explain_prints_the_plan(warehouse: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, "explain", orders(warehouse), "--where", "id > 100")

    assert code == 0
    assert "snapshot:" in out
    assert "0 of 2 kept" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("tables", "typo"),
        ("show", "typo"),
        ("read", "shop.db/orders", "--columns", "nme"),
        ("read", "shop.db/orders", "--where", "nme = 1"),
        ("read", "shop.db/orders", "--tag", "v9"),
        ("read", "shop.db/orders", "-o", "scan.snapshot-id"),
        ("explain", "shop.db/orders", "-o", "no.such=1"),
        ("advise", "shop.db/orders", "--prices", "tape"),
    ],
)
def test_error_is_one_line_and_exit_code_1(
    arguments: tuple[str, ...], warehouse: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command, path, *rest = arguments
    code, out, err = run(capfd, command, warehouse / path, *rest)

    assert code == 1
    assert out == ""
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1


def test_debug_shows_where_an_error_came_from(tmp_path: Path) -> None:
    with pytest.raises(lc.NotFound):
        main(["show", str(tmp_path), "--debug"])


def test_wrong_usage_is_exit_code_2(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capfd, "read")

    assert code == 2
    assert "Usage: lakecore read" in err
    assert "PATH" in err


def test_reader_that_has_had_enough_is_no_error(tmp_path: Path) -> None:
    table = lc.open_table(tmp_path / "t", create=True, schema={"n": "BIGINT", "text": "STRING"})
    table.write(pl.DataFrame({"n": range(200_000)}).with_columns(text=pl.lit("x" * 20)))
    program = "from lakecore.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "read", table.path, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        process.stdout.close()
        complaints = process.stderr.read()

    assert json.loads(first)["text"] == "x" * 20
    assert (process.returncode, complaints) == (0, b"")


def test_version_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(capfd, "version")[1].strip() == lc.__version__


def test_compact_says_what_there_was_and_what_there_is(
    warehouse: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dry = run(capfd, "compact", "--full", orders(warehouse), "--dry-run")
    done = run(capfd, "compact", "--full", orders(warehouse))
    again = run(capfd, "compact", "--full", orders(warehouse))

    assert (dry[0], done[0], again[0]) == (0, 0, 0)
    assert "nothing was written" in dry[1]
    assert re.search(r"before: +2 files, .*, 4 rows\n", done[1])
    assert re.search(r"after: +1 files, .*, 3 rows\n", done[1])
    assert re.search(r"snapshot: +3\n", done[1])
    assert again[1] == "nothing to compact\n"
    assert done[2] == "", "no bar where nobody looks"


def test_analyze_prints_what_it_stored(warehouse: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = json.loads(run(capfd, "analyze", orders(warehouse), "--columns", "id", "--json")[1])
    rows = json.loads(run(capfd, "analyze", orders(warehouse), "--only-rows", "--json")[1])
    text = run(capfd, "analyze", orders(warehouse))
    nothing = run(capfd, "analyze", warehouse / "shop.db" / "empty")

    assert list(done["statistics"]["columns"]) == ["id"]
    assert rows["statistics"]["columns"] == {}
    assert rows["statistics"]["merged_record_count"] == done["statistics"]["merged_record_count"]
    assert re.search(r"id +distinct \d+, nulls 0", text[1])
    assert "nothing to analyze" in nothing[1]
    assert run(capfd, "analyze", orders(warehouse), "--columns", "nope")[0] == 1
    assert run(capfd, "analyze", orders(warehouse), "--columns", "id", "--only-rows")[0] == 2


def test_compact_of_chosen_partitions_and_what_it_refuses(
    warehouse: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = lc.connect(warehouse).create_table(
        "shop.days",
        {"day": "STRING NOT NULL", "id": "INT NOT NULL"},
        primary_keys=["day", "id"],
        partition_keys=["day"],
        options={"bucket": "1"},
    )
    for _ in range(2):
        table.write([{"day": day, "id": 1} for day in "xyz"])

    by_value = run(
        capfd, "compact", "--full", table.path, "--partition", "day=x", "--partition", "day=y"
    )
    by_condition = run(
        capfd, "compact", "--full", table.path, "--where", "day = 'z'", "--bucket", "0"
    )
    refused = run(capfd, "compact", "--full", table.path, "--where", "id = 1")
    append = run(capfd, "compact", "--full", warehouse / "shop.db" / "empty")

    assert "buckets:   2" in by_value[1]
    assert "buckets:   1" in by_condition[1]
    assert (refused[0], append[0]) == (1, 0)
    assert "partition keys only" in refused[2]
    assert append[1] == "nothing to compact\n"


def program(*arguments: object, stdout: Any, **environment: str) -> tuple[int, bytes, str]:
    """The exit code of a process of its own, and what it wrote."""
    code = "from lakecore.cli import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
        check=False,
    )
    return run.returncode, run.stdout, run.stderr.decode()


def test_error_of_the_system_is_not_taken_for_one_of_the_output(
    warehouse: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error", "/data/file")

    monkeypatch.setattr("lakecore.cli.target.table_of", refuse)
    monkeypatch.setattr("lakecore.cli.app.to_nowhere", lambda: None)  # the test reads on

    assert run(capfd, "read", orders(warehouse)) == (
        1,
        "",
        "error: the system refused a call: [Errno 5] Input/output error: '/data/file'\n",
    )


def test_output_that_cannot_be_written_is_one_line_and_exit_code_1(warehouse: Path) -> None:
    for flags in ([], ["--json"]):
        with Path("/dev/full").open("wb") as full:
            code, _, err = program("read", orders(warehouse), *flags, stdout=full)

        assert (code, err) == (1, "error: the output cannot be written: No space left on device\n")


def test_terminal_that_has_not_every_character_shows_the_others(tmp_path: Path) -> None:
    table = lc.open_table(tmp_path / "t", create=True, schema={"ü": "STRING"})
    table.write(pl.DataFrame({"ü": ["tëxt"]}))
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}

    code, out, err = program("read", table.path, stdout=subprocess.PIPE, **ascii_only)
    assert (code, err) == (0, "")
    assert b"t\\xebxt" in out
    code, out, err = program("read", table.path, "--json", stdout=subprocess.PIPE, **ascii_only)
    assert (code, err) == (0, "")
    assert json.loads(out) == {"ü": "tëxt"}


@pytest.mark.parametrize("interval", ["inf", "nan", "1e300"])
def test_interval_that_nobody_can_wait_is_refused(
    interval: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capfd, "compact", tmp_path, "--watch", "--interval", interval)

    assert (code, out) == (2, "")
    assert "--interval" in err


def test_answers_of_every_kind_are_json(warehouse: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table = orders(warehouse)
    sections = json.loads(run(capfd, "show", table, "--json")[1])
    files = run(capfd, "show", table, "--files", "--output", "json")[1].splitlines()
    plan = json.loads(run(capfd, "explain", table, "--json", "--where", "id > 100")[1])
    listed = [
        json.loads(line) for line in run(capfd, "tables", warehouse, "--json")[1].splitlines()
    ]
    advice = json.loads(run(capfd, "advise", table, "--json", "--prices", "s3")[1])
    done = json.loads(run(capfd, "compact", table, "--full", "--json")[1])

    assert (advice["commits"], advice["files"], advice["advice"]) == (2, 2, [])
    assert set(sections) == {"schema", "options", "snapshots"}
    assert sections["schema"][0]["key"] == "primary key"
    assert [row["snapshot_id"] for row in sections["snapshots"]] == [1, 2]
    assert len(files) == 2
    assert all(json.loads(line)["level"] == 0 for line in files)
    assert (plan["files_total"], plan["files_kept"]) == (2, 0)
    assert [row["primary_key"] for row in listed] == [[], ["id"]]
    assert (done["rows_before"], done["rows_after"], done["snapshot_ids"]) == (4, 3, [3])


def test_list_of_tables_outlives_one_that_cannot_be_opened(
    warehouse: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (warehouse / "shop.db" / "empty" / "schema" / "schema-0").write_text("{")
    code, out, err = run(capfd, "tables", warehouse, "--csv")

    assert code == 0
    assert "shop.empty,,,,\n" in out
    assert 'shop.orders,"[""id""]",[],2,4\n' in out
    assert err.startswith("shop.empty: ")


def test_tables_of_an_object_store_are_opened_together(capfd: pytest.CaptureFixture[str]) -> None:
    count = 12
    with s3_service() as service:
        with service.client() as client:
            client.create_bucket(Bucket="bucket")
        place = "s3://bucket/warehouse"
        session = lc.connect({"warehouse": place, **service.options}, create=True)
        session.create_database("d")
        for number in range(count):
            session.create_table(f"d.t{number}", {"a": "INT"}).write([{"a": number}])
        service.requests.clear()
        service.silent_seconds, service.waiting_max = 0.05, 0
        options = [f"--option={key}={value}" for key, value in service.options.items()]

        code, out, _ = run(capfd, "tables", place, "--json", *options)

    assert (code, len(out.splitlines())) == (0, count)
    assert service.waiting_max >= 3
    # One to tell that it is a table, five to open it and to find its latest snapshot.
    assert service.requests.total() <= 8 * count


def test_read_by_time_and_by_one_that_is_none(
    warehouse: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = orders(warehouse)
    now = run(capfd, "read", table, "--timestamp", "2999-01-01", "--json")
    before = run(capfd, "read", table, "--timestamp", "2000-01-01 00:00", "--json")
    wrong = run(capfd, "read", table, "--timestamp", "yesterday", "--json")

    assert len(now[1].splitlines()) == 3
    assert (before[0], before[1], len(before[2].splitlines())) == (1, "", 1)
    assert (wrong[0], wrong[1], len(wrong[2].splitlines())) == (1, "", 1)


def test_table_is_named_by_path_or_by_its_name_in_a_warehouse(
    warehouse: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    how = ("--json", "--where", "id < 3", "--columns", "id")
    monkeypatch.delenv("LAKECORE_WAREHOUSE", raising=False)
    by_path = run(capfd, "read", orders(warehouse), *how)
    by_name = run(capfd, "read", "shop.orders", "-w", warehouse, *how)
    monkeypatch.setenv("LAKECORE_WAREHOUSE", str(warehouse))
    by_variable = run(capfd, "read", "shop.orders", *how)
    system = run(capfd, "read", "shop.orders$snapshots", "--columns", "snapshot_id", "--csv")
    listed = run(capfd, "tables", "--csv")
    monkeypatch.setenv("LAKECORE_WAREHOUSE", "/nosuch/warehouse")
    path_wins = run(capfd, "read", orders(warehouse), *how)

    assert by_path == (0, '{"id":1}\n{"id":2}\n', "")
    assert by_name == by_variable == path_wins == by_path
    assert system == (0, "snapshot_id\n1\n2\n", "")
    assert listed[1].splitlines() == [
        "table,primary_key,partitioned_by,snapshot,rows_stored",
        "shop.empty,[],[],,",
        'shop.orders,"[""id""]",[],2,4',
    ]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["read", "shop.orders"], "--warehouse"),
        (["tables"], "--warehouse"),
        (["read", "orders", "-w", "."], "DATABASE.TABLE"),
        (["read", "shop.nosuch", "-w", "."], "no such table"),
    ],
)
def test_name_that_finds_no_table_says_what_is_missing(
    arguments: list[str],
    hint: str,
    warehouse: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAKECORE_WAREHOUSE", "")
    monkeypatch.chdir(warehouse)
    code, out, err = run(capfd, *arguments)

    assert (code, out) == (1, "")
    assert hint in err
    assert "None" not in err
    assert len(err.splitlines()) == 1


def test_an_error_names_flags_not_arguments_of_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "none")
    for arguments, hint in (
        (["sql", "-w", place, "-e", "SELECT 1"], True),
        (["tables", place], False),
    ):
        with pytest.raises(SystemExit):
            main(arguments)

        said = capsys.readouterr().err
        assert ("--create makes one" in said) == hint
        assert "=True" not in said
