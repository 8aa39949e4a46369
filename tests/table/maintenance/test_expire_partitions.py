from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import InvalidRequest, Unsupported
from tests.stores import MeddledStore
from tests.tables import held, new_table, put, reopened, with_options

if TYPE_CHECKING:
    from lakecore.table.handle import Table

COLUMNS = {"id": "INT NOT NULL", "dt": "STRING"}
# The clock of these tables begins on 2023-11-14.


def by_day(rows: str = "1 2023-11-01 | 2 2023-11-10 | 3 2023-11-14", **options: str) -> Table:
    """A table with a partition a day."""
    table = new_table(COLUMNS, keys=(), partitions=("dt",))
    if options:
        with_options(table, **options)
        table = reopened(table, ambient=table.context.ambient)
    for row in rows.split(" | "):
        put(table, row)
    return table


def test_old_partitions_are_dropped() -> None:
    table = by_day()

    done = table.expire_partitions(expiration_time="7 d")

    assert done.partitions == ({"dt": "2023-11-01"},)
    assert held(reopened(table)) == "2 2023-11-10 | 3 2023-11-14"
    assert table.context.history.snapshot(4).commit_kind == "OVERWRITE"
    assert done.snapshot_ids == (4,)


def test_age_may_be_a_timedelta_or_an_option() -> None:
    table = by_day(partition__expiration_time="2 d")

    assert len(table.expire_partitions(dry_run=True).partitions) == 2
    longer = table.expire_partitions(expiration_time=timedelta(days=7), dry_run=True)
    assert len(longer.partitions) == 1


def test_dry_run_drops_nothing() -> None:
    table = by_day()

    assert table.expire_partitions(expiration_time="1 d", dry_run=True).snapshot_ids == ()
    assert len(held(table).split("|")) == 3


def test_values_that_say_no_time_stay_and_are_named(caplog: pytest.LogCaptureFixture) -> None:
    table = by_day("1 2023-11-01 | 2 eu | 3 _")
    with caplog.at_level(logging.WARNING, "lakecore.expire"):
        done = table.expire_partitions(expiration_time="1 d")

    assert [each["dt"] for each in done.partitions_without_time] == ["eu", "__DEFAULT_PARTITION__"]
    assert "first={'dt': 'eu'}" in caplog.text
    assert held(reopened(table)) == "2 eu | 3 _"


def test_formatter_and_pattern_are_arguments() -> None:
    table = by_day("1 20231101 | 2 20231114")

    done = table.expire_partitions(
        expiration_time="2 d", timestamp_formatter="yyyyMMdd", timestamp_pattern="$dt"
    )

    assert done.partitions == ({"dt": "20231101"},)
    with pytest.raises(Unsupported, match="formatter"):
        table.expire_partitions(expiration_time="2 d", timestamp_formatter="yyyy MMMM")


def test_dates_are_times() -> None:
    table = new_table({"id": "INT", "dt": "DATE"}, keys=(), partitions=("dt",))
    put(table, "1 2023-11-01 | 2 2023-11-14")

    assert table.expire_partitions(expiration_time="2 d").partitions == ({"dt": "2023-11-01"},)


def test_oldest_go_first_where_there_are_many() -> None:
    table = by_day()

    done = table.expire_partitions(expiration_time="1 d", max_expires=1)

    assert done.partitions == ({"dt": "2023-11-01"},)


def test_batches_are_commits_of_their_own() -> None:
    table = by_day(partition__expiration_batch_size="1")

    assert table.expire_partitions(expiration_time="1 d").snapshot_ids == (4, 5)


def test_update_time_is_that_of_the_newest_file() -> None:
    table = by_day("1 eu | 2 us")
    table.context.ambient.sleep(3600)
    put(table, "3 us")
    table.context.ambient.sleep(3600)

    done = table.expire_partitions(expiration_time="90 min", expire_strategy="update-time")

    assert done.partitions == ({"dt": "eu"},)
    assert held(reopened(table)) == "2 us | 3 us"


def test_partition_that_is_written_meanwhile_stays() -> None:
    table = by_day("1 eu")
    table.context.ambient.sleep(7200)
    other = reopened(table, ambient=table.context.ambient)
    store = MeddledStore(table.context.store, lambda: put(other, "2 eu"))
    mine = reopened(table, store=store, ambient=table.context.ambient)
    mine.expire_partitions(expiration_time="1 h", expire_strategy="update-time")

    assert held(reopened(table)) == "1 eu | 2 eu"


def test_commits_look_once_in_an_interval() -> None:
    table = by_day(partition__expiration_time="7 d", partition__expiration_check_interval="1 h")
    assert "2023-11-01" in held(table)

    table.context.ambient.sleep(3601)
    put(table, "4 2023-11-14")

    assert held(table) == "2 2023-11-10 | 3 2023-11-14 | 4 2023-11-14"
    put(table, "5 2023-11-01")
    assert "5 2023-11-01" in held(table)


def test_batches_look_at_their_end_where_the_option_says_so() -> None:
    table = by_day(partition__expiration_time="7 d", end_input__check_partition_expire="true")

    assert held(table) == "2 2023-11-10 | 3 2023-11-14"


def test_interval_of_zero_looks_always() -> None:
    table = by_day(partition__expiration_time="7 d", partition__expiration_check_interval="0 s")

    assert held(table) == "2 2023-11-10 | 3 2023-11-14"


def test_clock_that_goes_back_does_not_stop_the_checks() -> None:
    table = by_day(partition__expiration_time="1 d")
    context = table.context
    early = replace(context.ambient, now_ms=lambda: 1_600_000_000_000)
    put(reopened(table, ambient=early), "4 2023-11-14")

    assert "2023-11-01" in held(table)


def test_table_without_partitions_or_time_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no partitions"):
        new_table().expire_partitions(expiration_time="1 d")
    with pytest.raises(InvalidRequest, match="set how long"):
        by_day("1 2023-11-01").expire_partitions()


@pytest.mark.parametrize("strategy", ["values-time", "update-time"])
def test_table_without_rows_has_no_old_partition(strategy: str) -> None:
    table = new_table(COLUMNS, keys=(), partitions=("dt",), partition__expiration_strategy=strategy)

    done = table.expire_partitions(expiration_time="1 d")
    assert (done.partitions, done.snapshot_ids) == ((), ())
