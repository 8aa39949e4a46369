"""`lakecore serve-rest` and `lakecore ui` as their own processes, and `lakecore metrics`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import polars as pl
import pytest

import lakecore as lc
from lakecore.cli import main

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = (sys.executable, "-c", "from lakecore.cli import main; main()")
COMMAND = (*PROGRAM, "serve-rest", "--port", "0")
TOKEN = "a-token-that-is-long-enough"


@pytest.mark.parametrize("way", ["variable", "file"])
def test_server_says_its_address_serves_a_client_and_stops_on_a_signal(
    tmp_path: Path, way: str
) -> None:
    warehouse = tmp_path / "w"
    lc.connect(warehouse, create=True).create_database("shop")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    given = ["--token-file", str(tmp_path / "token")] if way == "file" else []
    variables = {"LAKECORE_REST_TOKEN": TOKEN} if way == "variable" else {}
    server = subprocess.Popen(
        [*COMMAND, "--warehouse", str(warehouse), *given],
        stdout=subprocess.PIPE,
        env={**os.environ, **variables},
        text=True,
    )
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    client = {"metastore": "rest", "uri": address, "token.provider": "bear"}
    session = lc.connect({**client, "token": TOKEN})
    session.create_table("shop.t", data=pl.DataFrame({"a": [1]}))
    with pytest.raises(lc.errors.StorageError, match="does not know the token"):
        lc.connect({**client, "token": "another"})
    server.send_signal(signal.SIGTERM)

    assert server.wait(30) in (0, -signal.SIGTERM)
    server.stdout.close()
    assert lc.connect(warehouse).get_table("shop.t").to_polars()["a"].to_list() == [1]


def test_server_for_others_needs_a_token(tmp_path: Path) -> None:
    lc.connect(tmp_path / "w", create=True)
    command = [*COMMAND, "--warehouse", str(tmp_path / "w"), "--host", "0.0.0.0"]
    environ = {key: text for key, text in os.environ.items() if key != "LAKECORE_REST_TOKEN"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)

    assert done.returncode == 1
    assert "needs a token" in done.stderr


def test_the_page_says_its_address_shows_a_table_and_stops_on_a_signal(tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("shop")
    session.create_table("shop.t", data=pl.DataFrame({"a": [1]}))
    command = [*PROGRAM, "ui", str(tmp_path / "w"), "--port", "0"]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "LAKECORE_UI_TOKEN": TOKEN}, text=True
    )
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    refused = httpx.get(f"{address}/t/shop.t.json")
    shown = httpx.get(f"{address}/t/shop.t.json", headers={"Authorization": f"Bearer {TOKEN}"})
    server.send_signal(signal.SIGTERM)

    assert server.wait(30) in (0, -signal.SIGTERM)
    server.stdout.close()
    assert refused.status_code == 401
    assert shown.json()["numbers"]["rows"] == 1


def test_metrics_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("shop")
    session.create_table("shop.t", data=pl.DataFrame({"a": [1, 2]}))
    with pytest.raises(SystemExit) as ended:
        main(["metrics", str(tmp_path / "w")])

    assert not ended.value.code
    lines = capsys.readouterr().out.splitlines()
    assert 'lakecore_table_stored_rows{database="shop",table="t"} 2' in lines


@pytest.mark.parametrize("command", ["ui", "serve-rest"])
def test_a_missing_package_names_its_extra(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    lc.connect(tmp_path / "w", create=True)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(SystemExit) as ended:
        main([command, "-w", str(tmp_path / "w")])

    assert ended.value.code == 1
    extra = "ui" if command == "ui" else "rest-server"
    assert f"pip install 'lakecore[{extra}]'" in capsys.readouterr().err


def test_a_warehouse_that_is_not_there_is_not_created_by_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ui", str(tmp_path / "w")])

    assert ended.value.code == 1
    assert "no such warehouse" in capsys.readouterr().err
    assert not (tmp_path / "w").exists()
