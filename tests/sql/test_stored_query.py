"""The text of a stored view is one SELECT that reads tables and computes, whoever stored it."""

# ruff: noqa: E501, SLF001 - a text is one line; views are stored as other engines store them

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import polars as pl
import pytest
from typer.testing import CliRunner

import lakecore as lc
from lakecore.catalog.identifier import parse_identifier
from lakecore.catalog.views import View
from lakecore.cli.app import app
from lakecore.errors import LakecoreError
from lakecore.model.types import Field, parse_type
from lakecore.sql.engine import SqlEngine
from lakecore.sql.printable import python_rows
from tests.rest_servers import rest_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PRIVATE = "PRIVATE-LINE"
FIELDS = (Field(id=0, name="a", type=parse_type("STRING")),)

# @ stands for the directory of the private files.
HOSTILE = """
COPY (SELECT 'x' AS k) TO '@/out.csv'
COPY (SELECT 'x' AS k) TO '@/out.parquet' (FORMAT parquet)
SELECT 1 AS a; COPY (SELECT 'x') TO '@/out.csv'
SELECT 1 AS a; SELECT 2 AS a
SELECT 1 AS a; ATTACH '@/out.db' AS e
ATTACH '@/out.db' AS e
INSTALL httpfs
LOAD httpfs
SET memory_limit = '1GB'
PRAGMA database_list
CALL pragma_version()
CREATE TABLE e AS SELECT 1 AS a
CREATE MACRO f() AS 1
DROP SCHEMA main
EXPORT DATABASE '@/out'
IMPORT DATABASE '@'
CHECKPOINT
EXECUTE p
EXPLAIN SELECT 1
EXPLAIN ANALYZE COPY (SELECT 1) TO '@/out.csv'

/* SELECT */ COPY (SELECT 1) TO '@/out.csv'
-- SELECT 1
SELECT content AS a FROM read_text('@/private.txt')
SELECT content AS a FROM READ_TEXT('@/private.txt')
SELECT content AS a FROM "read_text"('@/private.txt')
SELECT content AS a FROM main.read_text('@/private.txt')
SELECT content AS a FROM system.main.read_text('@/private.txt')
FROM read_text('@/private.txt') SELECT content
FROM read_blob('@/private.txt')
FROM read_csv('@/private.csv')
FROM read_csv_auto('@/private.csv')
FROM read_json('@/private.json')
FROM read_parquet('@/private.parquet')
FROM parquet_scan('@/private.parquet')
FROM parquet_metadata('@/private.parquet')
FROM sniff_csv('@/private.csv')
FROM glob('@/*')
FROM read_duckdb('@/private.db')
FROM query('SELECT content FROM read_text(''@/private.txt'')')
FROM query_table('d.t')
FROM query_table(['@/private.csv'])
FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))
FROM duckdb_secrets()
FROM duckdb_settings()
FROM duckdb_tables()
FROM duckdb_logs()
FROM which_secret('s3://b/x', 's3')
FROM pragma_version()
FROM pragma_table_info('x')
FROM enable_logging()
FROM checkpoint()
FROM arrow_scan(1, 2, 3)
FROM pandas_scan(1)
FROM seq_scan('x')
FROM test_all_types()
FROM repeat('x', 3)
SELECT * FROM '@/private.csv'
SELECT * FROM "@/private.parquet"
SELECT * FROM `@/private.csv`
SELECT * FROM "@/private"."csv"
SELECT * FROM "@/"."private.csv"
SELECT * FROM d."@/private.csv"
SELECT * FROM memory."@/private.csv"
SELECT * FROM memory.main."@/private.csv"
SELECT * FROM paimon."@/private"."csv"
SELECT * FROM 'http://127.0.0.1:1/x.csv'
SELECT * FROM 's3://bucket/x.parquet'
SELECT * FROM "@/wh/d.db/t"
SELECT * FROM caller_frame
SELECT * FROM main.caller_frame
SELECT * FROM caller_table
SELECT * FROM late_temporary
SELECT * FROM information_schema.tables
SELECT * FROM pg_catalog.pg_settings
SELECT * FROM duckdb_settings
SELECT * FROM sqlite_master
SELECT * FROM other.d.t
WITH "@/private.csv" AS (SELECT * FROM "@/private.csv") SELECT * FROM "@/private.csv"
WITH RECURSIVE "@/private.csv" AS (FROM "@/private.csv" UNION SELECT 'x') FROM "@/private.csv"
WITH RECURSIVE "@/private.csv" AS (SELECT 'x' UNION FROM "@/private.csv") FROM "@/private.csv"
WITH d AS (SELECT 1) SELECT * FROM d, "@/private.csv"
WITH x AS (FROM read_text('@/private.txt')) SELECT content FROM x
WITH x AS (INSERT INTO d.t VALUES (2) RETURNING *) SELECT * FROM x
WITH x AS (DELETE FROM d.t RETURNING *) SELECT * FROM x
WITH x AS MATERIALIZED (FROM glob('@/*')) SELECT * FROM x
SELECT (SELECT max(content) FROM read_blob('@/private.txt'))::VARCHAR AS a
SELECT a FROM d.t WHERE a IN (SELECT content FROM read_text('@/private.txt'))
SELECT a FROM d.t WHERE EXISTS (FROM glob('@/*'))
SELECT a FROM d.t, LATERAL (SELECT content FROM read_text('@/private.txt'))
SELECT a FROM d.t JOIN read_text('@/private.txt') ON true
SELECT a FROM d.t UNION ALL SELECT content FROM read_text('@/private.txt')
SELECT a FROM d.t EXCEPT (FROM '@/private.csv')
SELECT a FROM d.t ORDER BY (SELECT max(content) FROM read_text('@/private.txt'))
SELECT a FROM d.t LIMIT (SELECT count(*) FROM glob('@/*'))
SELECT list_transform([1], lambda x: (SELECT max(content) FROM read_text('@/private.txt')))
VALUES ((SELECT max(content) FROM read_text('@/private.txt')))
SELECT * FROM (VALUES ((SELECT max(content) FROM read_text('@/private.txt')))) AS v(a)
SELECT * FROM (SELECT content AS a FROM read_text('@/private.txt')) PIVOT (count(*) FOR a IN ('x'))
SELECT * FROM (PIVOT read_csv('@/private.csv') ON a IN ('x') USING count(*))
PIVOT '@/private.csv' ON a USING count(*)
UNPIVOT '@/private.csv' ON a
DESCRIBE '@/private.csv'
DESCRIBE d.t
SUMMARIZE '@/private.csv'
SHOW TABLES
SHOW ALL TABLES
SELECT * FROM (DESCRIBE SELECT * FROM '@/private.csv')
SELECT * FROM (SUMMARIZE '@/private.csv')
SELECT * FROM (SHOW TABLES)
TABLE '@/private.csv'
TABLE caller_frame
SELECT getenv('HOME') AS a
SELECT current_setting('memory_limit') AS a
SELECT getvariable('secret') AS a
SELECT my_macro() AS a
SELECT my_macro_of_table AS a FROM my_table_macro()
SELECT sleep_ms(10)
SELECT pg_sleep(1)
SELECT write_log('x')
SELECT setseed(0.5)
SELECT nextval('s')
SELECT current_query()
SELECT json_serialize_sql('SELECT 1')
SELECT json_deserialize_sql('{}')
SELECT version()
SELECT pg_get_viewdef(1)
SELECT __internal_compress_string_hugeint('a')
SELECT main.upper('a')
SELECT $1 AS a
SELECT ? AS a
SELECT * FROM d.t AT (VERSION => 1)
SELECT * FROM d.t FOR VERSION AS OF (SELECT max(content) FROM read_text('@/private.txt'))
SELECT * FROM d.t FOR TIMESTAMP AS OF (SELECT max(content) FROM read_text('@/private.txt'))
SELECT * FROM d.t FOR VERSION AS OF (1), (SELECT content FROM read_text('@/private.txt'))
SELECT * FROM d.t FOR VERSION AS OF getenv('HOME')
SELECT * FROM paimon_incremental_query('d.t', (SELECT content FROM read_text('@/private.txt')), 2)
SELECT * FROM paimon_incremental_query('d.t', '1', getenv('HOME'))
SELECT * FROM paimon_incremental_query('t', '1', '2')
SELECT * FROM d.t /*+ OPTIONS('lakecore.blob-paths' = '/') */
SELECT * FROM d.t /*+ OPTIONS('lakecore.external-paths' = '/') */
SELECT * FROM d.t /*+ OPTIONS('lakecore.memory-budget' = '9 gb') */
SELECT * FROM d.t /*+ OPTIONS('lakecore.ignore-options' = '*') */
SELECT * FROM d.t /*+ OPTIONS('blob-descriptor.s3.endpoint' = 'http://127.0.0.1:1') */
SELECT * FROM d.t /*+ OPTIONS('path' = '@') */
SELECT sys.max_pt('d.t')
(COPY (SELECT 1) TO '@/out.csv')
SELECT 1 AS a INTO OUTFILE '@/out.csv'
BEGIN; COPY (SELECT 1) TO '@/out.csv'; COMMIT
""".strip("\n").split("\n")  # fmt: skip

