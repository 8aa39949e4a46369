from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakecore.errors import Unsupported
from lakecore.model.validation import create_schema
from lakecore.rows.read_rules_json import StatedRules, parse_rules

if TYPE_CHECKING:
    from lakecore.model.schema import TableSchema
    from lakecore.rows.read_rules import ReadRules

TYPES = {
    "id": "INT NOT NULL",
    "big": "BIGINT",
    "d": "DOUBLE",
    "f": "FLOAT",
    "ok": "BOOLEAN",
    "v": "STRING",
    "w": "VARCHAR(10)",
    "day": "DATE",
    "tags": "ARRAY<STRING>",
}
NAN = float("nan")
ROWS = pa.RecordBatch.from_pydict(
    {
        "id": pa.array([1, 2, 3, 4], pa.int32()),
        "big": pa.array([10, None, 30, 40], pa.int64()),
        "d": pa.array([-0.0, 0.0, NAN, None], pa.float64()),
        "f": pa.array([0.1, 0.2, NAN, None], pa.float32()),
        "ok": pa.array([True, False, None, True]),
        "v": pa.array(["Straße", "a\nb", None, "%x_"]),
        "w": pa.array(["é", "z", "", None]),
        "day": pa.array([0, 1, None, 2], pa.int32()).cast(pa.date32()),
        "tags": pa.array([["a"], [], None, ["b"]], pa.list_(pa.string())),
    }
)


def schema() -> TableSchema:
    return create_schema(TYPES, now_ms=0)


def ref(name: str, kind: str = "") -> dict[str, Any]:
    return {"index": 0, "name": name, "type": kind or TYPES.get(name, "INT")}


def column(name: str, kind: str = "") -> dict[str, Any]:
    return {"name": "FIELD_REF", "fieldRef": ref(name, kind)}


def leaf(transform: dict[str, Any], test: str, *literals: object) -> dict[str, Any]:
    return {
        "kind": "LEAF",
        "transform": transform,
        "function": test,
        "literals": list(literals),
    }


def text(function: str, *inputs: object) -> dict[str, Any]:
    return {"name": function, "inputs": list(inputs)}


def parsed(*filters: object, **masks: object) -> ReadRules:
    stated = StatedRules(
        tuple(map(json.dumps, filters)), {name: json.dumps(each) for name, each in masks.items()}
    )
    return parse_rules(stated, schema(), "shop.t")


def kept(*filters: object) -> list[int]:
    """The ids of the rows that the filters keep."""
    found: list[int] = parsed(*filters).apply(ROWS, ROWS.schema).column("id").to_pylist()
    return found


