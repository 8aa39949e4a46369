"""The Polars face: what is pushed, what is exact, what stops early."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Literal, TypeAlias

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecore.frames.engine_scan import polars_schema
from lakecore.frames.polars_source import FOOTERS_MAX, scan
from lakecore.plan.predicate import Compare, Op, to_polars
from tests.frames.made_rows import HeldRows, MadeRows
from tests.versions import ENGINES_THAT_STOP

ROOT = Path(__file__).parents[2]
Engine: TypeAlias = Literal["auto", "in-memory", "streaming"]
ENGINES: list[Engine] = ["auto", "in-memory", "streaming"]


@pytest.mark.parametrize("engine", ENGINES)
def test_columns_and_filters_reach_the_source(engine: Engine) -> None:
    source = MadeRows(1000, batch_rows=300)
    found = scan(source).filter(pl.col("id") > 997).select("half").collect(engine=engine)

    assert found["half"].to_list() == [499.0, 499.5]
    assert source.last.columns is not None
    assert set(source.last.columns) == {"half", "id"}
    assert source.last.predicate == Compare("id", Op.GT, pa.scalar(997))


def test_a_filter_that_no_predicate_says_is_exact() -> None:
    source = MadeRows(1000, batch_rows=300)
    found = scan(source).filter(pl.col("id") % 400 == 1, pl.col("text") != "row 1").collect()

    assert found["id"].to_list() == [401, 801]


def test_a_filter_by_python_is_exact() -> None:
    def is_odd(values: pl.Series) -> pl.Series:
        return values % 2 == 1

    odd = pl.col("id").map_batches(is_odd, return_dtype=pl.Boolean)
    found = scan(MadeRows(10, batch_rows=3)).filter(odd & (pl.col("id") > 5)).collect()

    assert found["id"].to_list() == [7, 9]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_limit_stops_the_source(engine: Engine) -> None:
    source = MadeRows(5_000_000)
    found = scan(source).head(3).collect(engine=engine)

    assert found["id"].to_list() == [0, 1, 2]
    assert source.last.limit == 3
    assert source.last.rows == source.batch_rows
    assert source.last.closed


@pytest.mark.parametrize("engine", ENGINES_THAT_STOP)
def test_a_limit_after_a_filter_stops_the_source(engine: Engine) -> None:
    """Polars lets a source run ahead, so how far is not certain; this one has no end.

    (Its in-memory engine reads all before it applies such a limit.)
    """
    source = MadeRows(1 << 60)
    found = scan(source).select("id").filter(pl.col("id") > 5).head(2).collect(engine=engine)

    assert found["id"].to_list() == [6, 7]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_limit_before_a_filter_counts_rows_of_the_source(
    engine: Engine,
) -> None:
    source = MadeRows(1000, batch_rows=4)
    found = scan(source).head(6).filter(pl.col("id") > 3).collect(engine=engine)

    assert found["id"].to_list() == [4, 5]
    assert source.last.predicate is None


def test_rows_can_be_counted_without_columns() -> None:
    assert scan(MadeRows(1000)).select(pl.len()).collect().item() == 1000
    assert scan(MadeRows(1000)).filter(pl.col("id") < 7).select(pl.len()).collect().item() == 7


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_are_numbered_without_columns(engine: Engine, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3]})
    pq.write_table(rows, tmp_path / "0.parquet")
    file = str(tmp_path / "0.parquet")
    merged, filed = MadeRows(100), HeldRows(rows, [file] * (FOOTERS_MAX + 1))

    for source, count in ((merged, 100), (filed, 3 * (FOOTERS_MAX + 1))):
        found = scan(source).with_row_index().select("index").collect(engine=engine)

        assert found["index"].to_list() == list(range(count))


def test_a_frame_is_read_as_often_as_it_is_collected() -> None:
    frame = scan(MadeRows(10))

    assert frame.collect().equals(frame.collect())
    assert frame.join(frame, on="id").collect().height == 10


def test_every_type_has_its_twin(all_types: pa.Table) -> None:
    frame = scan(HeldRows(all_types))
    found = frame.collect()

    assert frame.collect_schema() == polars_schema(all_types.schema) == found.schema
    assert found.to_dicts() == pl.DataFrame(pl.from_arrow(all_types)).to_dicts()


@pytest.mark.parametrize("name", ["q", "i8", "f64", "dec38", "s", "b", "d", "ti", "ms", "ns", "tz"])
def test_every_type_is_filtered(all_types: pa.Table, name: str) -> None:
    plain = pl.DataFrame(pl.from_arrow(all_types))
    for at in (0, 1):
        equal = to_polars(Compare(name, Op.EQ, all_types[name][at]))
        assert equal is not None
        expected = plain.filter(equal)["id"].to_list()

        assert scan(HeldRows(all_types)).filter(equal).collect()["id"].to_list() == expected
        assert expected == [at]


def test_a_nan_is_above_all_numbers() -> None:
    rows = pa.table({"g": [1.0, math.nan, None, 9.0]})
    found = scan(HeldRows(rows)).filter(pl.col("g") > 5).collect()["g"].to_list()

    assert [str(g) for g in found] == ["nan", "9.0"]


def test_files_as_they_are_go_to_the_reader_of_polars(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3], "s": ["a", "b", "c"]})
    for part in range(2):
        pq.write_table(rows.append_column("_KEY_id", rows["id"]), tmp_path / f"{part}.parquet")
    source = HeldRows(rows, [str(tmp_path / f"{part}.parquet") for part in range(2)])

    assert sorted(scan(source).collect()["id"].to_list()) == [1, 1, 2, 2, 3, 3]
    assert scan(source).collect_schema().names() == ["id", "s"]
    assert scan(source).filter(pl.col("id") > 2).select("s").collect()["s"].to_list() == ["c", "c"]
    assert scan(source).head(4).filter(pl.col("id") > 1).collect().height == 2
    assert scan(HeldRows(rows, [])).collect().height == 0


def test_files_with_marked_rows_go_to_the_reader_of_polars(tmp_path: Path) -> None:
    rows = pa.table({"id": range(9), "s": [*"abcdefghi"]})
    pq.write_table(rows, tmp_path / "0.parquet", row_group_size=2)
    source = HeldRows(rows, [str(tmp_path / "0.parquet")] * 2, bits=b"\x06\x01")

    assert sorted(scan(source).collect()["id"].to_list()) == [1, 1, 2, 2, 8, 8]
    assert scan(source).filter(pl.col("id") > 2).select("s").collect()["s"].to_list() == ["i", "i"]
    assert scan(source).head(4).collect()["id"].to_list() == [1, 2, 8, 1]
    assert scan(source).head(4).filter(pl.col("id") > 1).collect().height == 2
    assert scan(source).select(pl.len()).collect().item() == 6


def test_filter_is_not_computed_on_a_marked_row(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "s": ["none", "7"]})
    pq.write_table(rows, tmp_path / "0.parquet")
    source = HeldRows(rows, [str(tmp_path / "0.parquet")], bits=b"\x02")

    found = scan(source).filter((pl.col("id") > 0) & (pl.col("s").str.to_integer() > 5)).collect()
    assert found["id"].to_list() == [2]


ENDS_EARLY = """
import polars as pl
from lakecore.frames.polars_source import scan
from tests.frames.made_rows import MadeRows

scan(MadeRows(50_000_000)).filter(pl.col("id") > 5).head(2).collect()
"""


def test_a_process_may_end_while_polars_reads_ahead() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", ENDS_EARLY], env=environment, capture_output=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, b"")