HARMLESS = """
SELECT a FROM d.t
FROM d.t
FROM d.t SELECT upper(a) AS u WHERE a LIKE '%n%' AND NOT a ILIKE 'x' OR a SIMILAR TO 'o.*'
SELECT * FROM `d`.`t`
SELECT * FROM paimon.d.t
SELECT t.a, d.t.a FROM d.t
SELECT x.a FROM d.t AS x JOIN d.t AS y USING (a) LEFT JOIN d.t AS z ON x.a = z.a, d.t
SELECT x.a, y.b FROM d.t AS x, LATERAL (SELECT x.a || 'b' AS b) AS y
WITH few AS (SELECT a FROM d.t), fewer AS MATERIALIZED (FROM few) SELECT * FROM fewer
WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT sum(i) FROM n
SELECT a, count(*) AS n FROM d.t GROUP BY ALL HAVING n > 0 ORDER BY ALL DESC NULLS LAST LIMIT 50%
SELECT a, row_number() OVER w, sum(1) OVER (w ROWS 2 PRECEDING) FROM d.t WINDOW w AS (ORDER BY a)
SELECT a FROM d.t QUALIFY rank() OVER (ORDER BY a) = 1
SELECT DISTINCT ON (a) a, 1 AS one FROM d.t
SELECT a FROM d.t UNION ALL BY NAME SELECT 'x' AS a INTERSECT SELECT a FROM d.t
SELECT a FROM d.t WHERE a IN (SELECT a FROM d.t) AND EXISTS (FROM d.t) AND a = ANY (SELECT a FROM d.t)
SELECT CASE WHEN a > 'm' THEN 1 ELSE 2 END AS c, a BETWEEN 'a' AND 'z', a IS NULL FROM d.t
SELECT list_transform([1, 2], lambda x: x + 1), [y FOR y IN [1, 2] IF y > 1], {'k': 1}.k, MAP {'a': 1}['a']
SELECT unnest([1, 2]) AS a
SELECT * FROM range(3) AS r(i), generate_series(1, 2) AS g(j), unnest([5]) AS u(k)
SELECT key, value FROM json_each('{"a": 1}')
SELECT json_extract('{"a": [1]}', '$.a[0]'), '{"a": 1}'::JSON ->> 'a', to_json({'a': 1})
SELECT now(), current_date, current_timestamp, random() < 2, uuid() IS NOT NULL, age(DATE '2024-01-01')
SELECT CAST(1 AS DECIMAL(10, 2)), TRY_CAST('x' AS INT), 'a' COLLATE NOCASE, INTERVAL 3 DAY, DATE '2024-01-01'
SELECT extract(year FROM DATE '2024-01-01'), date_trunc('month', DATE '2024-01-05'), 'a' || 'b', 5 // 2
SELECT substring('abc' FROM 2), trim('  a '), position('b' IN 'abc'), coalesce(NULL, 1), nullif(1, 1), if(true, 1, 2)
SELECT string_agg(a, ',' ORDER BY a) FILTER (WHERE a <> 'x'), quantile_cont(1.5, 0.5), list(a) FROM d.t
SELECT sum(170141183460469231731687303715884105727::HUGEINT) AS big, 'x'::ENUM('x', 'y') AS e, NULL AS nothing
SELECT * EXCLUDE (a) REPLACE (1 AS b) FROM (SELECT a, 2 AS b FROM d.t)
SELECT COLUMNS('a') FROM d.t
SELECT * FROM (SELECT a, 1 AS n FROM d.t) PIVOT (sum(n) FOR a IN ('one', 'two'))
SELECT * FROM (SELECT 1 AS x, 2 AS y) UNPIVOT (v FOR k IN (x, y))
SELECT a FROM d.t ASOF JOIN (SELECT 'a' AS b) ON a >= b
SELECT a FROM d.t USING SAMPLE 100%
SELECT GROUPING(a), a FROM d.t GROUP BY ROLLUP (a)
VALUES ('a', 1), ('b', 2)
SELECT * FROM (VALUES (1), (2)) AS v(a)
SELECT * FROM d.t FOR VERSION AS OF 1
SELECT * FROM d.t /*+ OPTIONS('scan.snapshot-id' = '1') */
SELECT * FROM d.t FOR TIMESTAMP AS OF now()
SELECT * FROM paimon_incremental_query('d.t', '0', '1')
SELECT snapshot_id FROM d.t$snapshots
SELECT file_path FROM d."t$files"
SELECT 'COPY x TO ''/tmp/y''; SELECT 2' AS a -- ; COPY
SELECT /* ; COPY */ 1 AS a
""".strip("\n").split("\n")  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    rows = pl.DataFrame({"a": [PRIVATE]})
    (folder / "private.txt").write_text(PRIVATE)
    rows.write_csv(folder / "private.csv")
    rows.write_parquet(folder / "private.parquet")
    rows.write_ndjson(folder / "private.json")
    return folder


