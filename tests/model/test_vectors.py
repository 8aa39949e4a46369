"""The type VECTOR: lists of one length without nulls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.types import parse_type, type_to_json

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.table.handle import Table

ROWS: list[dict[str, object]] = [
    {"k": 1, "v": [1.5, -2.0, 0.25]},
    {"k": 2, "v": None},
    {"k": 3, "v": [0.0, float("inf"), 3.0]},
]


def made(path: Path, column: str = "VECTOR<FLOAT, 3>", **more: object) -> Table:
    columns = {"k": "INT", "v": column}
    return lc.open_table(path / "t", create=True, schema=columns, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["VECTOR<FLOAT, 3>", "VECTOR<INT NOT NULL, 128> NOT NULL"])
def test_type_as_text_and_as_json(text: str) -> None:
    kind = parse_type(text)

    assert str(kind) == text
    assert parse_type(type_to_json(kind)) == kind
    assert kind != parse_type("ARRAY<FLOAT>")


def test_json_is_that_of_java() -> None:
    assert type_to_json(parse_type("vector<double, 2> not null")) == {
        "type": "VECTOR NOT NULL",
        "element": "DOUBLE",
        "length": 2,
    }


@pytest.mark.parametrize(
    "text", ["VECTOR<FLOAT>", "VECTOR<FLOAT, 0>", "VECTOR<STRING, 3>", "VECTOR<FLOAT, x>", "VECTOR"]
)
def test_invalid_types(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_type(text)


@pytest.mark.parametrize("kind", ["parquet", "avro"])
def test_values_are_read_as_they_were_written(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path, options={"file.format": kind})
    table.write(ROWS)
    table.write({"k": [4], "v": np.array([[1, 2, 3]], np.float32)})
    fixed = pa.array([[7.0, 8.0, 9.0], None], pa.list_(pa.float32(), 3))
    table.write(pa.table({"k": [5, 6], "v": fixed}))

    assert table.to_polars().sort("k").rows(named=True) == [
        *ROWS,
        {"k": 4, "v": [1.0, 2.0, 3.0]},
        {"k": 5, "v": [7.0, 8.0, 9.0]},
        {"k": 6, "v": None},
    ]
    table.update({"v": [3.0, 2.0, 1.0]}, "k = 2")
    assert table.to_polars(where="k = 2")["v"].to_list() == [[3.0, 2.0, 1.0]]
    table.compact(full=True)
    assert table.count("v is null") == 1


@pytest.mark.parametrize(
    ("value", "match"),
    [([1.0, 2.0], "has 3 elements"), ([], "has 3 elements"), ([1.0, None, 2.0], "is null")],
)
def test_values_of_another_length_and_null_elements_are_refused(
    tmp_path: Path, value: object, match: str
) -> None:
    table = made(tmp_path)
    with pytest.raises(InvalidRequest, match=rf"{match}.* column=v .*row=1"):
        table.write([ROWS[0], {"k": 9, "v": value}])
    table.write(ROWS)
    with pytest.raises(InvalidRequest, match=match):
        table.update({"v": value}, "k = 1")
    assert table.count() == 3


def test_tables_that_may_not_have_vectors(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="ORC"):
        made(tmp_path, options={"file.format": "orc"})
    with pytest.raises(InvalidRequest):
        made(tmp_path, primary_keys=["v"])
    with pytest.raises(InvalidRequest):
        made(tmp_path, partition_keys=["v"])
    with pytest.raises(InvalidRequest, match="vector-field names a column that is not VECTOR"):
        made(tmp_path, "ARRAY<FLOAT>", options={"vector-field": "v"})
    with pytest.raises(InvalidRequest, match="vector-dim is not the length"):
        made(tmp_path, options={"field.v.vector-dim": "5"})
    table = made(tmp_path, options={"vector-field": "v", "field.v.vector-dim": "3"})
    table.write(ROWS)
    assert table.count() == 3
    with pytest.raises(Unsupported, match=r"vector\.file\.format"):
        table.copy({"vector.file.format": "vortex"}).to_polars()


def test_type_of_a_column_stays_a_vector(tmp_path: Path) -> None:
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    session.create_table("d.t", {"k": "INT", "v": "VECTOR<FLOAT, 3>"})
    for other in ("ARRAY<FLOAT>", "VECTOR<FLOAT, 4>", "VECTOR<DOUBLE, 3>"):
        with pytest.raises((InvalidRequest, Unsupported)):
            session.alter_table("d.t", [lc.SchemaChange.update_column_type("v", other)])
    session.alter_table("d.t", [lc.SchemaChange.add_column("w", "VECTOR<INT, 2>")])
    table = session.get_table("d.t")
    table.write([{"k": 1, "v": [1, 2, 3], "w": [4, 5]}])
    assert table.to_polars()["w"].to_list() == [[4, 5]]
