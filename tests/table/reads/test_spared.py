"""A hidden row that cannot be read blocks no visible one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.rows.read_rules_json import StatedRules
from tests.guarded_tables import Access, equal, with_rules
from tests.tables import new_table

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = {"id": "STRING NOT NULL", "owner": "STRING", "c": "STRING"}
ROWS = [
    {"id": "a", "owner": "ann", "c": "1"},
    {"id": "b", "owner": "bob", "c": "s3cret"},
    {"id": "c", "owner": "ann", "c": "3"},
]
ANN = StatedRules((equal("owner", "ann"),))
BOB = StatedRules((equal("owner", "bob"),))
ONE = {
    "kind": "LEAF",
    "transform": {"name": "FIELD_REF", "fieldRef": {"index": 2, "name": "c", "type": "INT"}},
    "function": "EQUAL",
    "literals": [1],
}
TABLES: dict[str, tuple[list[str], dict[str, str]]] = {
    "append": ([], {}),
    "one file": (["id"], {"bucket": "1"}),
    "merged": (["id"], {"bucket": "1", "write-only": "true"}),
    "partial-update": (
        ["id"],
        {"bucket": "1", "write-only": "true", "merge-engine": "partial-update"},
    ),
    "vectors": (["id"], {"bucket": "1", "deletion-vectors.enabled": "true"}),
}


@pytest.mark.parametrize("kind", TABLES)
def test_hidden_value_that_cannot_be_cast_blocks_nothing(kind: str, tmp_path: Path) -> None:
    keys, options = TABLES[kind]
    session = lc.connect(str(tmp_path), create=True)
    session.create_database("d")
    table = session.create_table(
        "d.t", COLUMNS, primary_keys=keys, options=options | {"query-auth.enabled": "true"}
    )
    table.write(ROWS)
    if "write-only" in options:
        table.write(ROWS)
    session.alter_table("d.t", [lc.SchemaChange.update_column_type("c", "INT")])
    table = session.get_table("d.t")
    seen, other = (with_rules(table, Access(rules)) for rules in (ANN, BOB))

    shown = [("a", 1), ("c", 3)]
    assert sorted(seen.to_polars(["id", "c"]).rows()) == shown
    assert seen.to_arrow(["c"], where="id = 'c'").column(0).to_pylist() == [3]
    assert sorted(seen.to_duckdb().project("id, c").fetchall()) == shown
    assert seen.count("c > 0") == 2
    assert seen.lookup({"id": ["a", "b"]})["c"].to_list() == [1]
    with seen.open_lookup(["c"], on=["id"]) as lookup:
        assert lookup.rows({"id": ["a", "b"]})["c"].to_list() == [1]
    # A filter that cannot be judged on a row hides it.
    judged = with_rules(table, Access(StatedRules((json.dumps(ONE),))))
    if kind == "partial-update":  # which folds values of several rows
        with pytest.raises(lc.InvalidRequest, match="cannot be read"):
            judged.to_polars()
    else:
        assert judged.to_polars(["id", "c"]).rows() == [("a", 1)]
    # Rows that are shown must be readable.
    with pytest.raises(lc.InvalidRequest, match="cannot be read") as raised:
        other.to_polars()
    assert "s3cret" not in str(raised.value)


def test_hidden_key_that_cannot_be_merged_blocks_nothing() -> None:
    columns = {"id": "STRING NOT NULL", "owner": "STRING", "n": "TINYINT"}
    table = new_table(
        columns,
        query_auth__enabled="true",
        write_only="true",
        merge_engine="aggregation",
        fields__n__aggregate_function="sum",
    )
    rows = [{"id": "a", "owner": "ann", "n": 1}, {"id": "b", "owner": "bob", "n": 100}]
    for _ in range(2):
        table.write(rows)

    assert with_rules(table, Access(ANN)).to_polars().rows() == [("a", "ann", 2)]
    with pytest.raises(lc.errors.Uncomputable):
        with_rules(table, Access(BOB)).to_polars()
