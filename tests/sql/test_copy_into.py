"""COPY INTO a table: which files are loaded, how values are read, what happens to errors."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from typing import TYPE_CHECKING

import polars as pl
import pytest

import lakecore as lc
from tests.versions import DUCKDB_1

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Rows = list[tuple[object, ...]]


@pytest.fixture
def catalog(tmp_path: Path) -> lc.Session:
    session = lc.connect(tmp_path / "warehouse", create=True)
    session.sql("CREATE TABLE u (id INT, name STRING, age INT)")
    return session


def load(
    catalog: lc.Session, files: Mapping[str, str | bytes], place: Path, copy: str = "u FROM {}"
) -> Rows:
    """Write the files, run COPY INTO on their directory, and return its rows."""
    source = place / "files"
    source.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        data = text if isinstance(text, bytes) else text.encode()
        (source / name).write_bytes(data)
    rows: Rows = catalog.sql("COPY INTO " + copy.replace("{}", f"'{source}'")).fetchall()
    return rows


def rows_of(catalog: lc.Session, query: str = "FROM u ORDER BY ALL") -> Rows:
    rows: Rows = catalog.sql(query).fetchall()
    return rows


CSV = " FILE_FORMAT = (TYPE = CSV{})"
JSON = " FILE_FORMAT = (TYPE = JSON{})"
PARQUET = " FILE_FORMAT = (TYPE = PARQUET)"


def csv(more: str = "") -> str:
    return CSV.format(more and f", {more}")


def of_json(more: str = "") -> str:
    return JSON.format(more and f", {more}")


@pytest.mark.parametrize(
    ("text", "copy", "expected"),
    [
        ("7,ann,1\n8,bob,2\n", "u FROM {}" + csv(), [(7, "ann", 1), (8, "bob", 2)]),
        ("id,name,age\n7,ann,1\n", "u FROM {}" + csv("SKIP_HEADER = 1"), [(7, "ann", 1)]),
        ("7|ann|1\n", "u FROM {}" + csv("FIELD_DELIMITER = '|'"), [(7, "ann", 1)]),
        ("7\tann\t1\n", r"u FROM {}" + csv(r"field_delimiter = '\t'"), [(7, "ann", 1)]),
        ('7,"a,\\"n",1\n', "u FROM {}" + csv(), [(7, 'a,"n', 1)]),
        ("7,'a,n',1\n", "u FROM {}" + csv('QUOTE = "\'"'), [(7, "a,n", 1)]),
        ('7,"a""n",1\n', "u FROM {}" + csv("ESCAPE = '\"'"), [(7, 'a"n', 1)]),
        ('7,"",\n8,,\n', "u FROM {}" + csv(), [(7, "", None), (8, None, None)]),
        ('7,"",\n', "u FROM {}" + csv("EMPTY_FIELD_AS_NULL = TRUE"), [(7, None, None)]),
        ("7,NULL,\\N\n8,x,\n", "u FROM {}" + csv(r"NULL_IF = ('NULL', '\\N')"),
         [(7, None, None), (8, "x", None)]),
        ('7,"NULL",1\n', "u FROM {}" + csv("NULL_IF = 'NULL'"), [(7, None, 1)]),
        ("ann,7\n", "u (NAME, id) FROM {}" + csv(), [(7, "ann", None)]),
        ("", "u FROM {}" + csv(), []),
        (" 7 , x ,+8\n", "u FROM {}" + csv(), [(7, " x ", 8)]),
        ("7,a\n", "u (id, name) FROM {}" + csv() + " ON_ERROR = ABORT_STATEMENT", [(7, "a", None)]),
    ],
)  # fmt: skip
def test_fields_of_csv(
    catalog: lc.Session, tmp_path: Path, text: str, copy: str, expected: Rows
) -> None:
    done = load(catalog, {"a.csv": text}, tmp_path, copy)

    assert rows_of(catalog) == expected
    assert done == [("a.csv", "LOADED", len(expected), len(expected), 0, None)]


@pytest.mark.parametrize(
    ("text", "copy", "expected"),
    [
        ('{"name": "zoe", "id": 3, "x": 1}\n{"id": 4}\n', "u FROM {}" + of_json(),
         [(3, "zoe", None), (4, None, None)]),
        ('{"name": "zoe", "id": "3", "age": 9}\n', "u (NAME, id) FROM {}" + of_json(),
         [(3, "zoe", None)]),
        ('{"id": 1, "name": "-"}\n{"id": 2, "name": ""}', "u FROM {}" + of_json("NULL_IF = ('-')"),
         [(1, None, None), (2, "", None)]),
        ('{"id": 2, "name": ""}', "u FROM {}" + of_json("EMPTY_FIELD_AS_NULL = TRUE"),
         [(2, None, None)]),
        ('[\n {"id": 1,\n "name": "a"},\n{"id": 2}]', "u FROM {}" + of_json("MULTI_LINE = TRUE"),
         [(1, "a", None), (2, None, None)]),
        ('{"id": 1,\n "name": {"x": [1]}}', "u FROM {}" + of_json("MULTI_LINE = TRUE"),
         [(1, '{"x":[1]}', None)]),
        ('{"ID": 1, "name": null}\n', "u FROM {}" + of_json(), [(None, None, None)]),
    ],
)  # fmt: skip
def test_fields_of_json(
    catalog: lc.Session, tmp_path: Path, text: str, copy: str, expected: Rows
) -> None:
    done = load(catalog, {"a.json": text}, tmp_path, copy)

    assert rows_of(catalog) == expected
    assert done == [("a.json", "LOADED", len(expected), len(expected), 0, None)]


def test_columns_that_are_not_listed_have_their_default(
    catalog: lc.Session, tmp_path: Path
) -> None:
    catalog.sql("CREATE TABLE dflt (id INT, age INT DEFAULT 5, must INT NOT NULL)")
    load(catalog, {"a.csv": "1,2\n"}, tmp_path, "dflt (must, id) FROM {}" + csv())
    with pytest.raises(lc.InvalidRequest, match="must"):
        load(catalog, {"a.csv": "10\n"}, tmp_path, "dflt (id) FROM {}" + csv())

    assert rows_of(catalog, "FROM dflt") == [(2, 5, 1)]


def test_names_of_json_fields_may_hold_any_character(catalog: lc.Session, tmp_path: Path) -> None:
    names = ["a b", 'q"x', "s/l~1", "d.o", "$.c", "it's"]
    columns = ", ".join(f"`{name}` INT, `{name}n` DECIMAL(3, 1)" for name in names)
    catalog.sql(f"CREATE TABLE odd ({columns})")
    row = {name: place for place, name in enumerate(names)}
    row |= {f"{name}n": place for place, name in enumerate(names)}

    load(catalog, {"a.json": json.dumps(row)}, tmp_path, "odd FROM {}" + of_json())

    expected = [value for place in range(len(names)) for value in (place, Decimal(place))]
    assert rows_of(catalog, "FROM odd") == [tuple(expected)]


def test_decimals_of_json_keep_their_digits(catalog: lc.Session, tmp_path: Path) -> None:
    catalog.sql("CREATE TABLE d (n DECIMAL(38, 20))")
    short, long = '{"n": "0.12345678901234567891"}\n{"n": 7.250}', "12345678901234567.1234567891"
    load(catalog, {"a.json": short}, tmp_path, "d FROM {}" + of_json())
    assert rows_of(catalog, "FROM d ORDER BY n") == [
        (Decimal("0.12345678901234567891"),),
        (Decimal("7.25"),),
    ]

    files = {"a.json": f'{{"n": 1}}\n{{"n": {long}}}'}
    if DUCKDB_1:  # reads the number as DOUBLE
        with pytest.raises(lc.InvalidRequest, match="does not fit its column"):
            load(catalog, files, tmp_path / "more", "d FROM {}" + of_json())
        return
    load(catalog, files, tmp_path / "more", "d FROM {}" + of_json())
    assert rows_of(catalog, "FROM d WHERE n > 8") == [(Decimal(long),)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("ARRAY<STRING>", "[1.5, 1.2345678901234567890123]"),
        ("MAP<STRING, STRING>", '{"x": 0.12345678901234567890}'),
        ("ROW<y STRING>", '{"y": -123456789012345.67891}'),
        ("ARRAY<MAP<STRING, ROW<y STRING>>>", '[{"x": {"y": 1.234567890123456789}}]'),
    ],
)
def test_a_number_of_json_within_a_value_never_loses_digits(
    catalog: lc.Session, tmp_path: Path, kind: str, value: str
) -> None:
    catalog.sql(f"CREATE TABLE n (v {kind})")

    for name, text, form in (("a.json", f'{{"v": {value}}}', of_json()), ("a.csv", value, csv())):
        quoted = text if name == "a.json" else '"' + text.replace('"', '\\"') + '"'
        with pytest.raises(lc.InvalidRequest, match=r"does not fit its column\. column=v"):
            load(catalog, {name: quoted}, tmp_path / name, "n FROM {}" + form)


def test_numbers_of_json_that_are_exact_become_strings(catalog: lc.Session, tmp_path: Path) -> None:
    catalog.sql("CREATE TABLE n (v ARRAY<STRING>, r ROW<d DOUBLE, s STRING>)")
    texts = ["1.5", "52.12345678901234", "0.001", '"1.2345678901234567890123"', "12345678901234567"]
    values, number = ", ".join(texts), "0.50000000000000000001"
    text = f'{{"v": [{values}], "r": {{"d": {number}, "s": "x"}}}}'

    load(catalog, {"a.json": text}, tmp_path, "n FROM {}" + of_json())

    assert rows_of(catalog, "FROM n") == [
        ([each.strip('"') for each in texts], {"d": 0.5, "s": "x"})
    ]


def test_columns_of_parquet_are_matched_by_name(catalog: lc.Session, tmp_path: Path) -> None:
    source = tmp_path / "files"
    (source / "dt=1").mkdir(parents=True)
    pl.DataFrame({"NAME": ["a"], "more": [1], "id": [2**40]}).with_columns(
        id=pl.lit(3, pl.Int64)
    ).write_parquet(source / "a.parquet")
    pl.DataFrame({"id": [4.0]}).write_parquet(source / "b.parquet")
    pl.DataFrame({"id": [5]}).write_parquet(source / "dt=1" / "c.parquet")

    done = load(catalog, {}, tmp_path, "u FROM {}" + PARQUET)

    assert rows_of(catalog) == [(3, "a", None), (4, None, None)]
    assert [row[:3] for row in done] == [("a.parquet", "LOADED", 1), ("b.parquet", "LOADED", 1)]


@pytest.mark.parametrize("value", [2**40, 1.5, "x", "1.0"])
def test_a_parquet_value_is_never_changed_to_fit(
    catalog: lc.Session, tmp_path: Path, value: object
) -> None:
    source = tmp_path / "files"
    source.mkdir()
    pl.DataFrame({"id": [value]}).write_parquet(source / "a.parquet")
    with pytest.raises(lc.InvalidRequest, match="does not fit its column"):
        load(catalog, {}, tmp_path, "u FROM {}" + PARQUET)

    done = load(catalog, {}, tmp_path, "u FROM {}" + PARQUET + " ON_ERROR = CONTINUE")

    assert done[0][:5] == ("a.parquet", "LOAD_FAILED", 0, 1, 1)
    assert rows_of(catalog) == []


BAD = {"a.csv": "1,a,1\nx,b,2\n3,c\n4,d,4,4\n5,e,1.5\n6,f,3000000000\n", "b.csv": "7,g,7\n"}


def test_an_error_ends_the_statement(catalog: lc.Session, tmp_path: Path) -> None:
    for on_error in ("", " ON_ERROR = ABORT_STATEMENT"):
        with pytest.raises(lc.InvalidRequest, match="nothing was committed") as raised:
            load(catalog, BAD, tmp_path, "u FROM {}" + csv() + on_error)
        assert "a.csv" in str(raised.value) or "column=id" in str(raised.value)

    assert rows_of(catalog) == []
    assert catalog.get_table("default.u").inspect.snapshots().height == 0


def test_continue_leaves_out_bad_rows(catalog: lc.Session, tmp_path: Path) -> None:
    done = load(catalog, BAD, tmp_path, "u FROM {}" + csv() + " ON_ERROR = CONTINUE")

    assert [row[:5] for row in done] == [
        ("a.csv", "PARTIALLY_LOADED", 1, 6, 5),
        ("b.csv", "LOADED", 1, 1, 0),
    ]
    assert "malformed record" in str(done[0][5])
    assert rows_of(catalog) == [(1, "a", 1), (7, "g", 7)]
    again = load(catalog, {}, tmp_path, "u FROM {}" + csv() + " ON_ERROR = CONTINUE")
    assert {row[1] for row in again} == {"SKIPPED"}


def test_a_key_that_stands_twice_is_no_record(catalog: lc.Session, tmp_path: Path) -> None:
    lines = {"a.json": '{"id": 1, "name": "a", "age": 1}\n{"id": 2, "name": "b", "name": "c"}\n'}
    text = "u FROM {} FILE_FORMAT = (TYPE = JSON)"
    with pytest.raises(lc.InvalidRequest, match="a key stands twice"):
        load(catalog, lines, tmp_path, text)
    assert rows_of(catalog) == []

    load(catalog, lines, tmp_path, text + " ON_ERROR = CONTINUE")
    assert rows_of(catalog) == [(1, "a", 1)]


def test_skip_file_leaves_out_files_with_an_error(catalog: lc.Session, tmp_path: Path) -> None:
    done = load(catalog, BAD, tmp_path, "u FROM {}" + csv() + " ON_ERROR = SKIP_FILE")

    assert [row[:5] for row in done] == [
        ("a.csv", "LOAD_FAILED", 0, 6, 5),
        ("b.csv", "LOADED", 1, 1, 0),
    ]
    assert rows_of(catalog) == [(7, "g", 7)]
    mended = {"a.csv": "1,a,1\n"}
    again = load(catalog, mended, tmp_path, "u FROM {}" + csv() + " ON_ERROR = SKIP_FILE")
    assert [row[:2] for row in again] == [("a.csv", "LOADED"), ("b.csv", "SKIPPED")]


@pytest.mark.parametrize("multi_line", ["FALSE", "TRUE"])
def test_a_line_that_is_no_json_object_is_an_error(
    catalog: lc.Session, tmp_path: Path, multi_line: str
) -> None:
    files = {"a.json": '{"id": 1}\n{"id":\n[{"id": 2}]\n5\n{"id": "x"}\n', "b.json": '{"id": 6}'}
    copy = "u FROM {}" + of_json(f"MULTI_LINE = {multi_line}")
    with pytest.raises(lc.InvalidRequest, match="nothing was committed"):
        load(catalog, files, tmp_path, copy)
    done = load(catalog, files, tmp_path, copy + " ON_ERROR = CONTINUE")

    whole = ("a.json", "LOAD_FAILED", 0, 1, 1)
    by_line = ("a.json", "PARTIALLY_LOADED", 1, 5, 4)
    assert done[0][:5] == (whole if multi_line == "TRUE" else by_line)
    assert done[1] == ("b.json", "LOADED", 1, 1, 0, None)
    assert rows_of(catalog)[-1] == (6, None, None)


def test_a_file_that_is_no_parquet_fails_alone(catalog: lc.Session, tmp_path: Path) -> None:
    source = tmp_path / "files"
    source.mkdir()
    pl.DataFrame({"id": [1]}).write_parquet(source / "b.parquet")
    done = load(catalog, {"a.parquet": b"no"}, tmp_path, "u FROM {}" + PARQUET
                + " ON_ERROR = SKIP_FILE")  # fmt: skip

    assert [row[:5] for row in done] == [
        ("a.parquet", "LOAD_FAILED", 0, 1, 1),
        ("b.parquet", "LOADED", 1, 1, 0),
    ]


def test_files_are_loaded_once_unless_they_change(catalog: lc.Session, tmp_path: Path) -> None:
    copy = "u FROM {}" + csv()
    assert load(catalog, {"a.csv": "1,a,1\n"}, tmp_path, copy)[0][1] == "LOADED"
    assert load(catalog, {}, tmp_path, copy) == [("a.csv", "SKIPPED", 0, 0, 0, None)]
    assert load(catalog, {}, tmp_path, copy + " FORCE = FALSE")[0][1] == "SKIPPED"
    changed = load(catalog, {"a.csv": "2,bb,2\n", "b.csv": "3,c,3\n"}, tmp_path, copy)
    assert [row[:2] for row in changed] == [("a.csv", "LOADED"), ("b.csv", "LOADED")]
    forced = load(catalog, {}, tmp_path, copy + " FORCE = TRUE")

    assert [row[1] for row in forced] == ["LOADED", "LOADED"]
    assert [row[0] for row in rows_of(catalog)] == [1, 2, 2, 3, 3]


def test_the_history_is_the_one_of_paimon(catalog: lc.Session, tmp_path: Path) -> None:
    load(catalog, {"a.csv": "1,a,1\n"}, tmp_path, "u FROM {}" + csv())
    file = tmp_path / "files" / "a.csv"
    (record,) = (tmp_path / "warehouse/default.db/u/copy-into/history").iterdir()
    held = json.loads(record.read_text())

    assert record.name.startswith("load-")
    assert record.name.endswith(f"-{held['loadedAt']}")
    assert held == {
        "filePath": f"file:{file}",
        "fileSize": 6,
        "lastModified": file.stat().st_mtime_ns // 1_000_000,
        "loadedAt": held["loadedAt"],
        "snapshotId": 1,
        "rowsLoaded": 1,
    }
    table = catalog.get_table("default.u")
    table.remove_orphan_files(older_than="0 s", force=True)
    assert record.exists()


def test_a_damaged_record_loads_nothing_twice(catalog: lc.Session, tmp_path: Path) -> None:
    copy = "u FROM {}" + csv()
    load(catalog, {"a.csv": "1,a,1\n"}, tmp_path, copy)
    (record,) = (tmp_path / "warehouse/default.db/u/copy-into/history").iterdir()
    record.write_text("{")

    with pytest.raises(lc.CorruptTable, match="load record"):
        load(catalog, {}, tmp_path, copy)
    assert load(catalog, {}, tmp_path, copy + " FORCE = TRUE")[0][1] == "LOADED"


def test_a_pattern_finds_a_part_of_a_file_name(catalog: lc.Session, tmp_path: Path) -> None:
    files = dict.fromkeys(("a.csv", "b.CSV", "c.csv.bak", "_SUCCESS", ".hidden.csv"), "1,a,1\n")
    copy = "u FROM {}" + csv() + r" PATTERN = '.*\.csv'"

    assert [row[0] for row in load(catalog, files, tmp_path, copy)] == ["a.csv", "c.csv.bak"]
    assert load(catalog, {}, tmp_path, "u FROM {}" + csv() + " PATTERN = '^z'") == []


def test_names_of_files_are_no_patterns(catalog: lc.Session, tmp_path: Path) -> None:
    files = {"a[1]*?.csv": "1,a,1\n", "a1xx.csv": "2,b,2\n", "it's.csv": "3,c,3\n"}
    load(catalog, files, tmp_path, "u FROM {}" + csv() + r" PATTERN = '\[|s\.csv'")

    assert [row[0] for row in rows_of(catalog)] == [1, 3]


def test_one_file_can_be_named(catalog: lc.Session, tmp_path: Path) -> None:
    file = tmp_path / "one.csv.gz"
    file.write_bytes(gzip.compress(b"1,a,1\n"))
    for place in (str(file), f"file://{file}"):
        done = catalog.sql(f"COPY INTO u FROM '{place}'{csv('COMPRESSION = GZIP')}").fetchall()
        catalog.sql(f"COPY INTO u FROM '{place}'{csv()}")

    assert done == [("one.csv.gz", "SKIPPED", 0, 0, 0, None)]
    assert rows_of(catalog) == [(1, "a", 1)]


def test_values_with_parts_are_read_unless_errors_are_passed_over(
    catalog: lc.Session, tmp_path: Path
) -> None:
    catalog.sql("CREATE TABLE n (id INT, r ROW<a INT, b STRING>, l ARRAY<INT>)")
    good = '{"id": 1, "r": {"a": 1, "b": "x"}, "l": [1, 2]}\n'
    load(catalog, {"a.json": good}, tmp_path, "n FROM {}" + of_json())
    with pytest.raises(lc.InvalidRequest, match="nothing was committed"):
        load(catalog, {"a.json": '{"l": ["x"]}'}, tmp_path, "n FROM {}" + of_json())
    with pytest.raises(lc.Unsupported, match="parts of a value"):
        load(catalog, {}, tmp_path, "n FROM {}" + of_json() + " ON_ERROR = CONTINUE")

    assert rows_of(catalog, "FROM n") == [(1, {"a": 1, "b": "x"}, [1, 2])]


def test_blank_lines_are_no_rows(catalog: lc.Session, tmp_path: Path) -> None:
    done = load(catalog, {"a.csv": 'a\n\n""\nb\n'}, tmp_path, "u (name) FROM {}" + csv())
    skipped = load(catalog, {"b.csv": "c\n\n"}, tmp_path, "u (name) FROM {}" + csv()
                   + " ON_ERROR = CONTINUE")  # fmt: skip

    assert done == [("a.csv", "LOADED", 3, 3, 0, None)]
    assert skipped[0] == ("b.csv", "LOADED", 1, 1, 0, None)
    assert sorted(str(row[1]) for row in rows_of(catalog)) == ["", "a", "b", "c"]


def test_bytes_of_parquet_are_read_as_text(catalog: lc.Session, tmp_path: Path) -> None:
    source = tmp_path / "files"
    source.mkdir()
    pl.DataFrame({"name": ["é".encode(), b"\xff"]}).write_parquet(source / "a.parquet")
    done = load(catalog, {}, tmp_path, "u FROM {}" + PARQUET + " ON_ERROR = CONTINUE")

    assert done[0][:5] == ("a.parquet", "PARTIALLY_LOADED", 1, 2, 1)
    assert rows_of(catalog, "SELECT name FROM u") == [("é",)]


def test_a_parquet_file_without_any_column_of_the_table_is_refused(
    catalog: lc.Session, tmp_path: Path
) -> None:
    source = tmp_path / "files"
    source.mkdir()
    pl.DataFrame({"of": [1], "another": ["table"]}).write_parquet(source / "a.parquet")

    with pytest.raises(lc.InvalidRequest, match=r"none of the columns.* there=\[another, of\]"):
        load(catalog, {}, tmp_path, "u FROM {}" + PARQUET)

    assert rows_of(catalog) == []


def test_the_error_of_a_long_line_is_short(catalog: lc.Session, tmp_path: Path) -> None:
    lines = "1,x" + 100_000 * "y" + ",2,3\n"

    with pytest.raises(lc.InvalidRequest, match="Original Line") as raised:
        load(catalog, {"a.csv": lines}, tmp_path, "u FROM {}" + csv())

    assert len(str(raised.value)) < 1_500


def test_names_of_parquet_that_differ_in_case_are_refused(
    catalog: lc.Session, tmp_path: Path
) -> None:
    source = tmp_path / "files"
    source.mkdir()
    nested = pl.DataFrame({"r": [{"id": 1, "ID": 2}], "l": [[1]], "id": [3]})
    nested.write_parquet(source / "a.parquet")
    load(catalog, {}, tmp_path, "u FROM {}" + PARQUET)
    pl.DataFrame({"ID": [5], "id": [7]}).write_parquet(source / "b.parquet")
    with pytest.raises(lc.InvalidRequest, match="differ only in case"):
        load(catalog, {}, tmp_path, "u FROM {}" + PARQUET)

    assert rows_of(catalog) == [(3, None, None)]


@pytest.mark.parametrize(
    ("copy", "error", "message"),
    [
        ("u FROM {}" + csv("FIELD_DELIMITER = '\"'"), lc.InvalidRequest, "QUOTE is a part of"),
        ("u (id, zz) FROM {}" + csv(), lc.InvalidRequest, "column=zz"),
        ("u (id, ID) FROM {}" + csv(), lc.InvalidRequest, "occurs twice"),
        ("u FROM {}", lc.InvalidRequest, "FILE_FORMAT"),
        ("u FROM {} FILE_FORMAT = (SKIP_HEADER = 1)", lc.InvalidRequest, "needs TYPE"),
        ("u FROM {} FILE_FORMAT = (TYPE = ORC)", lc.Unsupported, "CSV, JSON and PARQUET"),
        ("u FROM {}" + csv("QUOTE = 'a', quote = 'b'"), lc.InvalidRequest, "QUOTE is given twice"),
        ("u FROM {}" + csv("HEADER = TRUE"), lc.Unsupported, "SKIP_HEADER = 1"),
        ("u FROM {}" + csv("MODE = PERMISSIVE"), lc.InvalidRequest, "ON_ERROR"),
        ("u FROM {}" + csv("SKIP_HEADER = 2"), lc.InvalidRequest, "SKIP_HEADER is 0 or 1"),
        ("u FROM {}" + csv("COMPRESSION = LZO"), lc.Unsupported, "compression=LZO"),
        ("u FROM {}" + csv("QUOTE = 'ab'"), lc.InvalidRequest, "one ASCII character"),
        ("u FROM {}" + csv("FIELD_DELIMITER = ''"), lc.InvalidRequest, "FIELD_DELIMITER"),
        ("u FROM {}" + of_json("SKIP_HEADER = 1"), lc.Unsupported, "type=JSON"),
        ("u FROM {}" + of_json("MULTI_LINE = 1"), lc.InvalidRequest, "TRUE or FALSE"),
        ("u FROM {}" + PARQUET + " NULL_IF = ('x')", lc.InvalidRequest, "expected FILE_FORMAT"),
        ("u FROM {}" + csv() + " ON_ERROR = SKIP_FILE_3", lc.Unsupported, "SKIP_FILE_3"),
        ("u FROM {}" + csv() + " ON_ERROR = IGNORE", lc.InvalidRequest, "CONTINUE"),
        ("u FROM {}" + csv() + " FORCE = 1", lc.InvalidRequest, "TRUE or FALSE"),
        ("u FROM {}" + csv() + " PATTERN = '('", lc.InvalidRequest, "no regular expression"),
        ("u FROM {}" + csv() + " OVERWRITE = TRUE", lc.InvalidRequest, "expected FILE_FORMAT"),
        ("u FROM '/no/such/place'" + csv(), lc.NotFound, "/no/such/place"),
        ("u FROM 'ftp://host/x'" + csv(), lc.Unsupported, "unknown kind of storage"),
    ],
)
def test_wrong_copies_say_what_to_do_and_change_nothing(
    catalog: lc.Session, tmp_path: Path, copy: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        load(catalog, {"a.csv": "1,a,1\n"}, tmp_path, copy)

    assert message in str(raised.value)
    assert catalog.sql("SELECT count(*) FROM u").fetchall() == [(0,)]


def test_a_column_that_cannot_be_checked_is_no_fault_of_the_file(
    catalog: lc.Session, tmp_path: Path
) -> None:
    catalog.sql("CREATE TABLE parts (a ARRAY<INT>)")
    (tmp_path / "a.json").write_text('[{"a": [1]}]')

    with pytest.raises(lc.Unsupported, match="cannot check the parts"):
        catalog.sql(
            f"COPY INTO parts FROM '{tmp_path / 'a.json'}' "
            "FILE_FORMAT = (TYPE = JSON, MULTI_LINE = TRUE) ON_ERROR = CONTINUE"
        )


@pytest.mark.parametrize("bad", ['2,"x""y",1', '2,"x"y,1', "2,x,1,more", "2"])
def test_rows_after_a_line_that_is_no_record_are_loaded(
    catalog: lc.Session, tmp_path: Path, bad: str
) -> None:
    text = f'1,"a,b",1\n{bad}\n3,c,1\n4,"d",1\n'
    done = load(catalog, {"a.csv": text}, tmp_path, "u FROM {}" + csv() + " ON_ERROR = CONTINUE")

    assert done[0][:5] == ("a.csv", "PARTIALLY_LOADED", 3, 4, 1)
    assert rows_of(catalog) == [(1, "a,b", 1), (3, "c", 1), (4, "d", 1)]


def test_doubled_quotes_name_the_option_that_reads_them(
    catalog: lc.Session, tmp_path: Path
) -> None:
    files = {"a.csv": '1,"x""y",1\n'}
    with pytest.raises(lc.InvalidRequest, match="ESCAPE"):
        load(catalog, files, tmp_path, "u FROM {}" + csv())
    escape = "ESCAPE = '\"'"
    load(catalog, files, tmp_path, "u FROM {}" + csv(escape))

    assert rows_of(catalog) == [(1, 'x"y', 1)]
