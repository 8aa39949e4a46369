"""One lake of `lakes`: `python -m bench.lakes_contender LAKE FOLDER ROWS`.

Lakes: lakecore, with and without deletion vectors; ducklake, delta-rs and pyiceberg in an
environment of their own. It takes the steps of the basket, and prints the seconds of each, and what
the tables hold after each kind of change.
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
    from collections.abc import Callable, Iterator, Mapping

UPSERTS, KEYS, APPENDS, READS = 20, 10_000, 200, 7
NAMES = ["id", "amount", "quantity", "price", "discount", "city"]
WHOLE = "count(*), sum(amount), max(price)"
ONE_PERCENT, UPDATED, DELETED = "amount < 10000000", "id % 100 = 7", "id % 100 = 8"

Row = tuple[Any, ...]


class Lake(Protocol):
    """What is measured: a table `t` with keys, and a table `small` without."""

    def load(self, data: pa.Table) -> None:
        """A new table `t` with these rows, and an empty `small` with the same columns."""

    def upsert(self, data: pa.Table) -> None:
        """Rows by their ids, in one commit."""

    def aggregate(self, table: str, values: str) -> Row:
        """One row of aggregates, as SQL."""
        ...

    def rows(self, condition: str | None = None) -> pa.Table:
        """The rows of `t` under a condition."""
        ...

    def update(self, condition: str) -> None:
        """Add 1 to `quantity`."""

    def delete(self, condition: str) -> None:
        """Delete the rows under the condition."""

    def first_count(self) -> int:
        """The number of rows in the first version with rows."""
        ...

    def append(self, data: pa.Table) -> None:
        """Rows into `small`, in one commit."""

    def compact(self) -> None:
        """Rewrite `t` for its readers."""


class Lakecore:
    """lakecore; writes compact by themselves."""

    def __init__(self, folder: Path, *, vectors: bool = False) -> None:
        import lakecore

        self._catalog = lakecore.connect(folder, create=True)
        self._catalog.create_database("d")
        self._options = {"bucket": "2"} | ({"deletion-vectors.enabled": "true"} if vectors else {})

    def load(self, data: pa.Table) -> None:
        columns = {name: COLUMNS[name] for name in NAMES}
        self._table = self._catalog.create_table(
            "d.t", columns, primary_keys=["id"], options=self._options
        )
        self._table.write(data)
        self._first = self._table.inspect.snapshots()["snapshot_id"][-1]
        self._small = self._catalog.create_table("d.small", columns)

    def upsert(self, data: pa.Table) -> None:
        self._table.write(data)

    def aggregate(self, table: str, values: str) -> Row:
        return tuple(self._catalog.sql(f"SELECT {values} FROM d.{table}").fetchall()[0])

    def rows(self, condition: str | None = None) -> pa.Table:
        return self._table.to_arrow(where=condition)

    def update(self, condition: str) -> None:
        import polars as pl

        self._table.update({"quantity": pl.col("quantity") + 1}, condition)

    def delete(self, condition: str) -> None:
        self._table.delete(condition)

    def first_count(self) -> int:
        return self._table.count(snapshot_id=self._first)

    def append(self, data: pa.Table) -> None:
        self._small.write(data)

    def compact(self) -> None:
        self._table.compact(full=True)


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
        self._con.register("data", data)
        self._con.execute("CREATE TABLE l.t AS SELECT * FROM data")
        self._first = self._last_version()
        self._con.execute("CREATE TABLE l.small AS SELECT * FROM data LIMIT 0")

    def upsert(self, data: pa.Table) -> None:
        self._con.register("data", data)
        self._con.execute(
            "MERGE INTO l.t USING data AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET "
            + ", ".join(f"{name} = s.{name}" for name in NAMES[1:])
            + f" WHEN NOT MATCHED THEN INSERT VALUES ({', '.join(f's.{name}' for name in NAMES)})"
        )

    def aggregate(self, table: str, values: str) -> Row:
        return _row(self._con.execute(f"SELECT {values} FROM l.{table}").fetchone())

    def rows(self, condition: str | None = None) -> pa.Table:
        where = f" WHERE {condition}" if condition else ""
        return self._con.execute(f"SELECT * FROM l.t{where}").to_arrow_table()

    def update(self, condition: str) -> None:
        self._con.execute(f"UPDATE l.t SET quantity = quantity + 1 WHERE {condition}")

    def delete(self, condition: str) -> None:
        self._con.execute(f"DELETE FROM l.t WHERE {condition}")

    def first_count(self) -> int:
        query = f"SELECT count(*) FROM l.t AT (VERSION => {self._first})"
        return int(_row(self._con.execute(query).fetchone())[0])

    def append(self, data: pa.Table) -> None:
        self._con.register("data", data)
        self._con.execute("INSERT INTO l.small SELECT * FROM data")

    def compact(self) -> None:
        self._con.execute("CALL ducklake_rewrite_data_files('l')")
        self._con.execute("CALL ducklake_merge_adjacent_files('l')")

    def _last_version(self) -> int:
        query = "SELECT max(snapshot_id) FROM ducklake_snapshots('l')"
        return int(_row(self._con.execute(query).fetchone())[0])


class DeltaRs:
    """delta-rs, the Python package deltalake; queries are its own."""

    def __init__(self, folder: Path) -> None:
        self._paths = {name: str(folder / name) for name in ("t", "small")}

    def load(self, data: pa.Table) -> None:
        from deltalake import DeltaTable, write_deltalake

        write_deltalake(self._paths["t"], data)
        write_deltalake(self._paths["small"], data.slice(0, 0))
        self._table = DeltaTable(self._paths["t"])

    def upsert(self, data: pa.Table) -> None:
        merge = self._table.merge(data, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def aggregate(self, table: str, values: str) -> Row:
        return tuple(self._query(f"SELECT {values} FROM {table}", table).to_pylist()[0].values())

    def rows(self, condition: str | None = None) -> pa.Table:
        where = f" WHERE {condition}" if condition else ""
        return self._query(f"SELECT * FROM t{where}", "t")

    def update(self, condition: str) -> None:
        self._table.update(updates={"quantity": "quantity + 1"}, predicate=condition)

    def delete(self, condition: str) -> None:
        self._table.delete(condition)

    def first_count(self) -> int:
        from deltalake import DeltaTable

        return int(DeltaTable(self._paths["t"], version=0).count())

    def append(self, data: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(self._paths["small"], data, mode="append")

    def compact(self) -> None:
        self._table.optimize.compact()

    def _query(self, query: str, table: str) -> pa.Table:
        """Over a fresh state of the table."""
        from deltalake import DeltaTable, QueryBuilder

        state = DeltaTable(self._paths[table])
        return pa.table(QueryBuilder().register(table, state).execute(query))


class PyIceberg:
    """PyIceberg, with a catalog in SQLite."""

    def __init__(self, folder: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        self._catalog = SqlCatalog(
            "c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}"
        )

    def load(self, data: pa.Table) -> None:
        self._schema = data.schema.set(0, pa.field("id", pa.int64(), nullable=False))
        self._catalog.create_namespace("d")
        self._table = self._catalog.create_table("d.t", self._schema)
        with self._table.update_schema() as changed:
            changed.set_identifier_fields("id")
        self._table.append(data.cast(self._schema))
        self._small = self._catalog.create_table("d.small", self._schema)

    def upsert(self, data: pa.Table) -> None:
        self._table.upsert(data.cast(self._schema))

    def aggregate(self, table: str, values: str) -> Row:
        """By Arrow: it has no SQL."""
        import pyarrow.compute as pc

        of = {"t": self._table, "small": self._small}[table]
        found = of.scan(selected_fields=("amount", "price")).to_arrow()
        total, greatest = pc.sum(found["amount"]).as_py(), pc.max(found["price"]).as_py()
        return (found.num_rows, total, greatest) if values == WHOLE else (total,)

    def rows(self, condition: str | None = None) -> pa.Table:
        return self._table.scan(condition or "TRUE").to_arrow()

    def update(self, condition: str) -> None:
        raise NotImplementedError  # it has no UPDATE, and no remainder in its conditions

    def delete(self, condition: str) -> None:
        raise NotImplementedError  # no remainder in its conditions

    def first_count(self) -> int:
        first = self._table.history()[0].snapshot_id
        return int(self._table.scan(snapshot_id=first).to_arrow().num_rows)

    def append(self, data: pa.Table) -> None:
        self._small.append(data.cast(self._schema))

    def compact(self) -> None:
        raise NotImplementedError  # it has none


LAKES: Mapping[str, Callable[[Path], Lake]] = {
    "lakecore": Lakecore,
    "with vectors": lambda folder: Lakecore(folder, vectors=True),
    "ducklake": DuckLake,
    "delta-rs": DeltaRs,
    "pyiceberg": PyIceberg,
}


def steps(lake: Lake, count: int, holds: list[list[float]]) -> Iterator[tuple[str, float, float]]:
    """Take the steps of the basket: the name of each, its seconds, and those of the processor."""
    chance = np.random.default_rng(6)
    base = rows(np.arange(count), seed=1).select(NAMES)
    parts = [
        rows(np.unique(chance.integers(0, count, KEYS)), seed=2 + at).select(NAMES)
        for at in range(UPSERTS)
    ]
    key = count // 3
    whole = partial(lake.aggregate, "t", WHOLE)
    small = partial(lake.aggregate, "small", "sum(amount)")

    def timed(name: str, work: Callable[[], object], times: int = 1) -> Iterator[Any]:
        for _ in range(times):
            began, worked = time.perf_counter(), time.process_time()
            try:
                work()
            except NotImplementedError:
                return
            yield name, time.perf_counter() - began, time.process_time() - worked

    def held() -> None:
        holds.append([float(value) for value in whole()])

    yield from timed("load", lambda: lake.load(base))
    for part in parts:
        yield from timed("upsert of 10 000", partial(lake.upsert, part))
    yield from timed("aggregate after the upserts", whole, READS)
    held()
    yield from timed("filter 1 %", lambda: lake.rows(ONE_PERCENT), READS)
    yield from timed("point by key", lambda: lake.rows(f"id = {key}"), READS)
    yield from timed("all rows to Arrow", lake.rows, READS)
    yield from timed("count of the first version", lake.first_count, READS)
    assert lake.first_count() == count, "the first version has other rows"
    yield from timed("UPDATE 1 %", lambda: lake.update(UPDATED))
    yield from timed("DELETE 1 %", lambda: lake.delete(DELETED))
    held()
    for at in range(APPENDS):
        part = rows(np.arange(at * 10, at * 10 + 10), seed=at).select(NAMES)
        yield from timed("append of 10 rows", partial(lake.append, part))
    yield from timed("sum of the small table", small, READS)
    holds.append([float(small()[0])])
    yield from timed("compaction", lake.compact)
    yield from timed("aggregate after compaction", whole, READS)


def main(lake: str, folder: Path, count: int) -> None:
    """Measure one lake, and print it as JSON."""
    folder.mkdir(parents=True)
    found: dict[str, list[tuple[float, float]]] = {}
    holds: list[list[float]] = []
    for name, seconds, cpu in steps(LAKES[lake](folder), count, holds):
        found.setdefault(name, []).append((seconds, cpu))
    files = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    answer = {
        "steps": found,
        "holds": holds,
        "disk_mib": files / (1 << 20),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(answer))


def _row(found: Any) -> Row:
    assert found is not None, "an aggregate is one row"
    return tuple(found)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
