"""Runs each script of a folder as a process: `python -m tests.scripts FOLDER --also-slow`.

A script shows one fault, and ends with 0 once the fault is gone. Prints a line for each script with
its seconds and, if it fails, the end of its output. A script of `OPEN` is expected to fail. Scripts
of the shell find the command in `LAKECORE`. Each script has a temporary folder of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SLOW = ("drop_table_killed", "spark_")
"""Beginnings of names: these scripts take a minute or more on two cores, or start Spark."""
OPEN: tuple[str, ...] = ()
"""Names of scripts whose fault is still there. Such a script must fail, or be taken out of here."""
SECONDS_MAX = 600
LINES_SHOWN = 12


def main() -> int:
    """Returns 0 if all scripts end with 0, and there is at least one."""
    parser = argparse.ArgumentParser(prog="python -m tests.scripts")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="scripts whose name has this text")
    parser.add_argument("--also-slow", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    found = [
        path
        for path in sorted(given.folder.glob("*"))
        if path.suffix in {".py", ".sh"}
        and given.only in path.stem
        and (given.also_slow or not path.stem.startswith(SLOW))
    ]
    with ThreadPoolExecutor(given.workers) as pool:
        ended = list(pool.map(_run, found))
    failed = [
        path.name for path, fine in zip(found, ended, strict=True) if fine == (path.stem in OPEN)
    ]
    print(f"{len(found) - len(failed)} passed, {len(failed)} failed", flush=True)
    for name in failed:
        print("  failed:", name)
    return 0 if found and not failed else 1


def _run(path: Path) -> bool:
    program = [sys.executable] if path.suffix == ".py" else ["sh"]
    command = Path(sys.executable).with_name("lakecore")
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TMPDIR": folder, "LAKECORE": str(command)}
        try:
            ended = subprocess.run(
                [*program, path.resolve()],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=SECONDS_MAX,
                check=False,
            )
            code, output = str(ended.returncode), ended.stdout
        except subprocess.TimeoutExpired as late:
            code, output = "out of time", late.stdout or b""
    seconds = time.monotonic() - started
    print(f"{'ok  ' if code == '0' else 'FAIL'} {seconds:6.1f} s  {path.name}", flush=True)
    if code != "0":
        lines = output.decode(errors="replace").splitlines()[-LINES_SHOWN:]
        print(f"     ended with {code}", *(line[:200] for line in lines), sep="\n     ", flush=True)
    return code == "0"


if __name__ == "__main__":
    sys.exit(main())
