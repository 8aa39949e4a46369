"""Commits through a server that fails, loses replies or refuses: exactly one snapshot, or none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from lakecore.catalog.registry import open_catalog
from lakecore.errors import CommitUnknown, LakecoreError, StorageError
from tests.rest_servers import Fault

if TYPE_CHECKING:
    from lakecore.catalog.catalog import Catalog
    from lakecore.table.handle import Table
    from tests.rest_servers import BreakingApp


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return catalog.create_table(
        "shop.orders", {"id": "BIGINT NOT NULL"}, primary_keys=["id"], options={"bucket": "1"}
    )


def row(number: int) -> pl.DataFrame:
    return pl.DataFrame({"id": [number]})


def state(behind: Catalog) -> tuple[list[int], int]:
    """The ids that the server's own catalog reads, and the number of snapshots."""
    table = behind.get_table("shop.orders")
    snapshots = table.context.history.snapshot_ids()
    return sorted(table.to_polars()["id"].to_list()), len(snapshots)


@pytest.mark.parametrize("status", [None, 500, 503])
def test_commit_that_was_made_counts_although_the_reply_says_otherwise(
    table: Table, behind: Catalog, app: BreakingApp, status: int | None
) -> None:
    app.faults.append(
        Fault("POST", "commit", carried_out=True, status=status, headers={"retry-after": "0"})
    )
    result = table.write(row(1))

    assert result.snapshot_ids == (1,)
    assert state(behind) == ([1], 1)


@pytest.mark.parametrize("status", [409, 429, 503])
def test_busy_server_is_asked_again(
    table: Table, behind: Catalog, app: BreakingApp, status: int
) -> None:
    app.faults.append(Fault("POST", "commit", status=status, times=2, headers={"retry-after": "0"}))
    table.write(row(1))

    assert state(behind) == ([1], 1)
    assert app.seen.count("POST /v1/paimon/databases/shop/tables/orders/commit") == 3


@pytest.mark.parametrize("status", [None, 500])
def test_commit_whose_fate_is_unknown_deletes_nothing(
    table: Table, behind: Catalog, app: BreakingApp, status: int | None
) -> None:
    app.faults.append(Fault("POST", "commit", status=status))
    with pytest.raises(CommitUnknown, match="look for the snapshot"):
        table.write(row(1))

    assert app.seen.count("POST /v1/paimon/databases/shop/tables/orders/commit") == 1
    assert data_files(table)
    assert state(behind) == ([], 0)


def test_commit_that_is_refused_leaves_no_files(
    table: Table, behind: Catalog, app: BreakingApp
) -> None:
    app.faults.append(Fault("POST", "commit", status=403))
    with pytest.raises(StorageError, match="does not permit"):
        table.write(row(1))

    assert not data_files(table)
    assert state(behind) == ([], 0)


def data_files(table: Table) -> list[Path]:
    return list(Path(table.path).rglob("data-*"))


@pytest.mark.parametrize("carried_out", [True, False])
def test_connection_that_breaks_at_any_request_of_a_commit_loses_and_doubles_nothing(
    table: Table, behind: Catalog, app: BreakingApp, *, carried_out: bool
) -> None:
    table.write(row(0))
    app.seen.clear()
    table.write(row(1))
    requests = len(app.seen)
    written = {0, 1}
    assert requests >= 3
    for position in range(requests):
        countdown = [position]

        def break_one(request: str, countdown: list[int] = countdown) -> None:
            if countdown[0] == 0:
                method, path = request.split(" ", 1)
                app.faults[:] = [Fault(method, path, carried_out=carried_out)]
            countdown[0] -= 1

        app.before = break_one
        number = 10 + position
        try:
            table.write(row(number))
            written.add(number)
        except LakecoreError:
            pass
        app.before, app.faults[:] = None, []
        ids, _ = state(behind)
        assert {*ids} - {number} == written - {number}
        written = {*ids}
        assert ids == sorted({*ids})
    table.write(row(99))
    assert {*state(behind)[0]} == written | {99}


def test_writers_of_two_clients_lose_no_row(
    catalog: Catalog, client: dict[str, str], behind: Catalog
) -> None:
    catalog.create_table(
        "shop.orders",
        {"id": "BIGINT NOT NULL"},
        primary_keys=["id"],
        options={"bucket": "1", "write-only": "true"},
    )

    def write(worker: int) -> None:
        mine = open_catalog(client, create=False).get_table("shop.orders")
        for number in range(5):
            mine.write(row(worker * 10 + number))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(1, 5)))

    ids, snapshots = state(behind)
    assert ids == sorted(worker * 10 + number for worker in range(1, 5) for number in range(5))
    assert snapshots == 20
