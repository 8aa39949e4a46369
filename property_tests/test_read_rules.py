"""Row filters and masks of a catalog, next to a model that judges one row at a time in Python."""

from __future__ import annotations

import json
import re
import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.types import Atomic, parse_type
from lakecore.model.validation import create_schema
from lakecore.rows.casts import rule_of
from lakecore.rows.read_rules_json import StatedRules, parse_rules
from property_tests.profile import sized

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakecore.rows.read_rules import ReadRules

_TEXTS = st.text("aZéßÄ%_.\\\n\u2028", max_size=4)
_FLOATS = st.sampled_from([-0.0, 0.0, 1.5, -2.0, float("nan"), float("inf"), -float("inf")])
COMPARED = {
    "truth": ("BOOLEAN", st.booleans()),
    "tiny": ("TINYINT", st.integers(-128, 127)),
    "small": ("SMALLINT", st.integers(-3, 3)),
    "n": ("INT", st.integers(-3, 3)),
    "big": ("BIGINT", st.sampled_from([-(1 << 63), -1, 0, (1 << 63) - 1])),
    "f": ("FLOAT", _FLOATS),
    "d": ("DOUBLE", _FLOATS),
    "t": ("STRING", _TEXTS),
    "v": ("VARCHAR(9)", _TEXTS),
    "c": ("CHAR(4)", _TEXTS),
}
OTHERS = {
    "day": ("DATE", st.dates(date(1, 1, 1))),
    "at": ("TIME(3)", st.just(time(1, 2, 3))),
    "money": ("DECIMAL(6, 2)", st.sampled_from([Decimal("0.00"), Decimal("-12.34")])),
    "then": ("TIMESTAMP(6)", st.just(datetime(2024, 1, 2))),
    "local": ("TIMESTAMP_LTZ(3)", st.just(datetime(2024, 1, 2, tzinfo=UTC))),
    "bytes": ("BYTES", st.binary(max_size=3)),
    "fixed": ("BINARY(2)", st.just(b"ab")),
    "list": ("ARRAY<INT>", st.lists(st.integers(0, 3), max_size=2)),
    "map": ("MAP<STRING, INT>", st.just([("a", 1)])),
    "bag": ("MULTISET<STRING>", st.just([("a", 2)])),
    "row": ("ROW<x INT, y STRING>", st.just({"x": 1, "y": "b"})),
}
TYPES = COMPARED | OTHERS
SCHEMA = create_schema({name: kind for name, (kind, _) in TYPES.items()}, now_ms=0)
NAMES = {"a": "STRING", "b": "STRING", "s": "STRING"}


@st.composite
def _rows(draw: st.DrawFn, names: list[str]) -> pa.RecordBatch:
    """Rows of some columns with nulls: no row, or a slice of more rows."""
    count = draw(st.integers(0, 5))
    before = draw(st.integers(0, 2))
    arrays = []
    for name in names:
        value = st.one_of(st.none(), TYPES[name][1])
        values = draw(st.lists(value, min_size=count + before, max_size=count + before))
        arrays.append(pa.array(values, SCHEMA.arrow.field(name).type))
    kept = pa.schema([SCHEMA.arrow.field(name) for name in names])
    return pa.RecordBatch.from_arrays(arrays, schema=kept).slice(before)


def _ref(name: str) -> dict[str, object]:
    return {"index": 0, "name": name, "type": TYPES[name][0]}


def _leaf(name: str, test: str, literals: list[object]) -> dict[str, object]:
    transform = {"name": "FIELD_REF", "fieldRef": _ref(name)}
    return {"kind": "LEAF", "transform": transform, "function": test, "literals": literals}


def _rules(*filters: object, **masks: object) -> ReadRules:
    stated = StatedRules(
        tuple(map(json.dumps, filters)), {name: json.dumps(each) for name, each in masks.items()}
    )
    return parse_rules(stated, SCHEMA, "d.t")


