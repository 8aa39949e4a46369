"""Write and merged read of 6 M rows (4 M and 4 updates of 0.5 M), 1 and 8 buckets, beside pypaimon.

The contenders take turns, so that a machine that slows down slows them all. pypaimon's Python path
takes minutes and runs once.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.report import Figures, console, promise
from tests.interop import setup_peers

ROOT = Path(__file__).parent.parent


class Contender:
    """A child process that answers requests."""

    def __init__(self, engine: str) -> None:
        python = sys.executable if engine == "lakecore" else str(setup_peers.python())
        self._process = subprocess.Popen(
            [python, "-m", "bench.contender", engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def ask(self, verb: str, **facts: object) -> dict[str, float]:
        """The answer to one request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"verb": verb, **facts}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            message = f"the contender ended: exit code {self._process.wait()}"
            raise RuntimeError(message)
        answer: dict[str, float] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def run(runs: int = 3, scale: float = 1.0, *, python_path: bool = True) -> bool:
    """Measure; whether every promise was kept."""
    setup_peers.set_up()
    kept = True
    for buckets in ("1", "8"):
        options = {"bucket": buckets, "write-only": "true"}
        writes = Figures(f"write, {buckets} bucket(s)", rows=int(6e6 * scale))
        reads = Figures(f"merged read to memory, {buckets} bucket(s)")
        engines = ["lakecore", "native", *(["pypaimon"] if python_path else [])]
        found: set[int] = set()
        for engine_round in range(runs):
            for engine in engines:
                if engine == "pypaimon" and engine_round:
                    continue
                warehouse = tempfile.mkdtemp(prefix="lakecore-bench-")
                contender = Contender(engine)
                contender.ask("load", scale=scale)
                contender.ask("create", warehouse=warehouse, options=options)
                answer = contender.ask("write")
                writes.add(engine, answer["seconds"], answer["cpu_seconds"])
                for _ in range(1 if engine == "pypaimon" else 3):
                    answer = contender.ask("read")
                    reads.add(engine, answer["seconds"], answer["cpu_seconds"])
                    found.add(int(answer["rows"]))
                contender.close()
                shutil.rmtree(warehouse)
        if len(found) != 1:
            message = f"the contenders read different numbers of rows: {found}"
            raise RuntimeError(message)
        reads.rows = int(6e6 * scale)
        for figures in (writes, reads):
            figures.show("lakecore")
        wanted = {"native": (1.5, 3.0), "pypaimon": (25.0, 50.0)}
        for engine in engines[1:]:
            for figures, least in zip((writes, reads), wanted[engine], strict=True):
                reached = figures.ratio(engine, "lakecore")
                text = f"{figures.task}: times as fast as {engine}"
                kept &= promise(text, reached, least, at_least=True)
        console.print()
    return kept
