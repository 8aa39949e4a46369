"""A hidden row that cannot be read blocks no visible one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import lakecore as lc
from lakecore.rows.read_rules_json import StatedRules
from lakecore.table.sections import windows
from tests.guarded_tables import Access, equal, with_rules
from tests.table.file_reader.test_late_casts import evolved
from tests.tables import new_table, reopened

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COLUMNS = {"id": "STRING NOT NULL", "owner": "STRING", "c": "STRING"}
ROWS = [
    {"id": "a", "owner": "ann", "c": "1"},
    {"id": "b", "owner": "bob", "c": "s3cret"},
    {"id": "c", "owner": "ann", "c": "3"},
]
ANN = StatedRules((equal("owner", "ann"),))
BOB = StatedRules((equal("owner", "bob"),))
KEY_C, KEY_B = (
    StatedRules((equal("owner", key).replace('"owner"', '"id"'),)) for key in ("c", "b")
)
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
    "ordered": (["id"], {"bucket": "1", "write-only": "true", "sequence.field": "c"}),
    "ordered partial-update": (
        ["id"],
        {
            "bucket": "1",
            "write-only": "true",
            "merge-engine": "partial-update",
            "fields.c.sequence-group": "owner",
        },
    ),
    "ordered aggregation": (
        ["id"],
        {
            "bucket": "1",
            "write-only": "true",
            "merge-engine": "aggregation",
            "sequence.field": "c",
        },
    ),
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
    assert judged.to_polars(["id", "c"]).rows() == [("a", 1)]
    # Rows that are shown must be readable.
    with pytest.raises(lc.InvalidRequest, match="cannot be read") as raised:
        other.to_polars()
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [
        {"sequence.field": "c"},
        {"merge-engine": "aggregation", "fields.c.aggregate-function": "max"},
        {"merge-engine": "partial-update", "fields.c.sequence-group": "owner"},
    ],
)
def test_hidden_string_that_cannot_be_compared_blocks_nothing(options: dict[str, Any]) -> None:
    columns = {"id": "STRING NOT NULL", "owner": "STRING", "c": "BYTES"}
    table = new_table(columns, write_only="true", **options)
    for number in (b"1", b"2"):
        for bad in (b"\xfe", b"\xff"):
            table.write(
                [
                    {"id": "a", "owner": "ann", "c": number},
                    {"id": "b", "owner": "bob", "c": bad},
                    {"id": "c", "owner": "ann", "c": b"3"},
                ]
            )
    table = evolved(table, lc.SchemaChange.update_column_type("c", "STRING"))
    with pytest.raises(lc.Unsupported, match="not valid UTF-8 cannot be compared"):
        table.to_polars()
    table = table.copy({"query-auth.enabled": "true"})

    shown = [("a", "ann", "2"), ("c", "ann", "3")]
    assert with_rules(table, Access(ANN)).to_polars().rows() == shown
    assert with_rules(table, Access(ANN)).count() == 2
    assert with_rules(table, Access(KEY_C)).to_polars().rows() == shown[1:]
    with pytest.raises(lc.InvalidRequest, match="cannot be read"):
        with_rules(table, Access(BOB)).to_polars()


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
    # A filter that reads what cannot be merged cannot be judged, and hides the key.
    two = json.loads(json.dumps(ONE).replace("[1]", "[2]").replace('"c"', '"n"'))
    two["transform"]["fieldRef"]["type"] = "TINYINT"
    judged = with_rules(table, Access(StatedRules((json.dumps(two),))))
    assert judged.to_polars().rows() == [("a", "ann", 2)]


def test_hidden_key_of_visible_parts_blocks_nothing() -> None:
    columns = {"id": "INT NOT NULL", "part": "INT NOT NULL", "owner": "STRING", "c": "STRING"}
    table = new_table(
        columns, keys=["id", "part"], write_only="true", merge_engine="partial-update"
    )
    rows = [
        {"id": one, "part": two, "owner": "ann" if one == two else "bob", "c": "1"}
        for one in (1, 2)
        for two in (1, 2)
    ]
    rows[1]["c"] = "s3cret"
    for _ in range(2):
        table.write(rows)
    table = evolved(table, lc.SchemaChange.update_column_type("c", "INT"))
    table = table.copy({"query-auth.enabled": "true"})

    assert with_rules(table, Access(ANN)).to_polars(["id", "c"]).rows() == [(1, 1), (2, 1)]


def _stream(opened: Any) -> pl.DataFrame:
    frames: list[pl.DataFrame] = [frame.collect() for _, frame in opened]
    return pl.concat(frames)


def _system(table: Any, name: str) -> Any:
    return table.inspect.system_table(name)


def _between(table: Any) -> Any:
    last = table.context.history.latest_snapshot_id()
    first = last - (2 if table.options.needs_lookup else 1)  # a write, and a compaction
    mode = {"incremental-between-scan-mode": "diff"}
    return table.copy({"incremental-between": f"{first},{last}", **mode})


DOORS: dict[str, Callable[[Any], pl.DataFrame]] = {
    "read": lambda t: t.to_polars(),
    "changes": lambda t: t.changes(0).collect(),
    "between": lambda t: _between(t).to_polars(),
    "stream": lambda t: _stream(t.stream(1, "latest")),
    "stream of a state": lambda t: _stream(t.stream(scan_mode="latest-full", until="latest")),
    "$audit_log": lambda t: _system(t, "audit_log").to_polars(),
    "$audit_log changes": lambda t: _system(_between(t), "audit_log").to_polars(),
    "$audit_log stream": lambda t: _stream(_system(t, "audit_log").stream(1, "latest")),
    "$binlog": lambda t: (
        _system(t, "binlog").to_polars().explode("id", "owner", "c", empty_as_null=False)
    ),
    "$binlog stream": lambda t: _stream(_system(t, "binlog").stream(1, "latest")).explode(
        "id", "owner", "c", empty_as_null=False
    ),
    "$ro": lambda t: _system(t, "ro").to_polars(),
    "$row_tracking": lambda t: _system(t, "row_tracking").to_polars(),
}
EVOLVING = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
KINDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "append": ([], {}),
    "evolving": ([], EVOLVING),
    "merged": (["id"], {"bucket": "1", "write-only": "true"}),
    "lookup": (["id"], {"bucket": "1", "changelog-producer": "lookup"}),
    "folded": (["id"], {"bucket": "1", "write-only": "true", "merge-engine": "partial-update"}),
    "ordered": (["id"], {"bucket": "1", "write-only": "true", "sequence.field": "c"}),
}
UNREADABLE = [{"id": name, "owner": "bob", "c": "s3cret"} for name in "bd"]
READABLE = [{"id": name, "owner": "ann", "c": "1"} for name in "ac"]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", KINDS)
def test_hidden_rows_block_no_door(kind: str, door: str, tmp_path: Path) -> None:
    keys, options = KINDS[kind]
    if door == "$row_tracking" and kind != "evolving":
        options = options | {"row-tracking.enabled": "true"}
        if keys:  # such a table has no row ids
            keys, options = [], {"row-tracking.enabled": "true"}
    session = lc.connect(str(tmp_path), create=True)
    session.create_database("d")
    columns = COLUMNS | {"id": "STRING"} if kind == "evolving" else COLUMNS
    table = session.create_table("d.t", columns, primary_keys=keys, options=options)
    table.write([UNREADABLE[0], READABLE[0]])
    if kind == "evolving":
        table.update({"owner": lc.sql_expr("owner")}, "id = 'b'")
    table.write([UNREADABLE[1], READABLE[1]] + ([UNREADABLE[0]] if keys else []))
    if door == "$ro":
        table.compact(full=True)
    changes = [lc.SchemaChange.update_column_type("c", "INT")]
    session.alter_table("d.t", [*changes, lc.SchemaChange.set_option("query-auth.enabled", "true")])
    table = session.get_table("d.t")

    # Where rows are folded, a change may not hold its owner.
    seen, other = (KEY_C, KEY_B) if kind == "folded" else (ANN, BOB)
    found = DOORS[door](with_rules(table, Access(seen)))

    assert set(found["owner"]) <= {"ann"}
    # The changes of an update of `owner` do not hold `c`.
    assert set(found["c"]) <= {1, None}
    assert 1 in set(found["c"])
    assert len(found)
    with pytest.raises(lc.InvalidRequest, match="cannot be read") as raised:
        DOORS[door](with_rules(table, Access(other)))
    assert "s3cret" not in str(raised.value)


def test_hidden_rows_of_a_fallback_branch_block_nothing(tmp_path: Path) -> None:
    session = lc.connect(str(tmp_path), create=True)
    session.create_database("d")
    session.create_table("d.t", COLUMNS, partition_keys=["id"], options={"bucket": "-1"})
    session.get_table("d.t").create_branch("old")
    session.get_table("d.t").write([*READABLE[:1], dict(UNREADABLE[0], id="a")])
    session.get_table("d.t$branch_old").write([*UNREADABLE, dict(READABLE[0], id="b")])
    change = lc.SchemaChange.update_column_type("c", "INT")
    guard = lc.SchemaChange.set_option("query-auth.enabled", "true")
    for name in ("d.t", "d.t$branch_old"):
        session.alter_table(name, [change, guard])
    table = session.get_table("d.t").copy({"scan.fallback-branch": "old"})

    assert with_rules(table, Access(ANN)).to_polars(["c"]).rows() == [(1,), (1,)]
    with pytest.raises(lc.InvalidRequest, match="cannot be read"):
        with_rules(table, Access(BOB)).to_polars()


@pytest.mark.parametrize("order", [{}, {"sequence__field": "c"}])
def test_large_hidden_rows_that_cannot_be_cast_block_nothing(order: dict[str, Any]) -> None:
    columns = COLUMNS | {"big": "STRING"}
    table = new_table(columns, bucket="1", write_only="true", **order)
    text = np.random.default_rng(1).bytes(2 << 20).hex()
    rows = [row | {"big": text} for row in ROWS]
    table.write(rows)
    table.write(rows)
    table = evolved(table, lc.SchemaChange.update_column_type("c", "INT"))
    table = reopened(table, budget_bytes=64 << 20).copy({"query-auth.enabled": "true"})

    assert with_rules(table, Access(ANN)).to_polars(["id", "c"]).rows() == [("a", 1), ("c", 3)]
    if order:
        # Only the order of `b` is unknown.
        bob = with_rules(table, Access(BOB))
        assert bob.to_polars(["id"], where="id = 'a'").is_empty()
        with pytest.raises(lc.InvalidRequest, match="cannot be read"):
            bob.to_polars(["id"])


def test_order_of_many_runs_is_judged_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "runs_at_once", lambda *_: 4)
    table = new_table(COLUMNS, bucket="1", write_only="true", sequence__field="c")
    for number in range(9):
        table.write([{"id": "b", "owner": "bob", "c": "s3cret" if number == 1 else "1"}])
    table.write([{"id": "b", "owner": "ann", "c": "0"}])
    table = evolved(table, lc.SchemaChange.update_column_type("c", "INT"))
    table = table.copy({"query-auth.enabled": "true"})

    for rules in (ANN, BOB):
        with pytest.raises(lc.InvalidRequest, match="cannot be read"):
            with_rules(table, Access(rules)).to_polars()
