"""Queries of tests: run over what there is, and the rows that a stream of changes amounts to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyspark

import lakecore as lc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from pyspark.sql import DataFrame, Row

HAS_LIMITS = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)
"""Spark 4.1 has no limits of a batch: a batch has all snapshots there are."""
ONE_SNAPSHOT = {"maxSnapshotsPerTrigger": "1"} if HAS_LIMITS else {}
Collected = list[tuple[int, list["Row"]]]


def run(df: DataFrame, checkpoint: Path, each: Callable[[DataFrame, int], object]) -> Any:
    """Run a query over all that there is, and give it back; its errors are raised."""
    query = (
        df.writeStream.foreachBatch(lambda rows, batch: each(rows, batch) and None)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def collected(df: DataFrame, checkpoint: Path) -> Collected:
    """The batches of a query over all that there is: number and rows of each."""
    found: Collected = []
    run(df, checkpoint, lambda rows, batch: found.append((batch, rows.collect())))
    return found


def tuples(batches: Collected) -> list[tuple[object, ...]]:
    """All rows of some batches, sorted."""
    return sorted((tuple(row) for _, rows in batches for row in rows), key=repr)


def altered(table: lc.Table, change: Any) -> None:
    """Change the schema of a table that is in no catalog, in a directory `NAME.db`."""
    home = Path(table.path)
    name = f"{home.parent.name.removesuffix('.db')}.{home.name}"
    lc.connect(home.parent.parent).alter_table(name, [change])


def applied(
    batches: Sequence[Sequence[Mapping[str, Any]]], key: str = "id"
) -> list[tuple[object, ...]]:
    """The rows that the changes leave, if each batch is applied in the order of its snapshots."""
    state: dict[object, tuple[object, ...]] = {}
    for rows in batches:
        for row in sorted(rows, key=lambda each: each["_snapshot_id"]):
            if row["_row_kind"] in {"+I", "+U"}:
                state[row[key]] = tuple(row[name] for name in row if not name.startswith("_"))
            elif row["_row_kind"] == "-D":
                state.pop(row[key], None)
    return sorted(state.values(), key=repr)


def rows_of(*ids: int, v: str = "a", **more: object) -> pl.DataFrame:
    """Rows with these ids; all have the same other values."""
    frame = pl.DataFrame({"id": list(ids)}, schema={"id": pl.Int64})
    return frame.with_columns(
        v=pl.lit(v), n=pl.lit(1, pl.Int32), **{name: pl.lit(x) for name, x in more.items()}
    )


def history_step(table: lc.Table, random: Random) -> None:
    """Change some rows of a table."""
    ids = random.sample(range(20), random.randint(1, 8))
    if random.random() < 0.3:
        table.delete(f"id IN ({', '.join(map(str, ids))})")
    else:
        table.write(rows_of(*ids, v=random.choice("abcdef")))