@pytest.mark.parametrize(
    ("transform", "test", "literals", "ids"),
    [
        (column("id"), "EQUAL", [2], [2]),
        (column("id"), "NOT_EQUAL", [2], [1, 3, 4]),
        (column("big"), "NOT_EQUAL", [10], [3, 4]),
        (column("big"), "EQUAL", [None], []),
        (column("big"), "NOT_EQUAL", [None], []),
        (column("id"), "LESS_THAN", [2], [1]),
        (column("id"), "LESS_OR_EQUAL", [2], [1, 2]),
        (column("id"), "GREATER_THAN", [2], [3, 4]),
        (column("id"), "GREATER_OR_EQUAL", [2], [2, 3, 4]),
        (column("big"), "BETWEEN", [10, 30], [1, 3]),
        (column("big"), "NOT_BETWEEN", [11, 30], [1, 4]),
        (column("big"), "NOT_BETWEEN", [11, 35], [1, 4]),
        (column("big"), "NOT_BETWEEN", [None, 30], []),
        (column("big"), "BETWEEN", [10, None], []),
        (column("id"), "IN", [1, None, 9], [1]),
        (column("id"), "IN", [], []),
        (column("big"), "NOT_IN", [10], [3, 4]),
        (column("big"), "IN", [(1 << 63) - 1, -(1 << 63), 40], [4]),
        (column("id"), "IN", [(1 << 31) - 1, -(1 << 31), 4], [4]),
        (column("big"), "NOT_IN", [], [1, 3, 4]),
        (column("big"), "NOT_IN", [10, None], []),
        (column("big"), "IS_NULL", [], [2]),
        (column("tags"), "IS_NOT_NULL", [], [1, 2, 4]),
        (column("day"), "IS_NULL", [], [3]),
        # NaN is equal to itself and above all, and -0.0 is below 0.0, as in Java.
        (column("d"), "EQUAL", [0.0], [2]),
        (column("d"), "EQUAL", [-0.0], [1]),
        (column("d"), "LESS_THAN", [0], [1]),
        (column("d"), "GREATER_THAN", [1e308], [3]),
        (column("d"), "NOT_EQUAL", [0.0], [1, 3]),
        (column("d"), "IN", [-0.0], [1]),
        (column("f"), "EQUAL", [0.1], [1]),
        (column("f"), "GREATER_THAN", [0.1], [2, 3]),
        (column("ok"), "EQUAL", [True], [1, 4]),
        (column("ok"), "LESS_THAN", [True], [2]),
        (column("ok"), "IN", [False], [2]),
        (column("v"), "EQUAL", ["%x_"], [4]),
        (column("w"), "GREATER_THAN", ["z"], [1]),
        (column("w"), "EQUAL", [""], [3]),
        (column("v"), "STARTS_WITH", ["%"], [4]),
        (column("v"), "ENDS_WITH", ["b"], [2]),
        (column("v"), "CONTAINS", ["x"], [4]),
        (column("v"), "CONTAINS", [""], [1, 2, 4]),
        (column("v"), "STARTS_WITH", [None], []),
        (column("v"), "LIKE", ["%a%"], [1, 2]),
        (column("v"), "LIKE", ["Stra_e"], [1]),
        (column("v"), "LIKE", ["a_b"], []),
        (column("v"), "LIKE", ["a%b"], [2]),
        (column("v"), "LIKE", ["%.%"], []),
        (column("v"), "LIKE", [""], []),
        (column("w"), "LIKE", [""], [3]),
        (column("w"), "LIKE", ["_"], [1, 2]),
        (column("v"), "LIKE", [None], []),
        (text("UPPER", ref("v")), "EQUAL", ["STRASSE"], [1]),
        (text("LOWER", ref("v")), "STARTS_WITH", ["s"], [1]),
        (text("CONCAT", ref("w"), "-", ref("v")), "STARTS_WITH", ["z-"], [2]),
        (text("CONCAT", ref("w"), ref("v")), "IS_NULL", [], [3, 4]),
        (text("CONCAT_WS", "-", ref("w"), ref("v")), "EQUAL", [""], [3]),
        (text("CONCAT_WS", "-", ref("w"), ref("v"), "x"), "EQUAL", ["%x_-x"], [4]),
        (text("CONCAT_WS", ref("w"), "1", "2"), "EQUAL", ["1z2"], [2]),
        (text("CONCAT_WS", ref("w"), "1", "2"), "IS_NULL", [], [4]),
        (
            {"name": "CAST", "fieldRef": ref("id"), "type": "STRING"},
            *("IN", ["1", "4"], [1, 4]),
        ),
        ({"name": "NULL"}, "FALSE", [], []),
        ({"name": "NULL"}, "TRUE", [], [1, 2, 3, 4]),
        ({"name": "NULL"}, "IS_NULL", [], [1, 2, 3, 4]),
        ({"name": "NULL"}, "EQUAL", [True], []),
    ],
)
def test_filter_keeps_the_rows_that_java_keeps(
    transform: dict[str, Any], test: str, literals: list[object], ids: list[int]
) -> None:
    assert kept(leaf(transform, test, *literals)) == ids


def test_filters_are_combined() -> None:
    small, large = leaf(column("id"), "LESS_THAN", 3), leaf(column("id"), "GREATER_THAN", 1)
    null = leaf(column("big"), "IS_NULL")

    assert kept(small, large) == [2]
    assert kept({"kind": "COMPOUND", "function": "AND", "children": [small, large]}) == [2]
    assert kept({"kind": "COMPOUND", "function": "OR", "children": [null, small]}) == [1, 2]
    assert kept(None) == kept() == [1, 2, 3, 4]
    assert parse_rules(StatedRules(("",), {"v": ""}), schema(), "t") == parsed()


def masked(name: str, transform: dict[str, Any]) -> list[object]:
    rules = parsed(leaf(column("id"), "LESS_THAN", 4), **{name: transform})
    rows = rules.apply(ROWS, pa.schema([ROWS.schema.field(name).with_nullable(True)]))
    found: list[object] = rows.column(0).to_pylist()
    return found


def test_mask_replaces_values_and_keeps_the_type() -> None:
    assert masked("v", text("CONCAT", "*", ref("w"))) == ["*é", "*z", "*"]
    assert masked("v", column("w")) == ["é", "z", ""]
    assert masked("id", {"name": "NULL"}) == [None, None, None]
    assert masked("tags", {"name": "NULL"}) == [None, None, None]
    assert masked("v", {"name": "CAST", "fieldRef": ref("id"), "type": "STRING"}) == list("123")
    assert masked("big", {"name": "CAST", "fieldRef": ref("id"), "type": "BIGINT"}) == [1, 2, 3]


