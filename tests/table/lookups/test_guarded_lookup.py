"""Handles for look-ups in a table whose catalog filters and masks its rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.errors import StorageError, Unsupported
from lakecore.rows.read_rules_json import StatedRules
from tests.guarded_tables import (
    COLUMNS,
    NULL,
    ROWS,
    SHOWN,
    STARS,
    Access,
    equal,
    guarded_table,
    with_rules,
)
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.table.lookups.lookup import Lookup

ALL = [{"id": number} for number in (4, 2, 1, 3, 9, 1)]
OPENED: dict[str, Callable[[lc.Table], Lookup]] = {
    "partial": lambda t: t.open_lookup(),
    "full": lambda t: t.copy({"lookup.cache": "full"}).open_lookup(),
    "on": lambda t: t.open_lookup(on=["id"]),
}


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("how", OPENED)
def test_handle_filters_and_masks(how: str, *, compacted: bool) -> None:
    table = guarded_table(Access())
    if compacted:
        table.compact(full=True)
    with OPENED[how](table) as lookup:
        for _ in range(3):
            assert lookup.rows(ALL).to_dicts() == [SHOWN[2], SHOWN[0], SHOWN[1], SHOWN[0]]
            assert lookup.rows({"id": 2}).is_empty()
        assert lookup.rows({"id": 1}).schema == table.lookup({"id": 1}).schema


@pytest.mark.parametrize("keys", [("id",), ()])
@pytest.mark.parametrize("columns", [["id"], ["card"], ["n", "id"], None])
def test_handle_shows_what_a_look_up_shows(
    columns: Sequence[str] | None, keys: Sequence[str]
) -> None:
    table = guarded_table(Access(), keys=keys)
    with table.open_lookup(columns, on="id") as lookup:
        assert lookup.rows(ALL).equals(table.lookup(ALL, columns))
    with table.open_lookup(columns, on=["owner"]) as lookup:
        for owner in ("ann", "bob"):
            found = lookup.rows({"owner": owner})
            assert found.sort(found.columns).equals(
                table.lookup({"owner": owner}, columns).sort(found.columns)
            )
        assert lookup.rows({"owner": "bob"}).is_empty()


def test_masked_column_is_found_by_its_masked_values_only() -> None:
    with guarded_table(Access()).open_lookup(["id"], on="card") as lookup:
        assert lookup.rows({"card": "1111"}).is_empty()
        assert lookup.rows({"card": "*ann"})["id"].sort().to_list() == [1, 3, 4]
    hidden = Access(StatedRules((), {"id": NULL}))
    with guarded_table(hidden).open_lookup() as lookup:
        assert lookup.rows(ALL).is_empty()


def test_rules_are_asked_when_a_newer_snapshot_is_looked_for() -> None:
    now_ms = [1_000_000]
    access = Access()
    table = guarded_table(access)
    context = table.context
    table = lc.Table(replace(context, ambient=replace(context.ambient, now_ms=lambda: now_ms[0])))
    lookup = table.open_lookup(["id", "card"])
    assert access.asked == [("main", ("id", "card"))]
    assert lookup.rows(ALL)["id"].to_list() == [4, 1, 3, 1]
    # The new rule masks by a column, and filters by one, that the blocks do not hold yet.
    access.stated = StatedRules((equal("n", 20),), {"card": STARS})
    assert lookup.rows(ALL)["id"].to_list() == [4, 1, 3, 1]

    now_ms[0] += 10_000
    assert lookup.rows(ALL).rows() == [(2, "*bob")]
    assert len(access.asked) == 2
    access.stated = StatedRules()
    lookup.refresh()
    assert lookup.rows(ALL[1:3]).rows() == [(2, "2222"), (1, "1111")]
    access.stated = StatedRules((), {"id": NULL})
    lookup.refresh()
    assert lookup.rows(ALL).is_empty()
    access.stated = StatedRules((equal("owner", "ann"),))
    table.write([{**ROWS[0], "card": "new"}, {**ROWS[1], "owner": "ann"}])
    lookup.refresh()
    assert lookup.rows(ALL[1:3]).rows() == [(2, "2222"), (1, "new")]


def test_rules_that_are_not_told_end_the_look_ups() -> None:
    now_ms = [1_000_000]
    access = Access()
    table = guarded_table(access)
    context = table.context
    table = lc.Table(replace(context, ambient=replace(context.ambient, now_ms=lambda: now_ms[0])))
    lookup = table.open_lookup()
    access.forbidden = ("card",)
    assert lookup.rows(ALL).height == 4

    now_ms[0] += 10_000
    for _ in range(2):
        with pytest.raises(StorageError, match="forbids"):
            lookup.rows(ALL)
    access.forbidden, access.stated = (), StatedRules(("{}",))
    with pytest.raises(Unsupported, match="rule"):
        lookup.rows(ALL)
    with pytest.raises(Unsupported, match="rule"):
        table.open_lookup()
    access.stated = StatedRules()
    assert lookup.rows(ALL).height == 5


def test_handle_is_guarded_if_the_option_is_set_after_it_was_opened(tmp_path: Any) -> None:
    session = lc.connect(str(tmp_path), create=True)
    session.create_database("shop")
    options = {"bucket": "1"}
    table = session.create_table("shop.t", COLUMNS, primary_keys=["id"], options=options)
    table.write(ROWS)
    lookup = with_rules(table, Access()).open_lookup()
    assert lookup.rows({"id": 2}).to_dicts() == [ROWS[1]]
    session.alter_table("shop.t", [lc.SchemaChange.set_option("query-auth.enabled", "true")])

    lookup.refresh()
    assert lookup.rows(ALL).to_dicts() == [SHOWN[2], SHOWN[0], SHOWN[1], SHOWN[0]]


def test_keys_that_are_not_cached_and_fallback_branches_are_guarded() -> None:
    columns = {"id": "DOUBLE NOT NULL", **{k: v for k, v in COLUMNS.items() if k != "id"}}
    table = new_table(columns, query_auth__enabled="true")
    table.write(ROWS)
    with with_rules(table, Access()).open_lookup() as lookup:
        assert lookup.rows([{"id": 2.0}, {"id": 1.0}])["card"].to_list() == ["*ann"]
    guarded = guarded_table(Access())
    guarded.create_branch("b")
    with guarded.copy({"scan.fallback-branch": "b"}).open_lookup() as lookup:
        assert lookup.rows(ALL[:3]).to_dicts() == [SHOWN[2], SHOWN[0]]


def test_hidden_row_that_cannot_be_merged_spoils_no_look_up_of_others() -> None:
    table = new_table(
        {**COLUMNS, "n": "TINYINT"},
        query_auth__enabled="true",
        write_only="true",
        merge_engine="aggregation",
        fields__n__aggregate_function="sum",
    )
    for _ in range(2):
        table.write([{**row, "n": 100 if row["owner"] == "bob" else 1} for row in ROWS])
    guarded = with_rules(table, Access()).copy({"lookup.cache": "full"})

    with guarded.open_lookup(["id", "n"]) as lookup:
        assert lookup.rows(ALL[1:4]).rows() == [(1, 2), (3, 2)]
