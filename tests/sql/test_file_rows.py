"""Rows of files: no value is rounded or cut, and no column of a file is left out."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.model.types import Field, arrow_schema, parse_type
from lakecore.sql.file_rows import FileFormat, FileRows

if TYPE_CHECKING:
    from pathlib import Path


def rows_of(
    *paths: Path, types: dict[str, str] | None = None, date_format: str | None = None
) -> list[dict[str, object]]:
    """The rows of files in Paimon's types."""
    fields = [Field(id=0, name=name, type=parse_type(kind)) for name, kind in (types or {}).items()]
    kind = paths[0].suffix[1:]
    rows = FileRows(
        paths=tuple(map(str, paths)),
        format=FileFormat(kind=kind, date_format=date_format),
        types={each.name: each.type for each in arrow_schema(fields)},
    )
    try:
        read: list[dict[str, object]]
        read = pa.Table.from_batches(rows.batches(), rows.schema).to_pylist()
        return read
    finally:
        rows.close()


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("INT", "1.5"),
        ("INT", "1e3"),
        ("BIGINT", "0x10"),
        ("DECIMAL(10, 2)", "1.255"),
        ("DATE", "2026-01-01 10:00:00"),
        ("DATE", "01/02/2026"),
        ("TIMESTAMP(3)", "2026-01-01T10:00:00.123456"),
        ("TIMESTAMP(6)", "2026-01-01T10:00:00+02:00"),
        ("FLOAT", "1e50"),
        ("ARRAY<INT>", "[1, 2.7]"),
    ],
)
def test_text_that_would_lose_something_is_refused(tmp_path: Path, kind: str, text: str) -> None:
    file = written(tmp_path / "x.csv", f'v\n\n"{text}"\n')
    with pytest.raises(lc.InvalidRequest, match="does not fit the type") as caught:
        rows_of(file, types={"v": kind})

    facts = caught.value.facts
    assert (facts["column"], facts["value"], facts["row"]) == ("v", text, 1)


@pytest.mark.parametrize(
    ("kind", "text", "shown"),
    [
        ("INT", "1.5", "1.5"),
        ("INT", "true", "true"),
        ("BIGINT", "9007199254740993.0", "9007199254740992.0"),
        ("DECIMAL(10, 2)", "1.255", "1.255"),
        ("DATE", '"2026-01-01T10:00:00"', "2026-01-01T10:00:00"),
        ("TIMESTAMP(3)", '"2026-01-01T10:00:00.123456"', "2026-01-01T10:00:00.123456"),
        ("ARRAY<INT>", "[1, 2.7]", "[1,2.7]"),
    ],
)
def test_json_value_that_would_lose_something_is_refused(
    tmp_path: Path, kind: str, text: str, shown: str
) -> None:
    file = written(tmp_path / "x.json", f'{{"v": null}}\n{{"v": {text}}}\n')
    with pytest.raises(lc.InvalidRequest, match="does not fit the type") as caught:
        rows_of(file, types={"v": kind})

    assert (caught.value.facts["value"], caught.value.facts["row"]) == (shown, 1)


def test_values_that_fit_are_read(tmp_path: Path) -> None:
    types = {"i": "INT", "d": "DECIMAL(10, 2)", "day": "DATE", "at": "TIMESTAMP(3)", "b": "BYTES"}
    types["n"] = "BIGINT"
    expected = {
        "i": 7,
        "n": -5,
        "d": Decimal("1.50"),
        "day": dt.date(2026, 1, 2),
        "at": dt.datetime(2026, 1, 2, 3, 4, 5, 120_000),
        "b": b"\x00\xff",
    }
    text = "i,n,d,day,at,b\n7,-5.0,1.5,2026-01-02,2026-01-02T03:04:05.120,00ff\n"
    assert rows_of(written(tmp_path / "x.csv", text), types=types) == [expected]
    text = '[{"i": 7, "n": -5.0, "d": 1.50, "day": "2026-01-02", "at": "2026-01-02 03:04:05.12",'
    text += ' "b": "00ff"}]'
    assert rows_of(written(tmp_path / "x.json", text), types=types) == [expected]


@pytest.mark.parametrize("kind", ["ROW<b BYTES, x INT>", "ARRAY<BYTES>", "MAP<STRING, BINARY(2)>"])
def test_bytes_within_a_nested_column_are_refused(kind: str, tmp_path: Path) -> None:
    """They would be the characters of a hexadecimal text, and numbers beside them be rounded."""
    file = written(tmp_path / "x.json", '{"v": {"b": "6162", "x": 1.5}}\n')

    with pytest.raises(lc.Unsupported, match=r"bytes within a nested column.* column=v"):
        rows_of(file, types={"v": kind})


def test_stated_date_format_decides(tmp_path: Path) -> None:
    file = written(tmp_path / "x.csv", "day\n01/02/2026\n")

    assert rows_of(file, types={"day": "DATE"}, date_format="%d/%m/%Y") == [
        {"day": dt.date(2026, 2, 1)}
    ]


