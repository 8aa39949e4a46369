"""Tasks of a read: every row once, in pieces of the size asked for. No session is needed."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pytest

import lakecore
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.table.reads.time_travel import Travel
from spark_bridge.plan_read import PlannedRead, pin, plan_read
from spark_bridge.read_job import open_sealed, read_task, seal
from tests.spark.frames import table_at

if TYPE_CHECKING:
    from pathlib import Path

    import lakecore as lc

ROWS = 300_000
"""Row groups hold 131 072."""
KEYS = {
    "bigint": ("BIGINT NOT NULL", pl.int_range(0, ROWS, eager=True)),
    "string": ("STRING NOT NULL", pl.int_range(0, ROWS, eager=True).cast(pl.String)),
    "date": ("DATE NOT NULL", pl.int_range(0, ROWS, eager=True).cast(pl.Int32).cast(pl.Date)),
    "decimal": (
        "DECIMAL(12, 2) NOT NULL",
        pl.int_range(0, ROWS, eager=True).cast(pl.Decimal(12, 2)),
    ),
    "timestamp": (
        "TIMESTAMP(9) NOT NULL",
        (pl.int_range(0, ROWS, eager=True) * 1000).cast(pl.Datetime("ns")),
    ),
    "float": ("DOUBLE NOT NULL", pl.int_range(0, ROWS, eager=True).cast(pl.Float64)),
}


def planned(table: lc.Table, **arguments: object) -> PlannedRead:
    return plan_read(table.context, pin(table.context, Travel()), **arguments)  # type: ignore[arg-type]


def rows_of(plan: PlannedRead) -> pl.DataFrame:
    batches = [batch for task in plan.tasks for batch in read_task(plan.job, task)]
    frame = pl.from_arrow(pa.Table.from_batches(batches, plan.job.exchange))
    assert isinstance(frame, pl.DataFrame)
    return frame


def runs(path: Path, kind: str, keys: pl.Series) -> lc.Table:
    """One bucket of three overlapping runs, each of a few row groups."""
    table = table_at(
        path,
        {"k": kind, "j": "BIGINT NOT NULL", "v": "BIGINT", "w": "STRING"},
        keys=("k", "j"),
        bucket="1",
        write_only="true",
        source__split__target_size="1 mb",
        source__split__open_file_cost="1 kb",
    )
    rows = pl.DataFrame({"k": keys}).with_columns(
        j=pl.int_range(pl.len()) % 3, v=pl.int_range(pl.len()) * 7919 % 100_003
    )
    rows = rows.with_columns(w=pl.col("v").hash(seed=1).cast(pl.String))
    for number, part in enumerate((rows, rows[::2], rows[100_000:150_000])):
        table.write(part.with_columns(v=pl.col("v") + number))
    return table


@pytest.mark.parametrize("name", KEYS)
def test_pieces_of_a_bucket_hold_every_row_once(tmp_path: Path, name: str) -> None:
    table = runs(tmp_path / "t", *KEYS[name])
    plan = planned(table)

    assert len(plan.tasks) == 1 if name == "float" else len(plan.tasks) >= 2
    assert rows_of(plan).sort("k", "j").equals(table.to_polars().select(
        pl.from_arrow(plan.job.exchange.empty_table()).columns  # type: ignore[union-attr]
    ).sort("k", "j"))  # fmt: skip


def test_char_keys_of_orc_come_whatever_blanks_are_behind_them(tmp_path: Path) -> None:
    table = table_at(
        tmp_path / "t",
        {"k": "CHAR(8) NOT NULL", "v": "BIGINT"},
        keys=("k",),
        bucket="1",
        write_only="true",
        file__format="orc",
        source__split__target_size="1 kb",
        source__split__open_file_cost="1 kb",
    )
    texts = pl.int_range(0, 4000, eager=True).cast(pl.String).str.zfill(4)
    for start in range(0, 4000, 500):
        part = pl.DataFrame({"k": texts[start : start + 600].str.pad_end(8)})
        table.write(part.with_columns(v=start))
    newest = pl.DataFrame({"k": texts, "v": pl.int_range(0, 4000, eager=True) // 500 * 500})

    assert rows_of(planned(table)).sort("k").equals(newest)


@pytest.mark.parametrize("where", [None, "v < 140000", "v IN (3, 700000) OR w IS NULL"])
def test_large_file_of_an_append_table_is_cut_between_row_groups(
    tmp_path: Path, where: str | None
) -> None:
    table = table_at(
        tmp_path / "t",
        {"v": "BIGINT", "w": "STRING"},
        keys=(),
        source__split__target_size="512 kb",
        source__split__open_file_cost="1 kb",
    )
    rows = pl.DataFrame({"v": pl.int_range(6 * 131_072, eager=True)})
    rows = rows.with_columns(w=pl.col("v").hash(seed=1).cast(pl.String))
    table.write(rows)
    table.write(rows[:5])
    plan = planned(table, where=where)
    expected = table.scan(where=where).collect()

    assert {piece.row_groups for task in plan.tasks for piece in task} >= {(0, 1), (2, 3), (5, 6)}
    assert len(plan.tasks) >= 6
    assert rows_of(plan).sort("v", "w").equals(expected.sort("v", "w"))


def test_a_key_of_few_first_values_is_cut_by_the_columns_after_it(tmp_path: Path) -> None:
    table = table_at(
        tmp_path / "t",
        {"tenant": "INT NOT NULL", "id": "BIGINT NOT NULL", "w": "STRING"},
        keys=("tenant", "id"),
        bucket="1",
        write_only="true",
        source__split__target_size="1 mb",
        source__split__open_file_cost="1 kb",
    )
    ids = pl.int_range(0, ROWS, eager=True)
    rows = pl.DataFrame({"tenant": ids // ROWS, "id": ids}).with_columns(
        w=pl.col("id").hash(seed=1).cast(pl.String)
    )
    for part in (rows, rows[::2]):
        table.write(part.with_columns(pl.col("tenant").cast(pl.Int32)))
    plan = planned(table)

    assert len(plan.tasks) >= 2
    assert rows_of(plan).sort("id").equals(table.to_polars().sort("id"))


def test_small_buckets_share_a_task(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="40")
    table.write(pl.DataFrame({"id": range(400)}).with_columns(v=pl.lit("v"), n=pl.lit(1)))
    plan = planned(table)

    assert sum(len(task) for task in plan.tasks) == 40
    assert len(plan.tasks) <= 20
    assert rows_of(plan).height == 400


def test_a_condition_prunes_files_and_filters_rows(tmp_path: Path) -> None:
    table = runs(tmp_path / "t", *KEYS["bigint"])
    every, some = planned(table), planned(table, where="k >= 100 AND k < 300 AND v > 5000")

    assert len(some.tasks) <= len(every.tasks)
    assert (
        rows_of(some)
        .sort("k")
        .equals(table.to_polars(where="k >= 100 AND k < 300 AND v > 5000").sort("k"))
    )


def test_tasks_are_small_values(tmp_path: Path) -> None:
    table = runs(tmp_path / "t", *KEYS["bigint"])
    plan = planned(table)

    assert max(len(pickle.dumps(task)) for task in plan.tasks) < 4000


def test_another_version_of_lakecore_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = seal("a task")
    monkeypatch.setattr(lakecore, "__version__", "0.0.0-other")

    with pytest.raises(InvalidRequest, match="different versions"):
        open_sealed(sealed)


def test_nanoseconds_that_spark_cannot_hold_are_refused_by_column(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", {"at": "TIMESTAMP(9)"}, keys=(), bucket="-1")
    table.write(pl.DataFrame({"at": [1_001]}, schema={"at": pl.Datetime("ns")}))

    with pytest.raises(InvalidRequest, match="column=at"):
        rows_of(planned(table))


def test_a_table_in_memory_is_out_of_reach() -> None:
    table = lakecore.open_table("memory://pieces/t", create=True, schema={"id": "BIGINT"})

    with pytest.raises(Unsupported, match="memory of one process"):
        planned(table)
