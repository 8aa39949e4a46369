"""Which rows file indexes leave, for conditions that are joined and negated."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakecore.format.file_index.bitmap import BLOCK_BYTES, BitmapWriter
from lakecore.format.file_index.coded import value_form
from lakecore.model.file_indexes import BITMAP
from lakecore.model.types import parse_type
from lakecore.plan.file_indexes import ColumnIndex, rows_that_may_match
from lakecore.plan.predicate import And, Compare, Not, Op, Or

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
    ],
)
def test_joined_conditions_leave_the_rows_of_their_parts(
    predicate: And | Or | Not, rows: list[int] | None
) -> None:
    found = rows_that_may_match(predicate, {"a": index(1, 1, 2, 2), "b": index(1, 2, 1, 2)})

    assert (None if found is None else sorted(found)) == rows
