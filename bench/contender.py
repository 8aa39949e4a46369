"""One contender: `python -m bench.contender ENGINE`, a JSON request a line, an answer a line.

Engines: lakecore; pypaimon (its Python path), native (pypaimon on paimon-rust); polars, which reads
the bare Parquet files of a table, unmerged. Each runs in an
environment of its own, with its input already in memory; only the verb itself is timed.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bench.data import COLUMNS, merge_input

if TYPE_CHECKING:
    import pyarrow as pa

NATIVE = {
    "write.native.enabled": "true",
    "commit.native.enabled": "true",
    "scan.native-plan.enabled": "true",
    "read.native.enabled": "true",
}


class Engine(Protocol):
    """What is measured."""

    def create(self, warehouse: str, options: dict[str, str]) -> None:
        """A new table."""

    def open(self, warehouse: str) -> None:
        """The table that another contender made."""

    def write(self, rows: pa.Table) -> None:
        """One commit."""

    def read(self, columns: list[str] | None) -> int:
        """All rows to memory; how many."""
        ...


class Lakecore:
    """lakecore, by its public API."""

    def create(self, warehouse: str, options: dict[str, str]) -> None:
        """A new table."""
        import lakecore

        catalog = lakecore.connect(warehouse, create=True)
        catalog.create_database("bench", ignore_if_exists=True)
        self._table = catalog.create_table("bench.t", COLUMNS, primary_keys=["id"], options=options)

    def open(self, warehouse: str) -> None:
        """The table that another contender made."""
        import lakecore

        self._table = lakecore.open_table(f"{warehouse}/bench.db/t")

    def write(self, rows: pa.Table) -> None:
        """One commit."""
        self._table.write(rows)

    def read(self, columns: list[str] | None) -> int:
        """All rows to memory."""
        return int(self._table.to_arrow(columns).num_rows)

    def compact(self) -> int:
        """Every bucket to one run; the rows that were read."""
        return self._table.compact(full=True).rows_before


class Pypaimon:
    """pypaimon, by its public API."""

    def __init__(self, *, native: bool) -> None:
        self._dynamic = NATIVE if native else {}

    def create(self, warehouse: str, options: dict[str, str]) -> None:
        """A new table."""
        from pypaimon import CatalogFactory, Schema

        catalog = CatalogFactory.create({"warehouse": warehouse})
        catalog.create_database("bench", True)
        fields = merge_input(0.001)[0].schema
        fields = fields.set(0, fields.field("id").with_nullable(False))
        schema = Schema.from_pyarrow_schema(fields, primary_keys=["id"], options=options)
        catalog.create_table("bench.t", schema, False)
        self.open(warehouse)
        self._schema = fields

    def open(self, warehouse: str) -> None:
        """The table that another contender made."""
        from pypaimon import CatalogFactory

        catalog = CatalogFactory.create({"warehouse": warehouse})
        self._table = catalog.get_table("bench.t").copy(self._dynamic)

    def write(self, rows: pa.Table) -> None:
        """One commit."""
        builder = self._table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(rows.cast(self._schema))
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()

    def read(self, columns: list[str] | None) -> int:
        """All rows to memory."""
        builder = self._table.new_read_builder()
        if columns is not None:
            builder = builder.with_projection(columns)
        splits = builder.new_scan().plan().splits()
        return int(builder.new_read().to_arrow(splits).num_rows)


class BareFiles:
    """Polars on the files of a table, whatever the table makes of them."""

    def create(self, warehouse: str, options: dict[str, str]) -> None:
        """Nothing that can be done."""
        raise NotImplementedError

    def open(self, warehouse: str) -> None:
        """The files that another contender wrote."""
        self._files = sorted(Path(warehouse).rglob("*.parquet"))

    def write(self, rows: pa.Table) -> None:
        """Nothing that can be done."""
        raise NotImplementedError

    def read(self, columns: list[str] | None) -> int:
        """All rows to memory."""
        import polars as pl

        scan = pl.scan_parquet(self._files)
        return (scan if columns is None else scan.select(columns)).collect().height


def engine_of(name: str) -> Engine:
    """The engine of this name."""
    if name == "lakecore":
        return Lakecore()
    return BareFiles() if name == "polars" else Pypaimon(native=name == "native")


def main() -> None:
    """Answer requests until the input ends."""
    engine = engine_of(sys.argv[1])
    answers = sys.stdout
    sys.stdout = sys.stderr
    parts: list[pa.Table] = []
    for line in sys.stdin:
        request = json.loads(line)
        rows = 0
        began, worked = time.perf_counter(), time.process_time()
        match request["verb"]:
            case "load":
                parts = merge_input(request["scale"], nulls=request.get("nulls", 0.0))
            case "create":
                engine.create(request["warehouse"], request["options"])
            case "open":
                engine.open(request["warehouse"])
            case "write":
                for part in parts:
                    engine.write(part)
                    rows += part.num_rows
            case "read":
                rows = engine.read(request.get("columns"))
            case "compact":
                assert isinstance(engine, Lakecore)
                rows = engine.compact()
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        cpu = time.process_time() - worked
        answer = {"seconds": seconds, "cpu_seconds": cpu, "rows": rows, "peak_mib": peak}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
