from __future__ import annotations

import pytest

from lakecore.display import show_bytes
from tests.tables import new_table, put

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
        "table", "snapshot", "columns", "where", "files", "skipped", "raw", "merged", "reads"
    ]  # fmt: skip
    assert lines[1:5] == [
        "snapshot:  1", "columns:   id, v", "where:     id > 1", "files:     1 of 1 kept"
    ]  # fmt: skip


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
