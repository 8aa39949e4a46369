"""Every door of pyarrow, DuckDB and Polars that takes a dataset, each tried on one of ours.

Run as a program: one JSON line a door, with its rows or its error. A door that ends the process
leaves its line out, and those after it.
"""

from __future__ import annotations

import json
import pickle
import sys
import tempfile
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.acero import Declaration, ScanNodeOptions

from lakecore.errors import LakecoreError
from lakecore.frames.arrow_dataset import SourceDataset
from tests.frames.made_rows import MadeRows

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 10
ODD = pc.field("id") > 6


def made() -> SourceDataset:
    return SourceDataset(MadeRows(ROWS, batch_rows=4))


def _written(data: object) -> int:
    folder = tempfile.mkdtemp()
    ds.write_dataset(data, folder, format="parquet")
    return int(ds.dataset(folder).count_rows())


def _acero(given: ds.Dataset) -> int:
    return int(Declaration("scan", ScanNodeOptions(given)).to_table().num_rows)


GIVE_ROWS: dict[str, tuple[int, Callable[[SourceDataset], int]]] = {
    "to_table": (ROWS, lambda d: d.to_table().num_rows),
    "to_table of a column": (ROWS, lambda d: d.to_table(["id"])["id"].to_pylist()[-1] + 1),
    "to_table as a keyword": (3, lambda d: d.to_table(columns=["text"], filter=ODD).num_rows),
    "to_batches": (ROWS, lambda d: sum(b.num_rows for b in d.to_batches(batch_size=3))),
    "base to_table": (3, lambda d: ds.Dataset.to_table(d.filter(ODD)).num_rows),
    "head": (7, lambda d: d.head(7).num_rows),
    "count_rows": (ROWS, lambda d: d.count_rows()),
    "count_rows of some": (3, lambda d: d.count_rows(filter=ODD)),
    "filter": (3, lambda d: d.filter(ODD).to_table().num_rows),
    "replace_schema": (ROWS, lambda d: d.replace_schema(d.schema).count_rows()),
    "scanner to_table": (3, lambda d: d.scanner(filter=ODD).to_table().num_rows),
    "scanner to_reader": (ROWS, lambda d: d.scanner().to_reader().read_all().num_rows),
    "scanner head": (7, lambda d: d.scanner().head(7).num_rows),
    "scanner twice": (ROWS, lambda d: [d.scanner().count_rows() for _ in range(2)][1]),
    "scanner as a stream": (ROWS, lambda d: pa.table(d.scanner()).num_rows),
    "scanner of pyarrow": (ROWS, lambda d: d.scanner(use_threads=True).count_rows()),
    "scanner of pyarrow, head": (7, lambda d: d.scanner(use_threads=False).head(7).num_rows),
    "write_dataset": (ROWS, _written),
    "write_dataset of a scanner": (ROWS, lambda d: _written(d.scanner())),
    "write_dataset of some": (3, lambda d: _written(d.filter(ODD))),
    "write_dataset of pyarrow's": (ROWS, lambda d: _written(d.scanner(use_threads=True))),
    "pickle": (3, lambda d: pickle.loads(pickle.dumps(d.filter(ODD))).count_rows()),
    "repr": (1, lambda d: int("half" in repr(d))),
    "dir": (1, lambda d: int("scanner" in dir(d))),
    "partition_expression": (1, lambda d: int(d.partition_expression.equals(pc.scalar(True)))),
    "schema": (1, lambda d: int(d.schema == MadeRows(0).schema)),
    "schema of a union": (1, lambda d: int(ds.dataset([d, d]).schema == d.schema)),
    "children of a union": (ROWS, lambda d: ds.dataset([d, d]).children[0].schema and ROWS),
    "polars": (3, lambda d: pl.scan_pyarrow_dataset(d).filter(pl.col("id") > 6).collect().height),
    "polars, limit": (2, lambda d: pl.scan_pyarrow_dataset(d).head(2).collect().height),
    "polars, columns": (ROWS, lambda d: pl.scan_pyarrow_dataset(d).select("id").collect().height),
    "duckdb": (3, lambda d: len(duckdb.from_arrow(d).filter("id > 6").fetchall())),
    "duckdb, limit": (2, lambda d: len(duckdb.from_arrow(d).limit(2).fetchall())),
    "duckdb, count": (ROWS, lambda d: duckdb.from_arrow(d).count("*").fetchall()[0][0]),
    "duckdb, join": (
        ROWS,
        lambda d: len(duckdb.from_arrow(d).join(duckdb.from_arrow(made()), "id").fetchall()),
    ),
}