def test_masks_and_filters_see_stored_values() -> None:
    rules = parsed(
        leaf(column("v"), "EQUAL", "%x_"),
        v=text("CONCAT", "m", ref("w")),
        w=text("UPPER", ref("v")),
    )
    found = rules.apply(ROWS, pa.schema([ROWS.schema.field("w"), ROWS.schema.field("v")]))

    assert found.to_pylist() == [{"w": "%X_", "v": None}]
    assert rules.inputs(["w"]) == ("v",)
    assert rules.inputs(["id"]) == ("v",)
    assert parsed(v=column("w")).inputs(["id"]) == ()


@pytest.mark.parametrize(
    "rule",
    [
        leaf(column("id"), "ARRAY_CONTAINS", 1),
        leaf(column("id"), "NEVER_HEARD_OF", 1),
        leaf({"name": "SUBSTRING", "inputs": [ref("v"), 1]}, "EQUAL", "a"),
        leaf({"name": "TRIM", "inputs": [ref("v")]}, "EQUAL", "a"),
        leaf({}, "EQUAL", 1),
        leaf(column("gone", "INT"), "EQUAL", 1),
        leaf(column("id", "BIGINT"), "EQUAL", 1),
        leaf(column("id", "NO TYPE"), "EQUAL", 1),
        leaf({"name": "FIELD_REF", "fieldRef": {"index": 0, "name": "id"}}, "EQUAL", 1),
        leaf(column("id"), "EQUAL", 1.5),
        leaf(column("id"), "EQUAL", True),
        leaf(column("id"), "EQUAL", "1"),
        leaf(column("id"), "EQUAL", 1 << 31),
        leaf(column("id"), "EQUAL", -(1 << 31) - 1),
        leaf(column("big"), "EQUAL", 1 << 63),
        leaf(column("big"), "EQUAL", -(1 << 63) - 1),
        leaf(column("ok"), "EQUAL", 1),
        leaf(column("v"), "EQUAL", 1),
        leaf(column("v"), "LIKE", "a\\%"),
        leaf(column("day"), "EQUAL", "1970-01-01"),
        leaf(column("tags"), "EQUAL", "a"),
        leaf(column("id"), "CONTAINS", "1"),
        leaf(column("id"), "EQUAL"),
        leaf(column("id"), "EQUAL", 1, 2),
        leaf(column("id"), "BETWEEN", 1),
        leaf(column("id"), "IS_NULL", 1),
        {"kind": "LEAF", "transform": column("id"), "function": "IN"},
        {"kind": "LEAF", "transform": column("id"), "function": "IN", "literals": 1},
        {**leaf(column("id"), "EQUAL", 1), "negated": True},
        leaf({**column("id"), "of": 1}, "EQUAL", 1),
        leaf(text("UPPER", ref("id")), "EQUAL", "A"),
        leaf(text("UPPER"), "EQUAL", "A"),
        leaf(text("CONCAT_WS", ","), "EQUAL", "A"),
        leaf(text("CONCAT", 1), "EQUAL", "A"),
        leaf({"name": "CAST", "fieldRef": ref("id"), "type": "DATE"}, "IS_NULL"),
        leaf({"name": "CAST", "fieldRef": ref("tags"), "type": "STRING"}, "IS_NULL"),
        {"kind": "COMPOUND", "function": "NOT", "children": [leaf(column("id"), "TRUE")]},
        {"kind": "COMPOUND", "function": "AND", "children": []},
        {"kind": "COMPOUND", "function": "AND", "children": [{}]},
        {"kind": "OTHER"},
        {},
        [],
        1,
        "TRUE",
        {"name": "id"},
    ],
)
def test_unknown_rule_is_refused(rule: object) -> None:
    with pytest.raises(Unsupported, match="rule"):
        parsed(rule)
    with pytest.raises(Unsupported, match="rule"):
        parsed(leaf(column("id"), "TRUE"), rule)


@pytest.mark.parametrize(
    "mask",
    [
        {"name": "CAST", "fieldRef": ref("id"), "type": "STRING"},
        column("id"),
        text("UPPER", ref("v")),
        {"name": "TRIM", "inputs": [ref("v")]},
        column("gone"),
        {},
        3,
    ],
)
def test_mask_that_does_not_fit_is_refused(mask: object) -> None:
    with pytest.raises(Unsupported, match="rule"):
        parsed(big=mask)


def test_text_that_is_no_rule_is_refused() -> None:
    for broken in ("{", '{"kind":"LEAF"'):
        with pytest.raises(Unsupported, match="rule"):
            parse_rules(StatedRules((broken,)), schema(), "t")
    level = '{"kind":"COMPOUND","function":"AND","children":['
    with pytest.raises(Unsupported, match="nested too deep"):
        parse_rules(StatedRules((level * 5000 + "]}" * 5000,)), schema(), "t")
