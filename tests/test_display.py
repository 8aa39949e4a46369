"""How things look: short, aligned, each name on its line and within its cell."""

from __future__ import annotations

import datetime as dt
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import lakecore as lc
from lakecore.display import ROWS_MAX, one_line, pairs_text, rows_text, show_bytes
from lakecore.errors import NotFound
from lakecore.io.stores.guarded import unguarded
from lakecore.model.compaction import CompactionResult
from lakecore.model.snapshot import CommitResult
from tests.tables import new_table, put

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.table.handle import Table

HOSTILE = "<script>alert('x')</script>\n\x1b[31m\u202e&\"\x00"
DAY = dt.date(2026, 1, 1)
TAGS = {"table", "caption", "thead", "tbody", "tr", "th", "td"}


class Tags(HTMLParser):
    """The tags of a page, which must close in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert {name for name, _ in attrs} <= {"style", "colspan"}
        self.seen.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def table(tmp_path: Path) -> Table:
    catalog = lc.connect(tmp_path / "wh", create=True)
    catalog.create_database("shop")
    return catalog.create_table(
        "shop.orders",
        {
            "id": "BIGINT NOT NULL",
            "day": "DATE NOT NULL",
            HOSTILE: "STRING",
            "deep": "ROW<a ARRAY<MAP<STRING, ROW<b INT>>>>",
        },
        primary_keys=["id", "day"],
        partition_keys=["day"],
        options={"bucket": 2},
        comment=HOSTILE,
    )


def test_table_is_shown_in_aligned_lines(table: Table) -> None:
    lines = str(table).splitlines()

    assert lines[0] == "shop.orders"
    assert lines[3:6] == [
        "  primary key     id, day",
        "  partitioned by  day",
        "  options         bucket=2",
    ]
    assert lines[6] == "schema 0, 4 columns"
    assert [line.split()[0] for line in lines[7:9]] == ["id", "day"]
    assert len({line.find("NOT NULL") for line in lines[7:8]}) == 1
    assert all(each.isprintable() for each in lines)
    assert len(lines) == 11


def test_every_face_for_notebooks_is_whole_html_without_foreign_tags(table: Table) -> None:
    result = table.write([{"id": 1, "day": DAY}])
    shown: list[Any] = [
        table,
        table.schema,
        table.options,
        table.explain(),
        table.explain(where=pl.col(HOSTILE) == HOSTILE),
        result,
        table.delete("id = 1"),
        table.compact(full=True),
        table.inspect.system_table("files"),
        *_tags(table),
    ]
    for each in shown:
        tags = Tags(each._repr_html_())
        assert tags.open == []
        assert tags.seen <= TAGS
        assert "\n" not in each._repr_html_()


def _tags(table: Table) -> tuple[lc.Tag, ...]:
    table.create_tag("day")
    table.create_tag("<b>", time_retained="1 d")
    return table.tags()


def test_a_session_shows_its_databases_and_tables(tmp_path: Path) -> None:
    session = lc.connect(tmp_path, create=True)
    session.create_database("empty")
    session.create_database("shop")
    for name in ("orders", "people"):
        session.create_table(f"shop.{name}", {"id": "INT"})
    shown = session._repr_html_()

    assert re.findall(r"<td[^>]*>(.*?)</td>", shown) == [
        *("empty", ""),
        *("shop", "orders"),
        *("shop", "people"),
    ]
    assert str(tmp_path) in shown


def test_a_name_stays_on_its_line() -> None:
    assert one_line("a\nb\r\t\x1b[0m\u202e") == r"a\nb\r\t\x1b[0m\u202e"
    assert one_line("\ud800") == r"\ud800"
    assert one_line("x" * 100) == "x" * 59 + "…"
    assert pairs_text([("a", 1), ("long", "b\nc")]) == "a     1\nlong  b\\nc"
    assert pairs_text([]) == rows_text([]) == ""


def test_long_lists_are_cut() -> None:
    wide = new_table({f"c{number}": "INT" for number in range(5000)}, keys=())

    assert str(wide).splitlines()[-1] == f"  … {5000 - ROWS_MAX} more columns"
    assert len(str(wide)) < 5_000
    assert len(wide._repr_html_()) < 50_000
    assert len(repr(wide.schema)) < 400
    assert len(str(wide.explain())) < 2_000


def test_nothing_is_read_to_show_a_table() -> None:
    table = new_table()
    put(table, "1 a")
    context = table.context
    unguarded(context.store).delete_directory(table.path)

    assert "id  INT NOT NULL" in str(table)
    assert repr(table).startswith("Table(")
    assert "<table>" in table._repr_html_()
    then = table.copy({"scan.snapshot-id": "1"})
    with pytest.raises(NotFound):
        _ = then.schema
    assert "scan.snapshot-id=1" in str(then)
    assert repr(then) == repr(table)
    assert "<table>" in then._repr_html_()


def test_results_say_what_happened_and_nothing_else(table: Table) -> None:
    written = table.write([{"id": 1, "day": DAY}, {"id": 2, "day": DAY}])
    deleted = table.delete("id = 2")
    nothing = table.delete("id = 9")

    assert (written.rows_inserted, written.rows_updated, written.identifier) == (None, None, None)
    assert str(written).startswith("snapshots    1\nrows stored  2\nfiles added  ")
    assert "9223372036854775807" not in repr(written)
    assert repr(written).startswith("CommitResult(snapshot_ids=(1,), rows=2, files_added=")
    assert (deleted.rows_inserted, deleted.rows_deleted) == (0, 1)
    assert "rows deleted" in str(deleted)
    assert "rows inserted" not in str(deleted)
    assert nothing.rows_deleted == 0
    assert str(nothing) == "snapshots  none: there was nothing to commit"
    numbered = table.write([{"id": 3, "day": DAY}], commit_user="job", identifier=7)
    assert numbered.identifier == 7
    again = table.write([{"id": 3, "day": DAY}], commit_user="job", identifier=7)
    assert str(again).splitlines() == [
        f"snapshots          {numbered.snapshot_id}",
        "identifier         7",
        "already committed  1",
    ]


def test_compaction_says_what_happened() -> None:
    table = new_table()
    put(table, "1 a")
    put(table, "1 b")
    planned, done = table.compact(full=True, dry_run=True), table.compact(full=True)

    lines = str(planned).splitlines()
    assert lines[:2] == ["snapshots  none: nothing was written", "buckets    1"]
    assert lines[2].startswith("before     2 files, 2 rows")
    assert "after" not in str(planned)
    assert "after      1 files, 1 rows" in str(done)
    assert str(CompactionResult()) == "snapshots  none: there was nothing to compact"
    assert repr(CompactionResult()) == "CompactionResult(attempts=1)"
    assert repr(CommitResult()) == "CommitResult()"


def test_options_are_those_that_were_set() -> None:
    table = new_table(write_only="true")

    assert str(new_table(keys=()).options) == "no options are set"
    assert repr(table.options).startswith("TableOptions({'bucket': '1'")


def test_dir_lists_what_is_public(table: Table) -> None:
    assert {"scan", "count", "head", "write", "identifier", "schema"} <= set(dir(table))
    assert not [name for name in dir(table) if name.startswith("_") or name == "context"]
    files = table.inspect.system_table("files")
    assert {"scan", "count", "identifier"} <= set(dir(files))
    assert "write" not in dir(files)
    assert {"buckets", "files", "snapshots"} <= set(dir(table.inspect))
    assert not [name for name in dir(table.inspect) if name.startswith("_")]
    assert all(hasattr(table, name) for name in dir(table))
    assert all(hasattr(files, name) for name in dir(files))


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 50, "1024.0 TiB")]
)
def test_sizes_have_units(size: int, text: str) -> None:
    assert show_bytes(size) == text
