"""Compactions of newer runs: rows that need older ones take the older runs along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lakecore.model.rows import ROW_KIND
from tests.tables import new_table

if TYPE_CHECKING:
    from lakecore.table.handle import Table

OPTIONS: dict[str, Any] = {
    "bucket": "1",
    "merge_engine": "aggregation",
    "fields__v__aggregate_function": "collect",
    "num_sorted_run__compaction_trigger": "3",
    "compaction__max_size_amplification_percent": "100000",
    "compaction__size_ratio": "100",
}


def with_base(**options: str) -> Table:
    """A table with a large run at its last level, and a writer that does not compact."""
    columns = {"id": "INT NOT NULL", "v": "ARRAY<INT>"}
    table = new_table(columns, **{**OPTIONS, **options, "write_only": "true"})
    others = [{"id": key, "v": [*range(50)]} for key in range(2, 3000)]
    table.write([{"id": 1, "v": [1, 2]}, *others])
    table.compact(full=True)
    return table


def levels(table: Table) -> list[int]:
    return sorted(table.inspect.files()["level"].to_list())


def values(table: Table) -> list[int]:
    (row,) = table.to_arrow(where="id = 1").to_pylist()
    return sorted(row["v"])


def test_retraction_above_the_base_is_merged_with_it() -> None:
    table = with_base()
    table.write([{"id": 1, "v": [3]}])
    table.write([{ROW_KIND: "-U", "id": 1, "v": [1]}])

    done = table.compact()

    assert levels(table) == [3]
    assert values(table) == [2, 3]
    assert (done.files_before, done.files_after) == (3, 1)


@pytest.mark.parametrize(
    "newer",
    [
        [[{"id": 1, "v": [3]}], [{"id": 1, "v": [4]}]],
        [[{"id": 1, "v": [3]}], [{ROW_KIND: "-U", "id": 2, "v": [4]}]],
        [[{"id": 1, "v": [3]}], [{ROW_KIND: "-U", "id": 1, "v": None}]],
    ],
    ids=["additions", "a lone retraction", "a retraction of nothing"],
)
def test_other_rows_leave_the_base_alone(newer: list[list[dict[str, Any]]]) -> None:
    table = with_base()
    for batch in newer:
        table.write(batch)
    before = values(table)

    table.compact()

    assert levels(table) == [2, 3]
    assert values(table) == before


def test_compaction_within_a_write_takes_the_base_along() -> None:
    table = with_base()
    table.write([{"id": 1, "v": [3]}])

    table.copy({"write-only": "false"}).write([{ROW_KIND: "-U", "id": 1, "v": [1]}])

    assert levels(table) == [3]
    assert values(table) == [2, 3]


def test_full_compaction_changelog_tells_of_the_base_that_is_taken_along() -> None:
    table = with_base(changelog_producer="full-compaction")
    table.write([{"id": 1, "v": [3]}])
    table.write([{ROW_KIND: "-U", "id": 1, "v": [1]}])

    done = table.compact()

    assert done.snapshot_id is not None
    changes = table.changes(done.snapshot_id - 1).collect().to_dicts()
    assert [(row[ROW_KIND], sorted(row["v"])) for row in changes] == [
        ("-U", [1, 2]),
        ("+U", [2, 3]),
    ]