def test_columns_of_csv_files_go_by_name(tmp_path: Path) -> None:
    files = written(tmp_path / "1.csv", "a,b\nx,1\n"), written(tmp_path / "2.csv", "b,a\n2,y\n")
    texts = [{"a": "x", "b": "1"}, {"a": "y", "b": "2"}]

    assert rows_of(*files) == texts
    assert rows_of(*files, types={"a": "STRING", "b": "STRING"}) == texts
    assert rows_of(*files, types={"b": "INT"}) == [{"a": "x", "b": 1}, {"a": "y", "b": 2}]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_with_other_columns_are_refused(
    tmp_path: Path, kind: str, order: tuple[int, int]
) -> None:
    frames = [pl.DataFrame({"a": [1]}), pl.DataFrame({"a": [2], "b": ["lost?"]})]
    files = [tmp_path / f"{place}.{kind}" for place in order]
    for file, place in zip(files, order, strict=True):
        (frames[place].write_csv if kind == "csv" else frames[place].write_parquet)(file)
    with pytest.raises(lc.InvalidRequest, match="do not have the same columns"):
        rows_of(*files)


def test_parquet_files_with_other_types_are_refused(tmp_path: Path) -> None:
    files = [tmp_path / f"{place}.parquet" for place in range(3)]
    for file, values in zip(files, ([1], [1.5], [2]), strict=True):
        pl.DataFrame({"a": values}).write_parquet(file)
    pl.DataFrame({"a": [2]}, schema={"a": pl.Int16}).write_parquet(files[2])
    with pytest.raises(lc.InvalidRequest, match="different types"):
        rows_of(files[0], files[1])

    assert rows_of(files[0], files[2]) == [{"a": 1}, {"a": 2}]


def test_json_values_of_several_types_become_texts_without_quotes(tmp_path: Path) -> None:
    text = '{"a": 1, "b": [1, "y"], "c": {"JSON": "x"}}\n'
    text += '{"a": "x", "b": [null], "c": {"JSON": 2}}\n{"a": {"k": 1}, "c": {"d": [["z"], [1]]}}\n'
    assert rows_of(written(tmp_path / "x.json", text)) == [
        {"a": "1", "b": ["1", "y"], "c": {"JSON": "x", "d": None}},
        {"a": "x", "b": [None], "c": {"JSON": "2", "d": None}},
        {"a": '{"k":1}', "b": None, "c": {"JSON": None, "d": [["z"], ["1"]]}},
    ]


@pytest.mark.parametrize("text", ["12345678901234567.5", "1234567890123456", "007.5"])
def test_inferred_numbers_keep_their_digits(tmp_path: Path, text: str) -> None:
    assert rows_of(written(tmp_path / "x.csv", f"a\n0.5\n{text}\n")) == [{"a": "0.5"}, {"a": text}]


def test_json_of_a_parquet_file_is_not_changed(tmp_path: Path) -> None:
    texts = ['"x"', "1.10", '{"a":  1}', "null", None]
    listed = ", ".join("(NULL)" if text is None else f"('{text}')" for text in texts)
    rows = f"SELECT v::JSON AS v, [v::JSON] AS w FROM (VALUES {listed}) AS t(v)"
    duckdb.sql(f"COPY ({rows}) TO '{tmp_path}/x.parquet'")

    assert rows_of(tmp_path / "x.parquet") == [{"v": text, "w": [text]} for text in texts]


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
@pytest.mark.parametrize("types", [{}, {"a": "INT"}])
def test_folder_of_a_file_is_no_column(tmp_path: Path, kind: str, types: dict[str, str]) -> None:
    file = tmp_path / "x=1" / f"f.{kind}"
    file.parent.mkdir()
    if kind == "parquet":
        pl.DataFrame({"a": [1]}, {"a": pl.Int32}).write_parquet(file)
    else:
        file.write_text("a\n1\n" if kind == "csv" else '{"a": 1}\n')

    assert rows_of(file, types=types) == [{"a": 1}]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"a": 1}\n\n{"a": 1.5}\n', 3),
        ('{"a": 1}\n{"a" 2}\n', 2),
        ('{"a": 1}\n{"a":\n', 2),
        ('{"a": 1}\n3\n', 2),
        ('{"a": 1}\n"x{"\n', 2),
        ('[{"a": 1},\n{"a": 2}, {"a": 1.5}]', 2),
        ('[{"a": 1},\n\n{"a": 1.5', 3),
        ('{\n "a": 1}\n{\n "b": ["}", {"c": "\\""}],\n"a": 1.5}\n', 3),
    ],
)
def test_errors_of_json_name_file_and_line(tmp_path: Path, text: str, line: int) -> None:
    good = written(tmp_path / "good.json", '{"a": 1}\n')
    bad = written(tmp_path / "bad.json", text)

    with pytest.raises(lc.InvalidRequest) as found:
        rows_of(good, bad, types={"a": "INT"})
    assert found.value.facts["files"] == [str(bad)]
    assert found.value.facts["line"] == line


def test_error_of_json_names_the_line_that_is_not_utf_8(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_bytes(b'{"a": "x"}\n{"a": "\xff"}\n')

    with pytest.raises(lc.InvalidRequest, match="not UTF-8") as found:
        rows_of(bad)
    assert found.value.facts["line"] == 2
