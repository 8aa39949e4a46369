"""A process killed at any system call that changes a name leaves each table whole, or gone."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

DRIVER = """
import json, os, shutil, sys
import lakecore as lc, lakecore.session

home, deed = sys.argv[1:]
NAMES = ("d.t", "d.u")
COLUMNS = {"id": "INT NOT NULL", "v": "INT"}
CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link")

def in_child(work):
    # The engine is used in children alone: each has threads of its own, and dies with them.
    ends = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(ends[1], json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(ends[1])
    os.waitpid(pid, 0)
    with open(ends[0], "rb") as end:
        return json.loads(end.read() or b"null")

def create(catalog, name):
    options = {"bucket": "1"}
    return catalog.create_table(name, COLUMNS, primary_keys=["id"], options=options)

def build():
    catalog = lc.connect(home + "/pattern", create=True)
    catalog.create_database("d")
    for n in range(3):
        (create(catalog, "d.t") if n == 0 else catalog.get_table("d.t")).write([{"id": 0, "v": n}])
    catalog.alter_table("d.t", [lc.SchemaChange.add_column("w", "INT")])

DEEDS = {
    "drop": lambda catalog: catalog.drop_table("d.t"),
    "drop database": lambda catalog: catalog.drop_database("d", cascade=True),
    "rename": lambda catalog: catalog.rename_table("d.t", "d.u"),
    "create": lambda catalog: create(catalog, "d.u"),
    "alter": lambda catalog: catalog.alter_table("d.t", [lc.SchemaChange.add_column("x", "INT")]),
}

def act(kill_at):
    catalog, left = lc.connect(home + "/w"), [kill_at]
    def hook(event, arguments):
        if event in CHANGES or (event == "open" and arguments[2] & os.O_CREAT):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), 9)
    sys.addaudithook(hook)
    DEEDS[deed](catalog)
    return "done"

def look():
    catalog, found = lc.connect(home + "/w"), {}
    for name in NAMES:
        try:
            table = catalog.get_table(name)
        except lc.NotFound:
            found[name] = None
            continue
        found[name] = [list(table.schema.names), [list(row) for row in table.to_polars().rows()]]
        found[name].append(table.inspect.snapshots()["snapshot_id"].to_list())
        table.write([{"id": 1, "v": 1}])
        assert table.to_polars().height == len(found[name][1]) + 1
    if not catalog.database_exists("d"):
        catalog.create_database("d")
    for name in NAMES:
        if found[name] is None:
            assert create(catalog, name).to_polars().is_empty()
        catalog.drop_table(name)
    catalog.drop_database("d", cascade=True)
    return [found, os.listdir(home + "/w")]

in_child(build)
kill_at, ended = 0, None
while ended != "done":
    kill_at += 1
    shutil.rmtree(home + "/w", ignore_errors=True)
    shutil.copytree(home + "/pattern", home + "/w")
    ended = in_child(lambda: act(kill_at))
    print(json.dumps(in_child(look)), flush=True)
"""

T: list[Any] = [["id", "v", "w"], [[0, 2, None]], [1, 2, 3]]
OUTCOMES: dict[str, list[Any]] = {
    "drop": [{"d.t": T, "d.u": None}, {"d.t": None, "d.u": None}],
    "drop database": [{"d.t": T, "d.u": None}, {"d.t": None, "d.u": None}],
    "rename": [{"d.t": T, "d.u": None}, {"d.t": None, "d.u": T}],
    "create": [{"d.t": T, "d.u": None}, {"d.t": T, "d.u": [["id", "v"], [], []]}],
    "alter": [
        {"d.t": T, "d.u": None},
        {"d.t": [[*T[0], "x"], [[0, 2, None, None]], T[2]], "d.u": None},
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("deed", OUTCOMES)
def test_kill_leaves_tables_as_before_or_after_and_nothing_behind(
    tmp_path: Path, deed: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path), deed],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    seen = [json.loads(line) for line in done.stdout.splitlines()]

    assert done.returncode == 0, done.stderr
    assert all(each is not None for each in seen), done.stderr
    assert [found for found, _ in seen if found not in OUTCOMES[deed]] == []
    assert [found for found, _ in seen][:: len(seen) - 1] == OUTCOMES[deed]
    assert {tuple(left) for _, left in seen} == {()}
