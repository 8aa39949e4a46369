"""Which rows file indexes leave, for conditions that are joined and negated."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyroaring import BitMap

from lakecore.format.file_index.bitmap import BLOCK_BYTES, BitmapWriter
from lakecore.format.file_index.bloom_filter import BloomFilterWriter
from lakecore.format.file_index.coded import value_form
from lakecore.format.file_index.range_bitmap import BsiWriter, RangeBitmapWriter
from lakecore.model.file_indexes import BITMAP, BLOOM_FILTER, BSI, RANGE_BITMAP
from lakecore.model.types import arrow_type, parse_type
from lakecore.plan.file_indexes import ColumnIndex, rows_that_may_match
from lakecore.plan.predicate import (
    FALSE,
    NULL,
    TRUE,
    And,
    Compare,
    In,
    IsNotNull,
    IsNull,
    Not,
    Op,
    Or,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.plan.predicate import Predicate

ONE = pa.scalar(1, pa.int32())
A, B = (Compare(column=name, op=Op.EQ, value=ONE) for name in "ab")
UNKNOWN = Compare(column="c", op=Op.EQ, value=ONE)


def index(*values: int) -> list[ColumnIndex]:
    form = value_form(parse_type("INT"))
    assert form is not None
    writer = BitmapWriter(form, 2, BLOCK_BYTES)
    writer.add(pa.array(values, pa.int32()))
    return [ColumnIndex(BITMAP, writer.finish(), form)]


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        (And((A, B)), [0]),
        (Or((A, B)), [0, 1, 2]),
        (Not(And((A, B))), [1, 2, 3]),
        (Not(Or((A, B))), [3]),
        (And((A, UNKNOWN)), [0, 1]),
        (Or((A, UNKNOWN)), None),
        (And((A, TRUE)), [0, 1]),
        (Or((A, FALSE)), [0, 1]),
        (TRUE, None),
        (Not(TRUE), []),
        (NULL, []),
        (Not(NULL), []),
    ],
)
def test_joined_conditions_leave_the_rows_of_their_parts(
    predicate: Predicate, rows: list[int] | None
) -> None:
    found = rows_that_may_match(predicate, {"a": index(1, 1, 2, 2), "b": index(1, 2, 1, 2)})

    assert (None if found is None else sorted(found)) == rows


def test_an_index_of_a_later_version_leaves_all_rows() -> None:
    (known,) = index(2, 2)

    assert rows_that_may_match(A, {"a": [known]}) == BitMap()
    assert rows_that_may_match(A, {"a": [replace(known, index_type="later")]}) is None


@pytest.mark.parametrize(
    ("op", "rows"),
    [
        (Op.LT, [0, 1, 2]),
        (Op.LE, [0, 1, 2]),
        (Op.GT, [1, 2, 3]),
        (Op.GE, [1, 2, 3]),
        (Op.EQ, [1, 2]),
        (Op.NE, None),
    ],
)
def test_nanoseconds_are_found_in_an_index_of_microseconds(op: Op, rows: list[int] | None) -> None:
    form = value_form(parse_type("TIMESTAMP(9)"))
    assert form is not None
    writer = BsiWriter(form)
    nanos = pa.timestamp("ns")
    writer.add(pa.array([999, 1_000, 1_999, 2_000, None], nanos))
    condition = Compare("t", op, pa.scalar(1_500, nanos))

    found = rows_that_may_match(condition, {"t": [ColumnIndex(BSI, writer.finish(), form)]})
    assert (None if found is None else sorted(found)) == rows


def test_zero_is_sought_with_either_sign() -> None:
    form = value_form(parse_type("DOUBLE"))
    assert form is not None
    for held in (0.0, -0.0):
        writer = BloomFilterWriter(form, 7, 1e-6)
        writer.add(pa.array([held]))
        index = ColumnIndex(BLOOM_FILTER, writer.finish(), form)
        for sought in (0.0, -0.0):
            condition = Compare("a", Op.EQ, pa.scalar(sought))
            assert rows_that_may_match(condition, {"a": [index]}) is None


# --- one column, every index ---------------------------------------------------------------------

COLUMNS: dict[str, list[Any]] = {
    "INT": [1, None, 2, 2, -3, 5, None],
    "DOUBLE": [1.0, None, 0.0, -0.0, -2.5, 5.0, float("inf")],
    "TIMESTAMP(9)": [1_000, None, 1_001, 1_999, 2_000, -1, 5_000],
    "STRING": ["b", None, "", "a", "b", "bb", None],
}
NOT_MADE = {(BSI, "STRING"), (BSI, "DOUBLE")}
COMPARED = {
    Op.EQ: pc.equal, Op.NE: pc.not_equal, Op.LT: pc.less, Op.LE: pc.less_equal,
    Op.GT: pc.greater, Op.GE: pc.greater_equal,
}  # fmt: skip


def built(kind: str, index_type: str) -> tuple[pa.Array, ColumnIndex]:
    parsed = parse_type(kind)
    form = value_form(parsed)
    assert form is not None
    column = pa.array(COLUMNS[kind], arrow_type(parsed))
    makers: dict[str, Any] = {
        BITMAP: lambda: BitmapWriter(form, 2, BLOCK_BYTES),
        RANGE_BITMAP: lambda: RangeBitmapWriter(form, 64),
        BSI: lambda: BsiWriter(form),
        BLOOM_FILTER: lambda: BloomFilterWriter(form, 7, 1e-6),
    }
    writer = makers[index_type]()
    writer.add(column)
    return column, ColumnIndex(index_type, writer.finish(), form)


def conditions(column: pa.Array) -> Iterator[tuple[Predicate, pa.Array]]:
    """Conditions on the column, and for which rows each is true."""
    literals = [*column.drop_null(), *pa.array(OUTSIDE[column.type.id], column.type)]
    for op, literal in product(COMPARED, literals):
        yield Compare("a", op, literal), COMPARED[op](column, literal)
    for first, second in product(literals, repeat=2):
        both = pa.array([first, second], column.type)
        yield In("a", both), pc.or_(pc.equal(column, first), pc.equal(column, second))
    yield IsNull("a"), column.is_null()
    yield IsNotNull("a"), column.is_valid()


OUTSIDE: dict[int, Any] = {
    arrow_type(parse_type(kind)).id: values
    for kind, values in {
        "INT": [-9, 4, 9],
        "DOUBLE": [-9.0, 0.5, 9.0],
        "TIMESTAMP(9)": [-5_000, 1_002, 9_000],
        "STRING": ["A", "ab", "c"],
    }.items()
}


def coarse(op: Op, column: pa.Array, literal: pa.Scalar) -> pa.Array | None:
    """The rows that a comparison may select, if an index knows only microseconds."""
    micros = pc.floor_temporal(column, unit="microsecond")
    floor = pc.floor_temporal(literal, unit="microsecond")
    wider = {Op.EQ: Op.EQ, Op.LT: Op.LE, Op.LE: Op.LE, Op.GT: Op.GE, Op.GE: Op.GE}.get(op)
    return None if wider is None else COMPARED[wider](micros, floor)


def known(index_type: str, column: pa.Array, predicate: Predicate, *, negated: bool) -> bool:
    """Whether an index of exact values knows the rows of a condition."""
    match predicate:
        case Compare(op=op, value=value):
            op = op.negated if negated else op
            if index_type == BLOOM_FILTER:
                return op is Op.EQ and not pc.any(pc.equal(column, value)).as_py()
            return op in {Op.EQ, Op.NE} or index_type != BITMAP
        case In(values=values):
            is_there = pc.any(pc.is_in(values, column)).as_py()
            return index_type != BLOOM_FILTER or not (negated or is_there)
    return index_type != BLOOM_FILTER


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize(
    ("index_type", "kind"),
    [
        each
        for each in product([BITMAP, RANGE_BITMAP, BSI, BLOOM_FILTER], COLUMNS)
        if each not in NOT_MADE
    ],
)
def test_every_row_that_matches_is_left_and_no_other_if_the_index_knows(
    index_type: str, kind: str, *, negated: bool
) -> None:
    column, index = built(kind, index_type)
    for predicate, mask in conditions(column):
        true = pc.invert(mask) if negated else mask
        left = rows_that_may_match(Not(predicate) if negated else predicate, {"a": [index]})
        if index.form.exact:
            is_known = known(index_type, column, predicate, negated=negated)
            assert (left is None) is not is_known, predicate
        elif isinstance(predicate, Compare) and left is not None:
            op = predicate.op.negated if negated else predicate.op
            true = coarse(op, column, predicate.value)
            assert true is not None
        wanted = {at for at, value in enumerate(true.to_pylist()) if value}
        if left is not None and isinstance(predicate, In) and not index.form.exact:
            assert wanted <= {*left}
        elif left is not None:
            assert {*left} == wanted, predicate
