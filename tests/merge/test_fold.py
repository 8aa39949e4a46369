"""Keys with a single row: left as they are, or folded if the merge asks for it."""

from __future__ import annotations

from typing import Any

import datasketches
import pyarrow as pa
import pytest
from pyroaring import BitMap, BitMap64

from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge.aggregators import AGGREGATORS, Aggregate, roaring64
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import MergeSpec, SequenceGroup, Slice
from lakecore.model.rows import SEQUENCE_NUMBER, VALUE_KIND, RowKind
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
    ("rbm64", "BYTES", roaring64.encode(BitMap64([1, 1 << 40])), {}),
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


def test_every_function_is_asked() -> None:
    assert {function for function, *_ in SINGLE} >= set(AGGREGATORS) - {"first_not_null_value"}


def test_single_rows_stay_unless_the_merge_folds_them() -> None:
    add, back = RowKind.INSERT, RowKind.UPDATE_BEFORE
    runs = window([add, back, add], [5, 7, None], "INT")

    kept = merged("aggregation", runs, spec_of("sum", "INT", folds_single=False))
    assert kept == [(add, 5), (back, 7), (add, None)]
    folded = merged("aggregation", runs, spec_of("sum", "INT", folds_single=True))
    assert folded == [(add, 5), (add, -7), (add, None)]


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
