"""A child that is forked from a process with threads at work is told so, and never hangs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

BUILD = """
import json, multiprocessing as mp, os, sys, time
import lakecore as lc
import polars as pl
home = sys.argv[1]

def make(name="t"):
    table = lc.open_table(
        f"{home}/w/d.db/{name}", create=True, schema={"id": "BIGINT NOT NULL", "v": "STRING"},
        primary_keys=["id"], options={"bucket": "1"},
    )
    table.write([{"id": 1, "v": "a"}]); table.write([{"id": 1, "v": "b"}, {"id": 2, "v": "b"}])
    return table

def outcome(work):
    try:
        work()
        return "done"
    except Exception as error:
        return type(error).__name__ + ": " + str(error)

def in_fork(work, seconds=30):
    ends = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ends[0])
        os.write(ends[1], outcome(work).encode())
        os._exit(0)
    os.close(ends[1])
    for _ in range(seconds * 20):
        if os.waitpid(pid, os.WNOHANG)[0]:
            break
        time.sleep(0.05)
    else:
        os.kill(pid, 9); os.waitpid(pid, 0)
        return "hang"
    with open(ends[0]) as end:
        return end.read()
"""

USED = """
table = make(); table.to_polars()
catalog = lc.connect(f"{home}/w")
batches, fresh = table.to_batches(), table.to_batches()
batches.read_next_batch()
writer, merge = table.new_write(), table.merge([{"id": 9, "v": "x"}], on=["id"])
merge = merge.when_not_matched_insert_all()
stream, inspect, dataset = table.stream(until=2), table.inspect, table.to_arrow_dataset()
works = {
    "open_table": lambda: lc.open_table(table.path),
    "connect": lambda: lc.connect(f"{home}/w"),
    "get_table": lambda: catalog.get_table("d.t"),
    "list_tables": lambda: catalog.list_tables("d"),
    "drop_table": lambda: catalog.drop_table("d.t"),
    "to_polars": lambda: table.to_polars(),
    "to_arrow": lambda: table.to_arrow(),
    "to_pandas": lambda: table.to_pandas(),
    "to_duckdb": lambda: table.to_duckdb(),
    "to_batches": lambda: table.to_batches(),
    "scan": lambda: table.scan(),
    "count": lambda: table.count(),
    "changes": lambda: table.changes(),
    "inspect": lambda: table.inspect,
    "write": lambda: table.write([{"id": 3, "v": "c"}]),
    "overwrite": lambda: table.overwrite([{"id": 3, "v": "c"}]),
    "delete": lambda: table.delete("id = 1"),
    "update": lambda: table.update({"v": "z"}),
    "compact": lambda: table.compact(full=True),
    "truncate": lambda: table.truncate(),
    "copy": lambda: table.copy({"write-only": "true"}),
    "refresh": lambda: table.refresh(),
    "batches begun before": lambda: batches.read_next_batch(),
    "batches asked for before": lambda: fresh.read_all(),
    "writer from before": lambda: (writer.write([{"id": 5, "v": "e"}]), writer.prepare_commit()),
    "merge from before": lambda: merge.execute(),
    "stream from before": lambda: next(stream),
    "inspect from before": lambda: inspect.files(),
    "dataset from before": lambda: dataset.to_table(),
}
print(json.dumps({name: in_fork(work) for name, work in works.items()}))
"""

UNUSED = """
import lakecore.session, lakecore.table.handle
def work():
    assert make().to_polars().height == 2
    assert in_fork(lambda: lc.open_table(f"{home}/w/d.db/t")).startswith("Unsupported")
print(json.dumps({"first": in_fork(work), "second": in_fork(work)}))
"""

OTHERS = """
def child(path, queue):
    queue.put(lc.open_table(path).to_polars().height)

if __name__ == "__main__":
    table = make(); table.to_polars()
    found = {}
    for method in ("spawn", "forkserver"):
        context = mp.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(table.path, queue))
        process.start()
        found[method] = queue.get(timeout=120)
        process.join()
    repr(table), table.path
    print(json.dumps(found))
"""

POLARS_ALONE = """
pl.DataFrame({"a": [1, 2]}).lazy().group_by("a").sum().collect()

import gc
class Garbage:
    def __init__(self): self.itself = self
    def __del__(self): ended.append(self)  # in Polars, it may need a thread of the parent
def collect():
    gc.collect()
    if ended: raise RuntimeError("the parent's garbage was collected")
ended = []
gc.disable()
Garbage()
found = {"collect": in_fork(collect), "open_table": in_fork(lambda: lc.open_table(f"{home}/w"))}
assert not ended
gc.collect()
assert ended
print(json.dumps(found))
"""


def run(home: Path, code: str) -> dict[str, object]:
    script = home / "script.py"
    script.write_text(BUILD + code)
    done = subprocess.run(
        [sys.executable, str(script), str(home)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_each_entry_says_that_threads_are_lost(tmp_path: Path) -> None:
    found = run(tmp_path, USED)

    wrong = {
        name: outcome
        for name, outcome in found.items()
        if not (str(outcome).startswith("Unsupported: ") and "'forkserver'" in str(outcome))
    }
    assert wrong == {}


def test_child_that_is_forked_before_the_first_use_works(tmp_path: Path) -> None:
    assert run(tmp_path, UNUSED) == {"first": "done", "second": "done"}


@pytest.mark.slow
def test_processes_that_are_spawned_work(tmp_path: Path) -> None:
    assert run(tmp_path, OTHERS) == {"spawn": 2, "forkserver": 2}


def test_threads_that_the_caller_s_own_polars_started_are_lost_too(tmp_path: Path) -> None:
    found = run(tmp_path, POLARS_ALONE)

    assert str(found["open_table"]).startswith("Unsupported: ")
    assert found["collect"] == "done", "the child leaves the parent's garbage alone"
