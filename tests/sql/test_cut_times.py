"""INSERT, UPDATE and MERGE cut times to the digits of their column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore as lc

if TYPE_CHECKING:
    from pathlib import Path

MOMENT = "TIMESTAMP '1969-12-31 10:00:00.987654'"
MERGE, SET = "MERGE INTO t USING", "WHEN MATCHED THEN UPDATE SET"
STATEMENTS = (
    "INSERT INTO t (id, {column}) SELECT 1, {value}",
    "UPDATE t SET {column} = {value}",
    f"{MERGE} (SELECT 1 AS id) AS s ON t.id = s.id {SET} {{column}} = {{value}}",
    f"{MERGE} (SELECT 1 AS id, {{value}} AS v) AS s ON t.id = s.id {SET} {{column}} = s.v",
    "UPDATE t SET {column} = (SELECT max(v) FROM (SELECT {value} AS v))",
    "UPDATE t SET {column} = {value} WHERE id IN (SELECT 1)",
    f"{MERGE} (SELECT 1 AS id) AS s ON t.id = s.id {SET} {{column}} = (SELECT {{value}})",
    (
        f"{MERGE} (SELECT 1 AS id) AS s ON t.id = s.id WHEN NOT MATCHED BY SOURCE THEN DELETE "
        f"{SET} {{column}} = (SELECT {{value}})"
    ),
    (
        f"{MERGE} (SELECT 2 AS id WHERE false) AS s ON t.id = s.id "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET {column} = (SELECT {value}) "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (1)"
    ),
)


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.sampled(2)
def test_times_are_cut_to_the_digits_of_the_column(tmp_path: Path, statement: str) -> None:
    session = lc.connect(str(tmp_path), create=True)
    session.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a TIMESTAMP(0), b TIME(0), c TIME(3), d TIMESTAMP(3))"
    )
    session.sql("INSERT INTO t (id) VALUES (1)")

    for column, value in (
        ("a", MOMENT),
        ("b", MOMENT),
        ("c", "TIME '10:00:00.987654'"),
        ("d", MOMENT),
    ):
        session.sql(statement.format(column=column, value=value))
        ((found,),) = session.sql(f"SELECT CAST({column} AS VARCHAR) FROM t").fetchall()
        assert found.endswith("10:00:00.987" if column in {"c", "d"} else "10:00:00")
    for column, value in (("a", "now()"), ("b", "current_time"), ("c", "current_timestamp")):
        session.sql(statement.format(column=column, value=value))
