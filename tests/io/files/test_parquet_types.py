from __future__ import annotations

import pyarrow as pa

from lakecore.io.files.parquet_types import physical_schema, to_physical
from lakecore.model.types import Field, parse_type


def test_rows_take_the_types_that_are_encoded() -> None:
    fields = [
        Field(id=at, name=name, type=parse_type(kind))
        for at, (name, kind) in enumerate({"t": "TIMESTAMP(3)", "z": "TIMESTAMP_LTZ(6)"}.items())
    ]
    numbers = pa.array([1_000, None, -1], pa.int64())
    given = pa.table({"t": numbers.view(pa.timestamp("ms")), "z": numbers.view(pa.timestamp("us"))})

    physical = to_physical(given, physical_schema(fields))
    assert physical.schema.types == physical_schema(fields).types
    assert [column.combine_chunks().view(pa.int64()) for column in physical.columns] == [
        numbers
    ] * 2
