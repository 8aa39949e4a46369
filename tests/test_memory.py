from __future__ import annotations

import threading
from typing import Any

import pytest

import lakecore as lc
from lakecore import memory
from lakecore.errors import InvalidRequest
from lakecore.memory import Budget, process_budget, set_process_budget


def test_lease_is_given_back_once() -> None:
    budget = Budget(100)
    lease = budget.acquire(60)
    assert budget.used_bytes == 60
    lease.release()
    lease.release()

    assert budget.used_bytes == 0


def test_lease_is_given_back_when_its_block_ends_in_an_error() -> None:
    budget = Budget(100)
    with pytest.raises(ValueError, match="wrong"), budget.acquire(60):
        raise ValueError("wrong")

    assert budget.used_bytes == 0


def test_who_gets_no_lease_waits_until_there_is_room() -> None:
    budget = Budget(100)
    first = budget.acquire(60)
    with pytest.raises(TimeoutError, match="no room for a lease of 50 bytes"):
        budget.acquire(50, timeout_seconds=0)
    waiting = threading.Thread(target=budget.acquire, args=(50,))
    waiting.start()
    first.release()
    waiting.join(5)

    assert budget.used_bytes == 50


def test_lease_above_the_whole_budget_is_granted_alone() -> None:
    budget = Budget(100)
    with budget.acquire(1000), pytest.raises(TimeoutError):
        budget.acquire(1, timeout_seconds=0)

    with budget.acquire(1), pytest.raises(TimeoutError):
        budget.acquire(1000, timeout_seconds=0)


def test_lease_grows_while_there_is_room_and_shrinks_always() -> None:
    budget = Budget(100)
    lease, other = budget.acquire(10), budget.acquire(20)

    assert lease.resize(80)
    assert not lease.resize(81)
    assert budget.used_bytes == 100
    assert lease.resize(0)
    other.release()
    assert lease.resize(500)
    assert budget.used_bytes == 500


def test_lease_as_large_as_there_is_room_for_never_waits() -> None:
    budget = Budget(100)

    assert budget.acquire_up_to(70, 10).size_bytes == 70
    assert budget.acquire_up_to(70, 10).size_bytes == 30
    assert budget.acquire_up_to(70, 10).size_bytes == 10
    assert budget.used_bytes == 110


def test_raising_the_budget_lets_the_waiting_in() -> None:
    budget = Budget(100)
    budget.acquire(60)
    waiting = threading.Thread(target=budget.acquire, args=(60,))
    waiting.start()
    budget.set_size(200)
    waiting.join(5)

    assert budget.used_bytes == 120


def test_process_has_one_budget_whose_size_may_change() -> None:
    budget = process_budget()
    before = budget.size_bytes
    try:
        set_process_budget(123)

        assert process_budget() is budget
        assert budget.size_bytes == 123
    finally:
        set_process_budget(before)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "", "many", "-1 mb", None])
def test_budget_of_no_size_is_refused(size: Any) -> None:
    before = process_budget().size_bytes

    with pytest.raises(InvalidRequest, match="size="):
        set_process_budget(size)
    assert process_budget().size_bytes == before


def test_budget_of_the_process_is_set_by_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = Budget()
    monkeypatch.setattr(memory, "_process", budget)
    lc.memory.set_process_budget("2 gb")

    assert lc.memory.process_budget().size_bytes == 2 << 30
    budget.set_default_size(5)
    assert budget.size_bytes == 2 << 30