@pytest.fixture(scope="module")
def options(folder: Path) -> dict[str, str]:
    uri = f"jdbc:sqlite:{folder}/catalog.db"
    return {"metastore": "jdbc", "uri": uri, "warehouse": f"{folder}/wh"}


@pytest.fixture(scope="module")
def session(options: dict[str, str]) -> lc.Session:
    session = lc.connect(options, create=True)
    session.create_database("d")
    session.create_table("d.t", {"a": "STRING"}).write({"a": ["one", "two"]})
    session.create_table("d.target", {"a": "STRING NOT NULL"}, primary_keys=["a"])
    session.sql("CREATE TEMPORARY VIEW late_temporary AS SELECT 'PRIVATE-LINE' AS a")
    # What DuckDB holds of a session's own is out of the reach of stored views.
    for text in (
        "SET VARIABLE secret = 'PRIVATE-LINE'",
        "CREATE MACRO my_macro() AS 'PRIVATE-LINE'",
        "CREATE MACRO my_table_macro() AS TABLE SELECT 'PRIVATE-LINE' AS my_macro_of_table",
    ):
        session._engine()._queries.connection.execute(text)
    return session


def stored(session: lc.Session, name: str, text: str, dialect: str | None = None) -> None:
    """Store a view as another engine does: nobody checks the text."""
    views = session._catalog.views
    assert views is not None
    dialects = {} if dialect is None else {dialect: text}
    views.replace(
        parse_identifier(name),
        View(query=text if dialect is None else "SELECT 1 AS a", fields=FIELDS, dialects=dialects),
    )