def _key(value: Any) -> Any:
    """What orders as the value does in Java."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        bits = struct.unpack(">q", struct.pack(">d", value if value == value else float("nan")))[0]  # noqa: PLR0124
        return bits if bits >= 0 else bits ^ ((1 << 63) - 1)
    return value


def _like(value: str, pattern: str) -> bool:
    parts = {"%": "(?s:.*)", "_": "[^\n\r\x85\u2028\u2029]"}
    return re.fullmatch("".join(parts.get(c) or re.escape(c) for c in pattern), value) is not None


def _between(value: Any, low: Any, high: Any) -> bool:
    return low is not None and high is not None and _key(low) <= _key(value) <= _key(high)


def _outside(value: Any, low: Any, high: Any) -> bool:
    given_both = low is not None and high is not None
    return given_both and not _between(value, low, high)


MODEL: Mapping[str, tuple[int, Callable[..., bool]]] = {
    "EQUAL": (1, lambda v, x: x is not None and _key(v) == _key(x)),
    "NOT_EQUAL": (1, lambda v, x: x is not None and _key(v) != _key(x)),
    "LESS_THAN": (1, lambda v, x: x is not None and _key(v) < _key(x)),
    "LESS_OR_EQUAL": (1, lambda v, x: x is not None and _key(v) <= _key(x)),
    "GREATER_THAN": (1, lambda v, x: x is not None and _key(v) > _key(x)),
    "GREATER_OR_EQUAL": (1, lambda v, x: x is not None and _key(v) >= _key(x)),
    "BETWEEN": (2, _between),
    "NOT_BETWEEN": (2, _outside),
    "IN": (3, lambda v, *x: _key(v) in [_key(each) for each in x if each is not None]),
    "NOT_IN": (3, lambda v, *x: None not in x and _key(v) not in map(_key, x)),
    "STARTS_WITH": (1, lambda v, x: x is not None and v.startswith(x)),
    "ENDS_WITH": (1, lambda v, x: x is not None and v.endswith(x)),
    "CONTAINS": (1, lambda v, x: x is not None and x in v),
    "LIKE": (1, lambda v, x: x is not None and _like(v, x)),
}
TEXT_TESTS = ("STARTS_WITH", "ENDS_WITH", "CONTAINS", "LIKE")


@settings(max_examples=sized(300, quick=60), deadline=None)
@given(st.data())
@pytest.mark.parametrize("test", MODEL)
def test_comparisons_are_those_of_the_model(test: str, data: st.DataObject) -> None:
    names = ["t", "v", "c"] if test in TEXT_TESTS else list(COMPARED)
    name = data.draw(st.sampled_from(names))
    rows = data.draw(_rows([name]))
    count, model = MODEL[test]
    value = TYPES[name][1]
    if test == "LIKE":
        value = value.filter(lambda text: "\\" not in str(text))
    literals = data.draw(st.lists(st.one_of(st.none(), value), min_size=count, max_size=count))

    shown = _rules(_leaf(name, test, literals)).apply(rows, rows.schema)
    values = rows.column(0).to_pylist()
    wanted = [each for each in values if each is not None and model(each, *literals)]
    assert repr(shown.column(0).to_pylist()) == repr(wanted)


@pytest.mark.parametrize("name", TYPES)
@given(st.data())
@settings(max_examples=sized(100, quick=10), deadline=None)
def test_nulls_of_all_types(name: str, data: st.DataObject) -> None:
    rows = data.draw(_rows([name]))
    empty, held = rows.filter(rows.column(0).is_null()), rows.filter(rows.column(0).is_valid())

    for test, wanted in (("IS_NULL", empty), ("IS_NOT_NULL", held), ("TRUE", rows)):
        assert repr(_rules(_leaf(name, test, [])).apply(rows, rows.schema)) == repr(wanted)
    assert _rules(_leaf(name, "FALSE", [])).apply(rows, rows.schema).num_rows == 0
    masked = _rules(**{name: {"name": "NULL"}}).apply(rows, rows.schema)
    assert (masked.num_rows, masked.column(0).null_count) == (rows.num_rows, rows.num_rows)
    assert masked.column(0).type == rows.column(0).type


@given(st.data())
@settings(max_examples=sized(500, quick=80), deadline=None)
def test_groups_are_those_of_the_model(data: st.DataObject) -> None:
    rows = data.draw(_rows(["n", "t"]))
    leaf = st.one_of(
        st.tuples(st.just("n"), st.sampled_from(["EQUAL", "LESS_THAN"]), st.integers(-3, 3)),
        st.tuples(st.just("t"), st.sampled_from(["EQUAL", "CONTAINS"]), _TEXTS),
    )
    function = st.sampled_from(["AND", "OR"])
    tree = data.draw(
        st.recursive(leaf, lambda each: st.tuples(function, st.lists(each, min_size=1, max_size=3)))
    )

    def stated(part: Any) -> dict[str, object]:
        if len(part) == 2:
            children = [stated(each) for each in part[1]]
            return {"kind": "COMPOUND", "function": part[0], "children": children}
        return _leaf(part[0], part[1], [part[2]])

    def holds(part: Any, row: dict[str, Any]) -> bool:
        if len(part) == 2:
            return (all if part[0] == "AND" else any)(holds(each, row) for each in part[1])
        return row[part[0]] is not None and MODEL[part[1]][1](row[part[0]], part[2])

    shown = _rules(stated(tree)).apply(rows, rows.schema)
    assert shown.to_pylist() == [row for row in rows.to_pylist() if holds(tree, row)]


def _joined(inputs: list[Any]) -> str | None:
    return None if inputs[0] is None else inputs[0].join(x for x in inputs[1:] if x is not None)


FUNCTIONS: Mapping[str, tuple[int, Callable[[list[Any]], str | None]]] = {
    "CONCAT": (0, lambda inputs: None if None in inputs else "".join(inputs)),
    "CONCAT_WS": (2, _joined),
    "UPPER": (1, lambda inputs: None if inputs[0] is None else inputs[0].upper()),
    "LOWER": (1, lambda inputs: None if inputs[0] is None else inputs[0].lower()),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@given(st.data())
@settings(max_examples=sized(300, quick=60), deadline=None)
def test_text_functions_are_those_of_the_model(function: str, data: st.DataObject) -> None:
    rows = data.draw(_rows(["t", "v", "c"]))
    least, model = FUNCTIONS[function]
    given_one = st.one_of(st.none(), _TEXTS, st.sampled_from([_ref(x) for x in ("t", "v", "c")]))
    most = 1 if function in ("UPPER", "LOWER") else 4
    inputs = data.draw(st.lists(given_one, min_size=least, max_size=most))
    transform = {"name": function, "inputs": inputs}

    masked = _rules(t=transform).apply(rows, rows.schema).column(0).to_pylist()
    wanted = [
        model([row[str(each["name"])] if isinstance(each, dict) else each for each in inputs])
        for row in rows.to_pylist()
    ]
    assert masked == wanted


CASTS = [
    (source, target)
    for source, (kind, _) in TYPES.items()
    for target in dict.fromkeys(kind for kind, _ in TYPES.values())
    if isinstance(SCHEMA.field(source).type, Atomic) and isinstance(parse_type(target), Atomic)
    if kind != target
]


@given(st.data())
@settings(max_examples=sized(2_000, quick=150), deadline=None)
def test_casts_have_no_raw_errors_and_hide_what_they_cannot_judge(data: st.DataObject) -> None:
    name, target = data.draw(st.sampled_from(CASTS))
    rows = data.draw(_rows([name]))
    transform = {"name": "CAST", "fieldRef": _ref(name), "type": target}
    leaf = {"kind": "LEAF", "transform": transform, "function": "IS_NOT_NULL", "literals": []}
    own, wanted = SCHEMA.field(name).type, parse_type(target)
    assert isinstance(own, Atomic)
    assert isinstance(wanted, Atomic)
    try:
        rule_of(own, wanted)
    except Unsupported:
        with pytest.raises(Unsupported):
            _rules(leaf)
        return

    kept = _rules(leaf).apply(rows, rows.schema)
    alone = [_rules(leaf).apply(rows.slice(at, 1), rows.schema) for at in range(rows.num_rows)]
    assert kept.num_rows == sum(each.num_rows for each in alone)


def test_cast_of_a_mask_is_one_error() -> None:
    kind = pa.schema([SCHEMA.arrow.field("n"), SCHEMA.arrow.field("t")])
    rows = pa.RecordBatch.from_pylist([{"n": 1, "t": "x"}, {"n": 2, "t": "7"}], schema=kind)
    mask = {"name": "CAST", "fieldRef": _ref("t"), "type": "INT"}

    with pytest.raises(InvalidRequest, match="cast"):
        _rules(n=mask).apply(rows, kind)
    assert _rules(n=mask).apply(rows.slice(1), kind).column(0).to_pylist() == [7]


def test_pattern_that_cannot_be_compiled_is_refused_when_rules_are_read() -> None:
    with pytest.raises(Unsupported, match="pattern"):
        _rules(_leaf("t", "LIKE", ["_%" * 20_000]))
