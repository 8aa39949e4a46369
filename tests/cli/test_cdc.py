from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.cdc.pipeline import SYNC_ACTIONS, duration_seconds
from lakecore.cdc.state import PipelineState, StateFiles
from lakecore.cli import main
from lakecore.errors import InvalidRequest
from lakecore.io.ambient import SYSTEM
from lakecore.io.secret_options import with_secrets
from lakecore.io.stores.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.model.types import Json

CONF = ["--mysql_conf", "hostname=127.0.0.1", "--mysql_conf=username=u"]
TARGET = ["--warehouse", "w", "--database", "d"]


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = 0
    try:
        main(["cdc", *arguments])
    except SystemExit as end:
        code = int(end.code or 0)
    out, err = capfd.readouterr()
    return code, out, err


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mysql_sync_tabel"], "did_you_mean=mysql_sync_table"),
        (["mysql_sync_table"], "missing=[--database, --table, --mysql_conf]"),
        (["mysql-sync-database", *TARGET, "--tabel", "x"], "no such flag"),
        (["mysql_sync_database", *TARGET, "--mode"], "the flag needs a value"),
        (["mysql_sync_database", *TARGET, *CONF], "missing=[password, database-name]"),
        (["mysql_sync_database", *TARGET, *CONF, "--until", "later"], "known=[caught-up]"),
        (["mysql_sync_database", *TARGET, *CONF, "--interval", "soon"], "not a duration"),
        (
            ["mysql_sync_database", *TARGET, *CONF, "--mysql_conf", "password-env=NO_SUCH"],
            "NO_SUCH",
        ),
        (["mysql_sync_table", *TARGET, "--table", "t", *CONF], "missing=[table-name]"),
        (["run"], "name the file"),
        (["run", "missing.toml"], "cannot be read"),
        (["status", "--warehouse", "nowhere"], "warehouse"),
    ],
)
def test_wrong_call_says_what_to_do(
    capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, _, err = run(capfd, *arguments)

    assert code == (2 if "flag" in message or "--table" in message else 1)
    assert message in err


def test_help_lists_the_flags_of_an_action(capfd: pytest.CaptureFixture[str]) -> None:
    overview = run(capfd, "--help")[1]
    assert "lakecore cdc status" in overview
    assert set(SYNC_ACTIONS) == set(re.findall(r"\w+_sync_\w+", overview))
    assert run(capfd, "check", "--help")[::2] == run(capfd, "resync", "a", "-h")[::2] == (0, "")
    out = run(capfd, "mysql_sync_database", "--help")[1]

    assert "--excluding_tables" in out
    assert "--mysql_conf  (required, may be repeated)" in out


def test_entry_of_a_file_that_no_flag_has_is_refused(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "p.toml").write_text('action = "mysql_sync_database"\ndatbase = "d"\n')
    assert "entry=datbase" in run(capfd, "run", "p.toml")[2]
    (tmp_path / "p.toml").write_text("action = ")
    assert "not a TOML file" in run(capfd, "run", "p.toml")[2]


def test_password_comes_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "word").write_text("a secret\n")
    monkeypatch.setenv("WORD", "another")

    assert with_secrets({"password-file": "word", "x": "1"}) == {"password": "a secret", "x": "1"}
    assert with_secrets({"password-env": "WORD"}) == {"password": "another"}
    with pytest.raises(InvalidRequest, match="given twice"):
        with_secrets({"password": "x", "password-env": "WORD"})
    with pytest.raises(InvalidRequest, match="cannot be read"):
        with_secrets({"password-file": "no-such-file"})


def test_interval_is_a_duration() -> None:
    assert [
        duration_seconds("interval", text) for text in ("10 s", "0.5s", "2 min", "1 h", "7")
    ] == [
        10,
        0.5,
        120,
        3600,
        7,
    ]


