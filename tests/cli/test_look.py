"""`lakecore inspect`: what the picture says, and that no name of a table is taken for HTML."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.cli import main
from lakecore.table.system.overview import overview_of
from lakecore.ui.drawing import overview_page

if TYPE_CHECKING:
    from pathlib import Path

EVIL = "<script>alert(1)"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> lc.Table:
    place = tmp_path_factory.mktemp("picture") / "t"
    table = lc.open_table(
        place,
        create=True,
        schema={"id": "INT", "day": "STRING"},
        primary_keys=["day", "id"],
        partition_keys=["day"],
        options={"bucket": "1", "num-sorted-run.compaction-trigger": "3"},
    )
    for number in range(4):
        table.write([{"id": number, "day": EVIL}, {"id": number, "day": "b"}])
    table.delete("id = 0")
    table.copy({"write-only": "true"}).write([{"id": 9, "day": "b"}])
    table.create_tag("first", 1)
    table.reset_consumer("reader", 2)
    return table


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["inspect", *arguments])
    assert not ended.value.code
    return capsys.readouterr().out


def test_the_terminal_shows_snapshots_and_buckets(
    table: lc.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(capsys, table.path)

    assert "tags: first (1)" in out
    assert "consumers: reader (reads 2 next)" in out
    assert re.search(r"L0 #+ L\d #", out)
    assert "Expiry now: 0 snapshots would go." in out


def test_json_is_parsed(table: lc.Table, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, table.path, "--json"))

    assert found["snapshot_count"] == len(found["snapshots"])
    assert {bucket["partition"] for bucket in found["buckets"]} > {"day=b"}


def test_the_page_needs_nothing_else_and_shows_names_as_text(
    table: lc.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table.create_tag("a<b>&", 2)
    run(capsys, table.path, "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()

    assert page == overview_page(overview_of(table.context))
    assert "<script" not in page
    assert "http" not in page
    assert "a&lt;b&gt;&amp;" in page
    for name in ("facts", "timeline", "growth", "files", "expiry"):
        assert f'id="{name}"' in page


def test_a_table_without_rows_has_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = lc.open_table(tmp_path / "t", create=True, schema={"id": "INT"})

    assert "0 snapshots, 0 files" in run(capsys, empty.path)
    assert "no snapshot yet" in overview_page(overview_of(empty.context))


def test_a_page_that_cannot_be_written_is_an_error(
    table: lc.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["inspect", table.path, "--html", str(tmp_path / "no" / "page.html")])

    assert ended.value.code == 1
    assert "cannot be written" in capsys.readouterr().err
