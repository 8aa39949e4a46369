"""Keys with a single row: left as they are, or folded if the merge asks for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import datasketches
import pyarrow as pa
import pytest
from pyroaring import BitMap, BitMap64

from lakecore.errors import InvalidRequest, Uncomputable
from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge.aggregators import AGGREGATORS, Aggregate, sketches
from lakecore.merge.fold import stored
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import MergeSpec, SequenceGroup, Slice
from lakecore.model.rows import LAYER, SEQUENCE_NUMBER, VALUE_KIND, RowKind
from lakecore.model.types import arrow_type, parse_type
from tests.merge.aggregators.histories import ROWS, fold, rows

HLL = datasketches.hll_sketch(12)
HLL.update(7)
THETA = datasketches.update_theta_sketch()
THETA.update(7)
TIMED = "MAP<STRING, ROW<v INT, t STRING>>"
SINGLE: list[tuple[str, str, Any, dict[str, Any]]] = [
    ("sum", "INT", 5, {}),
    ("sum", "DOUBLE", -0.0, {}),
    ("product", "DECIMAL(5, 2)", None, {}),
    ("product", "DOUBLE", -0.0, {}),
    ("max", "DOUBLE", -0.0, {}),
    ("min", "STRING", "", {}),
    ("bool_and", "BOOLEAN", False, {}),
    ("bool_and", "BOOLEAN", None, {}),
    ("bool_or", "BOOLEAN", None, {}),
    ("last_value", "INT", None, {}),
    ("last_non_null_value", "INT", 1, {}),
    ("first_value", "INT", 1, {}),
    ("first_non_null_value", "INT", 1, {}),
    ("listagg", "STRING", " ", {}),
    ("collect", "ARRAY<INT>", [1, 1, None], {}),
    ("collect", "ARRAY<INT>", [1, 1, None], {"distinct": True}),
    ("merge_map", "MAP<INT, INT>", [(2, 1), (1, None)], {}),
    ("merge_map_with_keytime", TIMED, [("b", {"v": 1, "t": "2"}), ("a", None)], {}),
    ("nested_update", ROWS, rows((1, 1, "a"), None, (1, 2, "b")), {"nested_key": ("k",)}),
    ("nested_partial_update", ROWS, rows((1, 1, "a"), (1, 2, None)), {"nested_key": ("k",)}),
    ("rbm32", "BYTES", BitMap([1, 70_000]).serialize(), {}),
    ("rbm64", "BYTES", sketches.encode(BitMap64([1, 1 << 40])), {}),
    ("hll_sketch", "BYTES", HLL.serialize_compact(), {}),
    ("theta_sketch", "BYTES", THETA.compact().serialize(), {}),
]


def window(kinds: list[RowKind], values: list[Any], kind: str = "STRING") -> list[Slice]:
    """One run with a key for each value."""
    keys = pa.array(range(len(values)), pa.int64())
    table = pa.table(
        {
            "k": keys,
            "v": pa.array(values, arrow_type(parse_type(kind))),
            SEQUENCE_NUMBER: pa.array(range(len(values)), pa.int64()),
            VALUE_KIND: pa.array(kinds, pa.int8()),
        }
    )
    last = len(values) - 1
    return [Slice(rows=table, keys=order_columns([keys]), sequence_min=0, sequence_max=last)]


def spec_of(function: str, kind: str, *, folds_single: bool, **options: Any) -> MergeSpec:
    aggregate = Aggregate(column="v", function=function, type=parse_type(kind), **options)
    return MergeSpec(
        key=("k",),
        primary_key=("k",),
        aggregates=(aggregate,),
        keep_deletions=True,
        in_key_order=True,
        complete_levels=True,
        folds_single=folds_single,
    )


def merged(engine: str, runs: list[Slice], spec: MergeSpec) -> list[tuple[int, Any]]:
    """The kind and the value of each row."""
    table = pa.concat_tables(MERGE_FUNCTIONS[engine](runs, spec))
    assert table.column("k").to_pylist() == list(range(table.num_rows))
    return list(
        zip(table.column(VALUE_KIND).to_pylist(), table.column("v").to_pylist(), strict=True)
    )


@pytest.mark.parametrize(("function", "kind", "value", "options"), SINGLE)
def test_function_says_whether_it_changes_a_single_value(
    function: str, kind: str, value: Any, options: dict[str, Any]
) -> None:
    aggregate = Aggregate(column="v", function=function, type=parse_type(kind), **options)
    changes = AGGREGATORS[function](aggregate).changes_single

    assert (repr(fold(function, kind, [value], **options)) != repr([value])) is changes


def test_functions_say_whether_the_order_of_values_matters() -> None:
    orderless = {
        function
        for function, kind, _, options in SINGLE
        if AGGREGATORS[function](
            Aggregate(column="v", function=function, type=parse_type(kind), **options)
        ).commutes
    }

    assert orderless == {
        *("bool_and", "bool_or", "max", "min", "product", "sum"),
        *("hll_sketch", "rbm32", "rbm64", "theta_sketch"),
    }


@pytest.mark.parametrize(
    ("function", "kind", "steps"),
    [
        ("sum", "INT", True),
        ("sum", "BIGINT", True),
        ("sum", "FLOAT", True),
        ("sum", "DOUBLE", True),
        ("sum", "DECIMAL(5, 2)", False),
        ("listagg", "STRING", False),
    ],
)
def test_sums_of_numbers_are_added_run_by_run(function: str, kind: str, *, steps: bool) -> None:
    aggregate = Aggregate(column="v", function=function, type=parse_type(kind))

    assert (AGGREGATORS[function](aggregate).step is not None) is steps


def test_every_function_is_asked() -> None:
    assert {function for function, *_ in SINGLE} >= set(AGGREGATORS) - {"first_not_null_value"}


def test_single_rows_stay_unless_the_merge_folds_them() -> None:
    add, back = RowKind.INSERT, RowKind.UPDATE_BEFORE
    runs = window([add, back, add], [5, 7, None], "INT")

    kept = merged("aggregation", runs, spec_of("sum", "INT", folds_single=False))
    assert kept == [(add, 5), (back, 7), (add, None)]
    folded = merged("aggregation", runs, spec_of("sum", "INT", folds_single=True))
    assert folded == [(add, 5), (add, -7), (add, None)]


def test_removal_stays_if_older_rows_may_follow() -> None:
    kinds = [RowKind.INSERT, RowKind.DELETE, RowKind.UPDATE_AFTER]
    runs = [
        replace(window([kind], [value])[0], sequence_min=at, sequence_max=at)
        for at, (kind, value) in enumerate(zip(kinds, ["a", "b", "c"], strict=True))
    ]
    spec = MergeSpec(
        key=("k",),
        primary_key=("k",),
        remove_on_delete=True,
        keep_deletions=True,
        in_key_order=True,
        lacks_older=True,
    )
    rows = pa.concat_tables(MERGE_FUNCTIONS["partial-update"](runs, spec))

    found = zip(rows.column(VALUE_KIND).to_pylist(), rows.column("v").to_pylist(), strict=True)
    assert list(found) == [(RowKind.DELETE, "b"), (RowKind.UPDATE_AFTER, "c")]


def test_single_rows_without_a_kind_stay() -> None:
    (part,) = window([RowKind.INSERT] * 2, [5, 7], "INT")
    part = replace(part, rows=part.rows.drop_columns([VALUE_KIND]))
    spec = spec_of("sum", "INT", folds_single=True)

    assert pa.concat_tables(MERGE_FUNCTIONS["aggregation"]([part], spec)).equals(part.rows)


def test_single_row_that_adds_is_folded_if_a_function_may_change_it() -> None:
    runs = window([RowKind.UPDATE_AFTER, RowKind.INSERT], [" ", "a"])

    kept = merged("aggregation", runs, spec_of("listagg", "STRING", folds_single=False))
    assert kept == [(RowKind.UPDATE_AFTER, " "), (RowKind.INSERT, "a")]
    folded = merged("aggregation", runs, spec_of("listagg", "STRING", folds_single=True))
    assert folded == [(RowKind.INSERT, None), (RowKind.INSERT, "a")]


def test_single_row_without_a_sequence_gives_nothing_to_its_group() -> None:
    runs = window([RowKind.INSERT, RowKind.DELETE], ["a", "b"])
    (part,) = runs
    table = part.rows.append_column("s", pa.array([None, 1], pa.int32()))
    runs = [Slice(rows=table, keys=part.keys, sequence_min=0, sequence_max=1)]
    spec = MergeSpec(
        key=("k",),
        primary_key=("k",),
        groups=(SequenceGroup(sequence=("s",), columns=("v",)),),
        keep_deletions=True,
        in_key_order=True,
        complete_levels=True,
        folds_single=True,
    )

    found = merged("partial-update", runs, spec)
    assert found[0] == (RowKind.INSERT, None)
    assert found[1][0] in (RowKind.UPDATE_BEFORE, RowKind.DELETE)


ADD, BACK = RowKind.INSERT, RowKind.UPDATE_BEFORE
KEYED = {"nested_key": ("k",)}
ONE, TWO = rows((1, 1, "a")), rows((2, 1, "b"))
APART: list[tuple[str, str, dict[str, Any], list[tuple[RowKind, Any]], int]] = [
    ("sum", "INT", {}, [(BACK, 1), (ADD, 2), (BACK, 3)], 1),
    ("product", "INT", {}, [(ADD, 2), (ADD, 3), (BACK, 3), (BACK, None), (ADD, 5)], 3),
    ("last_value", "INT", {}, [(ADD, 1), (BACK, 1)], 1),
    ("last_non_null_value", "INT", {}, [(BACK, 1), (ADD, 2)], 1),
    ("last_non_null_value", "INT", {}, [(BACK, 1), (ADD, None)], 2),
    ("last_non_null_value", "INT", {}, [(ADD, 1), (ADD, 2), (BACK, 2), (BACK, 1)], 3),
    ("first_value", "INT", {"ignore_retract": True}, [(BACK, 1), (ADD, 2), (BACK, 2)], 1),
    ("collect", "ARRAY<INT>", {}, [(BACK, [1]), (ADD, [2])], 2),
    ("collect", "ARRAY<INT>", {}, [(ADD, [1]), (ADD, [2]), (BACK, None)], 1),
    ("collect", "ARRAY<INT>", {"ignore_retract": True}, [(BACK, [1]), (ADD, [2])], 1),
    ("merge_map", "MAP<INT, INT>", {}, [(ADD, [(1, 1)]), (BACK, [(1, 1)])], 2),
    ("nested_update", ROWS, KEYED, [(ADD, ONE), (ADD, TWO), (BACK, ONE)], 2),
    ("nested_update", ROWS, KEYED | {"count_limit": 2}, [(ADD, ONE), (ADD, TWO)], 1),
    ("nested_update", ROWS, KEYED | {"count_limit": 1}, [(ADD, ONE), (ADD, TWO)], 2),
    ("merge_map_with_keytime", TIMED, {}, [(ADD, []), (ADD, [("a", None)]), (ADD, [])], 3),
    ("listagg", "STRING", {"distinct": True}, [(ADD, "a"), (ADD, "b")], 1),
    ("listagg", "STRING", {"distinct": True, "delimiter": "||"}, [(ADD, "a"), (ADD, "b")], 2),
]
"""A function, rows of a key, and how many rows a merge without the older rows makes of them."""


def one_key(given: list[tuple[RowKind, Any]], kind: str) -> list[Slice]:
    """One run with all rows for one key."""
    (part,) = window([kind for kind, _ in given], [value for _, value in given], kind)
    keys = pa.array([0] * len(given), pa.int64())
    table = part.rows.set_column(0, "k", keys)
    return [replace(part, rows=table, keys=order_columns([keys]), unique=False)]


@pytest.mark.parametrize(("function", "kind", "options", "given", "count"), APART)
def test_rows_stay_apart_if_their_fold_would_not_stand_for_them(
    function: str,
    kind: str,
    options: dict[str, Any],
    given: list[tuple[RowKind, Any]],
    count: int,
) -> None:
    spec = spec_of(function, kind, folds_single=False, **options)
    engine, runs = MERGE_FUNCTIONS["aggregation"], one_key(given, kind)

    whole = pa.concat_tables(engine(runs, spec))
    assert whole.num_rows == 1
    assert LAYER not in whole.schema.names
    parts = pa.concat_tables(engine(runs, replace(spec, lacks_older=True)))
    assert parts.num_rows == count
    if count == 1:
        assert LAYER not in parts.schema.names
        return
    assert parts.column(LAYER).to_pylist() == list(range(count))
    again = replace(runs[0], rows=parts.drop_columns([LAYER]), keys=runs[0].keys.slice(0, count))
    assert pa.concat_tables(engine([again], spec)).equals(whole)


def test_removal_makes_older_rows_superfluous_and_stays_apart_from_newer_ones() -> None:
    delete = RowKind.DELETE
    spec = spec_of("sum", "INT", folds_single=False)
    spec = replace(spec, remove_on_delete=True, lacks_older=True)
    engine = MERGE_FUNCTIONS["aggregation"]

    (last,) = engine(one_key([(ADD, 1), (delete, 2)], "INT"), spec)
    assert last.select(["v", VALUE_KIND]).to_pylist() == [{"v": 2, VALUE_KIND: delete}]
    (newer,) = engine(one_key([(ADD, 1), (delete, 2), (ADD, 3), (ADD, 4)], "INT"), spec)
    assert newer.select(["v", VALUE_KIND, LAYER]).to_pylist() == [
        {"v": 2, VALUE_KIND: delete, LAYER: 0},
        {"v": 7, VALUE_KIND: ADD, LAYER: 1},
    ]


def test_folded_row_of_a_table_with_sequence_field_ends_with_an_addition() -> None:
    spec = spec_of("last_value", "INT", folds_single=False)
    spec = replace(spec, sequence=("v",), lacks_older=True)
    engine = MERGE_FUNCTIONS["aggregation"]

    (pair,) = engine(one_key([(BACK, 1), (ADD, 2)], "INT"), spec)
    assert pair.column("v").to_pylist() == [2]
    (ends,) = engine(one_key([(ADD, 1), (ADD, 2), (BACK, 3), (BACK, 4)], "INT"), spec)
    assert ends.column("v").to_pylist() == [2, 3, 4]


@pytest.mark.parametrize("bad", range(7))
def test_error_names_the_key_that_fails(bad: int) -> None:
    values = [1] * 14
    values[2 * bad] = 2**31 - 1
    (part,) = window([ADD] * 14, values, "INT")
    keys = pa.array([row // 2 for row in range(14)], pa.int64())
    runs = [
        replace(
            part, rows=part.rows.set_column(0, "k", keys), keys=order_columns([keys]), unique=False
        )
    ]

    with pytest.raises(Uncomputable) as refusal:
        merged("aggregation", runs, spec_of("sum", "INT", folds_single=False))
    assert refusal.value.facts["key"] == {"k": bad}


def test_error_of_stored_rows_names_the_table_that_was_found_first() -> None:
    first = stored(Uncomputable("too large", key=1), table="t", bucket=2)

    assert first.message.startswith("too large. other keys can be written")
    assert first.facts == {"table": "t", "bucket": 2, "key": 1}
    assert stored(first, table="another") is first


def test_wrong_option_is_not_the_fault_of_a_key() -> None:
    runs = window([RowKind.INSERT], [[]], ROWS) * 2
    spec = spec_of("nested_update", ROWS, folds_single=False, nested_key=("gone",))

    with pytest.raises(InvalidRequest) as refusal:
        merged("aggregation", runs, spec)
    assert "key" not in refusal.value.facts
