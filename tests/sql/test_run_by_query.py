"""UPDATE, DELETE and MERGE by query, while others write to the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.sql.queries import Queries
from tests.versions import DUCKDB_1

if TYPE_CHECKING:
    from pathlib import Path

ADD_ONE = "UPDATE shop.t SET v = v + (SELECT 1) WHERE id IN (SELECT 1)"
MERGE_ONE = (
    "MERGE INTO shop.t USING (SELECT 1 AS id) AS s ON t.id = s.id AND s.id IN (SELECT 1) "
    "WHEN MATCHED THEN UPDATE SET v = v + (SELECT 1)"
)


@pytest.fixture(params=["PRIMARY KEY (id) NOT ENFORCED", ""], ids=["keyed", "append"])
def catalog(tmp_path: Path, request: pytest.FixtureRequest) -> lc.Session:
    """A catalog with a table of one row."""
    session = lc.connect(tmp_path, create=True)
    key = f", {request.param}" if request.param else ""
    session.sql(f"CREATE DATABASE shop; CREATE TABLE shop.t (id INT, v INT{key})")
    session.sql("INSERT INTO shop.t VALUES (1, 0)")
    return session


def _disturb(catalog: lc.Session, monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Others add 100 to the row whenever the rows are looked for, at most `times` times."""
    reader, done = Queries.reader, list[int]()

    def disturbed(queries: Queries, *arguments: Any) -> pa.RecordBatchReader:
        if len(done) < times:
            done.append(1)
            catalog.get_table("shop.t").update({"v": lc.sql_expr("v + 100")})
        return reader(queries, *arguments)

    monkeypatch.setattr(Queries, "reader", disturbed)
    return done


@pytest.mark.parametrize("statement", [ADD_ONE, MERGE_ONE])
def test_the_rows_are_found_again_if_another_commit_came_in_between(
    catalog: lc.Session, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    done = _disturb(catalog, monkeypatch, times=2)
    catalog.sql(statement)
    assert len(done) == 2
    assert catalog.sql("SELECT v FROM shop.t").fetchall() == [(201,)]


def test_a_table_that_never_rests_is_a_conflict(
    catalog: lc.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = _disturb(catalog, monkeypatch, times=99)
    with pytest.raises(lc.CommitConflict, match="in each attempt"):
        catalog.sql(ADD_ONE)
    assert catalog.sql("SELECT v FROM shop.t").fetchall() == [(100 * len(done),)]


def test_a_past_state_is_not_changed(catalog: lc.Session) -> None:
    catalog.sql("SET 'paimon.*.*.t.scan.snapshot-id' = '1'")
    with pytest.raises(lc.InvalidRequest, match="newest rows"):
        catalog.sql(ADD_ONE)


def test_a_stream_is_not_read_again(catalog: lc.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = pa.table({"id": pa.array([1], pa.int32())}).to_reader()
    assert stream.schema.names == ["id"]
    _disturb(catalog, monkeypatch, times=1)
    with pytest.raises(lc.CommitConflict, match="the table changed while"):
        catalog.sql(
            "MERGE INTO shop.t USING stream AS s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET v = (SELECT 7) WHEN NOT MATCHED BY SOURCE THEN DELETE"
        )
    assert catalog.sql("SELECT v FROM shop.t").fetchall() == [(100,)]


def test_a_frame_of_pandas_is_read_again(
    catalog: lc.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pd.DataFrame({"id": [1]})
    assert len(frame) == 1
    _disturb(catalog, monkeypatch, times=1)
    catalog.sql("UPDATE shop.t SET v = v + 1 WHERE id IN (SELECT id FROM frame)")

    assert catalog.sql("SELECT v FROM shop.t").fetchall() == [(101,)]


def test_a_merge_with_a_query_takes_parameters_in_its_source(catalog: lc.Session) -> None:
    catalog.sql(
        "MERGE INTO shop.t USING (SELECT ? AS id, ? AS v) AS s ON t.id = s.id "
        "WHEN NOT MATCHED AND s.v > (SELECT max(v) FROM shop.t) THEN INSERT *",
        [2, 5],
    )
    assert catalog.sql("SELECT v FROM shop.t ORDER BY id").fetchall() == [(0,), (5,)]


def test_the_last_of_two_new_rows_with_one_key_counts(tmp_path: Path) -> None:
    session = lc.connect(tmp_path, create=True)
    session.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT, v INT, PRIMARY KEY (id))")
    count = 200_000
    ids = pa.array(range(count), pa.int32())
    twice = pa.concat_tables(pa.table({"id": ids, "v": pa.repeat(v, count)}) for v in (1, 2))
    assert twice.num_rows == 2 * count
    session.sql(
        "MERGE INTO shop.t USING twice AS s ON t.id = s.id AND EXISTS (SELECT 1) "
        "WHEN NOT MATCHED AND s.v = (SELECT 2) THEN INSERT (id, v) VALUES (s.id, 2) "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    assert session.sql("SELECT v, count(*) FROM shop.t GROUP BY v").fetchall() == [(2, count)]


def test_an_update_by_a_query_keeps_nanoseconds(tmp_path: Path) -> None:
    catalog = lc.connect(tmp_path, create=True)
    catalog.sql("CREATE TABLE times (moment TIMESTAMP(9) WITH LOCAL TIME ZONE, v INT)")
    catalog.sql("INSERT INTO times VALUES ('2024-01-01 00:00:00.123456789+00', 1), (NULL, 2)")
    update = "UPDATE times SET v = (SELECT 3) WHERE moment IN (SELECT moment FROM times)"
    if DUCKDB_1:  # has no such type
        with pytest.raises(lc.Unsupported, match=r"install DuckDB 2\. column=moment"):
            catalog.sql(update)
        return
    catalog.sql(update)
    catalog.sql(
        "MERGE INTO times USING (SELECT 1 AS id) AS s ON s.id = (SELECT 1) "
        "AND times.moment IS NULL WHEN MATCHED THEN UPDATE SET v = 4"
    )

    rows = catalog.sql("SELECT v, epoch_ns(moment::TIMESTAMP_NS) % 1000 FROM times ORDER BY v")
    assert rows.fetchall() == [(3, 789), (4, None)]
