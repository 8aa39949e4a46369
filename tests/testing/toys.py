"""Tables on a plain list, as somebody else would write them: one that is right, and mutants of it.

The rows of each snapshot are a JSON file, or are kept in memory where nobody crashes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

if TYPE_CHECKING:
    from lakecore.testing import FaultyWarehouse, Shape

Row = dict[str, Any]


class Toy:
    """A table that keeps the newest row of a key, or every row without one."""

    def __init__(self, shape: Shape) -> None:
        self.schema = shape.schema.arrow
        self.keys = shape.primary_keys
        self.snapshots: list[list[Row]] = [[]]

    def write(self, rows: pa.Table) -> int | None:
        if not rows.num_rows:
            return None
        return self._commit(self.merged(self.snapshots[-1], rows.to_pylist()))

    def merged(self, held: list[Row], rows: list[Row]) -> list[Row]:
        if not self.keys:
            return held + rows
        by_key = {self.key(row): row for row in held}
        for row in rows:
            if self.kind(row) in ("+I", "+U"):
                by_key[self.key(row)] = row
            else:
                by_key.pop(self.key(row), None)
        return [*by_key.values()]

    def key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.keys)

    def kind(self, row: Row) -> str:
        return str(row.pop("_row_kind", "+I"))

    def delete(self, where: pl.Expr) -> int | None:
        frame = pl.DataFrame(self.to_arrow())
        gone = frame.select(pl.all_horizontal(where)).to_series().fill_null(value=False)
        if not gone.any():
            return None
        return self._commit(
            [row for row, is_gone in zip(self.snapshots[-1], gone, strict=True) if not is_gone]
        )

    def rollback_to(self, snapshot_id: int) -> None:
        del self.snapshots[snapshot_id + 1 :]

    def to_arrow(self, snapshot_id: int = -1) -> pa.Table:
        return pa.Table.from_pylist(self.snapshots[snapshot_id], self.schema)

    def _commit(self, rows: list[Row]) -> int:
        self.snapshots.append(rows)
        return len(self.snapshots) - 1


class ForgetsDeletes(Toy):
    """A mutant: a row of kind -D stays."""

    def kind(self, row: Row) -> str:
        kind = super().kind(row)
        return "+I" if kind == "-D" else kind


class MergesInTheWrongOrder(Toy):
    """A mutant: the oldest row of a key wins within a write."""

    def merged(self, held: list[Row], rows: list[Row]) -> list[Row]:
        return super().merged(held, rows[::-1])


class ForgetsOldSnapshots(Toy):
    """A mutant: a read of an old snapshot returns the newest rows."""

    def to_arrow(self, snapshot_id: int = -1) -> pa.Table:
        return super().to_arrow(-1 if snapshot_id >= 0 else snapshot_id)


class Log:
    """Commits of numbers in a store: a new file for each, which is complete or not there."""

    def __init__(self, warehouse: FaultyWarehouse) -> None:
        self.store = warehouse.store
        self.place = f"{warehouse.path}/log"

    def add(self, number: int) -> None:
        held = self.numbers()
        if number in held:
            return
        assert self.store.put_if_absent(
            f"{self.place}/{len(self.store.list(self.place))}", json.dumps([*held, number]).encode()
        )

    def numbers(self) -> list[int]:
        files = self.store.list(self.place)
        return json.loads(self.store.read(f"{self.place}/{len(files) - 1}")) if files else []


class LosesACommitAtACrash(Log):
    """A mutant: the one file is deleted and written again; a crash between the two loses all."""

    def add(self, number: int) -> None:
        held = self.numbers()
        if number not in held:
            self.store.delete(f"{self.place}/0")
            self.store.put(f"{self.place}/0", json.dumps([*held, number]).encode())


class CommitsTwiceAfterACrash(Log):
    """A mutant: a repeated commit does not look whether it is there already."""

    def add(self, number: int) -> None:
        held = self.numbers()
        file = f"{self.place}/{len(self.store.list(self.place))}"
        self.store.put_if_absent(file, json.dumps([*held, number]).encode())
