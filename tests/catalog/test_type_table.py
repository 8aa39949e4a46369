"""The page of types lists the type of each column of Arrow and Polars."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from lakecore.catalog.new_table import columns_of

PAGE = Path(__file__).parents[2] / "docs" / "types.md"
SHAPES = {
    "decimal128(p, s)": pa.decimal128(9, 2),
    "Decimal(p, s)": pl.Decimal(9, 2),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "binary(n)": pa.binary(4),
    "time64": pa.time64("us"),
    "list": pa.list_(pa.int32()),
    "fixed_size_list": pa.list_(pa.int32(), 2),
    "struct": pa.struct([("a", pa.int32())]),
    "map": pa.map_(pa.string(), pa.int32()),
    "Enum": pl.Enum(["a"]),
    "List": pl.List(pl.Int32),
    "Array": pl.Array(pl.Int32, 2),
    "Struct": pl.Struct({"a": pl.Int32}),
}
ROWS = [
    (library, name, paimon)
    for line in PAGE.read_text().splitlines()
    if len(cells := [each.strip() for each in line.strip("|").split("|")]) == 4
    for library, cell in (("pa", cells[0]), ("pl", cells[1]))
    for name in re.findall(r"`([^`]+)`", cell)
    if (paimon := cells[3])
]


@pytest.mark.parametrize(("library", "name", "paimon"), ROWS)
def test_each_type_of_the_table_becomes_what_it_says(library: str, name: str, paimon: str) -> None:
    module = {"pa": pa, "pl": pl}[library]
    called = re.fullmatch(r'(\w+)\("(\w+)"\)', name)
    kind = SHAPES.get(name)
    if kind is None:
        found = getattr(module, called[1] if called else f"{name}_" if name == "bool" else name)
        kind = found(called[2]) if called else found() if library == "pa" else found
    schema = pa.schema([("c", kind)]) if library == "pa" else {"c": kind}
    (field,) = columns_of(schema)

    wanted = paimon.replace("(p, s)", "(9, 2)").replace("(n)", "(4)")
    assert str(field.type).partition("<")[0] == wanted
