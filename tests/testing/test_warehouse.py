"""The faulty warehouse fails as its seed says, and every call of an operation can be the last."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from lakecore.errors import CommitUnknown, InvalidRequest, StorageError
from lakecore.testing import (
    Crashed,
    Faults,
    FaultyWarehouse,
    StoreCall,
    every_call,
    faulty_warehouse,
)
from tests.tables import shown

if TYPE_CHECKING:
    from lakecore.session import Session

COLUMNS = {"id": "INT NOT NULL", "v": "STRING"}


def create(session: Session) -> None:
    session.create_database("shop", ignore_if_exists=True)
    session.create_table(
        "shop.orders",
        COLUMNS,
        primary_keys=["id"],
        options={"bucket": "1"},
        ignore_if_exists=True,
    )


def load(session: Session, *ids: int) -> None:
    rows = [{"id": n, "v": "x"} for n in ids]
    session.get_table("shop.orders").write(rows, commit_user="load", identifier=ids[0])


def held(warehouse: FaultyWarehouse) -> str:
    return shown(warehouse.connect(faults=False).get_table("shop.orders").to_arrow())


def test_without_faults_nothing_fails_and_every_call_is_in_the_trace() -> None:
    with faulty_warehouse() as warehouse:
        create(warehouse.connect())
        load(warehouse.connect(), 1, 2)

        assert held(warehouse) == "1 x | 2 x"
        assert {call.fault for call in warehouse.trace} == {""}
        commits = [call for call in warehouse.trace if call.path.endswith("/snapshot-1")]
        assert "put_if_absent" in {call.name for call in commits}


def test_crash_ends_the_process_and_all_its_sessions() -> None:
    warehouse = faulty_warehouse(3)
    session = warehouse.connect()
    create(session)
    warehouse.crash()
    with pytest.raises(Crashed):
        load(session, 1)
    load(warehouse.connect(), 2)

    assert held(warehouse) == "2 x"
    assert warehouse.crashes == 1
    assert StoreCall("crash", "") in warehouse.trace


def test_process_dies_at_the_call_that_the_faults_name_and_not_again() -> None:
    with faulty_warehouse(1, Faults(crash_at=9)) as warehouse:
        with warehouse.until_crash():
            create(warehouse.connect())
            load(warehouse.connect(), 1)
            raise AssertionError("it never died")
        assert warehouse.crashes == 1
        assert "crash" in warehouse.trace[-1].fault
        create(warehouse.connect())
        load(warehouse.connect(), 1)

        assert held(warehouse) == "1 x"


def test_error_of_a_living_process_leaves_the_block_with_the_seed_in_a_note() -> None:
    with (  # noqa: PT012 - the blocks are what is tried
        pytest.raises(ValueError, match="mine") as failure,
        faulty_warehouse(77) as warehouse,
    ):
        create(warehouse.connect())
        with warehouse.until_crash():
            raise ValueError("mine")

    assert "seed=77" in failure.value.__notes__[0]
    assert "orders/schema/schema-0" in failure.value.__notes__[0]


def outcomes(seed: int, faults: Faults, order: range) -> dict[int, str]:
    warehouse = faulty_warehouse(seed, faults)
    met = {}
    for n in order:
        try:
            warehouse.store.put_if_absent(f"{warehouse.path}/{n}", b"1")
            met[n] = "done"
        except (StorageError, CommitUnknown) as error:
            met[n] = str(error.facts.get("fault"))
    assert [call.fault or "done" for call in warehouse.trace] == [*met.values()]
    return met


@pytest.mark.parametrize("name", ["lost_requests", "lost_replies", "full_disk"])
def test_faults_depend_on_the_seed_and_the_call_and_not_on_the_order_of_calls(name: str) -> None:
    stated: dict[str, Any] = {name: 0.2}
    faults = Faults(**stated)
    first = outcomes(5, faults, range(200))

    assert first == outcomes(5, faults, range(199, -1, -1))
    assert first != outcomes(6, faults, range(200))
    assert 20 < sum(met != "done" for met in first.values()) < 60


def test_loads_that_are_repeated_until_they_are_done_count_once() -> None:
    faults = Faults(lost_requests=0.02, lost_replies=0.02, full_disk=0.02, listing_lag_ms=50)
    warehouse = faulty_warehouse(5, faults)
    create(warehouse.connect(faults=False))
    tries = 0
    for n in range(1, 6):
        while True:
            tries += 1
            with suppress(StorageError, CommitUnknown):
                load(warehouse.connect(), n)
                break

    assert held(warehouse) == "1 x | 2 x | 3 x | 4 x | 5 x"
    assert tries > 5


def test_lost_request_has_no_effect_a_lost_reply_has_it_and_a_full_disk_takes_nothing() -> None:
    there = {}
    for name, faults in (
        ("request", Faults(lost_requests=1)),
        ("reply", Faults(lost_replies=1)),
        ("disk", Faults(full_disk=1)),
    ):
        warehouse = faulty_warehouse(1, faults)
        error = StorageError if name == "disk" else CommitUnknown
        with pytest.raises(error):
            warehouse.store.put_if_absent(f"{warehouse.path}/a", b"1")
        with pytest.raises(StorageError), warehouse.store.open_output(f"{warehouse.path}/b") as out:
            out.write(b"1")
        there[name] = [warehouse.files.exists(f"{warehouse.path}/{file}") for file in "ab"]

    assert there == {"request": [False, False], "reply": [True, True], "disk": [False, False]}


def test_listing_lags_for_as_long_as_it_is_said() -> None:
    warehouse = faulty_warehouse(1, Faults(listing_lag_ms=1000))
    places = [f"{warehouse.path}/d/{n}" for n in range(40)]
    for place in places[:20]:
        warehouse.store.put(place, b"1")
    early = {status.path for status in warehouse.store.list(f"{warehouse.path}/d")}
    warehouse.clock.advance(1000)
    late = {status.path for status in warehouse.store.list(f"{warehouse.path}/d")}
    for place in places[:20]:
        warehouse.store.delete(place)
    ghosts = {status.path for status in warehouse.store.list(f"{warehouse.path}/d")}

    assert early < late == {*places[:20]}
    assert ghosts
    warehouse.clock.advance(1000)
    assert warehouse.store.list(f"{warehouse.path}/d") == ()


def test_power_loss_may_bring_back_deleted_files_and_a_plain_crash_does_not() -> None:
    def left(*, power_loss: bool) -> int:
        warehouse = faulty_warehouse(1, Faults(power_loss=power_loss))
        for n in range(20):
            warehouse.store.put(f"{warehouse.path}/d/{n}", b"1")
        for n in range(20):
            warehouse.store.delete(f"{warehouse.path}/d/{n}")
        warehouse.crash()
        return len(warehouse.store.list(f"{warehouse.path}/d"))

    assert 0 < left(power_loss=True) < 20
    assert left(power_loss=False) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"lost_replies": 1.5},
        {"full_disk": -0.1},
        {"lost_replies": 0.6, "lost_requests": 0.6},
        {"crash_at": 0},
        {"listing_lag_ms": -1},
    ],
    ids=str,
)
def test_faults_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        Faults(**wrong)


def test_write_is_whole_or_not_there_whichever_call_is_the_last() -> None:
    seen = set()

    def check(warehouse: FaultyWarehouse) -> None:
        found = shown(warehouse.connect().get_table("shop.orders").to_arrow())
        assert found in ("1 x", "1 x | 2 x")
        assert found == "1 x | 2 x" or warehouse.crashes
        seen.add(found)
        load(warehouse.connect(), 2)
        assert held(warehouse) == "1 x | 2 x"

    def setup(warehouse: FaultyWarehouse) -> None:
        create(warehouse.connect())
        load(warehouse.connect(), 1)

    for power_loss in (False, True):
        calls = every_call(
            lambda warehouse: load(warehouse.connect(), 2),
            check,
            setup=setup,
            power_loss=power_loss,
        )
        assert calls > 5
    assert len(seen) == 2


def test_every_call_names_the_call_after_which_a_check_failed() -> None:
    def check(warehouse: FaultyWarehouse) -> None:
        assert warehouse.files.exists(f"{warehouse.path}/b") == (not warehouse.crashes)

    def operation(warehouse: FaultyWarehouse) -> None:
        warehouse.store.put(f"{warehouse.path}/a", b"1")
        warehouse.store.put(f"{warehouse.path}/b", b"1")

    with pytest.raises(AssertionError) as failure:
        every_call(operation, check)

    # The second call has its effect, and then the process dies.
    assert "crash_at=2" in failure.value.__notes__[0]
    assert "put b: crash after it" in failure.value.__notes__[0]


def test_every_call_passes_on_what_the_operation_raises_while_it_lives() -> None:
    def operation(_: FaultyWarehouse) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        every_call(operation, lambda _: None)
