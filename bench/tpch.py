"""TPC-H's 22 queries by SQL, beside DuckDB on the bare Parquet files of the same rows.

The tables have primary keys. `five runs`: each holds a load and four upserts of a fifth of
its rows, not compacted, so every read merges. `compacted`: the same, compacted in full.

`python -m bench tpch scale=0.5` is another size.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import lakecore
from bench.report import Figures, console, promise
from bench.tpch_data import KEYS, tables
from bench.tpch_queries import QUERIES

if TYPE_CHECKING:
    from collections.abc import Sequence

UPSERTS = 4


def fill(catalog: lakecore.Session, data: dict[str, pa.Table]) -> None:
    """Tables of five overlapping runs in the current database `default`."""
    catalog.create_database("default")
    for name, rows in data.items():
        table = catalog.create_table(
            f"default.{name}",
            rows.schema,
            primary_keys=KEYS[name],
            options={"bucket": "1", "write-only": "true"},
        )
        spread = [rows.filter(_every(rows.num_rows, UPSERTS + 1, each)) for each in range(UPSERTS)]
        for part in (rows, *spread):
            table.write(part)


def _every(count: int, of: int, offset: int) -> pa.Array:
    return pa.array([place % of == offset for place in range(of)] * (count // of + 1))[:count]


def run(arguments: Sequence[str] = ()) -> bool:
    """Measure; whether every promise was kept."""
    scale = float(dict(each.split("=") for each in arguments).get("scale", "0.1"))
    folder = Path(tempfile.mkdtemp(prefix="lakecore-bench-"))
    data = tables(scale)
    plain = duckdb.connect()
    for name, rows in data.items():
        pq.write_table(rows, folder / f"{name}.parquet", compression="zstd")
        plain.sql(f"CREATE VIEW {name} AS FROM read_parquet('{folder / name}.parquet')")
    catalog = lakecore.connect(folder / "warehouse", create=True)
    fill(catalog, data)
    del data
    kept = True
    for state, wanted in (("five runs", 4.0), ("compacted", 1.1)):
        if state == "compacted":
            for name in KEYS:
                catalog.get_table(f"default.{name}").compact(full=True)
        kept &= _measure(state, catalog, plain, wanted)
    shutil.rmtree(folder)
    return kept


def _ask(
    side: lakecore.Session | duckdb.DuckDBPyConnection, text: str, rows: list[tuple[object, ...]]
) -> None:
    rows += side.sql(text).fetchall()


def same_rows(ours: list[tuple[object, ...]], theirs: list[tuple[object, ...]]) -> bool:
    """Whether the rows are the same; floats, which threads sum in any order, up to 1e-9."""

    def same(one: object, other: object) -> bool:
        if isinstance(one, float) and isinstance(other, float):
            return isclose(one, other, rel_tol=1e-9)
        return one == other

    return len(ours) == len(theirs) and all(
        len(one) == len(other) and all(map(same, one, other))
        for one, other in zip(ours, theirs, strict=True)
    )


def _measure(
    state: str, catalog: lakecore.Session, plain: duckdb.DuckDBPyConnection, wanted: float
) -> bool:
    seconds: dict[str, float] = {"lakecore": 0.0, "duckdb, bare files": 0.0}
    slowest: list[tuple[float, int]] = []
    for number, text in QUERIES.items():
        figures = Figures(f"query {number}")
        ours: list[tuple[object, ...]] = []
        theirs: list[tuple[object, ...]] = []
        for _ in range(3):
            ours, theirs = [], []
            figures.time("lakecore", partial(_ask, catalog, text, ours))
            figures.time("duckdb, bare files", partial(_ask, plain, text, theirs))
        if not same_rows(ours, theirs):
            message = f"query {number} gives other rows: {state}"
            raise AssertionError(message)
        for name in seconds:
            seconds[name] += min(figures.cpu_seconds[name])
        slowest.append((figures.cpu_ratio("lakecore", "duckdb, bare files"), number))
    worst = ", ".join(f"{number}: {ratio:.1f}" for ratio, number in sorted(slowest)[:-6:-1])
    console.print(f"{state}: CPU seconds {seconds}; largest ratios {worst}")
    ratio = seconds["lakecore"] / seconds["duckdb, bare files"]
    return promise(f"22 queries, {state}: times DuckDB's CPU", ratio, wanted, at_least=False)
