"""Rows of a merge: in chunks, and which values of keys prune files."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakecore.plan.predicate.language import UNKNOWN, all_of
from lakecore.table.verbs import merge_rows
from lakecore.table.verbs.merge_rows import holding, in_chunks
from tests.conditions import from_sql
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.parametrize(
    ("rows_min", "bytes_max", "chunks"),
    [
        (0, 1 << 20, [6, 6, 2]),
        (7, 1 << 20, [8, 6]),
        (100, 1 << 20, [14]),
        (100, 16, [2, 2, 2, 2, 2, 2, 2]),
        (100, 40, [6, 6, 2]),
    ],
)
def test_chunk_has_enough_rows_or_bytes(
    rows_min: int, bytes_max: int, chunks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_rows, "_CHUNK_ROWS", 5)
    monkeypatch.setattr(merge_rows, "_CHUNK_BYTES", bytes_max)
    batches = [pa.record_batch({"n": pa.array([at, at], pa.int64())}) for at in range(7)]

    found = list(in_chunks(iter(batches), rows_min))
    assert [each.num_rows for each in found] == chunks
    assert pa.concat_tables(found)["n"].to_pylist() == [at for at in range(7) for _ in "xy"]


@pytest.mark.parametrize(
    ("kind", "values", "condition"),
    [
        ("INT", [3, None, 1, 3], "k IN (3, 1)"),
        ("INT", [3, 1, None, 2], "k BETWEEN 1 AND 3"),
        ("DECIMAL(4, 1)", [Decimal(2), Decimal(1), Decimal(3)], "k BETWEEN 1 AND 3"),
        ("DOUBLE", [3.0, 1.0], "k IN (3.0, 1.0)"),
        ("DOUBLE", [3.0, float("nan"), 2.0], None),
    ],
)
def test_few_values_are_listed_and_many_are_a_range(
    kind: str, values: Sequence[Any], condition: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_rows, "_LISTED_MAX", 2)
    schema = new_table({"k": kind}, keys=()).schema
    rows = pa.table({"k": pa.array(values, schema.arrow.field("k").type)})

    expected = UNKNOWN if condition is None else from_sql(condition, schema)
    assert holding(rows, ["k"], schema) == all_of([expected])
