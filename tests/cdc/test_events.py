from __future__ import annotations

import pyarrow as pa
import pytest

from lakecore.cdc.events import ChangeBatch, SourceSchema, SourceTable, Step
from lakecore.model.types import Field, parse_type

SCHEMA = SourceSchema(
    fields=(
        Field(id=0, name="id", type=parse_type("INT NOT NULL")),
        Field(id=1, name="v", type=parse_type("STRING")),
    ),
    primary_key=("id",),
)


def test_a_batch_may_hold_nulls_in_columns_that_are_not_null() -> None:
    rows = pa.table({"id": pa.array([1, None], pa.int32()), "v": ["a", None]})

    batch = ChangeBatch(
        table=SourceTable("shop", "orders"),
        schema=SCHEMA,
        rows=rows,
        kinds=pa.array([0, 3], pa.int8()),
    )

    assert len(batch) == 2
    assert Step(position={}, batches=(batch, batch)).count == 4


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"id": pa.array([1], pa.int64()), "v": ["a"]}),
        pa.table({"v": ["a"], "id": pa.array([1], pa.int32())}),
        pa.table({"id": pa.array([1, 2], pa.int32()), "v": ["a", "b"]}),
    ],
    ids=["type", "order", "count"],
)
def test_a_batch_that_does_not_fit_its_schema_cannot_be_made(rows: pa.Table) -> None:
    with pytest.raises(AssertionError):
        ChangeBatch(
            table=SourceTable("shop", "orders"),
            schema=SCHEMA,
            rows=rows,
            kinds=pa.array([0], pa.int8()),
        )


def test_a_table_without_a_database_is_shown_by_its_name() -> None:
    assert [str(SourceTable("", "t")), str(SourceTable("d", "t"))] == ["t", "d.t"]
