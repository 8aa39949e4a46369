"""Concurrent writers, killed writers, and a crash at any call, on the emulator of each storage."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakecore.errors import LakecoreError
from lakecore.io.stores.open import open_store
from lakecore.table.handle import load_table
from property_tests.test_processes import Place, check_killed, check_writers
from tests.stores import FailingStore, StoreFailure

if TYPE_CHECKING:
    from tests.services.storage_servers import Lake

TABLES = itertools.count()
WRITERS = 8
COMMITS = 2
ROUNDS = 2


EMULATORS = ["gcs", "azure", "hdfs"]  # property_tests/test_processes.py has local disk and S3


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    lake: Lake = request.getfixturevalue(request.param)
    place = Place(path=lake.folder(f"w/shop.db/t{next(TABLES)}"), options=lake.options)
    place.create()
    return place


@pytest.mark.parametrize("place", EMULATORS, indirect=True)
@pytest.mark.sampled(3)
def test_eight_processes_lose_and_double_no_commit(place: Place) -> None:
    check_writers(place, WRITERS, COMMITS)


@pytest.mark.parametrize("place", EMULATORS, indirect=True)
@pytest.mark.sampled(3)
def test_killed_processes_leave_nothing_half_done(place: Place) -> None:
    check_killed(place, ROUNDS)


def row(number: int) -> pa.Table:
    return pa.table({"writer": pa.array([0], pa.int32()), "number": pa.array([number], pa.int32())})


@pytest.mark.parametrize("place", ["s3", *EMULATORS], indirect=True)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.sampled(4)
def test_crash_at_any_call_leaves_one_snapshot_or_the_next(place: Place, *, after: bool) -> None:
    """The process dies at each call that changes something, before or after its effect."""
    place.open().write(row(0))
    written = [0]
    for number in itertools.count(1):
        store = FailingStore(open_store(place.path, place.options), number, after=after)
        acknowledged = True
        try:
            load_table(store, place.path).write(row(number))
        except (StoreFailure, LakecoreError):
            acknowledged = False
        found = sorted(place.open().to_arrow()["number"].to_pylist())

        assert found in ([written] if not acknowledged else []) + [[*written, number]]
        written = found
        if not store.is_dead:
            break
    assert number > 4, "a write is several calls"