def test_status_shows_what_the_state_says(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "w").mkdir()
    assert run(capfd, "status", "--warehouse", "w")[1] == "no pipelines\n"
    now_ms = SYSTEM.now_ms()
    tables: Json = {"d.t": {"+I": 2, "-D": 1}}
    recent: list[Json] = [[now_ms - 90_000, 0], [now_ms - 61_000, 999], [now_ms - 5_000, 180]]
    StateFiles(LocalStore(), f"{tmp_path}/w/.cdc/p", SYSTEM).put(
        PipelineState(
            checkpoint=7,
            commit_user="u",
            position={"place": ["b.1", 4], "time_ms": now_ms - 60_000},
            metrics={"rows_total": 12, "recent": recent, "caught_up": True, "tables": tables},
        )
    )

    _, head, _, line, _ = run(capfd, "status", "--warehouse", "w")[1].splitlines()
    shown = dict(zip(*(map(str.strip, each.split("│")) for each in (head, line)), strict=True))
    assert (shown["pipeline"], shown["state"], shown["checkpoint"]) == ("p", "caught up", "7")
    assert (shown["rows"], shown["rows/s"], shown["behind"]) == ("12", "3.0", "-")
    assert 60 <= float(shown["lag s"]) < 90
    one = run(capfd, "status", "p", "--warehouse", "w")[1]
    assert 'p: at {"place": ["b.1", 4]' in one
    assert re.search(r"d.t +│ +2 │ +0 │ +0 │ +1 │", one)
    assert "known=[p]" in run(capfd, "status", "q", "--warehouse", "w")[2]
    assert '"checkpoint":7' in run(capfd, "status", "--warehouse", "w", "--json")[1]

    StateFiles(LocalStore(), f"{tmp_path}/w/.cdc/p", SYSTEM).put(
        PipelineState(checkpoint=8, commit_user="u", position={"place": ["b.1", 4]})
    )
    assert run(capfd, "status", "--warehouse", "w")[1].count(" - │") == 2


def test_a_list_of_a_file_has_all_its_values(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    event = {"type": "insert", "database": "s", "table": "t", "primary_key_columns": ["id"]}
    rows = {"id": "1", "day": "d", "hour": "h"}
    (tmp_path / "in" / "1.json").write_text(json.dumps({**event, "data": rows}) + "\n")
    (tmp_path / "p.toml").write_text(
        """
        action = "files_sync_database"
        warehouse = "w"
        database = "d"
        primary_keys = ["id", "day", "hour"]
        files_conf = { path = "in", "value.format" = "maxwell-json" }
        [multiple_table_partition_keys]
        t = ["day", "hour"]
        """
    )
    assert run(capfd, "run", "p.toml", "--until=caught-up")[0] == 0

    schema = lc.connect(tmp_path / "w").get_table("d.t").schema
    assert (schema.primary_keys, schema.partition_keys) == (("id", "day", "hour"), ("day", "hour"))


def test_the_status_says_why_the_last_run_ended_until_a_later_one_gets_further(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        row = {"op": "c", "after": {"id": 1}, "source": {"db": "s", "table": "t"}}
        (tmp_path / folder / "1.json").write_text(json.dumps({**row, "pkNames": ["id"]}))
    given = ["files_sync_database", *TARGET, "--files_conf=value.format=debezium-json"]
    given += ["--table_conf=bucket=1", "--until=caught-up", "--name=p"]

    def status() -> dict[str, Json]:
        found: dict[str, Json] = json.loads(run(capfd, "status", "--warehouse=w", "--json")[1])
        return found

    assert run(capfd, *given, "--files_conf=path=a")[0] == 0
    assert (status()["failed_at"], status()["caught_up"]) == (None, True)

    code, _, said = run(capfd, *given, "--files_conf=path=b")
    assert code == 1
    found = status()
    assert f"error: {found['failed_reason']}\n" == said
    assert "is of another source" in said
    assert (found["caught_up"], found["reachable"]) == (False, True)
    shown = run(capfd, "status", "--warehouse=w")[1]
    assert re.search(r"(state +|│ )failed", shown), "as a table or as a list, by the width"
    assert f"the last run ended with an error at {found['failed_at']}: the state" in shown
    with pytest.raises(SystemExit):
        main(["metrics", "w"])
    assert 'lakecore_cdc_failed{pipeline="p"} 1' in capfd.readouterr().out

    assert run(capfd, *given, "--files_conf=path=a")[0] == 0
    assert (status()["failed_reason"], status()["caught_up"]) == (None, True)
