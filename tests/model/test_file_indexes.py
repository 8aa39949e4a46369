from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.file_indexes import indexed_columns
from lakecore.model.validation import create_schema
from lakecore.options import parse_options

if TYPE_CHECKING:
    from lakecore.model.schema import TableSchema

COLUMNS = {
    "a": "INT",
    "b": "STRING",
    "d": "DECIMAL(20, 2)",
    "e": "DECIMAL(10, 2)",
    "f": "BOOLEAN",
    "m": "MAP<STRING, INT>",
    "n": "MAP<INT, INT>",
    "t": "TIMESTAMP(9)",
    "x": "BYTES",
}


def schema(options: dict[str, str]) -> TableSchema:
    return create_schema(COLUMNS, options=options, now_ms=0)


def test_options_name_columns_types_and_settings() -> None:
    options = {
        "file-index.bloom-filter.columns": "a, m[k],m[other.key]",
        "file-index.bloom-filter.m.items": "10",
        "file-index.bloom-filter.m[k].fpp": "0.5",
        "file-index.bloom-filter.m[other.key].items": "20",
        "file-index.bitmap.columns": "b",
        "file-index.bitmap.b.version": "1",
        "file-index.bitmap.b.index-block-size": "1 kb",
    }

    found = indexed_columns(schema(options), parse_options(options))
    assert [(each.name, each.index_type, dict(each.settings)) for each in found] == [
        ("a", "bloom-filter", {"items": 1_000_000, "fpp": 0.1}),
        ("m[k]", "bloom-filter", {"items": 10, "fpp": 0.5}),
        ("m[other.key]", "bloom-filter", {"items": 20, "fpp": 0.1}),
        ("b", "bitmap", {"version": 1, "index-block-size": 1024}),
    ]
    assert str(found[1].value_type) == "INT"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"file-index.bitmap.columns": "gone"}, "column with a file index does not exist"),
        ({"file-index.bitmap.columns": "e"}, "does not take the column's type"),
        ({"file-index.bitmap.columns": "x"}, "does not take the column's type"),
        ({"file-index.bitmap.columns": "m"}, "does not take the column's type"),
        ({"file-index.bloom-filter.columns": "f"}, "does not take the column's type"),
        ({"file-index.range-bitmap.columns": "d"}, "does not take the column's type"),
        ({"file-index.range-bitmap.columns": "t"}, "does not take the column's type"),
        ({"file-index.bsi.columns": "b"}, "does not take the column's type"),
        ({"file-index.bitmap.columns": "n[1]"}, "MAP with string keys"),
        ({"file-index.bitmap.columns": "a[1]"}, "MAP with string keys"),
        ({"file-index.bitmap.a.version": "1"}, "without that index"),
        (
            {"file-index.bitmap.columns": "a", "file-index.bitmap.a.items": "1"},
            "unknown setting of a file index",
        ),
        (
            {"file-index.bitmap.columns": "a", "file-index.bitmap.a.version": "3"},
            "value is not allowed",
        ),
        (
            {"file-index.bloom-filter.columns": "a", "file-index.bloom-filter.a.fpp": "1"},
            "value is not allowed",
        ),
        (
            {
                "file-index.bloom-filter.columns": "a",
                "file-index.bloom-filter.a.items": "2000000000",
            },
            "Bloom filter is too large",
        ),
        ({"file-index.bitmap": "a"}, "file-index.TYPE.COLUMN.SETTING"),
    ],
)
def test_what_no_index_can_have_is_refused_when_the_table_is_made(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        schema(options)


def test_index_of_another_engine_is_unsupported_where_it_would_be_written() -> None:
    options = {"file-index.vector.columns": "a"}

    with pytest.raises(Unsupported, match=r"ignore-options=file-index\.vector\.columns"):
        indexed_columns(schema(options), parse_options(options))
