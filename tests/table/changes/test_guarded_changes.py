"""Changes of a table whose catalog filters its rows, if rows do not hold the filter's columns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from lakecore.rows.read_rules_json import StatedRules
from tests.guarded_tables import Access, equal, with_rules
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.table.handle import Table

OWNER = {"name": "FIELD_REF", "fieldRef": {"index": 1, "name": "owner", "type": "STRING"}}
PUBLIC = json.dumps(
    {
        "kind": "COMPOUND",
        "function": "OR",
        "children": [
            json.loads(equal("owner", "ann")),
            {"kind": "LEAF", "transform": OWNER, "function": "IS_NULL", "literals": []},
        ],
    }
)
"""Rows without an owner are public, so a column that is not held must not count as null."""
COLUMNS = {"id": "INT NOT NULL", "owner": "STRING", "n": "BIGINT"}
ROWS: list[dict[str, object]] = [
    {"id": 1, "owner": "ann", "n": 0},
    {"id": 2, "owner": "bob", "n": 0},
    {"id": 3, "owner": None, "n": 0},
]
FACES: dict[str, Callable[[Table, int], pl.DataFrame]] = {
    "changes": lambda t, after: t.changes(after).collect(),
    "stream": lambda t, after: _all(t.stream(after + 1, "latest")),
    "audit_log": lambda t, after: _all(_log(t).stream(after + 1, "latest")),
    "between": lambda t, after: t.copy({"incremental-between": f"{after},2"}).to_polars(),
}


def _log(table: Table) -> Any:
    return table.inspect.system_table("audit_log")


def _all(stream: Any) -> pl.DataFrame:
    frames: list[pl.DataFrame] = [frame.collect() for _, frame in stream]
    return pl.concat(frames)


def _seen(table: Table, face: str, after: int = 1, rule: str = PUBLIC) -> list[tuple[int, int]]:
    seen = with_rules(table, Access(StatedRules((rule,))))
    found = FACES[face](seen, after)
    return sorted(zip(found["id"], found["n"].fill_null(-1), strict=True))


@pytest.mark.parametrize("face", ["changes", "stream", "audit_log"])
def test_columns_that_an_update_did_not_write_hide_its_rows(face: str) -> None:
    options: Any = {"row_tracking__enabled": "true", "data_evolution__enabled": "true"}
    table = new_table(COLUMNS | {"id": "INT"}, keys=(), **options)
    table.write(ROWS)
    table.update({"n": 7}, "id < 3")
    table = table.copy({"query-auth.enabled": "true"})  # an update needs all rows

    assert [number for number, _ in _seen(table, face, 0)] == [1, 3]
    assert _seen(table, face) == []
    assert _seen(table, face, 1, equal("n", 7)) != []


def test_state_of_a_log_has_the_columns_that_an_update_wrote() -> None:
    options: Any = {"row_tracking__enabled": "true", "data_evolution__enabled": "true"}
    table = new_table(COLUMNS | {"id": "INT"}, keys=(), **options)
    table.write(ROWS)
    table.update({"n": 7}, "id < 3")
    seen = with_rules(table.copy({"query-auth.enabled": "true"}), Access(StatedRules((PUBLIC,))))

    assert sorted(_log(seen).to_polars().select("id", "n").rows()) == [(1, 7), (3, 0)]


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("producer", ["none", "input"])
def test_parts_of_rows_are_hidden(producer: str, face: str) -> None:
    engine: Any = {"merge_engine": "partial-update", "changelog_producer": producer}
    table = new_table(COLUMNS, **engine, query_auth__enabled="true")
    table.write(ROWS)
    table.write([{"id": 2, "owner": None, "n": 7}, {"id": 1, "owner": None, "n": 8}])

    assert _seen(table, face) == []
    assert _seen(table, face, 1, equal("id", 1)) == [(1, 8)]


@pytest.mark.parametrize("face", ["changes", "stream", "audit_log"])
@pytest.mark.parametrize("producer", ["none", "input"])
def test_deletions_that_hold_their_key_alone_are_hidden(producer: str, face: str) -> None:
    table = new_table(COLUMNS, changelog_producer=producer, query_auth__enabled="true")
    table.write(ROWS)
    deleted = [{"_row_kind": "-D", "id": each["id"], "owner": None} for each in ROWS]
    table.write([*deleted[1:], {"_row_kind": "-D", "id": 1, "owner": "ann"}])

    assert _seen(table, face) == [(1, -1)]
    assert _seen(table, face, 1, equal("id", 2)) == [(2, -1)]


@pytest.mark.parametrize("face", ["changes", "stream", "audit_log"])
def test_deletions_of_a_changelog_of_merged_rows_are_judged_by_all_columns(face: str) -> None:
    table = new_table(COLUMNS, changelog_producer="lookup", query_auth__enabled="true")
    table.write(ROWS)
    table.write([{"_row_kind": "-D", "id": each["id"], "owner": None} for each in ROWS])

    assert _seen(table, face, 2) == [(1, 0), (3, 0)]


def test_tombstones_of_a_state_are_hidden() -> None:
    table = new_table(COLUMNS, query_auth__enabled="true", write_only="true")
    table.write(ROWS)
    table.write([{"_row_kind": "-D", "id": 2, "owner": None}])
    seen = with_rules(table, Access(StatedRules((PUBLIC,))))

    assert sorted(_log(seen).to_polars()["id"].to_list()) == [1, 3]
