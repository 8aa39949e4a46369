"""Rows with ids, and columns in several files: pypaimon and Java against lakecore."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import lakecore as lc
from tests.interop import limits, setup_peers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.engines import PeerEngine

pytestmark = pytest.mark.interop

COLUMNS = {"k": "INT", "v": "STRING", "n": "BIGINT"}
EVOLVING = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
STEPS: list[dict[str, Any]] = [
    {"rows": {"k": [5, 6], "v": ["a", "b"], "n": [50, 60]}},
    {"ids": [1, 5], "columns": {"n": [100, None]}},
    {"ids": [0], "columns": {"v": ["z"]}},
]


def by_pypaimon(path: Path, steps: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Run the steps. Returns the rows with their ids."""
    module = "tests.interop.python_columns"
    done = subprocess.run(
        [str(setup_peers.python()), "-m", module, str(path), json.dumps(steps)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(row) for row in json.loads(done.stdout)]


def by_java(java: PeerEngine, path: Path) -> list[tuple[Any, ...]]:
    """The rows of `$row_tracking`."""
    answer: Any = java.peer.ask("system_table", path=str(path), name="row_tracking")
    return sorted((tuple(row) for row in answer["rows"]), key=lambda row: row[3])


def by_lakecore(path: Path) -> list[tuple[Any, ...]]:
    view = lc.open_table(path).inspect.system_table("row_tracking")
    return view.to_polars().sort("_ROW_ID").rows()


def test_columns_that_pypaimon_changed_are_read_by_all(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    path = tmp_path / "d.db" / "t"
    table = lc.open_table(path, create=True, schema=COLUMNS, options=EVOLVING)
    table.write([{"k": key, "v": f"v{key}", "n": key} for key in range(5)])

    theirs = by_pypaimon(path, STEPS)
    assert by_lakecore(path) == theirs
    lc.open_table(path).write([{"k": 9, "v": "q", "n": 1}])
    assert by_lakecore(path) == by_pypaimon(path, []) == [*theirs, (9, "q", 1, 7, 5)]

    java = peers(limits.JAVA)
    expected = sorted([list(row[:3]) for row in by_lakecore(path)], key=str)
    assert sorted(java.read(path), key=str) == expected
    java.write(path, (("+I", [10, "j", 2]),))
    assert by_lakecore(path)[-1] == (10, "j", 2, 8, 6)


def test_ids_of_a_table_that_java_and_lakecore_write_in_turns(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    path, java = tmp_path / "d.db" / "t", peers(limits.JAVA)
    options = {"row-tracking.enabled": "true"}
    table = lc.open_table(path, create=True, schema=COLUMNS, options=options)
    for turn in range(3):
        table.write([{"k": 2 * turn, "v": "us", "n": turn}])
        java.write(path, (("+I", [2 * turn + 1, "java", turn]),))

    assert [(row[0], *row[3:]) for row in by_lakecore(path)] == [(n, n, n + 1) for n in range(6)]
    assert lc.open_table(path).inspect.snapshots()["next_row_id"].to_list() == [1, 2, 3, 4, 5, 6]


def test_ids_of_changed_and_copied_rows_are_those_that_java_reads(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    path, java = tmp_path / "d.db" / "t", peers(limits.JAVA)
    options = {"row-tracking.enabled": "true"}
    table = lc.open_table(path, create=True, schema=COLUMNS, options=options)
    table.write([{"k": key, "v": f"v{key}", "n": key} for key in range(5)])
    table.delete("k = 1")
    table.update({"n": 7}, "k = 3")
    assert by_lakecore(path) == by_java(java, path)
    table.write([{"k": 9, "v": "q", "n": 1}])
    table.compact(full=True)

    assert by_lakecore(path) == by_java(java, path)
    java.write(path, (("+I", [10, "j", 2]),))
    assert [row[3] for row in by_lakecore(path)] == [0, 2, 3, 4, 5, 6]
    source = pl.DataFrame({"k": [2, 10, 11], "v": ["m", "m", "m"], "n": [0, 1, 2]})
    merge = table.merge(source, on="k").when_matched_delete("target.v = 'j'")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert [(row[0], row[3]) for row in by_lakecore(path)] == [
        (0, 0),
        (2, 2),
        (3, 3),
        (4, 4),
        (9, 5),
        (11, 7),
    ]
    assert by_lakecore(path) == by_java(java, path)
    expected = sorted([list(row[:3]) for row in by_lakecore(path)], key=str)
    assert sorted(java.read(path), key=str) == expected


def test_blob_values_of_pypaimon_are_read(tmp_path: Path) -> None:
    path = tmp_path / "d.db" / "t"
    table = lc.open_table(path, create=True, schema=COLUMNS, options=EVOLVING)
    schema = path / "schema" / "schema-0"
    schema.write_text(schema.read_text().replace('"type" : "STRING"', '"type" : "BLOB"'))
    values = ["first", None, "", "x" * 70_000]

    by_pypaimon(path, [{"rows": {"k": [1, 2, 3, 4], "v": values, "n": [1, 2, 3, 4]}}])
    by_pypaimon(path, [{"ids": [0], "columns": {"n": [100]}}])

    table = lc.open_table(path)
    assert table.to_polars().sort("k").rows() == [
        (1, b"first", 100),
        (2, None, 2),
        (3, b"", 3),
        (4, b"x" * 70_000, 4),
    ]
    files = table.inspect.files()["file_path"].to_list()
    assert sum(name.endswith(".blob") for name in files) == 1
