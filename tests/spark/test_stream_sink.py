"""The streaming sink by the calls of Spark: each batch once, whatever dies; and random runs."""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest
from property_tests.profile import sized
from spark_bridge import source as stream_sink
from spark_bridge.source import LakecoreSource
from tests.spark.frames import files_of, held, live_files_of, table_at
from tests.spark.micro_batches import POINTS, Checkpoint, Crash, Query, TaskStandIn, into
from tests.spark.streams import history_step, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import lakecore as lc

RUNS = int(os.environ.get("LAKECORE_STREAM_RUNS", sized(12, quick=4)))
PRODUCERS = ("none", "input", "lookup", "full-compaction")


@pytest.fixture(autouse=True)
def _tasks_know_their_query(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(stream_sink, "TaskContext", TaskStandIn)
    yield
    TaskStandIn.query = None


def mirrored(rows: pa.Table) -> pa.Table:
    """Changes as rows to write: without the kinds that a later row of the key replaces."""
    return rows.filter(pa.array([kind != "-U" for kind in rows["_row_kind"].to_pylist()]))


def mirror_at(path: Path, **options: str) -> lc.Table:
    """A table that takes the changes of another one, ordered by their snapshot."""
    columns = {"_snapshot_id": "BIGINT", "id": "BIGINT NOT NULL", "v": "STRING", "n": "INT"}
    return table_at(path, columns, sequence__field="_snapshot_id", **options)


def without_snapshot(table: lc.Table) -> list[tuple[object, ...]]:
    return sorted((row[1:] for row in held(table)), key=repr)


def ids_of(table: lc.Table) -> list[int]:
    ids: list[int] = table.scan().collect()["id"].to_list()
    return sorted(ids)


def appended(rows: pa.Table) -> pa.Table:
    return rows.select(["id", "v", "n"])


def run(query: Query, target: lc.Table, shape: Any = appended, **options: str) -> None:
    query.run(into(target, query, shape, **options))


@pytest.mark.parametrize("point", POINTS)
def test_batch_is_written_once_wherever_the_driver_dies(tmp_path: Path, point: str) -> None:
    table, target = table_at(tmp_path / "t", keys=()), table_at(tmp_path / "to", keys=())
    table.write(rows_of(1, 2, 3))
    checkpoint = Checkpoint("query-1")
    query = Query(table, checkpoint, {}, crash=point)
    with pytest.raises(Crash):
        run(query, target)
    table.write(rows_of(4))
    run(Query(table, checkpoint, {}), target)

    assert held(target) == held(table)
    assert target.last_identifier("spark-query-1") == 1
    assert target.inspect.snapshots().height == 2
    if point not in {"one task", "written"}:
        assert files_of(target) == live_files_of(target)


def test_fresh_checkpoint_writes_all_again(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="1")
    target, log = table_at(tmp_path / "to", bucket="1"), table_at(tmp_path / "log", keys=())
    table.write(rows_of(1, 2))
    kinds = {"read.changelog": "false"}
    for number in range(2):
        for to in (target, log):
            run(
                Query(table, Checkpoint(f"query-{number}"), kinds),
                to,
                **{"write.commit-user": "me"},
            )

    assert held(target) == held(table), "an upsert of the same rows changes nothing"
    assert len(held(log)) == 4, "an append has them twice, and none is left out"
    assert log.last_identifier("me-query-1") == 0


def test_checkpoint_that_is_older_than_the_table_is_refused(tmp_path: Path) -> None:
    table, target = table_at(tmp_path / "t", keys=()), table_at(tmp_path / "to", keys=())
    checkpoint = Checkpoint("query")
    for number in range(3):
        table.write(rows_of(number))
        run(Query(table, checkpoint, {}), target)
    table.write(rows_of(9))
    old = Checkpoint("query", checkpoint.offsets[:1], 1)

    with pytest.raises(InvalidRequest, match=r"checkpoint is older than the table.*committed=2"):
        run(Query(table, old, {}), target)
    assert len(held(target)) == 3
    assert files_of(target) == live_files_of(target)


def test_batch_without_rows_makes_no_snapshot(tmp_path: Path) -> None:
    table, target = table_at(tmp_path / "t", keys=()), table_at(tmp_path / "to", keys=())
    table.write(rows_of(1))
    run(Query(table, Checkpoint("q"), {"where": "id > 5"}), target)

    assert target.context.history.latest_snapshot() is None


def test_complete_mode_replaces_the_table(tmp_path: Path) -> None:
    target = table_at(tmp_path / "to", keys=())
    source = LakecoreSource({"path": target.path})
    schema = source.schema()
    for number, ids in enumerate(((1, 2), (3,), ())):
        TaskStandIn.query = "q"
        for _ in range(2):
            sink = source.streamWriter(schema, overwrite=True)
            message = sink.write(iter(rows_of(*ids).to_arrow().to_batches()))
            source.streamWriter(schema, overwrite=True).commit([message], number)
        assert [row[0] for row in held(target)] == list(ids)


def test_two_queries_write_one_table(tmp_path: Path) -> None:
    target = table_at(tmp_path / "to", bucket="1")
    for name in ("a", "b"):
        table = table_at(tmp_path / name, keys=())
        for number in range(3):
            table.write(rows_of(number, v=name))
        for _ in range(2):
            run(Query(table, Checkpoint(name), {"startingVersion": "1"}), target)

    assert [row[1] for row in held(target)] == ["b"] * 3


def test_stream_compacts_in_its_loop(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", keys=())
    for number in range(12):
        table.write(rows_of(number, number + 1))
    options = {"startingVersion": "1", "maxSnapshotsPerTrigger": "1"}
    by_default, never = table_at(tmp_path / "a", bucket="1"), table_at(tmp_path / "b", bucket="1")
    other = table_at(tmp_path / "c", bucket="1", write_only="true")
    run(Query(table, Checkpoint("q"), options), by_default)
    run(Query(table, Checkpoint("q"), options), never, **{"compact.every": "0"})
    run(Query(table, Checkpoint("q"), options), other)

    def runs(of: lc.Table) -> int:
        return of.inspect.files().filter(pl.col("level") == 0).height

    assert (runs(by_default), runs(never), runs(other)) == (2, 12, 12)
    assert held(by_default) == held(never) == held(other)
    assert by_default.options.stop_trigger == 8
    # The stop trigger is the most, however seldom the user wants compactions.
    late = table_at(tmp_path / "d", bucket="1", num_sorted_run__stop_trigger="6")
    run(Query(table, Checkpoint("q"), options), late, **{"compact.every": "100"})
    assert runs(late) == 0


def test_failed_task_fails_the_batch_and_leaves_nothing(tmp_path: Path) -> None:
    target = table_at(tmp_path / "to", keys=())
    source = LakecoreSource({"path": target.path})
    schema = source.schema()
    wrong = rows_of(1).with_columns(n=pl.lit(5_000_000_000))
    TaskStandIn.query = "q"
    sink = source.streamWriter(schema, overwrite=False)
    good = sink.write(iter(rows_of(1).to_arrow().to_batches()))
    bad = sink.write(iter(wrong.to_arrow().to_batches()))
    with pytest.raises(InvalidRequest, match="column=n"):
        source.streamWriter(schema, overwrite=False).commit([good, bad], 0)
    assert files_of(target) == set()

    good = sink.write(iter(rows_of(1).to_arrow().to_batches()))
    source.streamWriter(schema, overwrite=False).abort([good, None], 0)
    assert files_of(target) == set()


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    target = table_at(tmp_path / "to", keys=())
    schema = LakecoreSource({"path": target.path}).schema()
    for option, value in (("compact.every", "x"), ("write.memory-per-task", "0")):
        source = LakecoreSource({"path": target.path, option: value})
        with pytest.raises(InvalidRequest, match=option):
            source.streamWriter(schema, overwrite=False)


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("snapshots", ["1", "3"])
@pytest.mark.sampled(2)
def test_changes_of_every_producer_make_the_same_table(
    tmp_path: Path, producer: str, snapshots: str
) -> None:
    random = Random(f"{producer}{snapshots}")
    write_only = str(producer == "none").lower()
    table = table_at(tmp_path / "t", bucket="2", changelog_producer=producer, write_only=write_only)
    mirror = mirror_at(tmp_path / "m", bucket="2")
    checkpoint = Checkpoint("q")
    for _ in range(4):
        for _ in range(3):
            history_step(table, random)
        if producer == "full-compaction":
            table.compact(full=True)
        given = {"read.changelog": "true", "maxSnapshotsPerTrigger": snapshots}
        run(Query(table, checkpoint, given, random=random), mirror, mirrored)

        assert without_snapshot(mirror) == held(table)


@pytest.mark.parametrize("seed", range(RUNS))
def test_random_run_has_each_row_once(tmp_path: Path, seed: int) -> None:
    """Two queries into two tables each, with crashes, lost checkpoints and quiet times."""
    random = Random(seed)
    table = table_at(tmp_path / "t", bucket="2", changelog_producer=random.choice(PRODUCERS[:2]))
    feed = table_at(tmp_path / "feed", keys=())
    mirror = mirror_at(tmp_path / "m", bucket=random.choice(["1", "2", "-1"]))
    log = table_at(tmp_path / "log", keys=())
    shared = table_at(tmp_path / "shared", bucket="1")
    checkpoints = {name: Checkpoint(f"{name}-0") for name in ("mirror", "log", "shared")}
    from_start = random.random() < 0.5
    of_mirror = {"read.changelog": "true", **({"startingVersion": "1"} if from_start else {})}
    fed: list[int] = []
    died = 0
    for step in range(random.randint(4, 10)):
        for _ in range(random.randint(0, 2)):
            history_step(table, random)
            fed.append(len(fed))
            feed.write(rows_of(fed[-1]))
        if from_start and random.random() < 0.3:
            # A checkpoint is lost. All changes come again, under their snapshots' numbers; a state
            # would lack the deletions since then.
            checkpoints["mirror"] = Checkpoint(f"mirror-{step}")
        for name, (source, target, shape) in {
            "mirror": (table, mirror, mirrored),
            "log": (feed, log, appended),
            "shared": (feed, shared, appended),
        }.items():
            limit = str(random.choice([1, 2, 100]))
            given = {"maxSnapshotsPerTrigger": limit, "startingVersion": "1"}
            if name == "mirror":
                given = {"maxSnapshotsPerTrigger": limit, **of_mirror}
            crash = random.choice(["", "", *POINTS])
            query = Query(source, checkpoints[name], given, random=random, crash=crash)
            if name == "mirror" and source.context.history.latest_snapshot_id() is None:
                continue
            try:
                run(query, target, shape)
            except Crash:
                died += 1
    for name, (source, target, shape) in {
        "mirror": (table, mirror, mirrored),
        "log": (feed, log, appended),
        "shared": (feed, shared, appended),
    }.items():
        given = {"startingVersion": "1"} if name != "mirror" else of_mirror
        run(Query(source, checkpoints[name], given, random=random), target, shape)

    assert without_snapshot(mirror) == held(table)
    assert ids_of(log) == fed
    assert ids_of(shared) == fed
    # A driver that dies leaves files of one batch, of one task or two, that no snapshot names.
    orphans = sum(len(files_of(each) - live_files_of(each)) for each in (mirror, log, shared))
    unexplained = orphans - history_files(mirror, log, shared)
    assert unexplained <= 4 * died


def history_files(*tables: lc.Table) -> int:
    """Files that only earlier snapshots name: what compactions replaced."""
    count = 0
    for table in tables:
        names: set[str] = set()
        for number in range(1, 1 + (table.context.history.latest_snapshot_id() or 0)):
            found = table.copy({"scan.snapshot-id": str(number)}).inspect.files()["file_path"]
            names |= {path.rpartition("/")[2] for path in found.to_list()}
        count += len(names - live_files_of(table))
    return count
