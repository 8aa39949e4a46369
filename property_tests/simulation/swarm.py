"""Many seeds, on all processors; and one, looked at closely."""

from __future__ import annotations

import logging
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from property_tests.simulation.cheap import cheaply
from property_tests.simulation.scenario import draw
from property_tests.simulation.shrink import shrink
from property_tests.simulation.simulate import Run, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CHUNK = 50


@contextmanager
def quietly() -> Iterator[None]:
    """Within the block, this process is one that simulates; lost races are not worth a line."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        with cheaply():
            yield
    finally:
        logging.disable(before)
        pa.set_cpu_count(threads)


def play(seed: int) -> Run:
    """One seed."""
    with quietly():
        return simulate(draw(seed))


def play_many(seeds: Sequence[int]) -> list[tuple[int, str]]:
    """The seeds that fail, each with what is wrong."""
    found = []
    with quietly():
        for seed in seeds:
            run = simulate(draw(seed))
            if run.violation:
                found.append((seed, run.violation))
    return found


def digests(seeds: Sequence[int]) -> list[str]:
    """The hash of each trace."""
    return [play(seed).digest for seed in seeds]


def look_at(seed: int) -> bool:
    """Play a seed, make it smaller if it fails, and print each call: whether nothing is wrong."""
    with quietly():
        run = simulate(draw(seed))
        if run.violation:
            print(run.scenario, f"violation: {run.violation}", "", "made smaller:", sep="\n")
            run = shrink(run)
    print(run)
    return not run.violation


def swarm(first: int, count: int, jobs: int) -> bool:
    """Play so many seeds, and look closely at the first that fails: whether there is none."""
    began = time.monotonic()
    chunks = [
        range(at, min(at + _CHUNK, first + count)) for at in range(first, first + count, _CHUNK)
    ]
    failed: list[tuple[int, str]] = []
    done = 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        tasks = {pool.submit(play_many, chunk): chunk for chunk in chunks}
        for task in as_completed(tasks):
            failed += task.result()
            done += len(tasks[task])
            if done % 1_000 < _CHUNK:
                print(
                    f"{done} seeds, {len(failed)} failed, {time.monotonic() - began:.0f} s",
                    flush=True,
                )
            if len(failed) >= 10:
                for other in tasks:
                    other.cancel()
                break
    for seed, violation in sorted(failed):
        print(f"seed {seed}: {violation}")
    seconds = time.monotonic() - began
    print(f"{done} seeds in {seconds:.0f} s, {len(failed)} failed")
    return not failed or look_at(min(failed)[0])
