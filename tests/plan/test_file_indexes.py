"""Which rows file indexes leave, for conditions that are joined and negated."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from pyroaring import BitMap

from lakecore.format.file_index.bitmap import BLOCK_BYTES, BitmapWriter
from lakecore.format.file_index.coded import value_form
from lakecore.format.file_index.range_bitmap import BsiWriter
from lakecore.model.file_indexes import BITMAP, BSI
from lakecore.model.types import parse_type
from lakecore.plan.file_indexes import ColumnIndex, rows_that_may_match
from lakecore.plan.predicate import FALSE, NULL, TRUE, And, Compare, Not, Op, Or, Predicate

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
