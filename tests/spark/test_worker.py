"""Batches that tasks take in, and what a worker's collector looks at."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from spark_bridge.worker import BATCH_BYTES, BATCH_ROWS, joined

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def numbers(*counts: int) -> Iterator[pa.RecordBatch]:
    first = 0
    for count in counts:
        yield pa.record_batch({"n": pa.array(range(first, first + count), pa.int64())})
        first += count


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        ([0], [0]),
        ([3, 4, 5], [12]),
        ([BATCH_ROWS, 1], [BATCH_ROWS, 1]),
        ([BATCH_ROWS - 1, 0, 7, 1, 1], [BATCH_ROWS + 6, 2]),
    ],
)
def test_small_batches_are_joined_in_order(given: list[int], expected: list[int]) -> None:
    batches = list(joined(numbers(*given)))

    assert [batch.num_rows for batch in batches] == expected
    assert [n for batch in batches for n in batch["n"].to_pylist()] == list(range(sum(given)))


def test_large_rows_are_not_gathered() -> None:
    row = pa.record_batch({"t": pa.array(["x" * (BATCH_BYTES // 2)])})

    assert [batch.num_rows for batch in joined(iter([row] * 5))] == [2, 2, 1]


def test_batch_of_spark_4_1_gets_the_offsets_that_it_lacks() -> None:
    lists = pa.list_(pa.list_(pa.int64()))
    elsewhere = pa.py_buffer(b"\x33\x33\x33\x03" * 64).slice(128, 0)
    below = pa.Array.from_buffers(
        lists.value_type, 0, [None, elsewhere], children=[pa.array([], pa.int64())]
    )
    offsets = pa.py_buffer(bytes(4 * 3))
    empty = pa.Array.from_buffers(lists, 2, [None, offsets], children=[below])
    (batch,) = joined(iter([pa.record_batch({"x": empty})]))

    assert batch["x"].values.buffers()[1].size >= 4
    assert batch["x"].to_pylist() == [[], []]


def test_worker_has_set_aside_what_its_first_task_loaded(spark: SparkSession) -> None:
    def twice(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            from spark_bridge.worker import set_aside

            before = gc.get_freeze_count()
            set_aside("test")
            set_aside("test")
            after = gc.get_freeze_count()
            del batch
            yield pa.record_batch({"before": [before], "after": [after]})

    here = gc.get_freeze_count()  # what pytest has collected
    (frozen,) = (
        spark.range(1, numPartitions=1).mapInArrow(twice, "before long, after long").collect()
    )

    # A worker that other tests have used has set things aside before.
    assert frozen.after > max(1000, frozen.before)
    assert gc.get_freeze_count() <= here, "nothing outside of workers"


def test_acknowledging_opens_nothing_that_stays_open(spark: SparkSession) -> None:
    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        from pathlib import Path

        from spark_bridge.worker import acknowledge

        pipe = os.pipe()
        counts = []
        for _ in range(3):
            counts.append(len(list(Path("/proc/self/fd").iterdir())))
            acknowledge()
        for end in pipe:
            os.close(end)
        rows = sum(batch.num_rows for batch in batches)
        yield pa.record_batch({"rows": [rows], "fewest": [min(counts)], "most": [max(counts)]})

    schema = "rows long, fewest long, most long"
    (found,) = spark.range(5, numPartitions=1).mapInArrow(counted, schema).collect()

    assert found.rows == 5
    assert found.fewest == found.most


def test_tasks_of_a_used_worker_do_not_wait_for_their_rows(spark: SparkSession) -> None:
    def waited(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        from spark_bridge.worker import acknowledge

        acknowledge()
        began = time.perf_counter()
        for _ in batches:
            pass
        yield pa.record_batch({"ms": [(time.perf_counter() - began) * 1000]})

    rows = spark.range(48, numPartitions=48).mapInArrow(waited, "ms double").collect()

    assert sorted(row.ms for row in rows)[12] < 20, rows


def test_daemon_gives_workers_that_have_imported_all_and_started_no_thread_pool(
    spark: SparkSession,
) -> None:
    from spark_bridge.daemon import PRELOADED

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import sys

        for _ in batches:
            missing = [name for name in (*PRELOADED, "polars") if name not in sys.modules]
            parent = f"/proc/{os.getppid()}/task"
            names = [open(f"{parent}/{task}/comm").read() for task in os.listdir(parent)]  # noqa: PTH123, PTH208, SIM115
            pool = [name for name in names if name.startswith("polars-") and name[7:8].isdigit()]
            yield pa.record_batch({"missing": [", ".join(missing)], "pool": [", ".join(pool)]})

    rows = spark.range(0, 2, 1, 2).mapInArrow(look, "missing string, pool string").collect()

    assert {(row.missing, row.pool) for row in rows} == {("", "")}
