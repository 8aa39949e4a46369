from __future__ import annotations

from lakecore.sql.references import nodes, selects

INNER = {"type": "SELECT_NODE", "from_table": {"type": "BASE_TABLE"}}
OUTER = {"type": "SELECT_NODE", "where_clause": {"children": [{"value": 1}, {"subquery": INNER}]}}


def test_each_node_comes_before_the_nodes_below_it() -> None:
    assert list(nodes([{"a": {"b": [{"c": 1}]}}, 2, "text", None])) == [
        {"a": {"b": [{"c": 1}]}},
        {"b": [{"c": 1}]},
        {"c": 1},
    ]
    assert list(nodes(None)) == []


def test_selects_are_found_at_any_depth() -> None:
    assert list(selects({"statements": [{"node": OUTER}]})) == [OUTER, INNER]
