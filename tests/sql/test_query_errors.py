"""Errors of DuckDB as lakecore's own."""

from __future__ import annotations

import threading

import duckdb
import pytest

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


def test_a_cast_that_lakecore_adds_is_not_shown() -> None:
    own = duckdb.ConversionException("out of range\n\nLINE 6: SELECT CAST(#1 AS TINYINT)\n    ^")
    theirs = duckdb.ConversionException("out of range\n\nLINE 1: SELECT 128::TINYINT\n    ^")

    assert error_of(own).facts["reason"] == "out of range"
    assert "LINE 1: SELECT 128::TINYINT" in str(error_of(theirs).facts["reason"])
