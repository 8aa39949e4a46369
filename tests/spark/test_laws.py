"""The law of the bridge: what Spark wrote is what one machine writes, at each snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spark_bridge
from spark_bridge import write_frame
from tests.spark.cluster import fail, failing
from tests.spark.frames import files_of, frame, held, live_files_of, table_at

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    import lakecore as lc

KEYS = {"p": "STRING NOT NULL", "id": "BIGINT NOT NULL"}
COLUMNS = {**KEYS, "s": "BIGINT", "v": "INT", "w": "STRING"}
SCHEMA = {"p": pl.String, "id": pl.Int64, "s": pl.Int64, "v": pl.Int32, "w": pl.String}
SEQUENCE = {"sequence.field": "s"}
SUMS = {"fields.v.aggregate-function": "sum", "fields.w.aggregate-function": "max"}
ENGINES = {
    "deduplicate": SEQUENCE,
    "changelog": {**SEQUENCE, "changelog-producer": "input"},
    "partial-update": {**SEQUENCE, "merge-engine": "partial-update"},
    "aggregation": {**SEQUENCE, "merge-engine": "aggregation", **SUMS},
    "first-row": {"merge-engine": "first-row"},
    "append": {},
}
BUCKETS = ("1", "3", "-1")

ROW = st.tuples(
    st.sampled_from(["a", "b", "c/d"]),
    st.integers(0, 30),
    st.integers(0, 9) | st.none(),
    st.sampled_from(["x", "y"]) | st.none(),
    st.sampled_from(["+I", "+I", "+I", "-D"]),
)


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, str, list[pl.DataFrame]]:
    """An engine, a number of buckets, and commits; a row's sequence number is its own."""
    engine, buckets = draw(st.sampled_from(list(ENGINES))), draw(st.sampled_from(BUCKETS))
    number, commits = 0, []
    for rows in draw(st.lists(st.lists(ROW, max_size=40), min_size=1, max_size=3)):
        found = []
        for p, key, v, w, kind in rows:
            number += 1
            takes_kinds = engine in {"deduplicate", "changelog"}
            found.append((p, key, number, v, w, kind if takes_kinds else "+I"))
        frame = pl.DataFrame(found, schema={**SCHEMA, "_row_kind": pl.String}, orient="row")
        if engine == "first-row":
            # Which row of a key is first is not defined within a frame.
            frame = frame.unique(["p", "id"], keep="first", maintain_order=True)
        commits.append(frame)
    return engine, buckets, commits


@dataclass(frozen=True)
class Run:
    """How Spark runs: partitions of the frame, tasks, the way to them, and whether one fails."""

    parts: int
    tasks: int | None
    by: Literal["task", "group"]
    fails: bool


RUNS = st.builds(
    Run,
    parts=st.integers(1, 5),
    tasks=st.none() | st.integers(1, 4),
    by=st.sampled_from(["task", "task", "group"]),
    fails=st.booleans(),
)


@pytest.mark.filterwarnings("ignore:reads of .* leave out the rows until they are compacted")
@given(history=histories(), run=RUNS)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_spark_writes_what_one_machine_writes(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    history: tuple[str, str, list[pl.DataFrame]],
    run: Run,
) -> None:
    engine, buckets, commits = history
    home: Path = tmp_path_factory.mktemp("law")
    options = {"bucket": buckets, "write-only": "true", **ENGINES[engine]}
    keys = ["p", "id"]
    if engine == "append":
        keys = []
        options |= {"bucket-key": "id"} if buckets != "-1" else {}
    stated = {key.replace(".", "__").replace("-", "_"): text for key, text in options.items()}
    ours, alone = (
        table_at(home / name, COLUMNS, keys=keys, partitions=["p"], **stated)
        for name in ("spark", "alone")
    )
    for number, rows in enumerate(commits):
        with monkeypatch.context() as patch:
            if run.fails:
                function = failing(fail, str(home / f"mark-{number}"))
                patch.setattr(write_frame, "partition_function", function)
            spark_bridge.write(
                frame(spark, rows, run.parts),
                ours,
                commit_user="job",
                identifier=number,
                tasks=run.tasks if run.by == "task" else None,
                by=run.by,
            )
        with alone.new_write() as writer:
            writer.write(rows)
            alone.commit(writer.prepare_commit(), commit_user="job", identifier=number)

    for snapshot_id in range(1, len(commits) + 1):
        assert held(ours, snapshot_id=snapshot_id) == held(alone, snapshot_id=snapshot_id)
    assert ours.inspect.snapshots().height == alone.inspect.snapshots().height == len(commits)
    assert files_of(ours) == live_files_of(ours) | changelog_files(ours)
    for table in (ours, alone):
        if engine != "append":
            table.compact(full=True)
    assert held(ours) == held(alone)


def changelog_files(table: lc.Table) -> set[str]:
    """The names of the changelog files, which no snapshot lists as live."""
    return {name for name in files_of(table) if name.startswith("changelog-")}
