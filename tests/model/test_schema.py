from __future__ import annotations

import re

import polars as pl
import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.schema import SCHEMA_VERSION, TableSchema, number_fields
from lakecore.model.types import Atomic, Field, Root, parse_type
from lakecore.model.validation import Columns, create_schema
from lakecore.options import MergeEngine


def make(columns: Columns, **how: list[str] | dict[str, str] | str) -> TableSchema:
    return create_schema(columns, now_ms=7, **how)  # type: ignore[arg-type]


def shown(schema: TableSchema) -> list[str]:
    return [f"{field.id} {field.name} {field.type}" for field in schema.fields]


def test_columns_are_numbered_depth_first_and_keys_are_not_null() -> None:
    schema = make(
        {
            "id": "BIGINT",
            "r": "ROW<x INT, y ROW<z INT>>",
            "m": "MAP<STRING, ROW<w INT>>",
            "p": "INT",
        },
        primary_keys=["p", "id"],
        partition_keys=["p"],
        options={"bucket": "2"},
        comment="orders",
    )

    assert [field.id for field in schema.fields] == [0, 1, 5, 7]
    assert str(schema.field("id").type) == "BIGINT NOT NULL"
    assert str(schema.field("p").type) == "INT NOT NULL"
    assert schema.field("r").nullable
    assert schema.highest_field_id == 7
    assert (schema.id, schema.version, schema.time_ms) == (0, SCHEMA_VERSION, 7)
    assert schema.comment == "orders"
    assert schema.trimmed_primary_keys == ("id",)
    assert [field.name for field in schema.key_fields] == ["id"]
    assert [field.name for field in schema.partition_fields] == ["p"]


def test_columns_are_numbered_from_one_if_asked_for() -> None:
    schema = make({"a": "INT", "r": "ROW<x INT>"}, options={"field-id.one-based": "true"})

    assert shown(schema) == ["1 a INT", "2 r ROW<`x` INT>"]
    assert schema.highest_field_id == 3


def test_a_schema_is_shown_with_its_keys() -> None:
    schema = create_schema(
        {"day": "DATE", "id": "INT", "v": "STRING"},
        primary_keys=["day", "id"],
        partition_keys=["day"],
        now_ms=0,
    )

    assert [re.split(r" {2,}", line.strip()) for line in str(schema).splitlines()[1:]] == [
        ["day", "DATE NOT NULL", "primary key, partition key"],
        ["id", "INT NOT NULL", "primary key"],
        ["v", "STRING"],
    ]


def test_arrow_schema_is_taken_without_its_parquet_ids() -> None:
    with_ids = pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "41"})

    schema = make(pa.schema([with_ids, pa.field("b", pa.string(), nullable=False)]))

    assert shown(schema) == ["0 a BIGINT", "1 b STRING NOT NULL"]


def test_polars_schema_is_taken_through_arrow() -> None:
    schema = make(
        pl.Schema(
            [
                ("a", pl.UInt8()),
                ("t", pl.Datetime("us", "Europe/Berlin")),
                ("c", pl.Enum(["new", "paid"])),
                ("l", pl.List(pl.Struct({"x": pl.Decimal(9, 2)}))),
            ]
        )
    )

    assert shown(schema) == [
        "0 a SMALLINT",
        "1 t TIMESTAMP(6) WITH LOCAL TIME ZONE",
        "2 c STRING",
        "3 l ARRAY<ROW<`x` DECIMAL(9, 2)>>",
    ]


def test_fields_are_taken_with_comments_and_defaults_and_new_ids() -> None:
    given = Field(id=99, name="a", type=parse_type("INT"), description="d", default_value="5")

    schema = make([given])

    assert schema.fields == (
        Field(id=0, name="a", type=parse_type("INT"), description="d", default_value="5"),
    )


def test_types_may_stand_beside_texts() -> None:
    assert shown(make({"a": Atomic(root=Root.INT), "b": "string"})) == ["0 a INT", "1 b STRING"]


def test_keys_among_the_options_become_the_keys() -> None:
    schema = make(
        {"a": "INT", "b": "INT", "p": "DATE"},
        options={"primary-key": "a, p", "partition": "p", "bucket": "1"},
    )

    assert schema.primary_keys == ("a", "p")
    assert schema.partition_keys == ("p",)
    assert schema.options == {"bucket": "1"}


def test_keys_given_twice_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"stated twice.*option=primary-key"):
        make({"a": "INT"}, primary_keys=["a"], options={"primary-key": "a"})


def test_option_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="the value of an option is a string"):
        create_schema({"a": "INT"}, options={"bucket": 2}, now_ms=0)  # type: ignore[dict-item]


def test_column_of_an_unknown_type_is_named() -> None:
    with pytest.raises(InvalidRequest, match="column=price"):
        make({"price": "MONEY"})
    with pytest.raises(Unsupported, match="column=nothing"):
        make(pa.schema([pa.field("nothing", pa.null())]))


def test_unknown_column_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match=r"column=c columns=\[a, b\]"):
        make({"a": "INT", "b": "INT"}).field("c")


def test_columns_are_found_by_name_and_id() -> None:
    schema = make({"a": "INT", "b": "STRING"})

    assert schema.by_name["b"] is schema.by_id[1]
    assert schema.names == ("a", "b")
    assert schema.arrow == pa.schema([("a", pa.int32()), ("b", pa.string())])


def test_numbering_goes_on_from_a_given_id() -> None:
    fields = (Field(id=0, name="a", type=parse_type("ARRAY<ROW<x INT, y INT>>")),)

    numbered, next_id = number_fields(fields, 10)

    assert numbered[0].id == 10
    assert next_id == 13


def test_dynamic_options_go_before_those_of_the_schema() -> None:
    schema = make({"a": "INT"}, primary_keys=["a"], options={"bucket": "2"})

    options = schema.parsed_options({"scan.snapshot-id": "3", "bucket": "4"}, table="shop.orders")

    assert (options.bucket, options.scan_snapshot_id) == (4, 3)
    assert options.merge_engine is MergeEngine.DEDUPLICATE
    assert options.table == "shop.orders"


@pytest.mark.parametrize(
    ("version", "bucket", "file_format"), [(1, 1, "orc"), (2, -1, "orc"), (3, -1, "parquet")]
)
def test_older_format_versions_have_other_defaults(
    version: int, bucket: int, file_format: str
) -> None:
    field = Field(id=0, name="a", type=parse_type("INT"))
    schema = TableSchema(id=0, fields=(field,), highest_field_id=0, version=version)

    options = schema.parsed_options()

    assert (options.bucket, options.file_format) == (bucket, file_format)
