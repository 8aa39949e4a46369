"""Tests of `lakecore/io/freed_memory.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from lakecore.io import freed_memory
from lakecore.io.freed_memory import encoding_pool, release_freed, reused_memory

ROOT = Path(__file__).parents[2]
MEBIBYTE = 1 << 20
ROOMY = 4096 * MEBIBYTE


class _Pool:
    """Counts how often it is asked to give back what it keeps."""

    released = 0

    def release_unused(self) -> None:
        self.released += 1


@pytest.mark.parametrize(("held", "released"), [(700, 0), (800, 1), (float("inf"), 1)])
def test_freed_memory_goes_back_where_the_process_holds_most_of_its_budget(
    monkeypatch: pytest.MonkeyPatch, held: float, released: int
) -> None:
    pool = _Pool()
    monkeypatch.setattr(freed_memory, "encoding_pool", lambda: pool)
    monkeypatch.setattr(freed_memory, "resident_bytes", lambda: held * MEBIBYTE)

    release_freed(1024 * MEBIBYTE)

    assert pool.released == released


MEASURE = """
from lakecore.io.freed_memory import resident_bytes

before = resident_bytes()
filled = b"x" * (64 << 20)
print((resident_bytes() - before) >> 20)
"""


def test_what_the_process_holds_grows_with_what_it_fills() -> None:
    """In a fresh process, where no allocator gives back what other tests have freed meanwhile."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True, cwd=ROOT
    )

    assert int(done.stdout) > 32


def test_what_is_encoded_counts_as_memory_of_its_pool() -> None:
    before = encoding_pool().bytes_allocated()
    room = pa.allocate_buffer(MEBIBYTE, memory_pool=encoding_pool())

    assert encoding_pool().bytes_allocated() - before >= room.size


def test_process_whose_memory_is_unknown_gives_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(freed_memory, "_RESIDENT", "/nowhere")

    assert freed_memory.resident_bytes() == float("inf")


def test_long_work_takes_memory_from_one_pool_and_puts_the_other_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    before = pa.default_memory_pool().backend_name
    with reused_memory(ROOMY):
        with reused_memory(ROOMY):
            inside = pa.default_memory_pool().backend_name
        still = pa.default_memory_pool().backend_name
        held = pa.array([1, 2, 3])

    assert inside == still == encoding_pool().backend_name
    assert pa.default_memory_pool().backend_name == before
    assert held.to_pylist() == [1, 2, 3]


def test_pool_that_the_user_has_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "system")
    before = pa.default_memory_pool().backend_name
    with reused_memory(ROOMY):
        assert pa.default_memory_pool().backend_name == before


def test_small_budget_has_no_room_for_two_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    before = pa.default_memory_pool().backend_name
    with reused_memory(512 * MEBIBYTE):
        assert pa.default_memory_pool().backend_name == before


FAULTS = """
import ctypes, resource, threading, time
import pyarrow as pa
from lakecore.io.freed_memory import encoding_pool

POOL = encoding_pool()

def fill():
    for room in [pa.allocate_buffer(2 << 20, memory_pool=POOL) for _ in range(16)]:
        ctypes.memset(room.address, 1, room.size)

def fill_again():
    fill()
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(3):
        time.sleep(0.7)
        fill()
    print(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)

fill()  # The first arena is that of this thread.
encoding = threading.Thread(target=fill_again)
encoding.start()
encoding.join()
"""


@pytest.mark.parametrize("pool", [None, "mimalloc"])
def test_encoders_have_freed_pages_at_hand_for_more_than_a_second(pool: str | None) -> None:
    """Unless the user has chosen a pool."""
    chosen = {} if pool is None else {"ARROW_DEFAULT_MEMORY_POOL": pool}
    environment = {k: v for k, v in os.environ.items() if k != "ARROW_DEFAULT_MEMORY_POOL"}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**environment, **chosen},
    )

    pages = 16 * (2 << 20) // os.sysconf("SC_PAGE_SIZE")
    assert (int(done.stdout) < pages // 10) is (pool is None)


def test_encoders_without_jemalloc_use_arrows_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pa, "supported_memory_backends", lambda: ["mimalloc", "system"])

    assert encoding_pool.__wrapped__().backend_name == pa.default_memory_pool().backend_name
