"""COPY INTO a directory: the files, their values, and what is never replaced."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import polars as pl
import pytest

import lakecore as lc
from tests.versions import DUCKDB_1

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = "id, name, d, f, t, dt, b, l, tm"


@pytest.fixture
def catalog(tmp_path: Path) -> lc.Session:
    session = lc.connect(tmp_path / "warehouse", create=True)
    session.sql(
        "CREATE TABLE u (id INT, name STRING, d DECIMAL(30, 20), f DOUBLE, t TIMESTAMP(6), "
        "dt DATE, b BOOLEAN, l TIMESTAMP_LTZ(3), tm TIME, raw BYTES)"
    )
    session.sql(
        f"INSERT INTO u ({COLUMNS}) VALUES "
        "(1, 'a,\"b\\c\n d', 0.12345678901234567890, 'nan'::DOUBLE, '2024-01-02 03:04:05.123456', "
        "'2024-01-02', true, '2024-01-02 03:04:05', '10:11:12'), "
        "(2, '', NULL, 1.5, NULL, NULL, false, NULL, NULL), "
        "(3, NULL, 1, '-inf'::DOUBLE, NULL, NULL, NULL, NULL, NULL)"
    )
    return session


@pytest.mark.parametrize(
    ("written", "read", "ending"),
    [
        ("TYPE = CSV", "TYPE = CSV", ".csv"),
        ("TYPE = CSV, HEADER = TRUE, FIELD_DELIMITER = '|', COMPRESSION = GZIP",
         "TYPE = CSV, SKIP_HEADER = 1, FIELD_DELIMITER = '|'", ".csv.gz"),
        ("TYPE = CSV, QUOTE = '#', ESCAPE = '#'", "TYPE = CSV, QUOTE = '#', ESCAPE = '#'", ".csv"),
        ("TYPE = JSON", "TYPE = JSON", ".json"),
        ("TYPE = JSON, COMPRESSION = ZSTD, TIMESTAMP_FORMAT = 'yyyy-MM-dd HH:mm:ss.SSSSSS'",
         "TYPE = JSON", ".json.zst"),
        ("TYPE = PARQUET", "TYPE = PARQUET", ".snappy.parquet"),
        ("TYPE = PARQUET, COMPRESSION = GZIP", "TYPE = PARQUET", ".gz.parquet"),
    ],
)  # fmt: skip
def test_an_export_can_be_loaded_again(
    catalog: lc.Session, tmp_path: Path, written: str, read: str, ending: str
) -> None:
    target = tmp_path / "out"
    done = catalog.sql(
        f"COPY INTO '{target}' FROM (SELECT {COLUMNS} FROM u) FILE_FORMAT = ({written})"
    )
    catalog.sql("CREATE TABLE v LIKE u")
    if DUCKDB_1 and "JSON" in read:  # reads decimals as DOUBLE
        with pytest.raises(lc.InvalidRequest, match="column=d type=DECIMAL"):
            catalog.sql(f"COPY INTO v ({COLUMNS}) FROM '{target}' FILE_FORMAT = ({read})")
        return
    catalog.sql(f"COPY INTO v ({COLUMNS}) FROM '{target}' FILE_FORMAT = ({read})")

    assert done.columns == ["output_path", "file_count", "rows_written"]
    assert done.fetchall() == [(str(target), 1, 3)]
    success, part = sorted(target.iterdir())
    assert success.name == "_SUCCESS"
    assert part.name.startswith("part-00000-")
    assert part.name.endswith(f"-c000{ending}")
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
    both = [
        sorted(map(str, catalog.sql(f"SELECT {COLUMNS} FROM {name}").fetchall())) for name in "uv"
    ]
    assert both[0] == both[1]


def test_the_texts_of_an_export(catalog: lc.Session, tmp_path: Path) -> None:
    target = tmp_path / "out"
    copy = f"COPY INTO '{target}' FROM (SELECT id, name AS \"n,m\", dt FROM u WHERE id < 3) "
    catalog.sql(copy + "FILE_FORMAT = (TYPE = CSV, HEADER = TRUE, COMPRESSION = GZIP)")
    (part,) = target.glob("part-*")
    text = gzip.decompress(part.read_bytes()).decode()
    catalog.sql(copy + "FILE_FORMAT = (TYPE = JSON, DATE_FORMAT = 'dd.MM.yyyy') OVERWRITE = TRUE")
    (part,) = target.glob("part-*")

    assert text == 'id,"n,m",dt\n1,"a,\\"b\\\\c\n d",2024-01-02\n2,"",\n'
    assert part.read_text().splitlines() == [
        '{"id":1,"n,m":"a,\\"b\\\\c\\n d","dt":"02.01.2024"}',
        '{"id":2,"n,m":"","dt":null}',
    ]


def test_a_table_is_exported_by_its_name(catalog: lc.Session, tmp_path: Path) -> None:
    target = tmp_path / "out"
    copy = f"COPY INTO '{target}' FROM `default`.u FILE_FORMAT = (TYPE = PARQUET)"
    catalog.sql(copy)
    with pytest.raises(lc.AlreadyExists, match="OVERWRITE = TRUE"):
        catalog.sql(copy)
    catalog.sql("DELETE FROM u WHERE id > 1")
    catalog.sql(copy + " OVERWRITE = TRUE")

    assert pl.read_parquet(target / "*.parquet")["id"].to_list() == [1]


@pytest.mark.parametrize(
    ("copy", "error", "message"),
    [
        ("FROM u FILE_FORMAT = (TYPE = CSV)", lc.Unsupported, "column=raw"),
        ("FROM (SELECT [1] AS l) FILE_FORMAT = (TYPE = CSV)", lc.Unsupported, "column=l"),
        ("FROM () FILE_FORMAT = (TYPE = CSV)", lc.InvalidRequest, "needs a query"),
        ("FROM (DELETE FROM u) FILE_FORMAT = (TYPE = CSV)", lc.InvalidRequest, "takes a query"),
        ("FROM (DROP TABLE u) FILE_FORMAT = (TYPE = CSV)", lc.InvalidRequest, "takes a query"),
        ("FROM (SELECT 1; DROP TABLE u) FILE_FORMAT = (TYPE = CSV)", lc.InvalidRequest, ""),
        ("FROM (SELECT error('no')) FILE_FORMAT = (TYPE = CSV)", lc.InvalidRequest, "no"),
        ("FROM (FROM missing) FILE_FORMAT = (TYPE = CSV)", lc.NotFound, "missing"),
        ("FROM u FILE_FORMAT = (TYPE = CSV, SKIP_HEADER = 1)", lc.Unsupported, "SKIP_HEADER"),
        ("FROM u FILE_FORMAT = (TYPE = CSV) SINGLE = TRUE", lc.Unsupported, "SINGLE"),
        ("FROM u FILE_FORMAT = (TYPE = JSON, DATE_FORMAT = 'MMM')", lc.Unsupported, "part=MMM"),
        ("FROM u FILE_FORMAT = (TYPE = PARQUET, COMPRESSION = LZO)", lc.Unsupported, "LZO"),
        ("FROM u FILE_FORMAT = (TYPE = PARQUET) FORCE = TRUE", lc.InvalidRequest, "OVERWRITE"),
    ],
)
def test_a_wrong_export_leaves_nothing(
    catalog: lc.Session, tmp_path: Path, copy: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        catalog.sql(f"COPY INTO '{tmp_path / 'out'}' {copy}")

    assert message in str(raised.value)
    assert [each.name for each in tmp_path.iterdir()] == ["warehouse"]


def test_a_failed_export_keeps_the_old_files(catalog: lc.Session, tmp_path: Path) -> None:
    copy = (
        f"COPY INTO '{tmp_path / 'out'}' FROM (SELECT {{}}) "
        "FILE_FORMAT = (TYPE = CSV) OVERWRITE = TRUE"
    )
    catalog.sql(copy.format("1"))
    before = sorted(each.name for each in (tmp_path / "out").iterdir())
    with pytest.raises(lc.InvalidRequest):
        catalog.sql(copy.format("error('x') FROM range(100000)"))

    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == before


def test_an_export_never_replaces_a_table_or_other_directories(
    catalog: lc.Session, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    table = tmp_path / "warehouse" / "default.db" / "u"
    for place in (table, table / "snapshot", table / "new", tmp_path / "warehouse",
                  tmp_path / "file", tmp_path / "tree"):  # fmt: skip
        with pytest.raises(lc.InvalidRequest, match=r"COPY INTO|OVERWRITE"):
            catalog.sql(
                f"COPY INTO '{place}' FROM u FILE_FORMAT = (TYPE = PARQUET) OVERWRITE = TRUE"
            )
    with pytest.raises(lc.Unsupported, match="unknown kind of storage"):
        catalog.sql("COPY INTO 'ftp://host/x' FROM u FILE_FORMAT = (TYPE = PARQUET)")

    assert catalog.sql("SELECT count(*) FROM u").fetchall() == [(3,)]
    assert (tmp_path / "file").read_text() == "x"


def test_a_null_that_would_be_a_blank_line_is_refused(catalog: lc.Session, tmp_path: Path) -> None:
    query = "FROM (SELECT name FROM u) FILE_FORMAT = (TYPE = {})"
    with pytest.raises(lc.InvalidRequest, match=r"one column cannot hold a null.*column=name"):
        catalog.sql(f"COPY INTO '{tmp_path / 'csv'}' " + query.format("CSV"))
    catalog.sql(f"COPY INTO '{tmp_path / 'json'}' " + query.format("JSON"))
    catalog.sql(f"COPY INTO u (name) FROM '{tmp_path / 'json'}' FILE_FORMAT = (TYPE = JSON)")

    assert not (tmp_path / "csv").exists()
    assert catalog.get_table("default.u").count("name IS NULL") == 2


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("{'x': 'nan'::DOUBLE}", "cannot be written as JSON"),
        ("['-inf'::FLOAT]", "cannot be written as JSON"),
        ("['a'::BLOB]", "does not write values of this type"),
    ],
)
def test_a_part_that_json_cannot_hold_is_refused(
    catalog: lc.Session, tmp_path: Path, value: str, said: str
) -> None:
    with pytest.raises(lc.LakecoreError, match=said):
        catalog.sql(
            f"COPY INTO '{tmp_path / 'out'}' FROM (SELECT {value} AS v) FILE_FORMAT = (TYPE = JSON)"
        )
    assert not (tmp_path / "out").exists()


def test_a_text_may_say_nan_within_json(catalog: lc.Session, tmp_path: Path) -> None:
    catalog.sql(
        f"COPY INTO '{tmp_path / 'out'}' "
        "FROM (SELECT {'x': 1.5::DOUBLE, 't': 'a \"NaN\" Infinity'} AS v) "
        "FILE_FORMAT = (TYPE = JSON)"
    )
    (file,) = (tmp_path / "out").glob("*.json")

    assert file.read_text() == '{"v":{"x":1.5,"t":"a \\"NaN\\" Infinity"}}\n'