def files_below(folder: Path) -> set[str]:
    found = {f"{top}/{name}" for top, _, names in os.walk(folder) for name in names}
    return {each for each in found if "catalog.db" not in each}


def refused(session: lc.Session, folder: Path, statement: str) -> None:
    """The statement raises a plain error that shows nothing private, and changes no file."""
    caller_frame = caller_table = pl.DataFrame({"a": [PRIVATE]})
    before = files_below(folder)
    with pytest.raises(LakecoreError) as found:
        session.sql(statement).fetchall()
    assert PRIVATE not in str(found.value)
    assert files_below(folder) == before
    assert len(caller_frame) == len(caller_table)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_view_does_nothing(session: lc.Session, folder: Path, text: str) -> None:
    stored(session, "d.hostile", text.replace("@", str(folder)))

    refused(session, folder, "SELECT * FROM d.hostile")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_does_nothing_as_a_sealed_query(
    session: lc.Session, folder: Path, text: str
) -> None:
    before = files_below(folder)
    with pytest.raises(LakecoreError) as error:
        sealed(session, text.replace("@", str(folder)))

    assert PRIVATE not in str(error.value)
    assert files_below(folder) == before


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_is_read_as_a_sealed_query(session: lc.Session, text: str) -> None:
    assert sealed(session, text)


@pytest.mark.parametrize("name", ["options", "OPTIONS", "schemas", "aggregation_fields"])
def test_a_sealed_query_reads_no_table_that_may_show_secrets(
    session: lc.Session, name: str
) -> None:
    with pytest.raises(LakecoreError, match="secrets"):
        sealed(session, f'SELECT * FROM d."t${name}"')


