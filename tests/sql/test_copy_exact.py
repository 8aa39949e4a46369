"""COPY INTO a table: no value is rounded or cut to fit its column."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pytest

import lakecore as lc
from tests.versions import DUCKDB_1

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def catalog(tmp_path: Path) -> lc.Session:
    return lc.connect(tmp_path / "warehouse", create=True)


def load(catalog: lc.Session, table: str, source: Path, kind: str, more: str = "") -> list[object]:
    """The counts of one file: rows loaded, rows read, errors."""
    copy = f"COPY INTO {table} FROM '{source}' FILE_FORMAT = (TYPE = {kind}) {more}"
    (done,) = catalog.sql(copy).fetchall()
    return list(done[2:5])


@pytest.mark.parametrize(
    ("column", "good", "bad"),
    [
        ("DECIMAL(10, 2)", ["1.550", "-.5", "7.", "15e-1", " 3 "], ["1.555", "1.5e-3", "1e9"]),
        ("DATE", ["2024-01-01", " 2024-1-2 ", "2024-01-01 00:00:00"],
         ["2024-01-01 12:00:00", "infinity", "epoch"]),
        ("TIMESTAMP(3)", ["2024-01-01 00:00:00.1230", "2024-01-01", "2024-01-01T01:02:03Z"],
         ["2024-01-01 00:00:00.1239", "2024-01-01 00:00:00+02", "infinity"]),
        ("TIMESTAMP(6)", ["2024-01-01 00:00:00.123456"], ["2024-01-01 00:00:00.1234567"]),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", ["2024-01-01 00:00:00.100+02"],
         ["2024-01-01 00:00:00.1009+02"]),
        ("TIME(3)", ["12:00", "12:00:00.123"], ["12:00:00.1239", "24:00:00"]),
        ("DOUBLE", ["nan", "-Infinity", "0.1"], ["1e400", "x"]),
        ("FLOAT", ["0.1"], ["1e39"]),
        ("VARCHAR(2)", ["ab", "é😀"], ["abc"]),
        ("BYTES", ["é"], []),
        ("BINARY(2)", ["ab", "é"], ["abc"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_text_is_never_changed_to_fit(
    catalog: lc.Session, tmp_path: Path, column: str, good: list[str], bad: list[str], kind: str
) -> None:
    catalog.sql(f"CREATE TABLE v (a {column})")
    source, texts = tmp_path / "a", [*good, *bad]
    if kind == "parquet":
        pl.DataFrame({"a": texts}, {"a": pl.String}).write_parquet(source)
    else:
        source.write_text("".join(f"{text}\n" for text in texts))

    done = load(catalog, "v", source, kind, "ON_ERROR = CONTINUE")

    assert done == [len(good), len(texts), len(bad)]
    assert catalog.get_table("default.v").count("a IS NOT NULL") == len(good)


@pytest.mark.parametrize(
    ("column", "good", "bad"),
    [
        ("DECIMAL(10, 2)", "1.25", "1.255"),
        ("DECIMAL(38, 0)", "12345678901234567890123456789012345678", "1.5"),
        ("STRING", "12345678901234567890123", "9007199254740993.1234567"),
        ("ARRAY<INT>", "[1.0, null]", "[1.5]"),
        ("MAP<STRING, DECIMAL(10, 2)>", '{"a": 1.25}', '{"a": 1.255}'),
        ("VARIANT", '{"a": 1.5}', None),
    ],
)
def test_a_number_of_json_is_never_changed_to_fit(
    catalog: lc.Session, tmp_path: Path, column: str, good: str, bad: str | None
) -> None:
    catalog.sql(f"CREATE TABLE v (a {column})")
    for name, text in (("good", good), ("bad", bad)):
        (tmp_path / name).write_text(f'{{"a": {text}}}')
    if DUCKDB_1 and "DECIMAL" in column and "<" in column:
        with pytest.raises(lc.Unsupported, match="within a JSON value as DOUBLE"):
            load(catalog, "v", tmp_path / "good", "json")
        return
    load(catalog, "v", tmp_path / "good", "json")
    if bad is not None:
        with pytest.raises(lc.InvalidRequest, match="does not fit its column"):
            load(catalog, "v", tmp_path / "bad", "json")

    assert catalog.get_table("default.v").count("a IS NOT NULL") == 1


@pytest.mark.parametrize(
    ("column", "good", "bad"),
    [
        ("DATE", datetime(2024, 1, 1), datetime(2024, 1, 1, 12)),
        ("TIMESTAMP(3)", datetime(2024, 1, 1, 0, 0, 0, 1000), datetime(2024, 1, 1, 0, 0, 0, 1001)),
        ("DECIMAL(10, 2)", Decimal("1.250"), Decimal("1.255")),
        ("DECIMAL(10, 2)", 0.1, 1.555),
        ("FLOAT", 0.5, 1e39),
        ("BOOLEAN", 1, 5),
    ],
)
def test_a_stored_value_is_never_changed_to_fit(
    catalog: lc.Session, tmp_path: Path, column: str, good: object, bad: object
) -> None:
    catalog.sql(f"CREATE TABLE v (a {column})")
    pl.DataFrame({"a": [good, bad]}).write_parquet(tmp_path / "a")

    done = load(catalog, "v", tmp_path / "a", "parquet", "ON_ERROR = CONTINUE")

    assert done == [1, 2, 1]


@pytest.mark.parametrize("more", ["ON_ERROR = CONTINUE", "ON_ERROR = SKIP_FILE"])
@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("INT", "DOUBLE"),
        ("BIGINT", "FLOAT"),
        ("DECIMAL(10, 2)", "DOUBLE"),
        ("DATE", "DATE"),
        ("DATE", "TIMESTAMP"),
        ("TIMESTAMP(3)", "DATE"),
        ("TIMESTAMP(6)", "TIMESTAMP"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMPTZ"),
        ("TIMESTAMP(9) WITH LOCAL TIME ZONE", "TIMESTAMPTZ"),
    ],
)
def test_an_infinite_stored_value_is_a_bad_row(
    catalog: lc.Session, tmp_path: Path, column: str, kind: str, more: str
) -> None:
    catalog.sql(f"CREATE TABLE v (a {column})")
    good = "'2024-01-01'" if kind in {"DATE", "TIMESTAMP", "TIMESTAMPTZ"} else "'1'"
    bad = f"({good}), ('infinity'), ('-infinity')"
    source = tmp_path / "a"
    duckdb.sql(
        f"COPY (SELECT a::{kind} AS a FROM (VALUES {bad}) AS v(a)) TO '{source}' (FORMAT parquet)"
    )

    done = load(catalog, "v", source, "parquet", more)

    assert done == [1 if "CONTINUE" in more else 0, 3, 2]


def test_a_null_in_a_column_that_is_not_null_is_a_bad_row(
    catalog: lc.Session, tmp_path: Path
) -> None:
    catalog.sql("CREATE TABLE must (a INT, b INT NOT NULL)")
    (tmp_path / "a").write_text("1,\n2,2\n")
    with pytest.raises(lc.InvalidRequest, match="b type=INT NOT NULL value=NULL"):
        load(catalog, "must", tmp_path / "a", "csv")
    done = load(catalog, "must", tmp_path / "a", "csv", "ON_ERROR = CONTINUE")

    assert done == [1, 2, 1]
    assert catalog.get_table("default.must").to_arrow().to_pylist() == [{"a": 2, "b": 2}]


@pytest.mark.parametrize(
    ("column", "text", "null"),
    [
        ("DECIMAL(10, 2)", "-1", "NULL_IF = ('-1')"),
        ("VARIANT", '"-1"', "NULL_IF = ('-1')"),
        ("ARRAY<INT>", "[1]", "NULL_IF = ('[1]')"),
        ("VARIANT", '""', "EMPTY_FIELD_AS_NULL = TRUE"),
    ],
)
def test_a_text_that_stands_for_null_is_null_in_every_type(
    catalog: lc.Session, tmp_path: Path, column: str, text: str, null: str
) -> None:
    catalog.sql(f"CREATE TABLE n (a {column})")
    (tmp_path / "a").write_text(f'{{"a": {text}}}\n')

    catalog.sql(f"COPY INTO n FROM '{tmp_path / 'a'}' FILE_FORMAT = (TYPE = JSON, {null})")

    assert catalog.sql("FROM n").fetchall() == [(None,)]


def test_files_with_a_column_under_two_types_are_not_loaded_together(
    catalog: lc.Session, tmp_path: Path
) -> None:
    catalog.sql("CREATE TABLE b (a BIGINT)")
    files = tmp_path / "files"
    files.mkdir()
    pl.DataFrame({"a": [2**53 + 1]}).write_parquet(files / "a.parquet")
    pl.DataFrame({"a": [2]}, {"a": pl.Int32}).write_parquet(files / "b.parquet")
    assert catalog.sql(f"COPY INTO b FROM '{files}' FILE_FORMAT = (TYPE = PARQUET)").fetchall()
    pl.DataFrame({"a": [1.0]}).write_parquet(files / "c.parquet")

    with pytest.raises(lc.Unsupported, match="under different types"):
        catalog.sql(f"COPY INTO b FROM '{files}' FILE_FORMAT = (TYPE = PARQUET) FORCE = TRUE")
    assert sorted(catalog.sql("FROM b").fetchall()) == [(2,), (2**53 + 1,)]
