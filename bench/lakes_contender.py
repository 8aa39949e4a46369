"""One lake of `upserts_lakes`: `python -m bench.lakes_contender LAKE FOLDER ROWS UPSERTS KEYS`.

Lakes: lakecore; ducklake, delta-rs and pyiceberg in an environment of their own. It loads the rows,
upserts, and asks for an aggregate, and prints the seconds of each, and what the table then holds.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from bench.data import COLUMNS, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

AGGREGATES = 7
AGGREGATE = "SELECT count(*), sum(amount), max(price) FROM {}"


class Lake(Protocol):
    """What is measured."""

    def load(self, data: pa.Table) -> None:
        """A new table with these rows."""

    def upsert(self, data: pa.Table) -> None:
        """Rows by their ids, in one commit."""

    def aggregate(self) -> tuple[Any, ...]:
        """The number of rows, the sum of `amount` and the greatest `price`."""
        ...


class Lakecore:
    """lakecore with deletion vectors; writes compact by themselves."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, data: pa.Table) -> None:
        """A new table with these rows."""
        import lakecore

        catalog = lakecore.connect(self._folder, create=True)
        catalog.create_database("d")
        options = {"bucket": "2", "deletion-vectors.enabled": "true"}
        self._table = catalog.create_table("d.t", COLUMNS, primary_keys=["id"], options=options)
        self._catalog = catalog
        self._table.write(data)

    def upsert(self, data: pa.Table) -> None:
        """Rows by their ids, in one commit."""
        self._table.write(data)

    def aggregate(self) -> tuple[Any, ...]:
        """By SQL."""
        return _row(self._catalog.sql(AGGREGATE.format("d.t")).fetchall()[0])


class DuckLake:
    """DuckLake, with its catalog in a file of DuckDB."""

    def __init__(self, folder: Path) -> None:
        import duckdb
        import duckdb_extension_ducklake as extension

        self._con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        home = os.path.dirname(str(extension.__file__))  # noqa: PTH120  a text goes into SQL
        version = duckdb.__version__
        self._con.execute(f"LOAD '{home}/extensions/v{version}/ducklake.duckdb_extension'")
        self._con.execute(
            f"ATTACH 'ducklake:{folder}/meta.ducklake' AS l (DATA_PATH '{folder}/data/')"
        )

    def load(self, data: pa.Table) -> None:
        """A new table with these rows."""
        self._con.register("data", data)
        self._con.execute("CREATE TABLE l.t AS SELECT * FROM data")

    def upsert(self, data: pa.Table) -> None:
        """Rows by their ids, in one commit."""
        self._con.register("data", data)
        names = [f'"{name}"' for name in data.schema.names]
        self._con.execute(
            "MERGE INTO l.t USING data AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET "
            + ", ".join(f"{name} = s.{name}" for name in names[1:])
            + f" WHEN NOT MATCHED THEN INSERT VALUES ({', '.join(f's.{name}' for name in names)})"
        )

    def aggregate(self) -> tuple[Any, ...]:
        """By SQL."""
        return _row(self._con.execute(AGGREGATE.format("l.t")).fetchone())


class DeltaRs:
    """delta-rs, the Python package deltalake; queries are its own."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "t")

    def load(self, data: pa.Table) -> None:
        """A new table with these rows."""
        from deltalake import DeltaTable, write_deltalake

        write_deltalake(self._path, data)
        self._table = DeltaTable(self._path)

    def upsert(self, data: pa.Table) -> None:
        """Rows by their ids, in one commit."""
        merge = self._table.merge(data, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def aggregate(self) -> tuple[Any, ...]:
        """By SQL, over a fresh state of the table."""
        from deltalake import DeltaTable, QueryBuilder

        query = QueryBuilder().register("t", DeltaTable(self._path))
        (row,) = pa.table(query.execute(AGGREGATE.format("t"))).to_pylist()
        return tuple(row.values())


class PyIceberg:
    """PyIceberg, with a catalog in SQLite."""

    def __init__(self, folder: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        self._catalog = SqlCatalog(
            "c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}"
        )

    def load(self, data: pa.Table) -> None:
        """A new table with these rows."""
        fields = data.schema.set(0, pa.field("id", pa.int64(), nullable=False))
        self._schema = fields
        self._catalog.create_namespace("d")
        self._table = self._catalog.create_table("d.t", fields)
        with self._table.update_schema() as changed:
            changed.set_identifier_fields("id")
        self._table.append(data.cast(fields))

    def upsert(self, data: pa.Table) -> None:
        """Rows by their ids, in one commit."""
        self._table.upsert(data.cast(self._schema))

    def aggregate(self) -> tuple[Any, ...]:
        """By Arrow: it has no SQL."""
        import pyarrow.compute as pc

        found = self._table.scan(selected_fields=("amount", "price")).to_arrow()
        total, greatest = pc.sum(found["amount"]).as_py(), pc.max(found["price"]).as_py()
        return found.num_rows, total, greatest


LAKES: Mapping[str, Callable[[Path], Lake]] = {
    "lakecore": Lakecore,
    "ducklake": DuckLake,
    "delta-rs": DeltaRs,
    "pyiceberg": PyIceberg,
}


def main(lake: str, folder: Path, count: int, upserts: int, keys: int) -> None:
    """Measure one lake, and print it as JSON."""
    folder.mkdir(parents=True)
    found = LAKES[lake](folder)
    chance = np.random.default_rng(6)
    base = rows(np.arange(count), seed=1)
    parts = [rows(np.unique(chance.integers(0, count, keys)), seed=2 + at) for at in range(upserts)]
    load, _ = _timed(lambda: found.load(base))
    upserting = [_timed(partial(found.upsert, part)) for part in parts]
    aggregates = [_timed(found.aggregate) for _ in range(AGGREGATES)]
    held, total, greatest = found.aggregate()
    files = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    answer = {
        "load": load,
        "upserts": [seconds for seconds, _ in upserting],
        "upserts_cpu": [cpu for _, cpu in upserting],
        "aggregates": [seconds for seconds, _ in aggregates],
        "aggregates_cpu": [cpu for _, cpu in aggregates],
        "holds": [int(held), int(total), float(greatest)],
        "mib": files / (1 << 20),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(answer))


def _row(found: Any) -> tuple[Any, ...]:
    assert found is not None, "an aggregate is one row"
    return tuple(found)


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """The seconds, and those of the processor."""
    began, worked = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - worked


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:6]))
