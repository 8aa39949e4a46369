from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakecore.cdc.events import SourceTable
from lakecore.cdc.sink_parts import in_order
from tests.cdc.sources import batch, schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.cdc.events import ChangeBatch, SourceSchema

A, B = SourceTable("s", "a"), SourceTable("s", "b")
ONE = schema({"id": "INT NOT NULL"})
TWO = schema({"id": "INT NOT NULL", "v": "STRING"})


def ordered(table: SourceTable, of: SourceSchema, *rows: tuple[int, str, int]) -> ChangeBatch:
    """Rows as (order, kind, id)."""
    more = (None,) * (len(of.fields) - 1)
    made = batch(table, of, *[(kind, key, *more) for _, kind, key in rows])
    return replace(made, order=pa.array([each[0] for each in rows], pa.int64()))


def shown(batches: Sequence[ChangeBatch]) -> list[tuple[int, int]]:
    return [
        (kind, key)
        for each in batches
        for kind, key in zip(each.kinds.to_pylist(), each.rows["id"].to_pylist(), strict=True)
    ]


@pytest.mark.parametrize(("joins", "other"), [(True, ONE), (False, ONE), (True, TWO)])
def test_rows_of_two_tables_come_in_their_order(*, joins: bool, other: SourceSchema) -> None:
    first = ordered(A, ONE, (0, "+I", 1), (2, "-D", 7), (2, "+I", 8), (5, "-D", 1))
    second = ordered(B, other, (1, "+I", 2), (3, "+I", 7), (4, "+I", 9))

    found = in_order([first, second], joins=joins)

    assert shown(found) == [(0, 1), (0, 2), (3, 7), (0, 8), (0, 7), (0, 9), (3, 1)]
    if joins and other is ONE:
        assert [str(each.table) for each in found] == ["s.a, s.b"]
    else:
        assert [each.table for each in found] == [A, B, A, B, A]


def test_batches_in_order_or_without_an_order_stay() -> None:
    sorted_ = [ordered(A, ONE, (0, "+I", 1)), ordered(B, ONE, (1, "+I", 2))]
    unstated = [batch(A, ONE, ("+I", 1)), ordered(B, ONE, (0, "+I", 2))]

    assert in_order(sorted_) == sorted_
    assert in_order(unstated) == unstated
    assert in_order([]) == []
