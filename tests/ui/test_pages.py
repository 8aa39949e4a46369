"""What pages about tables say: differences of schemas, long lists, and secrets."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

import lakecore as lc
from lakecore.catalog.catalog import Catalog
from lakecore.catalog.filesystem import DirectoryNames
from lakecore.catalog.options import parse_catalog_options
from lakecore.catalog.registry import OpeningCatalog, open_catalog
from lakecore.cdc.quarantine import OnTableError
from lakecore.errors import Unsupported
from lakecore.io.ambient import seeded
from lakecore.io.stores.local import LocalStore
from lakecore.io.stores.store import MemoryStore
from lakecore.metrics import prometheus
from lakecore.model.validation import create_schema
from lakecore.ui.app import Query, changes_page, rows_page
from lakecore.ui.html import ago
from lakecore.ui.pages import (
    Asked,
    Site,
    differences,
    files_page,
    schema_page,
    snapshot_page,
    table_page,
    tables_page,
)
from tests.cdc.sources import ListSource
from tests.cdc.test_quarantine import A_STEPS
from tests.cdc.test_sink import parts
from tests.guarded_tables import Access, guarded_table
from tests.stores import RequestCounter, files_below
from tests.ui_pages import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakecore.cdc.events import Position, Step
    from lakecore.model.schema import TableSchema
    from lakecore.model.schema_change import Change
    from lakecore.ui.pages import Page


def schemas(*changes: Change) -> tuple[TableSchema, TableSchema]:
    """A schema, and the same after these changes."""
    from lakecore.model.evolution import evolve

    old = create_schema({"id": "INT NOT NULL", "a": "STRING"}, primary_keys=["id"], now_ms=0)
    return old, evolve(old, list(changes), now_ms=1, has_snapshots=True, table="t")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lc.SchemaChange.add_column("b", "DOUBLE"), "added b DOUBLE"),
        (lc.SchemaChange.rename_column("a", "c"), "renamed a to c"),
        (lc.SchemaChange.drop_column("a"), "dropped a"),
        (lc.SchemaChange.update_column_comment("a", "hm"), "comment of a: None → hm"),
        (lc.SchemaChange.set_option("write-only", "true"), "option write-only: unset → true"),
        (lc.SchemaChange.update_comment("hm"), "comment: None → hm"),
        (
            lc.SchemaChange.update_column_position("a", lc.Move.first()),
            "order of columns: a, id",
        ),
    ],
)
def test_each_change_of_a_schema_is_one_line(change: Change, line: str) -> None:
    assert differences(*schemas(change)) == [line]


def test_a_column_that_was_dropped_and_added_again_is_another_one() -> None:
    old, _ = schemas()
    changes = [lc.SchemaChange.drop_column("a"), lc.SchemaChange.add_column("a", "STRING")]

    assert differences(*schemas(*changes)) == ["added a STRING", "dropped a"]
    assert differences(None, old) == ["created with 2 columns"]
    assert differences(old, replace(old, options={"s3.secret-key": SECRET})) == [
        "option s3.secret-key: unset → ***"
    ]


def many(place: Path, count: int) -> Site:
    """A warehouse with copies of a small table."""
    session = lc.connect(place, create=True)
    session.create_database("many")
    options = {"lakecore.ignore-options": "s3.secret-key", "s3.secret-key": SECRET}
    table = session.create_table("many.t0000", {"id": "INT"}, options=options)
    table.write([{"id": 1}])
    for number in range(1, count):
        shutil.copytree(table.path, Path(table.path).with_name(f"t{number:04d}"))
    return Site(open_catalog({"warehouse": str(place)}, create=False))


def test_a_long_list_is_paged_and_only_the_tables_of_a_page_are_read(tmp_path: Path) -> None:
    site = many(tmp_path / "w", 120)
    opened: list[str] = []

    def noted(table: lc.Table) -> lc.Table:
        opened.append(table.identifier)
        return table

    site = Site(cast("Catalog", OpeningCatalog(site.catalog, noted)))
    pages = [tables_page(site, Asked({"page": str(number)})) for number in (1, 2, 3, 4)]

    assert [len(each.data["tables"]) for each in pages] == [50, 50, 20, 0]  # type: ignore[arg-type]
    assert len(opened) == 120
    assert "page 3 of 3" in pages[2].body
    assert "next →" not in pages[2].body
    assert tables_page(site, Asked({"q": "T0119"})).data["matching"] == 1


def test_the_list_advises_what_the_page_of_the_table_does(tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("d")
    options = {"write-only": "true", "snapshot.num-retained.max": "50"}
    table = session.create_table("d.t", {"id": "INT"}, options=options)
    for number in range(52):
        table.write([{"id": number}])
    table.reset_consumer("late", 1)
    site = Site(open_catalog({"warehouse": str(tmp_path / "w")}, create=False))
    (row,) = cast("list[dict[str, object]]", tables_page(site, Asked({})).data["tables"])
    advice = table_page(site, "d.t", Asked({})).data["advice"]

    assert row["health"] == "advice"
    assert row["advice"] == advice
    commands = [each["command"] for each in cast("list[dict[str, str]]", advice)]
    assert [each.split(" -w")[0] for each in commands] == [
        "lakecore compact d.t",
        "lakecore expire snapshots d.t",
        "lakecore consumer list d.t",
    ]


class LateSource(ListSource):
    """A source that states the time of its newest change."""

    time_ms = 0

    def steps(self, after: Position | None) -> Iterator[Step]:
        for step in super().steps(after):
            yield replace(step, position={**step.position, "time_ms": self.time_ms})


def test_the_lag_and_the_quarantine_of_a_pipeline_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    catalog, sink = parts(LocalStore(), on_table_error=OnTableError.QUARANTINE)
    source = LateSource(A_STEPS)
    source.time_ms = catalog.names.ambient.now_ms() - 90_000
    sink.run(source, until_caught_up=True)
    site = Site(catalog)
    lag = (catalog.names.ambient.now_ms() - source.time_ms) / 1000

    for page in (tables_page(site, Asked({})), table_page(site, "d.a", Asked({}))):
        (shown,) = cast("list[dict[str, object]]", page.data["pipelines"])
        assert (shown["name"], shown["caught_up"]) == ("p", True)
        assert shown["lag_seconds"] == lag >= 90
        assert f">{ago(lag)}<" in page.body
        (aside,) = cast("list[dict[str, str]]", shown["quarantine"])
        assert (aside["database"], aside["table"]) == ("s", "b")
        assert f"s.b: {aside['reason']}" in unescape(page.body)


def test_a_directory_that_is_no_table_is_not_shown(tmp_path: Path) -> None:
    site = many(tmp_path / "w", 2)
    (tmp_path / "w" / "many.db" / "a" / "files").mkdir(parents=True)
    page = tables_page(site, Asked({}))

    assert [each["table"] for each in page.data["tables"]] == ["many.t0000", "many.t0001"]  # type: ignore[attr-defined]


def requests(count: int, page: Callable[[Site], Page]) -> Mapping[str, int]:
    """The requests of a page to a store with `count` tables, of which one has as many snapshots."""
    store = RequestCounter(MemoryStore())
    options = parse_catalog_options({"warehouse": "w"})
    catalog = Catalog(DirectoryNames("w", store, options, seeded(1)))
    catalog.create_database("d")
    table = catalog.create_table("d.t0000", {"id": "INT"}, options={"write-only": "true"})
    table.write([{"id": 1}])
    files = {path: store.read(path) for path in files_below(store, table.path)}
    for number in range(1, count):
        for path, data in files.items():
            store.put(path.replace("t0000", f"t{number:04d}"), data)
    layout = table.context.layout
    newest = json.loads(store.read(layout.snapshot(1)))
    for number in range(2, count + 1):
        store.put(layout.snapshot(number), json.dumps({**newest, "id": number}).encode())
    store.put(layout.latest_hint, str(count).encode())
    store.requests.clear()
    assert page(Site(catalog)).status == 200
    return store.requests


@pytest.mark.parametrize(
    "page",
    [
        lambda site: tables_page(site, Asked({"page": "1"})),
        lambda site: tables_page(site, Asked({"q": "t0007"})),
        lambda site: table_page(site, "d.t0000", Asked({})),
        lambda site: table_page(site, "d.t0000", Asked({"before": "52"})),
        lambda site: snapshot_page(site, "d.t0000", "7"),
        lambda site: files_page(site, "d.t0000", Asked({"bucket": "0"})),
        lambda site: schema_page(site, "d.t0000", Asked({})),
        lambda site: rows_page(site, "d.t0000", Asked({}), bool),
        lambda site: changes_page(site, "d.t0000", Asked({}), bool),
        lambda site: Query(site, "SELECT count(*) FROM d.t0007").run(),
    ],
)
def test_a_page_makes_no_request_for_tables_and_snapshots_that_it_does_not_show(
    page: Callable[[Site], Page],
) -> None:
    assert requests(80, page) == requests(240, page)


def test_no_page_shows_a_secret_of_an_option(tmp_path: Path) -> None:
    site = many(tmp_path / "w", 1)
    page = table_page(site, "many.t0000", Asked({}))

    assert SECRET not in page.body
    assert SECRET not in str(page.data)
    assert "s3.secret-key = ***" in page.body


def test_snapshots_are_paged_from_the_newest(tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("d")
    table = session.create_table("d.t", {"id": "INT"}, options={"write-only": "true"})
    for number in range(60):
        table.write([{"id": number}])
    site = Site(open_catalog({"warehouse": str(tmp_path / "w")}, create=False))
    newest = table_page(site, "d.t", Asked({}))
    older = table_page(site, "d.t", Asked({"before": "11"}))

    ids = [[each["snapshot"] for each in page.data["snapshots"]] for page in (newest, older)]  # type: ignore[attr-defined]
    assert ids == [list(range(11, 61)), list(range(1, 11))]
    assert "/t/d.t?before=11" in newest.body
    assert "older" not in older.body


@pytest.mark.parametrize("large", [False, True])
def test_files_are_shown_for_the_partition_and_the_bucket_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, large: bool
) -> None:
    if large:
        monkeypatch.setattr("lakecore.io.history._SMALL_ENTRIES", 0)
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("d")
    options = {"bucket": "3", "bucket-key": "id"}
    table = session.create_table(
        "d.t", {"day": "STRING", "id": "INT"}, partition_keys=["day"], options=options
    )
    table.write([{"day": f"day {each % 2}", "id": each} for each in range(40)])
    site = Site(open_catalog({"warehouse": str(tmp_path / "w")}, create=False))
    page = files_page(site, "d.t", Asked({"partition": "day=day 1", "bucket": "2"}))
    listed = table.inspect.files().filter(partition="{day 1}", bucket=2)

    assert [each["file"] for each in page.data["files"]] == [  # type: ignore[attr-defined]
        path.rpartition("/")[2] for path in listed["file_path"]
    ]
    assert [each["bucket"] for each in page.data["buckets"]] == [0, 1, 2]  # type: ignore[attr-defined]


def test_pages_of_a_table_whose_catalog_hides_rows_tell_nothing_of_them(tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("d")
    session.create_table("d.t", {"id": "INT"})
    hidden = guarded_table(Access())
    catalog = open_catalog({"warehouse": str(tmp_path / "w")}, create=False)
    site = Site(cast("Catalog", OpeningCatalog(catalog, lambda _: hidden)))
    asked = Asked({})
    pages = [
        tables_page(site, asked),
        table_page(site, "d.t", asked),
        schema_page(site, "d.t", asked),
        rows_page(site, "d.t", asked, bool),
    ]
    refused = [partial(files_page, site, "d.t", asked), partial(snapshot_page, site, "d.t", "1")]
    errors = []
    for each in refused:
        with pytest.raises(Unsupported) as error:
            each()
        errors.append(str(error.value))

    shown = str([(page.body, page.data) for page in pages]) + str(errors)
    assert "*ann" in shown
    assert [word for word in ("bob", "2222", "1111") if word in shown] == []
    numbers = site.numbers.of(hidden)
    assert (numbers.rows, numbers.counted.vector_share, numbers.counted.files) == (None, None, 2)
    assert "stored_rows{" not in prometheus(site.catalog, site.numbers)
    assert "deleted_rows_ratio{" not in prometheus(site.catalog, site.numbers)
