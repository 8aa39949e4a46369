"""A verb of a benchmark in a process of its own, whose greatest resident memory counts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.report import console, promise

if TYPE_CHECKING:
    from collections.abc import Callable


PEAK_SHARE_MAX = 1.2
"""What a process may take at its peak, of the budget; the libraries, some 170 MiB, included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a verb of a child took: `rows` it wrote, saw or left."""

    rows: int
    peak_mib: float
    seconds: float
    cpu_seconds: float


def ran(module: str, *arguments: object) -> Ran:
    """A verb of a module, in a process of its own; the module calls `tell` there."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Ran(**json.loads(done.stdout.splitlines()[-1]))


def within(budget_mib: int, took: Ran, said: str) -> bool:
    """Print what a verb took; whether its peak was within the budget."""
    console.print(f"{said}: {took.seconds:.1f} s, {took.cpu_seconds:.1f} s of CPU")
    text = f"  peak memory over the budget of {budget_mib} MiB"
    return promise(text, took.peak_mib / budget_mib, PEAK_SHARE_MAX, at_least=False)


def tell(verb: Callable[[], int]) -> None:
    """Do the verb in this process, and print what it took for the parent to read."""
    began, worked = time.perf_counter(), time.process_time()
    rows = verb()
    answer = {
        "rows": rows,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - worked,
        "peak_mib": peak_mib(),
    }
    print(json.dumps(answer))


def peak_mib(*, reset: bool = False) -> float:
    """The greatest resident memory of this process since it began, or was reset.

    `ru_maxrss` would be that of the parent, if the parent's was greater.
    """
    if reset:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def stream(directory: str) -> int:
    """Go through the rows of a warehouse's table, batch by batch; how many there are."""
    import lakecore

    seen = 0
    for batch in lakecore.open_table(directory + "/bench.db/t").to_batches():
        seen += batch.num_rows
        del batch
    return seen


def compact(directory: str, *, full: bool = True) -> int:
    """Compact a warehouse's table; the rows it then has."""
    import lakecore

    return lakecore.open_table(directory + "/bench.db/t").compact(full=full).rows_after or 0
