"""Errors of DuckDB as lakecore's own."""

from __future__ import annotations

import re
import threading

import duckdb
import pytest

from lakecore.sql.queries import plain_name
from lakecore.sql.query_errors import drop_table, error_of


@pytest.mark.parametrize(
    "error",
    [
        duckdb.InterruptException("stopped"),
        OSError("Arrow: INTERRUPT Error: Interrupted!"),
        RuntimeError("Query interrupted"),
    ],
)
def test_an_interrupted_query_is_one_whatever_is_raised(error: Exception) -> None:
    with pytest.raises(KeyboardInterrupt):
        error_of(error)


def test_a_table_is_dropped_while_the_connection_is_stopped_again_and_again() -> None:
    connection = duckdb.connect()
    ended = threading.Event()

    def stop_it() -> None:
        while not ended.is_set():
            connection.interrupt()

    stopper = threading.Thread(target=stop_it)
    stopper.start()
    try:
        for number in range(200):
            connection.cursor().execute(f"CREATE TABLE t{number} (a INT)")
            drop_table(connection, f"t{number}")
    finally:
        ended.set()
        stopper.join()
    assert connection.sql("SHOW TABLES").fetchall() == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("select itm from t", "unknown column. column=itm did_you_mean=item columns=[item, id]"),
        ("select t.itm from t", "unknown column. column=itm did_you_mean=item columns=[item, id]"),
        ("select itm", "unknown column; the query has no FROM. column=itm"),
        ("select x.id from t", "the query has no table of this name. table=x tables=[t]"),
        ("select flor(1)", "no such function. function=flor did_you_mean=floor"),
        ("select date_format(id, 'y') from t", "function=date_format write=strftime(time, "),
        ("select 1::foo", "no such type. type=foo"),
        ("select cast('x' as int)", "could not convert string 'x' to INT32"),
        ("select id from t group by item", "Either add it to the GROUP BY list, or use"),
        ("select (select range from range(3))", "more than one row returned by a subquery"),
        ("select strftime(1)", "types 'strftime(INTEGER)'. You might need"),
        ("select * from t, t", 'ambiguous reference to table "t"'),
    ],
)
def test_an_error_begins_with_its_cause_and_gives_no_advice_for_duckdb(
    text: str, said: str
) -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (id INT, item VARCHAR)")
    with pytest.raises(duckdb.Error) as caught:
        connection.sql(text).fetchall()
    found = str(error_of(caught.value))

    assert said in found
    assert not re.search(r"Error:|LINE |SET |memory|_LITERAL|\n", found)


def test_an_error_of_a_reader_in_python_has_no_traceback() -> None:
    raised = duckdb.InvalidInputException(
        "Invalid Input Error: reading the Arrow source failed: Invalid: a stored value cannot be "
        "cast. column=s. Detail: Python exception: Traceback (most recent call last):\n  File"
    )

    assert str(error_of(raised)) == "a stored value cannot be cast. column=s"


def test_names_of_columns_hold_no_names_of_views() -> None:
    seen = "(SELECT count_star() FROM _lakecore_view_1 AS t)"
    filtered = "(SELECT 1 FROM (SELECT * FROM _lakecore_view_7 WHERE (id IN (1))) AS t , u)"

    assert plain_name(seen) == "(SELECT count_star() FROM t)"
    assert plain_name(filtered) == "(SELECT 1 FROM t , u)"
    assert plain_name("plain") == "plain"
