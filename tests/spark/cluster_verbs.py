"""Compaction and MERGE while executors die; part of `python -m tests.spark.cluster`.

The fault strikes in the middle of a task: some of its files are written, the others are not.
"""

from __future__ import annotations

import shutil
from datetime import datetime
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException

import lakecore as lc
import spark_bridge
from lakecore.errors import LakecoreError
from spark_bridge import compact_tasks, merge_frame
from tests.spark.frames import files_of, frame, held, table_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    Batches = Iterator[pa.RecordBatch]

FUTURE = datetime(2099, 1, 1)
CHANGES = pl.DataFrame(
    {"id": range(500, 2500), "v": "new", "n": range(2000)},
    schema={"id": pl.Int64, "v": pl.String, "n": pl.Int32},
)


def dying(function: Any, fault: Callable[[], None], first_time: Callable[[], bool]) -> Any:
    """The function of a job, whose first task dies when it has written a part of its work."""

    def of_job(*given: Any) -> Callable[[Batches], Batches]:
        work = function(*given)

        def work_and_die(batches: Batches) -> Batches:
            context = TaskContext.get()
            for outcome in work(batches):
                if context is not None and context.partitionId() == 0 and first_time():
                    fault()
                yield outcome

        return work_and_die

    return of_job


def two_runs(path: Path) -> lc.Table:
    table = table_at(path, bucket="6", write_only="true", changelog_producer="full-compaction")
    ids = pl.DataFrame({"id": range(2000)}, schema={"id": pl.Int64})
    for number in range(2):
        table.write(
            ids.with_columns(v=pl.lit(f"v{number}"), n=pl.lit(number, pl.Int32)).slice(number * 300)
        )
    return table


def compact(spark: SparkSession, table: lc.Table) -> None:
    spark_bridge.compact(spark, table, full=True)


def merge(spark: SparkSession, table: lc.Table) -> None:
    merging = spark_bridge.merge(spark, table, frame(spark, CHANGES), ["id"], spread=True)
    merging.when_matched_delete("source.n % 3 = 0").when_matched_update_all()
    merging.when_not_matched_insert_all().execute()


def merge_alone(table: lc.Table) -> None:
    merging = table.merge(CHANGES, ["id"])
    merging.when_matched_delete("source.n % 3 = 0").when_matched_update_all()
    merging.when_not_matched_insert_all().execute()


VERBS: dict[str, tuple[Any, str, Any, Callable[[lc.Table], object]]] = {
    "compact": (compact_tasks, "compact_function", compact, lambda table: table.compact(full=True)),
    "merge": (merge_frame, "owner_function", merge, merge_alone),
}


def play_verb(
    spark: SparkSession,
    home: Path,
    verb: str,
    fault: Callable[[], None],
    first_time: Callable[[], bool],
) -> dict[str, Any]:
    """Run a verb while a task dies, and compare the table with that of the single-process verb."""
    module, name, run, alone = VERBS[verb]
    table = two_runs(home / "t")
    other = lc.open_table(shutil.copytree(table.path, home / "other"))
    before, rows = files_of(table), held(table)
    error = ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, dying(getattr(module, name), fault, first_time))
        try:
            run(spark, table)
        except (LakecoreError, PySparkException, Py4JJavaError) as failure:
            error = str(failure)[:200]
    found = {
        "error": error,
        "snapshots": table.inspect.snapshots().height,
        "unchanged": held(table) == rows and files_of(table) == before,
        "orphans": table.remove_orphan_files(FUTURE, force=True).files,
    }
    if error:
        run(spark, table)
    alone(other)
    changes = [
        sorted(each.changes(2).collect().rows(), key=repr) if verb == "compact" else []
        for each in (table, other)
    ]
    return {**found, "right": held(table) == held(other) and changes[0] == changes[1]}
