"""`lakecore rescale` and `lakecore compact-database`."""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.cli import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    catalog = lc.connect(tmp_path / "w", create=True)
    catalog.create_database("shop")
    for name in ("a", "b"):
        table = catalog.create_table(
            f"shop.{name}",
            {"id": "INT NOT NULL", "day": "STRING NOT NULL"},
            primary_keys=["id", "day"],
            partition_keys=["day"],
            options={"bucket": "1", "write-only": "true"},
        )
        for _ in range(3):
            table.write([{"id": number, "day": day} for number in range(3) for day in "xy"])
    return str(tmp_path / "w")


def run(*arguments: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    assert (ended.value.code or 0) == code


def test_partitions_are_rescaled(warehouse: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("rescale", "shop.a", "-w", warehouse, "--partition", "day=x")
    run(*given, "--bucket-num", "2", "--json")

    record = json.loads(capsys.readouterr().out)
    assert (record["snapshot_ids"], record["rows"]) == ([4], 3)
    run(*given, "--bucket-num", "2")
    assert "nothing to commit" in capsys.readouterr().out
    run("rescale", "shop.a", "-w", warehouse, "--where", "id = 1", code=1)
    assert "partition keys only" in capsys.readouterr().err


def test_tables_that_match_are_compacted(
    warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("compact-database", "-w", warehouse, "--full", "--excluding-tables", "b")
    run(*given, "--mode", "combined", "--json")

    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["table"], row["files_before"], row["files_after"]) for row in rows] == [
        ("shop.a", 6, 2)
    ]
    run("compact-database", "-w", warehouse, "--mode", "some", code=1)
    assert "unknown mode" in capsys.readouterr().err


def test_watch_ends_by_a_signal(warehouse: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = lc.connect(warehouse).get_table("shop.b")

    def end() -> None:
        while table.inspect.files().height > 2:
            ended.wait(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    ended = threading.Event()
    ending = threading.Thread(target=end)
    ending.start()
    watch = ("--watch", "--interval", "0.05", "--table-option")
    run("compact-database", "-w", warehouse, *watch, "num-sorted-run.compaction-trigger=3")
    ending.join()

    out = capsys.readouterr().out
    assert "shop.a: watching" in out
    assert "shop.b: snapshot 4" in out
    assert "stopped after" in out
