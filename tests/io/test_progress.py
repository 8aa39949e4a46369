"""A bar for long work is drawn where a person looks, and nowhere else."""

from __future__ import annotations

import io
import os
import sys
from contextlib import redirect_stderr
from typing import TYPE_CHECKING

import polars as pl
import pytest

import lakecore as lc
from lakecore.io import progress
from lakecore.io.progress import WorkBar

if TYPE_CHECKING:
    from pathlib import Path


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(progress, "PATIENCE_MS", 0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    return Terminal()


def test_writes_and_compactions_show_how_far_they_are(tmp_path: Path, terminal: Terminal) -> None:
    catalog = lc.connect(tmp_path / "w", create=True)
    catalog.create_database("shop")
    t = catalog.create_table("shop.t", {"id": "INT NOT NULL"}, primary_keys=["id"])
    with redirect_stderr(terminal):
        t.write(pl.DataFrame({"id": range(1200)}, {"id": pl.Int32}))
        t.compact(full=True)

    shown = terminal.getvalue()
    assert "1,200 rows written" in shown
    assert "1 of 1 buckets, 1,200 of 1,200 rows" in shown
    assert shown.endswith("\x1b[2K"), "the bar goes"


@pytest.mark.parametrize("keys", [["id"], []])
def test_verbs_that_change_rows_show_how_many_they_have_read(
    tmp_path: Path, terminal: Terminal, keys: list[str]
) -> None:
    rows = pl.DataFrame({"id": range(1200), "n": 0}, {"id": pl.Int32, "n": pl.Int32})
    table = lc.open_table(tmp_path / "t", create=True, data=rows, primary_keys=keys)
    with redirect_stderr(terminal):
        table.update({"n": 1}, "id >= 0")
        updated = terminal.tell()
        table.merge(rows, on="id").when_matched_update_all().execute()
        merged = terminal.tell()
        table.delete("n = 0")

    shown = terminal.getvalue()
    for verb in (shown[:updated], shown[updated:merged], shown[merged:]):
        assert "1,200 rows read" in verb
        assert verb.endswith("\x1b[2K"), "the bar goes"


def test_expiry_and_the_removal_of_orphans_show_what_they_read_and_delete(
    tmp_path: Path, terminal: Terminal
) -> None:
    options = {"write-only": "true"}
    table = lc.open_table(tmp_path / "t", create=True, schema={"id": "INT"}, options=options)
    for number in range(12):
        table.write([{"id": number}])
    lost = tmp_path / "t" / "bucket-0" / "data-0-0.parquet"
    lost.write_bytes(b"")
    os.utime(lost, (0, 0))
    with redirect_stderr(terminal):
        table.expire_snapshots(retain_max=2, retain_min=1)
        expired = terminal.tell()
        table.remove_orphan_files()

    shown = terminal.getvalue()
    # The terminal is drawn ten times a second: what is first and last is sure to be there.
    assert "1 of 11 snapshots found" in shown[:expired]
    assert " files deleted" in shown[:expired]
    assert " directories listed" in shown[expired:]
    assert "1 files deleted" in shown[expired:]
    assert shown.endswith("\x1b[2K"), "the bar goes"
    assert not lost.exists()


def test_work_inside_of_other_work_has_no_bar(terminal: Terminal) -> None:
    with redirect_stderr(terminal), WorkBar() as outer:
        outer.at("outer", 1, 2)
        with WorkBar() as inner:
            inner.at("inner", 1)
    with redirect_stderr(terminal), WorkBar() as later:
        later.at("later", 1)

    assert "outer" in terminal.getvalue()
    assert "inner" not in terminal.getvalue()
    assert "later" in terminal.getvalue()


@pytest.mark.parametrize("how", ["short", "pipe", "dumb", "notebook without widgets"])
def test_nothing_is_drawn(how: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "short":
        monkeypatch.setattr(progress, "PATIENCE_MS", 60_000)
    elif how == "pipe":
        monkeypatch.setattr(Terminal, "isatty", lambda _: False)
    elif how == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    else:
        monkeypatch.setitem(sys.modules, "ipykernel", sys)
        monkeypatch.setattr(progress, "find_spec", lambda _: None)

    with redirect_stderr(terminal), WorkBar() as bar:
        bar.at("work", 1, 2)

    assert terminal.getvalue() == ""
