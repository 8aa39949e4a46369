"""How the cost of each verb grows with a table: rows, runs, files, columns, partitions, snapshots.

`python -m bench growth [WHAT …]`: tables of doubling sizes are made, and the CPU time of verbs is
measured, each size in a process of its own. `t ~ size^e`: the exponent `e` is the slope of a line
through the logarithms of the larger sizes. It is at most 1 for a cost that follows the table, and
near 0 for one that follows the change. The figures are stored in `growth.json`, of which
`python -m tests.pictures growth` draws a picture.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import linear_regression, median
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from rich.table import Table as Shown

import lakecore
from bench.report import console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakecore import CommitMessage, Table

    Steps = Mapping[str, Callable[[Table], object]]

FIGURES = Path(__file__).with_name("growth.json")
LINEAR_MAX, FLAT_MAX = 1.15, 0.3
SIZES_FITTED = 4
TIMES = 3
ONCE = {"compaction", "expiry of half", "upsert into all"}
"""Verbs that find nothing to do the second time, or that take long."""
SIZES = {
    "rows": (100_000, 200_000, 400_000, 800_000, 1_600_000, 3_200_000),
    "runs": (1, 2, 4, 8, 16, 32),
    "files": (400, 800, 1_600, 3_200, 6_400, 12_800),
    "columns": (8, 16, 32, 64, 128, 256),
    "partitions": (400, 800, 1_600, 3_200, 6_400, 12_800),
    "snapshots": (100, 200, 400, 800, 1_600, 3_200),
}
FLAT = {
    "rows: upsert of 1 000",
    "partitions: plan of one",
    "partitions: upsert into one",
    "snapshots: open and plan",
    "snapshots: upsert of one row",
    "files: append of one row",
}
"""What follows the change, and not the table."""


def run(wanted: list[str]) -> bool:
    """Measure; whether no verb grows faster than its table, and those of `FLAT` do not grow."""
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for what in wanted or SIZES:
        known |= _measured(what)
    FIGURES.write_text(json.dumps(known, indent=1) + "\n")
    shown = Shown(title="CPU ms by size", title_justify="left", title_style="bold")
    for column in ("", "sizes", "CPU ms", "exponent", "limit", "kept"):
        shown.add_column(column, justify="left" if column in {"", "sizes"} else "right")
    kept = True
    for name, took in known.items():
        slope, limit = exponent(took), FLAT_MAX if name in FLAT else LINEAR_MAX
        kept &= slope <= limit
        ends = f"{int(min(took, key=int)):,} to {int(max(took, key=int)):,}"
        times = f"{1000 * min(took.values()):.1f} to {1000 * max(took.values()):.1f}"
        mark = "[green]yes[/]" if slope <= limit else "[red]no[/]"
        shown.add_row(name, ends, times, f"{slope:.2f}", f"{limit:g}", mark)
    console.print(shown)
    return kept


def exponent(took: Mapping[str, float]) -> float:
    """By which power of the size the time grows, over the larger sizes."""
    larger = sorted(took.items(), key=lambda each: int(each[0]))[-SIZES_FITTED:]
    sizes, times = zip(*larger, strict=True)
    line = linear_regression([math.log(int(each)) for each in sizes], [math.log(t) for t in times])
    return line.slope


def _measured(what: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for size in SIZES[what]:
        done = subprocess.run(
            [sys.executable, "-m", "bench.growth", what, str(size)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        for verb, seconds in json.loads(done.stdout.splitlines()[-1]).items():
            found.setdefault(f"{what}: {verb}", {})[str(size)] = seconds
        console.print(f"{what} {size:,}")
    return found


# --- tables of a size ----------------------------------------------------------------------------


def _rows(count: int, first: int = 0, step: int = 1) -> pa.Table:
    ids = np.arange(first, first + count * step, step, dtype=np.int64)
    return pa.table({"id": ids, "n": ids * 7, "x": ids / 3, "city": [f"c{i % 97}" for i in ids]})


def _one_run(table: Table, rows: pa.Table) -> None:
    table.write(rows)
    table.compact(full=True)


def _keyed(path: Path, **options: str) -> Table:
    return lakecore.open_table(
        path,
        create=True,
        schema={"id": "BIGINT NOT NULL", "n": "BIGINT", "x": "DOUBLE", "city": "STRING"},
        primary_keys=["id"],
        options={"bucket": "1", "write-only": "true", **options},
    )


def rows_of(path: Path, size: int) -> tuple[Table, Steps]:
    """One run of so many rows, and 1 000 rows over it."""
    table, rows = _keyed(path), _rows(size)
    _one_run(table, rows)
    few = _rows(1_000, step=size // 1_000)
    other = _keyed(path.with_name("written"))
    return table, {
        "write": lambda _: other.write(rows),
        "upsert of 1 000": lambda table: table.write(few),
        "merged read": lambda table: table.to_arrow(),
        "compaction": lambda table: table.compact(full=True),
    }


def runs_of(path: Path, size: int) -> tuple[Table, Steps]:
    """400 000 rows in so many runs, whose keys alternate."""
    table = _keyed(path)
    for number in range(size):
        table.write(_rows(400_000 // size, number, size))
    return table, {"merged read": lambda table: table.to_arrow()}


def files_of(path: Path, size: int) -> tuple[Table, Steps]:
    """So many files of 10 rows, without a key."""
    table = lakecore.open_table(
        path, create=True, schema={"id": "BIGINT", "v": "STRING"}, options={"bucket": "-1"}
    )
    messages: list[CommitMessage] = []
    for number in range(size):
        writer = table.new_write()
        writer.write({"id": [number] * 10, "v": ["v"] * 10})
        messages += writer.prepare_commit()
    table.commit(messages)
    return table, {
        "append of one row": lambda table: table.write({"id": [1], "v": ["v"]}),
        "plan": lambda table: table.explain(),
        "count": lambda table: table.count(),
        "read": lambda table: table.to_arrow(),
    }


def columns_of(path: Path, size: int) -> tuple[Table, Steps]:
    """20 000 rows of so many numbers."""
    names = [f"n{number}" for number in range(size)]
    rows = pa.table({"id": np.arange(20_000)} | {name: np.arange(20_000) for name in names})
    table = lakecore.open_table(
        path,
        create=True,
        schema={"id": "BIGINT NOT NULL"} | dict.fromkeys(names, "BIGINT"),
        primary_keys=["id"],
        options={"bucket": "1", "write-only": "true"},
    )
    table.write(rows)
    return table, {
        "write": lambda table: table.write(rows),
        "merged read": lambda table: table.to_arrow(),
        "read of one column": lambda table: table.to_arrow(["n1"]),
    }


def partitions_of(path: Path, size: int) -> tuple[Table, Steps]:
    """So many partitions of 5 rows."""
    table = lakecore.open_table(
        path,
        create=True,
        schema={"p": "INT NOT NULL", "id": "BIGINT NOT NULL", "v": "STRING"},
        primary_keys=["p", "id"],
        partition_keys=["p"],
        options={"bucket": "1"},
    )
    places = np.repeat(np.arange(size, dtype=np.int32), 5)
    rows = pa.table({"p": places, "id": np.arange(5 * size), "v": ["v"] * (5 * size)})
    table.write(rows)
    return table, {
        "plan of one": lambda table: table.explain(where="p = 7"),
        "upsert into one": lambda table: table.write({"p": [7], "id": [1], "v": ["w"]}),
        "list": lambda table: table.inspect.partitions(),
        "count": lambda table: table.count(),
        "merged read": lambda table: table.to_arrow(),
        "upsert into all": lambda table: table.write(rows),
    }


def snapshots_of(path: Path, size: int) -> tuple[Table, Steps]:
    """So many snapshots of a table with one row."""
    keep = {"snapshot.num-retained.min": "1000000", "snapshot.num-retained.max": "1000000"}
    table = _keyed(path, **keep)
    for number in range(size):
        table.write({"id": [1], "n": [number], "x": [0.0], "city": ["c"]})
        if number % 20 == 0:
            table.compact(full=True)
    table.compact(full=True)
    return table, {
        "open and plan": lambda table: table.explain(),
        "upsert of one row": lambda table: table.write({"id": [1]}),
        "history": lambda table: table.inspect.snapshots(),
        "expiry of half": lambda table: table.expire_snapshots(retain_max=size // 2, retain_min=1),
    }


MAKERS = {
    "rows": rows_of,
    "runs": runs_of,
    "files": files_of,
    "columns": columns_of,
    "partitions": partitions_of,
    "snapshots": snapshots_of,
}


def _steps(what: str, size: int, home: Path) -> Iterator[tuple[str, float]]:
    """Each verb, and the CPU seconds that it takes with a new handle of the table."""
    MAKERS[what](home / "warm" / "t", 1_000 if what == "rows" else 2)
    table, steps = MAKERS[what](home / "t", size)
    for verb, work in steps.items():
        took = []
        for _ in range(1 if verb in ONCE else TIMES):
            handle = lakecore.open_table(table.path)
            began = time.process_time()
            work(handle)
            took.append(time.process_time() - began)
        yield verb, median(took)


def main(what: str, size: int) -> None:
    """Measure one size, and print the seconds for the parent to read."""
    memory = Path("/dev/shm")  # noqa: S108  a place, not a name
    home = Path(tempfile.mkdtemp(prefix="lakecore-bench-", dir=memory if memory.is_dir() else None))
    try:
        print(json.dumps(dict(_steps(what, size, home))))
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
