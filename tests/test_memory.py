from __future__ import annotations

import gc
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore import memory
from lakecore.errors import InvalidRequest
from lakecore.io.cache import Cache
from lakecore.memory import PLANS, Budget, Share, process_budget, set_process_budget

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = sorted(Path(lc.__file__).parent.rglob("*.py"))
OWN_SHARE = re.compile(r"budget(?:\(\))?\.size_bytes\s*(?://|/|\*)")


@pytest.mark.parametrize("verb", PLANS)
def test_shares_that_a_verb_holds_together_fit_the_budget(verb: str) -> None:
    size_bytes = 1 << 30

    assert sum(share.of(size_bytes) for share in PLANS[verb]) <= size_bytes


def test_each_share_is_in_a_plan_or_a_part_of_one_that_is() -> None:
    planned = {share for shares in PLANS.values() for share in shares}
    bounds = [share for share in Share if share not in planned]

    assert [share.name for share in bounds] == [
        "KEPT",
        "BUFFERS_LEAST",
        "BUFFERS_FREE",
        "LARGE_ROW",
        "UNBUFFERED_ROW",
        "PIECE",
        "RELEASED",
        "MANY_OF_A_KEY",
        "KEY_ROWS",
        "WINDOW_ROWS",
    ]


def test_no_other_module_divides_the_budget() -> None:
    found = {
        f"{path.name}: {match.group()}"
        for path in SOURCES
        if path.name != "memory.py"
        for match in OWN_SHARE.finditer(path.read_text())
    }

    assert found == set()


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


def test_caches_give_back_what_a_lease_needs_and_never_delay_it() -> None:
    budget = Budget(1000)
    cache: Cache[int, str] = Cache(10, budget=budget)
    for number in range(20):
        cache.put(number, "x", 1)
    assert budget.kept_bytes == cache.size_bytes == 200

    lease = budget.acquire(900, timeout_seconds=0)
    assert budget.kept_bytes == 100
    assert (cache.get(0), cache.get(19)) == (None, "x")

    assert lease.resize(1000)
    assert budget.kept_bytes == 0
    lease.release()
    budget.acquire(5000, timeout_seconds=0).release()


def test_caches_keep_a_quarter_of_the_budget_and_the_newest_value() -> None:
    budget = Budget(1000)
    one, other = (Cache[int, str](100, budget=budget) for _ in range(2))
    for number in range(5):
        one.put(number, "x", 1)
    assert budget.kept_bytes == 200

    other.put(0, "newest", 2)
    assert (other.get(0), budget.kept_bytes) == ("newest", 400)
    one.put(5, "x", 1)
    assert (one.get(5), one.size_bytes) == ("x", 100)


def test_a_value_larger_than_the_share_of_caches_is_not_kept() -> None:
    budget = Budget(1000)
    cache: Cache[int, str] = Cache(100, budget=budget)
    cache.put(0, "x", 1)
    cache.put(1, "large", 3)

    assert (cache.get(1), cache.get(0), budget.kept_bytes) == (None, "x", 100)
    assert (cache.take(0), cache.take(0), budget.kept_bytes) == ("x", None, 0)


def test_empty_caches_are_not_asked_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Cache[Any, Any]] = []
    give_back = Cache.give_back

    def noted(self: Cache[Any, Any], size_bytes: int) -> int:
        asked.append(self)
        return give_back(self, size_bytes)

    monkeypatch.setattr(Cache, "give_back", noted)
    budget = Budget(1000)
    caches = [Cache[int, str](100, budget=budget) for _ in range(3)]
    for cache in caches:
        cache.put(0, "x", 1)
    assert caches[0].take(0) == "x"
    budget.acquire_up_to(1000, 0)
    assert set(map(id, asked)) == set(map(id, caches[1:]))

    asked.clear()
    caches[2].put(0, "x", 1)
    budget.acquire_up_to(0, 10)
    assert asked == caches[2:]
    assert budget.kept_bytes == 0


def test_a_cache_that_is_gone_keeps_nothing() -> None:
    budget = Budget(1000)
    cache, other = (Cache[int, str](100, budget=budget) for _ in range(2))
    cache.put(0, "x", 2)
    del cache
    gc.collect()
    for number in range(2):
        other.put(number, "x", 1)

    assert budget.kept_bytes == 200


def test_caches_and_leases_of_many_threads_do_not_wait_for_each_other() -> None:
    budget = Budget(1000)
    caches = [Cache[int, str](10, budget=budget) for _ in range(4)]

    def work(cache: Cache[int, str]) -> None:
        for number in range(500):
            cache.put(number, "x", 1 + number % 7)
            with budget.acquire_up_to(400, 10) as lease:
                lease.resize(600)

    threads = [threading.Thread(target=work, args=(cache,), daemon=True) for cache in caches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert not any(thread.is_alive() for thread in threads)
    assert budget.used_bytes == 0
    assert budget.kept_bytes == sum(cache.size_bytes for cache in caches)


def test_the_history_of_a_table_counts_in_the_budget(tmp_path: Path) -> None:
    table = lc.open_table(tmp_path / "t", create=True, schema={"id": "INT"})
    gc.collect()
    before = process_budget().kept_bytes
    for number in range(5):
        table.write([{"id": number}])
        table.to_arrow()

    assert process_budget().kept_bytes > before + 5 * 1000


def test_a_lease_that_was_forgotten_in_a_circle_does_not_hold_others_up_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "PATIENCE_SECONDS", 0.1)
    budget = Budget(100)

    def reader() -> Iterator[None]:
        with budget.acquire(90):
            yield

    forgotten: list[object] = [reader()]
    next(forgotten[0])  # type: ignore[call-overload]
    forgotten.append(forgotten)
    gc.disable()
    try:
        del forgotten
        budget.acquire(50, timeout_seconds=10).release()
    finally:
        gc.enable()

    assert budget.used_bytes == 0
