"""Which row kinds a table refuses to write, because it could not merge them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakecore.merge import spec as ordering
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import (
    MergeSpec,
    SequenceGroup,
    Slice,
    filter_rows,
    key_order,
    merge_spec,
    refused_kinds,
    take_in_pieces,
)
from lakecore.model.arrow_arrays import size_of
from tests.tables import new_table

PARTIAL, FOLDED = {"merge-engine": "partial-update"}, {"merge-engine": "aggregation"}
GROUP = {"fields.g.sequence-group": "v"}


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({}, ""),
        ({"merge-engine": "first-row"}, "-U -D"),
        ({"merge-engine": "first-row", "ignore-delete": "true"}, ""),
        (PARTIAL, "-U -D"),
        ({**PARTIAL, "ignore-delete": "true"}, ""),
        ({**PARTIAL, "partial-update.remove-record-on-delete": "true"}, ""),
        ({**PARTIAL, **GROUP}, ""),
        ({**PARTIAL, **GROUP, "fields.v.aggregate-function": "sum"}, ""),
        ({**PARTIAL, **GROUP, "fields.v.aggregate-function": "max"}, "-U -D"),
        ({**FOLDED, "fields.v.aggregate-function": "sum"}, ""),
        ({**FOLDED, "fields.v.aggregate-function": "max"}, "-U -D"),
        (
            {
                **FOLDED,
                "fields.v.aggregate-function": "max",
                "aggregation.remove-record-on-delete": "true",
            },
            "-U",
        ),
        (
            {
                **FOLDED,
                "fields.v.aggregate-function": "max",
                "fields.v.ignore-retract": "true",
            },
            "",
        ),
    ],
)
def test_kinds_that_an_engine_cannot_merge_are_refused(
    options: dict[str, Any], refused: str
) -> None:
    table = new_table({"id": "INT NOT NULL", "v": "INT", "g": "INT"}, **options)

    found = refused_kinds(table.options.merge_engine, merge_spec(table.schema, table.options))

    kinds = sorted(found.kinds) if found else []
    assert " ".join(kind.text for kind in kinds) == refused


@pytest.mark.parametrize(
    ("columns", "read"),
    [
        ("v", "v k s"),
        ("k v", "k v s"),
        ("a v", "a v k s g"),
        ("g", "g k s"),
        ("z", "z k s"),
    ],
)
def test_a_merge_of_columns_reads_those_that_decide(columns: str, read: str) -> None:
    groups = (SequenceGroup(sequence=("g",), columns=("a", "b")),)
    spec = MergeSpec(key=("k",), sequence=("s",), groups=groups)

    assert spec.columns_for(columns.split()) == tuple(read.split())
    removing = MergeSpec(
        key=("k",), groups=(SequenceGroup(sequence=("g",), columns=("a",), removes=True),)
    )
    assert "g" in removing.columns_for(columns.split())


INT64 = np.iinfo(np.int64)


def slice_of(codes: list[int]) -> Slice:
    """Rows that came in this order."""
    rows = pa.table({"id": pa.array(codes, pa.int64())})
    keys = order_columns([rows.column("id")])
    return Slice(rows=rows, keys=keys, sequence_min=0, sequence_max=len(codes), unique=False)


@pytest.mark.parametrize(
    "codes",
    [
        [3, 1, 2],
        [0, -5, 7, -5, 0],
        [1, 0],
        [INT64.max, INT64.min],
        [INT64.max, INT64.max - 3, INT64.max - 1],
        [INT64.min + 2, INT64.min],
        [0, (1 << 61), 5, 1],
        [0, (1 << 60), 5, 1],
    ],
)
def test_positions_are_in_the_order_of_keys(codes: list[int]) -> None:
    order = key_order([slice_of(codes)], np.array(codes, np.int64))

    assert order.dtype == np.int64
    assert sorted(order) == list(range(len(codes)))
    assert np.array(codes)[order].tolist() == sorted(codes)


@pytest.mark.parametrize("chunks", [[6], [2, 0, 4], [1] * 6])
@pytest.mark.parametrize("kept", [[], [4], [0, 1, 5], [0, 1, 2, 3, 4, 5]])
def test_rows_of_a_mask_stay_in_order_however_many_chunks(
    chunks: list[int], kept: list[int]
) -> None:
    whole = pa.table({"a": range(6), "b": ["x", None, "yy", "", None, "z"]})
    starts = np.cumsum([0, *chunks[:-1]]).tolist()
    rows = pa.concat_tables(
        [whole.slice(start, length) for start, length in zip(starts, chunks, strict=True)]
    )
    mask = np.isin(np.arange(6), kept)

    assert filter_rows(rows, mask).to_pylist() == [whole.to_pylist()[row] for row in kept]


@pytest.mark.parametrize("larger", [0, 1])
def test_memory_is_released_before_and_after_the_rows_of_a_write_buffer(
    larger: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[str] = []

    @dataclass(frozen=True)
    class Pool:
        name: str

        def release_unused(self) -> None:
            released.append(self.name)

    part = slice_of([1, 2, 3])
    monkeypatch.setattr(ordering, "_BUFFER_BYTES", size_of(part.rows) + larger)
    monkeypatch.setattr(pa, "default_memory_pool", lambda: Pool("default"))
    monkeypatch.setattr(pa, "system_memory_pool", lambda: Pool("system"))

    pieces = take_in_pieces([part], np.array([2, 0]))
    assert next(pieces).to_pylist() == [{"id": 3}, {"id": 1}]
    assert released == ([] if larger else ["default", "system"])
    assert list(pieces) == []
    # The same thread copies the rows of the next window, so it has done all that was asked before.
    next(take_in_pieces([part], np.array([2, 0])))
    assert released == ([] if larger else ["default", "system"] * 3)
