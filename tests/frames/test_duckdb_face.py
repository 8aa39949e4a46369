"""The DuckDB face: pushes columns and filters, streams, stops at a LIMIT."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecore.frames import duckdb_face
from lakecore.frames.arrow_dataset import SourceDataset
from lakecore.plan.predicate import Compare, Op
from tests.frames.made_rows import HeldRows, MadeRows
from tests.versions import DUCKDB_1

ROOT = Path(__file__).parents[2]


@pytest.fixture
def connection() -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    made.execute("SET TimeZone = 'UTC'")
    return made


def test_an_aggregate_reads_its_columns_alone(connection: duckdb.DuckDBPyConnection) -> None:
    source = MadeRows(5_000_000)
    found = duckdb_face.relation(source, connection).aggregate("sum(id), count(*), max(half)")

    assert found.fetchall() == [(12_499_997_500_000, 5_000_000, 2_499_999.5)]
    assert source.last.columns == ["id", "half"]
    assert source.last.closed


def test_a_limit_stops_the_source(connection: duckdb.DuckDBPyConnection) -> None:
    source = MadeRows(5_000_000)
    found = duckdb_face.relation(source, connection).select("id").limit(3).fetchall()

    assert found == [(0,), (1,), (2,)]
    assert source.last.closed
    assert source.last.rows < 2_000_000


def test_filters_are_pushed_and_exact(connection: duckdb.DuckDBPyConnection) -> None:
    source = MadeRows(10, batch_rows=3)
    found = duckdb_face.relation(source, connection).filter("id = 4").select("text")

    assert found.fetchall() == [("row 4",)]
    assert sorted(source.last.columns or ()) == ["id", "text"]
    assert source.last.predicate == Compare("id", Op.EQ, pa.scalar(4))


def test_a_filter_on_milliseconds_is_pushed(connection: duckdb.DuckDBPyConnection) -> None:
    source = MadeRows(10, batch_rows=3)
    rows = duckdb_face.relation(source, connection)
    found = rows.filter("day > TIMESTAMP '1970-01-08 12:00:00'").select("id, typeof(day)")

    assert found.fetchall() == [(8, "TIMESTAMP"), (9, "TIMESTAMP")]
    assert source.last.predicate is not None


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("id IN (1, 3, 99)", [1, 3]),
        ("id NOT IN (1, 3) AND id < 5", [0, 2, 4]),
        ("id % 4 = 1", [1, 5, 9]),
        ("text LIKE 'row _' AND half > 4", [9]),
        ("id = 2 OR text = 'row 7'", [2, 7]),
        ("half IS NULL", []),
        ("id > (SELECT 7)", [8, 9]),
    ],
)
def test_any_filter_is_exact(
    connection: duckdb.DuckDBPyConnection, condition: str, expected: list[int]
) -> None:
    rows = duckdb_face.relation(MadeRows(10, batch_rows=3), connection)
    found = rows.filter(condition).select("id").fetchall()

    assert sorted(row for (row,) in found) == expected


def test_every_type_reaches_duckdb(
    connection: duckdb.DuckDBPyConnection, all_types: pa.Table
) -> None:
    # DuckDB's Python values of zoned timestamps need a package that is not asked for.
    shown = ", ".join(f'"{name}"::VARCHAR' for name in all_types.schema.names)
    direct = connection.from_arrow(all_types).select(shown).fetchall()
    found = duckdb_face.relation(HeldRows(all_types), connection).select(shown).fetchall()

    assert found == direct
    assert len(found) == 3


def test_a_dataset_is_found_by_its_python_name(connection: duckdb.DuckDBPyConnection) -> None:
    source = MadeRows(10)
    made_rows = SourceDataset(source)
    found = connection.sql("SELECT half FROM made_rows WHERE id = 3").fetchall()

    assert made_rows.count_rows() == 10
    assert found == [(1.5,)]


def test_without_a_connection_it_is_duckdbs_default_one() -> None:
    assert duckdb_face.relation(MadeRows(10)).count("*").fetchall() == [(10,)]


def test_files_as_they_are_go_to_the_reader_of_duckdb(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    rows = pa.table({"id": [1, 2, 3], "s": ["a", "b", "c"]})
    pq.write_table(rows.append_column("_KEY_id", rows["id"]), tmp_path / "0.parquet")
    found = duckdb_face.relation(HeldRows(rows, [str(tmp_path / "0.parquet")]), connection)

    assert found.columns == ["id", "s"]
    assert found.filter("id > 2").fetchall() == [(3, "c")]


def test_files_with_marked_rows_go_to_the_reader_of_duckdb(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    rows = pa.table({"id": range(9), "s": [*"abcdefghi"]})
    pq.write_table(rows, tmp_path / "0.parquet", row_group_size=2)
    source = HeldRows(rows, [str(tmp_path / "0.parquet")] * 2, bits=b"\x06\x01")
    found = duckdb_face.relation(source, connection)

    assert sorted(found.fetchall()) == [(1, "b")] * 2 + [(2, "c")] * 2 + [(8, "i")] * 2
    assert found.filter("id > 2").select("s").fetchall() == [("i",), ("i",)]
    assert found.aggregate("count(*)").fetchall() == [(6,)]


@pytest.fixture
def in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of more than two rows have their bits in blocks of eight."""
    monkeypatch.setattr(duckdb_face, "_CONSTANT_ROWS_MAX", 2)
    monkeypatch.setattr(duckdb_face, "_BLOCK_ROWS", 8)


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("count", [3, 8, 9, 16, 21])
def test_bits_of_many_rows_are_joined_in_blocks(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path, count: int
) -> None:
    # The names of the joined table are also names of columns.
    rows = pa.table({"block": range(count), "kept": [f"{n}" for n in range(count)]})
    pq.write_table(rows, tmp_path / "0.parquet", row_group_size=5)
    stay = [n for n in range(count) if n % 3]
    kept = sum(1 << n for n in stay).to_bytes(-(-count // 8), "little")
    found = duckdb_face.relation(
        HeldRows(rows, [str(tmp_path / "0.parquet")], bits=kept), connection
    )
    keys = connection.sql("SELECT 2 AS k")

    assert "JOIN" in found.sql_query()
    assert sorted(found.fetchall()) == [(n, f"{n}") for n in stay]
    assert found.filter("block = 2").fetchall() == [(2, "2")]
    assert found.join(keys, "k = block").fetchall() == [(2, "2", 2)]
    assert len(found.limit(2).fetchall()) == 2
    found.create_view("of_the_caller")
    assert len(connection.sql("FROM of_the_caller").fetchall()) == len(stay)


@pytest.mark.parametrize("rows_max", [0, 1 << 22], ids=["in blocks", "as a constant"])
def test_condition_is_not_computed_on_a_marked_row(
    connection: duckdb.DuckDBPyConnection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows_max: int,
) -> None:
    monkeypatch.setattr(duckdb_face, "_CONSTANT_ROWS_MAX", rows_max)
    rows = pa.table({"id": [1, 2], "s": ["none", "7"]})
    pq.write_table(rows, tmp_path / "0.parquet")
    source = HeldRows(rows, [str(tmp_path / "0.parquet")], bits=b"\x02")
    keys = connection.sql("SELECT 7 AS k")

    found = duckdb_face.relation(source, connection)
    assert found.filter("CAST(s AS INT) > 5").fetchall() == [(2, "7")]
    assert found.join(keys, "CAST(s AS INT) = k").fetchall() == [(2, "7", 7)]


@pytest.mark.parametrize("name", ["w?", "w*", "w[ab]", "w{a,b}"])
def test_a_path_is_no_pattern(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path, name: str
) -> None:
    rows = pa.table({"id": [1]})
    for folder in (name, "wa"):
        (tmp_path / folder).mkdir()
        pq.write_table(rows, tmp_path / folder / "0.parquet")
    source = HeldRows(rows, [str(tmp_path / name / "0.parquet")])

    assert duckdb_face.relation(source, connection).fetchall() == [(1,)]


def test_a_column_may_be_named_as_all_of_them(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    rows = pa.table({"id": [1], "*": [2]})
    pq.write_table(rows, tmp_path / "0.parquet")
    found = duckdb_face.relation(HeldRows(rows, [str(tmp_path / "0.parquet")]), connection)

    assert found.fetchall() == [(1, 2)]


def test_columns_whose_names_differ_by_case_alone_keep_their_values(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    rows = pa.table({"a": [1, 2], "A": [3, 4]})
    pq.write_table(rows, tmp_path / "0.parquet")
    for files in ([str(tmp_path / "0.parquet")], None):
        found = duckdb_face.relation(HeldRows(rows, files), connection)

        assert found.fetchall() == [(1, 3), (2, 4)]
        assert found.filter(f'"{found.columns[1]}" = 4').fetchall() == [(2, 4)]


NAN = "'NaN'::DOUBLE"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("x > 100", [2, 3, 5]),
        ("x >= 100", [2, 3, 5]),
        ("x < 100", [0, 1, 4]),
        ("x <> 1.0", [1, 2, 3, 5]),
        (f"x = {NAN}", [2, 3, 5]),
        (f"x <> {NAN}", [0, 1, 4]),
        ("NOT (x <= 100)", [2, 3, 5]),
        (f"x IN (5, {NAN})", [2, 3, 5]),
        ("x IS DISTINCT FROM 1.0", [1, 2, 3, 5, 6]),
        (f"x = (SELECT {NAN})", [2, 3, 5]),
    ],
)
def test_nan_is_found_in_files_though_no_bounds_hold_it(
    connection: duckdb.DuckDBPyConnection, condition: str, expected: list[int], tmp_path: Path
) -> None:
    nan = float("nan")
    rows = pa.table({"id": range(7), "x": [1.0, 2.0, nan, nan, 1.0, nan, None]})
    path = tmp_path / "it's.parquet"
    pq.write_table(rows, path, row_group_size=2)
    found = duckdb_face.relation(HeldRows(rows, [str(path)]), connection)

    assert sorted(row for (row,) in found.filter(condition).select("id").fetchall()) == expected
    assert found.aggregate("max(x)::VARCHAR, min(x), count(x)").fetchall() == [("nan", 1.0, 6)]


MEASURE = """
import resource, sys
import duckdb, polars
from lakecore.frames import duckdb_face
from tests.frames.made_rows import MadeRows

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

def run(count):
    rows = duckdb_face.relation(MadeRows(count), connection)
    return rows.aggregate("sum(id), count(*), max(half), max(day)").fetchall()[0][1]

connection = duckdb.connect()
connection.execute("SET enable_progress_bar = false")
assert run(2_000_000) == 2_000_000
before = peak()
assert run(20_000_000) == 20_000_000
print(peak() - before)
"""


def test_an_aggregate_streams() -> None:
    """Ten times the rows (480 MB of them) hardly raise the peak of a fresh process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )

    assert int(done.stdout) < 100


FLOATS = [1.0, 2.0, math.nan, 0.0, -0.0, math.inf, None, -1.5]
ORDERED = pa.table(
    {
        "n": range(8),
        "f": FLOATS,
        "g": pa.array(FLOATS, pa.float32()),
        "s": [{"x": x} for x in FLOATS],
        "d": pa.array([2**31 - 1, 2_932_896, 0, None, -(2**31) + 1, -719_162, 1, 2], pa.int32()),
        "t": pa.array([2**63 - 1, 0, 1, None, -(2**63) + 1, 5, 7, 10**15], pa.int64()),
    }
)
ORDERED = ORDERED.set_column(4, "d", ORDERED["d"].cast(pa.date32()))
ORDERED = ORDERED.append_column("z", ORDERED["t"].cast(pa.timestamp("us", "UTC")))
ORDERED = ORDERED.append_column("y", ORDERED["t"].cast(pa.timestamp("ns")))
ORDERED = ORDERED.set_column(5, "t", ORDERED["t"].cast(pa.timestamp("us")))
_FLOATS = ["> 1.5", ">= 2", "< 2", "<= 'nan'", "= 0", "<> 0", "= 'nan'", ">= 'nan'", "< 'nan'"]
_LISTS = ["IN (0.0, 2, 7)", "IN (0, 'nan'::DOUBLE, 9)", "NOT IN (0.0, 2)", "BETWEEN 1 AND 2"]
CONDITIONS = [
    *[f"{name} {what}" for name in ("f", "g", "s.x") for what in (*_FLOATS, *_LISTS)],
    "f > 1.5 OR f < 0",
    "f > 'inf'::DOUBLE AND n < 5",
    "NOT (f > 1.5 AND n > 0)",
    "d = 'infinity'::DATE",
    "d < 'infinity'::DATE",
    "d >= DATE '9999-12-31'",
    "d IN (DATE '1970-01-01', DATE '1970-01-02', DATE '2020-01-01')",
    "d IN ('infinity'::DATE, DATE '1970-01-01', DATE '1970-01-03')",
    "t IN ('1970-01-01'::TIMESTAMP, '1970-01-01 00:00:00.000005'::TIMESTAMP)",
    "t IN ('infinity'::TIMESTAMP, '1970-01-01 00:00:00.000005'::TIMESTAMP)",
    "z IN ('1970-01-01 00:00:00Z'::TIMESTAMPTZ, '1970-01-01 00:00:00.000005Z'::TIMESTAMPTZ)",
    "z > '1970-01-01 00:00:00Z'::TIMESTAMPTZ",
    "y IN (make_timestamp_ns(1), make_timestamp_ns(5))",
    "y > make_timestamp_ns(1)",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_pushed_filter_has_the_order_of_duckdb(
    connection: duckdb.DuckDBPyConnection, condition: str
) -> None:
    connection.register("given", ORDERED)
    connection.execute("CREATE TABLE own AS SELECT * FROM given")
    rows = duckdb_face.relation(HeldRows(ORDERED), connection).filter(condition).order("n")
    expected = connection.sql(f"SELECT n FROM own WHERE {condition} ORDER BY n").fetchall()
    try:
        assert rows.select("n").fetchall() == expected
    except duckdb.Error as error:
        # DuckDB 1 does not say what it asks for.
        assert DUCKDB_1, condition
        assert "DuckDB 1 does not pass on" in str(error), condition  # noqa: PT017