REFUSE: dict[str, Callable[[SourceDataset], object]] = {
    "union": lambda d: ds.dataset([d, made()]).to_table(),
    "union, count": lambda d: ds.dataset([d, made()]).count_rows(),
    "union, head": lambda d: ds.dataset([d, made()]).head(1),
    "union, to_batches": lambda d: list(ds.dataset([d, made()]).to_batches()),
    "union, fragments": lambda d: [f.to_table() for f in ds.dataset([d, d]).get_fragments()],
    "union, duckdb": lambda d: duckdb.from_arrow(ds.dataset([d, made()])).fetchall(),
    "union, pickled": lambda d: pickle.loads(pickle.dumps(ds.dataset([d, d]))).to_table(),
    "union with another": lambda d: ds.dataset(
        [d, ds.InMemoryDataset(MadeRows(3).batches().__next__())]
    ).to_table(),
    "Scanner.from_dataset": lambda d: ds.Scanner.from_dataset(d).to_table(),
    "Scanner.from_dataset, some": lambda d: ds.Scanner.from_dataset(d, filter=ODD).count_rows(),
    "Scanner.from_dataset, head": lambda d: ds.Scanner.from_dataset(d, columns=["id"]).head(2),
    "Scanner.from_dataset, take": lambda d: ds.Scanner.from_dataset(d).take(pa.array([1])),
    "base sort_by": lambda d: ds.Dataset.sort_by(d, "id"),
    "base join": lambda d: ds.Dataset.join(d, made(), "id"),
    "base fragments": lambda d: [f.count_rows() for f in ds.Dataset.get_fragments(d)],
    "join into": lambda d: ds.InMemoryDataset(pa.table({"id": [1]})).join(d, "id"),
    "join_asof into": lambda d: ds.InMemoryDataset(
        pa.table({"id": pa.array([1], pa.int64()), "on": pa.array([1], pa.int64())})
    ).join_asof(d, "id", "id", 1),
    "acero": _acero,
    "join": lambda d: d.join(made(), "id"),
    "join_asof": lambda d: d.join_asof(made(), "id", "id", 1),
    "sort_by": lambda d: d.sort_by("id"),
    "take": lambda d: d.take(pa.array([1])),
    "scanner take": lambda d: d.scanner().take(pa.array([1])),
    "get_fragments": lambda d: list(d.get_fragments()),
    "files": lambda d: d.files,
    "filesystem": lambda d: d.filesystem,
    "format": lambda d: d.format,
    "partitioning": lambda d: d.partitioning,
    "expressions": lambda d: d.to_table({"x": ODD}),  # type: ignore[arg-type]
    "unknown column": lambda d: d.to_table(columns=["nope"]),
    "unknown argument": lambda d: d.to_table(limit=3),
    "no expression": lambda d: d.filter("id > 6"),
    "scan options": lambda d: d.to_table(fragment_scan_options=ds.ParquetFragmentScanOptions()),
    "batch size": lambda d: d.to_table(batch_size=0),
}


def main() -> None:
    for name, (_, door) in GIVE_ROWS.items():
        _tell(name, door)
    for name, refused in REFUSE.items():
        _tell(name, refused)
    # The process ends while pyarrow still pulls.
    SourceDataset(MadeRows(1_000_000)).scanner(use_threads=True).to_reader().read_next_batch()


def _tell(name: str, door: Callable[[SourceDataset], object]) -> None:
    try:
        found = door(made())
        line = {"door": name, "rows": found if isinstance(found, int) else repr(found)}
    except (LakecoreError, OSError, pa.ArrowException, ValueError, duckdb.Error) as error:
        line = {"door": name, "error": type(error).__name__, "message": str(error)}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
