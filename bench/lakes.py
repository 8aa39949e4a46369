"""The basket of one machine: what people do to one table, in other lakes and in lakecore.

2 M rows of six columns, 20 upserts of 10 000, reads, UPDATE and DELETE of 1 %, and 200 appends of
10 rows into a second table. DuckLake, delta-rs and PyIceberg are installed into an environment of
their own beside the peers of the interop suite when first needed. Each lake is measured in a
process of its own, in turns, and each must hold the same rows.

`python -m bench lakes [rows=NUMBER] [runs=NUMBER]` measures a table of another size.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from bench.data import MILLION
from bench.report import console, promise
from tests.interop.setup_peers import lakes_python, set_up_lakes

OURS = ("lakecore", "with vectors")
PEERS = ("ducklake", "delta-rs", "pyiceberg")
BEHIND = 1.1
"""No step may take more than this many times the seconds of the fastest peer."""


def run(words: list[str]) -> bool:
    """Measure; whether every promise was kept."""
    settings = {"rows": 2 * MILLION, "runs": 3}
    settings |= {name: int(number) for name, number in (word.split("=", 1) for word in words)}
    set_up_lakes()
    found: dict[str, list[dict[str, Any]]] = {}
    for turn in range(settings["runs"]):
        # The slow two take minutes.
        for lake in (*OURS, *PEERS) if turn == 0 else (*OURS, PEERS[0]):
            found.setdefault(lake, []).append(_measured(lake, settings["rows"]))
    _same_rows({lake: each[0]["holds"] for lake, each in found.items()})
    names = list(found[OURS[0]][0]["steps"])
    table = Table(title="milliseconds · those of the processor, medians")
    table.add_column("step")
    for lake in (*OURS, *PEERS, "fastest peer / lakecore"):
        table.add_column(lake, justify="right")
    behind = {}
    for name in names:
        wall = {lake: _median(each, name, 0) for lake, each in found.items()}
        peers = [wall[lake] for lake in PEERS if wall[lake]]
        ours = wall[OURS[0]]
        if peers and name != "compaction":
            behind[name] = ours / min(peers)
        table.add_row(
            name,
            *(
                f"{wall[lake]:.1f} · {_median(found[lake], name, 1):.1f}" if wall[lake] else "-"
                for lake in (*OURS, *PEERS)
            ),
            f"{1 / behind[name]:.2f}" if name in behind else "",
        )
    for what in ("peak_mib", "disk_mib"):
        table.add_row(
            what, *(f"{max(one[what] for one in found[lake]):.0f}" for lake in (*OURS, *PEERS)), ""
        )
    console.print(table)
    kept = [
        promise(f"{name}: times the fastest peer", times, BEHIND, at_least=False)
        for name, times in behind.items()
    ]
    upsert = "upsert of 10 000"
    ratio = _median(found[PEERS[0]], upsert, 0) / _median(found[OURS[0]], upsert, 0)
    kept.append(promise("upserts: times as fast as DuckLake", ratio, 3.0, at_least=True))
    console.print()
    return all(kept)


def _same_rows(holds: dict[str, list[list[float]]]) -> None:
    # PyIceberg cannot take all changes: its rows are compared as far as it took them.
    for lake, each in holds.items():
        taken = (0, 2) if lake == "pyiceberg" else (0, 1, 2)
        for at in taken:
            wanted = holds[OURS[0]][at]
            assert each[at] == wanted, f"{lake} holds other rows: {each[at]}, not {wanted}"


def _measured(lake: str, count: int) -> dict[str, Any]:
    python = sys.executable if lake in OURS else str(lakes_python())
    with tempfile.TemporaryDirectory(prefix="lakecore-bench-") as home:
        done = subprocess.run(
            [python, "-m", "bench.lakes_contender", lake, f"{home}/lake", str(count)],
            check=False,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
            env=dict(os.environ),
        )
    if done.returncode:
        raise SystemExit(f"{lake} failed; `make bench ARGS=lakes` installs what it needs")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _median(found: list[dict[str, Any]], name: str, which: int) -> float:
    """Milliseconds of a step, the first one of a process included; 0 if the lake has it not."""
    taken = [times[which] for one in found for times in one["steps"].get(name, ())]
    return median(taken) * 1000 if taken else 0.0
