"""Upserts into a table of 2 M rows, and an aggregate after them, in other lakes and in lakecore.

20 upserts of 10 000 rows; lakecore marks the old rows in deletion vectors and compacts by itself.
DuckLake, delta-rs and PyIceberg are installed into an environment of their own beside the peers of
the interop suite when first needed. Each lake is measured in a process of its own, in turns, and
each must hold the same rows in the end.

`python -m bench upserts_lakes [rows=NUMBER]` measures a table of another size.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.data import MILLION
from bench.report import console, promise
from tests.interop.setup_peers import lakes_python, set_up_lakes

UPSERTS, KEYS = 20, 10_000
OURS, DUCKLAKE = "lakecore", "ducklake"
LAKES = (OURS, DUCKLAKE, "delta-rs", "pyiceberg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a lake took, in seconds, and what its table holds."""

    load: float
    upserts: list[float]
    upserts_cpu: list[float]
    aggregates: list[float]
    aggregates_cpu: list[float]
    holds: list[float]
    mib: float
    peak_mib: float


def run(runs: int = 3, scale: float = 1.0) -> bool:
    """Measure; whether every promise was kept."""
    set_up_lakes()
    found: dict[str, list[Measured]] = {}
    for turn in range(runs):
        # The slow two are only told, and take minutes.
        for lake in LAKES if turn == 0 else LAKES[:2]:
            found.setdefault(lake, []).append(_measured(lake, int(2 * MILLION * scale)))
    held = {lake: each[0].holds for lake, each in found.items()}
    assert all(each == held[OURS] for each in held.values()), f"the lakes hold other rows: {held}"
    for lake, each in found.items():
        console.print(
            f"{lake}: load {median(one.load for one in each):.2f} s, "
            f"upsert {_upsert(each):.3f} s (greatest {max(max(one.upserts) for one in each):.2f}, "
            f"of the processor {median(cpu for one in each for cpu in one.upserts_cpu):.3f}), "
            f"aggregate {_aggregate(each):.4f} s (of the processor "
            f"{median(cpu for one in each for cpu in one.aggregates_cpu):.4f}), "
            f"{each[0].mib:.0f} MiB of files, peak {max(one.peak_mib for one in each):.0f} MiB"
        )
    kept = promise(
        "an upsert of 10 000 rows: times the seconds of DuckLake",
        _upsert(found[OURS]) / _upsert(found[DUCKLAKE]),
        1.0,
        at_least=False,
    )
    kept &= promise(
        "an aggregate after the upserts: times the seconds of DuckLake",
        _aggregate(found[OURS]) / _aggregate(found[DUCKLAKE]),
        1.2,
        at_least=False,
    )
    console.print()
    return kept


def main(words: list[str]) -> int:
    """Measure a table of the size in these words; 0 if the promises were kept."""
    match [word.split("=", 1) for word in words]:
        case [["rows", text]]:
            return 0 if run(scale=int(text) / (2 * MILLION)) else 1
    console.print(f"unknown: {words}; known: rows=NUMBER")
    return 2


def _measured(lake: str, count: int) -> Measured:
    python = sys.executable if lake == OURS else str(lakes_python())
    with tempfile.TemporaryDirectory(prefix="lakecore-bench-") as home:
        sizes = map(str, (count, UPSERTS, KEYS))
        done = subprocess.run(
            [python, "-m", "bench.lakes_contender", lake, f"{home}/lake", *sizes],
            check=False,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
            env=dict(os.environ),
        )
    if done.returncode:
        message = f"{lake} failed; `make bench ARGS=upserts_lakes` installs what it needs"
        raise SystemExit(message)
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def _upsert(found: list[Measured]) -> float:
    return median(seconds for one in found for seconds in one.upserts)


def _aggregate(found: list[Measured]) -> float:
    # The first one opens files, and is not left out: users wait for it, too.
    return median(median(one.aggregates) for one in found)