def sealed(session: lc.Session, text: str) -> list[list[object]]:
    _, batches = SqlEngine(session._catalog, lc.open_table).sealed(
        text, limit=100, memory_bytes=256 << 20
    )
    return python_rows([*batches])


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_view_is_read(session: lc.Session, text: str) -> None:
    stored(session, "d.harmless", text)

    assert session.sql("SELECT count(*) FROM d.harmless").fetchall()


DOORS = """
SELECT * FROM d.hostile
SELECT 1 FROM d.t WHERE a IN (SELECT a FROM d.hostile)
SELECT * FROM d.outer_view
EXPLAIN SELECT * FROM d.hostile
CREATE TABLE d.made AS SELECT * FROM d.hostile
CREATE TEMPORARY VIEW temporary AS SELECT * FROM d.hostile
CREATE VIEW d.made AS SELECT * FROM d.hostile
ALTER VIEW d.outer_view AS SELECT * FROM d.hostile
INSERT INTO d.target SELECT a FROM d.hostile
INSERT OVERWRITE d.target SELECT a FROM d.hostile
DELETE FROM d.target WHERE a IN (SELECT a FROM d.hostile)
UPDATE d.target SET a = (SELECT max(a) FROM d.hostile)
MERGE INTO d.target USING d.hostile AS s ON target.a = s.a WHEN NOT MATCHED THEN INSERT (a) VALUES (s.a)
""".strip("\n").split("\n")  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("dialect", [None, "lakecore"])
def test_hostile_view_does_nothing_through_any_statement(
    session: lc.Session, folder: Path, door: str, dialect: str | None
) -> None:
    stored(session, "d.outer_view", "SELECT a FROM d.hostile")
    for text in (
        f"SELECT content AS a FROM read_text('{folder}/private.txt')",
        f"COPY (SELECT 'x' AS k) TO '{folder}/out.csv'",
    ):
        stored(session, "d.hostile", text, dialect)
        refused(session, folder, door)


@pytest.mark.parametrize("text", HOSTILE[:60:7])
def test_hostile_view_is_not_stored(session: lc.Session, folder: Path, text: str) -> None:
    refused(session, folder, f"CREATE VIEW d.new_one AS {text.replace('@', str(folder))}")


def test_command_line_refuses_a_hostile_view(
    session: lc.Session, options: dict[str, str], folder: Path
) -> None:
    stored(session, "d.hostile", f"SELECT content AS a FROM read_text('{folder}/private.txt')")
    given = [f"--option={key}={value}" for key, value in options.items()]
    text = "SELECT * FROM d.hostile"
    result = CliRunner().invoke(app, ["sql", "-w", options["warehouse"], *given, "-e", text])

    assert PRIVATE not in result.output
    assert "stored view may only read" in str(result.exception) + result.output


@pytest.fixture(scope="module")
def client(session: lc.Session) -> Iterator[lc.Session]:
    with rest_server(session._catalog) as given:
        yield lc.connect(given)


def test_server_stores_no_hostile_view(client: lc.Session, folder: Path) -> None:
    views = client._catalog.views
    assert views is not None
    name = parse_identifier("d.of_client")
    texts = (
        f"COPY (SELECT 1) TO '{folder}/out.csv'",
        f"SELECT content AS a FROM read_text('{folder}/private.txt')",
        "SELECT 1 AS a; SELECT 2 AS a",
    )
    for text in texts:
        for dialects in ({}, {"lakecore": text}, {"flink": text}):
            with pytest.raises(LakecoreError):
                views.create(name, View(query=text, fields=FIELDS, dialects=dialects))
    # Another engine's text may be one that DuckDB does not understand.
    spark = "SELECT my_udf(a) AS a FROM d.t LATERAL VIEW explode(array(1)) x AS y"
    assert views.create(name, View(query=spark, fields=FIELDS))
    with pytest.raises(LakecoreError):
        client.sql("SELECT * FROM d.of_client").fetchall()


def test_client_of_a_server_refuses_a_hostile_view(
    session: lc.Session, client: lc.Session, folder: Path
) -> None:
    stored(session, "d.hostile", f"SELECT content AS a FROM read_text('{folder}/private.txt')")

    refused(client, folder, "SELECT * FROM d.hostile")
