from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lakecore.display import show_bytes
from lakecore.errors import CorruptTable
from lakecore.io.stores.local import LocalStore
from lakecore.table.reads import source
from lakecore.table.reads.explain import path_text
from lakecore.table.splits import read_planner
from lakecore.table.splits.read_planner import decide_split
from tests.tables import new_table, put

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.table.splits.read_planner import Decision

COLUMNS = {"id": "INT NOT NULL", "p": "STRING NOT NULL"}


def test_plan_is_counted() -> None:
    table = new_table(COLUMNS, keys=["id", "p"], partitions=["p"])
    for line in ("1 a | 9 a | 5 b", "4 a | 5 a | 6 c"):
        put(table, line)
    found = table.explain(["id"], "p = 'a'")

    assert (found.snapshot_id, found.columns, found.predicate) == (2, ("id",), "p = 'a'")
    assert (found.files_total, found.files_kept, found.files_skipped_by_partition) == (4, 2, 2)
    assert (found.merged_sections, found.merged_files, found.raw_files) == (1, 2, 0)
    assert (found.splits, found.rows_stored, found.deletion_vectors) == (1, 4, 0)
    assert found.size_bytes > 0


def test_plan_is_shown_line_by_line() -> None:
    table = new_table(keys=[])
    put(table, "1 a | 2 b")
    lines = str(table.explain(where="id > 1")).splitlines()

    assert [line.partition(":")[0].strip() for line in lines] == [
        "table", "snapshot", "columns", "where", "files", "skipped", "raw", "merged", "reads", "by"
    ]  # fmt: skip
    assert lines[1:5] == [
        "snapshot:  1", "columns:   id, v", "where:     id > 1", "files:     1 of 1 kept"
    ]  # fmt: skip


def test_each_part_says_how_it_is_read_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_planner, "_ROWS_MIN", 3)
    table = new_table(COLUMNS, keys=["id", "p"], partitions=["p"])
    for line in ("1 a | 9 a | -D 5 b", "4 a | 5 a"):
        put(table, line)
    large, small = table.explain().parts

    assert (large.partition, large.bucket, large.files, large.rows_stored) == ("p=a", 0, 2, 4)
    assert (large.path, large.reason) == ("windows", "a file is not on a local disk")
    assert (small.partition, small.files, small.rows_stored) == ("p=b", 1, 1)
    assert (small.path, small.reason) == ("windows", "the split has few rows")
    assert sum(part.size_bytes for part in table.explain().parts) == table.explain().size_bytes
    assert " by:       windows: 1 parts of 2 files, 4 rows; a file is" in str(table.explain())


@pytest.mark.parametrize("face", ["scan", "arrow"])
def test_what_is_explained_is_what_is_read(
    face: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_planner, "_ROWS_MIN", 0)
    table = new_table(store=LocalStore(), path=str(tmp_path / "t"), bucket="2", write_only="true")
    put(table, "1 a | 2 b | 3 c | 4 d")
    put(table, "1 e | 2 f | 3 g | 4 h")
    paths: list[str] = []

    def watched(*arguments: Any) -> Decision:
        decision = decide_split(*arguments)
        paths.append(path_text(decision.path))
        return decision

    explained = [part.path for part in table.explain().parts]
    monkeypatch.setattr(source, "decide_split", watched)
    assert (table.scan().collect() if face == "scan" else table.to_arrow()).shape == (4, 2)

    assert sorted(paths) == sorted(explained) == ["late materialisation"] * 2


def test_scan_by_an_engine_is_explained(tmp_path: Path) -> None:
    table = new_table(keys=[], store=LocalStore(), path=str(tmp_path / "t"))
    put(table, "1 a | 2 b")
    (part,) = table.explain(["v"], where="id > 1").parts

    assert (part.path, part.reason) == ("engine scan", "no merge is needed")


def test_missing_file_is_named(tmp_path: Path) -> None:
    table = new_table(keys=[], store=LocalStore(), path=str(tmp_path / "t"))
    put(table, "1 a | 2 b")
    (path,) = (tmp_path / "t").rglob("data-*")
    path.unlink()

    with pytest.raises(CorruptTable, match=path.name):
        table.explain()


def test_empty_table_has_a_plan_too() -> None:
    found = new_table().explain()

    assert (found.snapshot_id, found.files_total, found.splits) == (None, 0, 0)
    assert "snapshot:  none" in str(found)
    assert "where:     everything" in str(found)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1_572_864, "1.5 MiB"),
        (5 << 40, "5.0 TiB"),
        (5 << 60, "5242880.0 TiB"),
    ],
)
def test_bytes_are_shown_for_people(size_bytes: int, text: str) -> None:
    assert show_bytes(size_bytes) == text
