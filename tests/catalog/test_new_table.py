from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest

from lakecore.catalog.new_table import SchemaLike, columns_of
from lakecore.errors import InvalidRequest, Unsupported


def shown(schema: SchemaLike) -> list[str]:
    return [f"{field.id} {field.name} {field.type}" for field in columns_of(schema)]


COLUMNS = ["0 id BIGINT NOT NULL", "1 name STRING", "2 tags ARRAY<STRING>"]


def test_arrow_schema_keeps_nullability() -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("name", pa.string()),
            pa.field("tags", pa.list_(pa.string())),
        ]
    )

    assert shown(schema) == COLUMNS


def test_type_texts_are_paimons() -> None:
    assert shown({"id": "bigint not null", "name": "STRING", "tags": "ARRAY<STRING>"}) == COLUMNS


def test_polars_schema_has_nullable_columns() -> None:
    schema = pl.DataFrame({"id": [1], "name": ["a"], "tags": [["b"]]}).schema

    assert shown(schema) == ["0 id BIGINT", *COLUMNS[1:]]


def test_mapping_may_mix_types_of_all_kinds() -> None:
    schema: SchemaLike = {"id": "BIGINT NOT NULL", "name": pl.String, "tags": pa.list_(pa.string())}

    assert shown(schema) == COLUMNS


@pytest.mark.parametrize("schema", [pa.schema([]), {}, pl.Schema()])
def test_table_without_columns_is_refused(schema: SchemaLike) -> None:
    with pytest.raises(InvalidRequest, match="at least one column"):
        columns_of(schema)


def test_data_in_place_of_a_schema_is_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidRequest, match=r"data\.schema"):
        columns_of(pl.DataFrame({"a": [1]}))


def test_python_type_is_refused_with_its_column() -> None:
    with pytest.raises(InvalidRequest, match="column=a type=type"):
        columns_of({"a": int})


def test_type_without_a_paimon_twin_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="column=a"):
        columns_of({"a": pl.Duration})


def test_python_objects_have_no_type() -> None:
    schemas: list[SchemaLike] = [
        {"id": "INT", "o": pl.Object},
        {"id": "INT", "o": pl.Object()},
        pl.Schema({"id": pl.Int8, "o": pl.Object}),
    ]
    for schema in schemas:
        with pytest.raises(InvalidRequest, match=r"Python objects .* column=o"):
            columns_of(schema)
