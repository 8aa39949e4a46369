"""The pages that read rows: how many, which, and that a read can be stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import lakecore as lc
from lakecore.catalog.registry import open_catalog
from lakecore.errors import InvalidRequest
from lakecore.sql.engine import SqlEngine
from lakecore.ui import app
from lakecore.ui.app import ROWS_MAX, Query, changes_page, rows_page
from lakecore.ui.pages import Asked, Site
from tests.guarded_tables import COLUMNS, Access, with_rules
from tests.tables import new_table

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.ui.pages import Page


@pytest.fixture
def table(tmp_path: Path) -> lc.Table:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("d")
    options = {"bucket": "1", "changelog-producer": "input"}
    return session.create_table(
        "d.t", {"id": "INT", "v": "STRING"}, primary_keys=["id"], options=options
    )


@pytest.fixture
def site(table: lc.Table, tmp_path: Path) -> Site:
    del table
    return Site(open_catalog({"warehouse": str(tmp_path / "w")}, create=False))


def changes(site: Site, **query: str) -> Page:
    return changes_page(site, "d.t", Asked(query), lambda: False)


def rows(page: Page) -> list[list[object]]:
    found = page.data["rows"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(("count", "more"), [(ROWS_MAX, False), (ROWS_MAX + 1, True)])
def test_a_page_shows_the_first_rows_and_says_if_there_are_more(
    table: lc.Table, site: Site, count: int, *, more: bool
) -> None:
    table.write(pl.DataFrame({"id": range(count), "v": None}, schema_overrides={"id": pl.Int32}))
    page = rows_page(site, "d.t", Asked({}), lambda: False)

    assert (len(rows(page)), page.data["more"]) == (ROWS_MAX, more)
    assert rows(rows_page(site, "d.t", Asked({"where": "id = 3"}), bool)) == [[3, None]]
    assert ">NULL<" in page.body


def test_large_rows_are_shown_as_far_as_they_fit(
    table: lc.Table, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_BYTES_MAX", 1_000)
    table.write([{"id": number, "v": "x" * 300} for number in range(10)])
    page = rows_page(site, "d.t", Asked({}), bool)

    assert 1 <= len(rows(page)) <= 4
    assert page.data["more"]
    assert len(rows(rows_page(site, "d.t", Asked({"where": "id = 1"}), bool))) == 1

    table.write([{"id": 0, "v": "x" * 2_000}])
    with pytest.raises(InvalidRequest, match="one row has more than 1000 B"):
        rows_page(site, "d.t", Asked({"where": "id = 0"}), bool)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("repeat('x', 300)", 2),
        ("[repeat('x', 200)]", 2),
        ("{'a': repeat('x', 500)::BLOB}", 1),
        ("[{'a': true}, {'a': false}]", 2),
        ("['', '', '']", 2),
        ("[NULL, NULL, NULL]", 2),
        ("MAP {'': true}", 3),
        ("[NULL::INT]::INT[1]", 5),
        ("''::ENUM ('')", 10),
    ],
)
def test_large_results_of_queries_are_shown_as_far_as_they_fit(
    site: Site, monkeypatch: pytest.MonkeyPatch, value: str, shown: int
) -> None:
    monkeypatch.setattr(app, "_BYTES_MAX", 1_020)
    page = Query(site, f"SELECT {value} AS v FROM range(11)").run()

    assert (len(rows(page)), page.data["more"]) == (shown, True)
    assert f"The first {shown} rows; a page shows at most 200 rows and 1020 B." in page.body
    with pytest.raises(InvalidRequest, match="one row has more than 1020 B"):
        Query(site, "SELECT repeat('x', 2000)").run()
    assert not Query(site, "SELECT repeat('x', 300) FROM range(2)").run().data["more"]


def test_rows_that_are_small_in_a_file_and_large_in_python_are_not_shown(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_BYTES_MAX", 10_000)
    session = lc.connect(site.catalog.warehouse)
    nested = session.create_table("d.n", {"id": "INT", "v": "ARRAY<ROW<a BOOLEAN>>"})
    nested.write([{"id": 1, "v": [{"a": True}] * 1_000}])

    with pytest.raises(InvalidRequest, match="one row has more than"):
        rows_page(site, "d.n", Asked({}), bool)
    with pytest.raises(InvalidRequest, match="one row has more than"):
        Query(site, "SELECT * FROM d.n").run()


def test_values_that_python_or_arrow_has_no_type_for_are_shown(site: Site) -> None:
    session = lc.connect(site.catalog.warehouse)
    text = "SELECT 1 AS id, DATE '20000-01-01' AS d, TIMESTAMP '20000-01-01 00:00:00' AS t"
    session.sql(f"CREATE TABLE d.late AS {text}")
    late = ["20000-01-01", "20000-01-01 00:00:00"]

    assert rows(rows_page(site, "d.late", Asked({}), bool)) == [[1, *late]]
    numbers = "170141183460469231731687303715884105727::HUGEINT, sum(1), TIME '24:00:00'"
    shown = rows(Query(site, f"SELECT {numbers}").run())
    assert shown == [[170141183460469231731687303715884105727, 1, "24:00:00"]]


def test_a_cancel_between_two_statements_of_a_query_is_not_lost(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(site, "SELECT count(*) FROM range(100000000000)")
    real = SqlEngine.sealed

    def cancelled_before(engine: SqlEngine, *given: Any, **more: Any) -> Any:
        query.cancel()
        return real(engine, *given, **more)

    monkeypatch.setattr(SqlEngine, "sealed", cancelled_before)
    with pytest.raises(InvalidRequest, match="cancelled"):
        query.run()


def test_rows_of_an_earlier_snapshot_are_shown(table: lc.Table, site: Site) -> None:
    table.write([{"id": 1, "v": "old"}])
    table.write([{"id": 1, "v": "new"}])

    assert rows(rows_page(site, "d.t", Asked({"snapshot": "1"}), bool)) == [[1, "old"]]


def test_a_read_ends_when_it_is_told_to_stop(table: lc.Table, site: Site) -> None:
    table.write([{"id": 1, "v": "a"}])

    with pytest.raises(InvalidRequest, match="took too long"):
        rows_page(site, "d.t", Asked({}), lambda: True)


def test_the_feed_goes_on_where_it_ended_and_shows_kinds(table: lc.Table, site: Site) -> None:
    table.write([{"id": 1, "v": "a"}])
    first = changes(site)
    table.write([{"id": 1, "v": "b", "_row_kind": "+U"}])
    table.delete("id = 1")
    second = changes(site, after=str(first.data["until"]))
    third = changes(site, after=str(second.data["until"]))

    assert rows(first) == [[1, "+I", 1, "a"]]
    assert [row[:2] for row in rows(second)] == [[2, "+U"], [3, "-D"]]
    assert (rows(third), third.data["until"]) == ([], second.data["until"])
    assert f"after={second.data['until']}" in second.body


def test_the_feed_of_a_large_commit_is_cut_and_says_so(table: lc.Table, site: Site) -> None:
    table.write(pl.DataFrame({"id": range(500), "v": "x"}, schema_overrides={"id": pl.Int32}))
    table.write([{"id": 1, "v": "b"}])
    page = changes(site, after="0")

    assert (len(rows(page)), page.data["cut_in"], page.data["until"]) == (ROWS_MAX, 1, 1)
    assert rows(changes(site, after="1")) == [[2, "+I", 1, "b"]]


def test_a_commit_that_does_not_fit_begins_the_next_page(table: lc.Table, site: Site) -> None:
    for size in (120, 90, 110):
        frame = pl.DataFrame({"id": range(size), "v": "x"}, schema_overrides={"id": pl.Int32})
        table.write(frame)
    first = changes(site, after="0")
    second = changes(site, after=str(first.data["until"]))

    assert [page.data["until"] for page in (first, second)] == [1, 3]
    assert [len(rows(page)) for page in (first, second)] == [120, 200]


def test_the_feed_begins_with_the_newest_commits_that_fit_a_page(
    table: lc.Table, site: Site
) -> None:
    sizes = (150, 120, 30, 20)
    for size in sizes:
        frame = pl.DataFrame({"id": range(size), "v": "x"}, schema_overrides={"id": pl.Int32})
        table.write(frame)

    assert changes(site).data["after"] == 1
    assert len(rows(changes(site))) == sum(sizes[1:])


def test_the_feed_begins_without_regard_to_the_number_of_hidden_rows(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = new_table(COLUMNS, keys=["id"], query_auth__enabled="true", changelog_producer="input")
    for _ in range(2):
        found.write([{"id": each, "owner": "bob"} for each in range(ROWS_MAX + 1)])
    monkeypatch.setattr(app, "open_data_table", lambda *_: with_rules(found, Access()))

    assert changes(site).data["after"] == 0


def test_a_feed_that_is_ahead_of_the_table_waits_for_what_the_table_commits_next(
    table: lc.Table, site: Site
) -> None:
    table.write([{"id": 1, "v": "a"}])

    assert changes(site, after="7").data["until"] == 1


def test_a_query_that_was_cancelled_before_it_began_does_not_run(site: Site) -> None:
    query = Query(site, "SELECT 1")
    query.cancel()

    with pytest.raises(InvalidRequest, match="cancelled"):
        query.run()
