"""How many rows a table has, by its metadata where that says so."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, LakecoreError
from lakecore.table.reads.readable import count_rows
from lakecore.table.reads.time_travel import Travel
from tests.tables import new_table, put

FIXTURES = Path(__file__).parents[2] / "golden" / "fixtures"
TABLES = sorted(path.parent for path in FIXTURES.rglob("schema") if "branch" not in path.parts)


@pytest.mark.parametrize("path", TABLES, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_count_is_the_number_of_rows_that_a_read_gives(path: Path) -> None:
    table = lc.open_table(path)
    counted = 0
    for number in table.context.history.snapshot_ids():
        try:
            rows = table.to_arrow(snapshot_id=number)
        except LakecoreError:  # what cannot be read is not counted either
            continue
        counted += 1
        assert table.count(snapshot_id=number) == rows.num_rows
        column = rows.schema.names[-1]
        some = pl.col(column).is_not_null()
        assert table.count(some, snapshot_id=number) == rows.num_rows - rows[column].null_count
    assert counted > 0


def test_count_of_files_that_overlap_nothing_reads_none(tmp_path: Path) -> None:
    table = lc.open_table(tmp_path / "t", create=True, schema={"id": "BIGINT"})
    table.write(pl.DataFrame({"id": range(1000)}))
    table.write(pl.DataFrame({"id": range(500)}))
    for file in table.inspect.files()["file_path"]:
        Path(file).unlink()

    assert (len(table), table.count(), table.count(snapshot_id=1)) == (1500, 1500, 1000)


def test_count_merges_what_overlaps() -> None:
    table = new_table()
    put(table, "1 a | 2 b")
    put(table, "2 c | 3 d | -D 1 a")

    assert (len(table), table.count("id > 2"), table.count(pl.col("v") == "c")) == (2, 1, 1)
    assert table.count(snapshot_id=1) == 2


def test_count_takes_one_state_and_a_condition_on_one_row() -> None:
    table = new_table()
    put(table, "1 a")

    assert new_table().count() == 0
    with pytest.raises(InvalidRequest, match="in one way only"):
        table.count(snapshot_id=1, tag="x")
    with pytest.raises(InvalidRequest, match="one row at a time"):
        table.count(pl.col("id") > pl.col("id").mean())
    with pytest.raises(InvalidRequest, match="unknown column"):
        table.count("nope = 1")


def test_count_of_metadata_and_of_changes() -> None:
    table = new_table()
    put(table, "1 a")
    put(table, "1 b | 2 c")

    assert len(table.inspect.system_table("snapshots")) == 2
    assert table.inspect.system_table("snapshots").count("snapshot_id = 1") == 1
    assert table.copy({"incremental-between": "1,2"}).count() == 2
    rows = table._rows(Travel())  # noqa: SLF001
    assert count_rows(rows, None) == 2
