from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

import lakecore as lc
from lakecore.plan.predicate import from_polars
from lakecore.table.reads.source import TableSource, narrowed

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.plan.predicate import Predicate


def source_of(table: lc.Table) -> TableSource:
    context = table.context
    return TableSource(
        context=context, snapshot=context.history.latest_snapshot(), table_schema=context.schema
    )


def condition(table: lc.Table, expression: pl.Expr) -> Predicate:
    return from_polars(expression, table.context.schema)


def test_raw_files_that_cannot_match_are_left_out(tmp_path: Path) -> None:
    table = lc.open_table(tmp_path / "t", create=True, schema={"n": "INT"})
    table.write({"n": [1, 2]})
    table.write({"n": [8, 9]})
    source = source_of(table)
    splits = source.plan().splits
    kept = narrowed(source.scan_context, splits, condition(table, pl.col("n") > 5))

    assert [file.row_count for split in splits for file in split.files] == [2, 2]
    assert [len(split.files) for split in kept] == [1]
    assert narrowed(source.scan_context, splits, None) == splits
    assert narrowed(source.scan_context, splits, condition(table, pl.col("n") > 50)) == ()


def test_merged_section_stays_whole_or_goes_and_a_folded_one_stays(tmp_path: Path) -> None:
    options = {"bucket": "1", "write-only": "true"}
    found = []
    for name, engine in (("one", "deduplicate"), ("two", "partial-update")):
        table = lc.open_table(
            tmp_path / name,
            create=True,
            schema={"id": "INT NOT NULL", "n": "INT"},
            primary_keys=["id"],
            options={**options, "merge-engine": engine},
        )
        table.write({"id": [1, 2], "n": [1, 9]})
        table.write({"id": [1, 2], "n": [1, 1]})
        source = source_of(table)
        splits = source.plan().splits
        for limit in (5, 50):
            kept = narrowed(source.scan_context, splits, condition(table, pl.col("n") > limit))
            found.append([len(split.files) for split in kept])

    assert found == [[2], [], [2], [2]]
