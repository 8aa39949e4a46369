"""A state of a table as a stream of batches, read side by side and given up at any time."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakecore.errors import CorruptTable
from lakecore.io.files.file_format import WriteFormat
from lakecore.io.stores.local import LocalStore
from lakecore.table.reads import source
from lakecore.table.reads.scan import plan_scan
from lakecore.table.reads.source import TableSource
from lakecore.table.sections import windows
from lakecore.table.splits.read import read_split
from lakecore.table.splits.read_planner import Reason
from tests.conditions import from_sql
from tests.tables import new_table, put, reopened, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.model.snapshot import Snapshot
    from lakecore.plan.predicate import Predicate
    from lakecore.table.handle import Table
    from lakecore.table.reads.scan import ScanContext, ScanPlan


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """No test leaves a thread that reads ahead."""
    before = set(threading.enumerate())
    yield
    left = set(threading.enumerate()) - before
    readers = [thread for thread in left if thread.name.startswith("lakecore-read")]
    for thread in readers:
        thread.join(timeout=10)  # one that ends by an error is not waited for by who reads
    assert [thread.name for thread in readers if thread.is_alive()] == []


def source_of(table: Table, snapshot_id: int | None = None) -> TableSource:
    history = table.context.history
    snapshot = history.latest_snapshot() if snapshot_id is None else history.snapshot(snapshot_id)
    return TableSource(context=table.context, snapshot=snapshot, table_schema=table.schema)


def many_buckets(buckets: int = 6, count: int = 60) -> Table:
    table = new_table(bucket=str(buckets))
    for value in "ab":
        put(table, " | ".join(f"{number} {value}" for number in range(count)))
    return table


def test_source_of_an_empty_table_has_a_schema_and_no_rows() -> None:
    table = new_table()
    empty = source_of(table)

    assert empty.schema.names == ["id", "v"]
    assert list(empty.batches()) == []
    assert empty.engine_files(["id"]) == []


def test_batches_come_in_the_order_of_their_buckets() -> None:
    table = many_buckets()
    splits = source_of(table).plan().splits
    context = table.context
    plan = source_of(table).read_plan(splits, None)
    one_by_one = [
        batch.to_pylist()
        for split in splits
        for batch in read_split(split, plan, context.store, context.budget)
    ]

    assert [batch.to_pylist() for batch in source_of(table).batches()] == one_by_one
    assert len(splits) == 6
    assert table.context.budget.used_bytes == 0


def test_columns_come_in_the_order_asked_for() -> None:
    table = many_buckets()
    (batch, *_) = source_of(table).batches(["v", "id"])

    assert batch.schema == pa.schema([table.schema.arrow.field(n) for n in ("v", "id")])


@pytest.mark.parametrize("limit", [0, 1, 7, 60, 100])
def test_no_more_rows_than_the_limit_come(limit: int) -> None:
    table = many_buckets()
    found = sum(batch.num_rows for batch in source_of(table).batches(limit=limit))

    assert found == min(limit, 60)
    assert table.context.budget.used_bytes == 0


def test_limit_with_a_predicate_cuts_nothing_off() -> None:
    table = many_buckets()
    predicate = from_sql("id = 59", table.schema)
    found = [
        row["id"] for b in source_of(table).batches(None, predicate, 1) for row in b.to_pylist()
    ]

    assert 59 in found


@pytest.mark.parametrize("batches", [1, 2, 5])
def test_read_that_is_given_up_holds_nothing(batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "_BATCH_ROWS_MAX", 2)
    monkeypatch.setattr(source, "_TASK_BATCHES", 1)
    table = many_buckets()
    stream = source_of(table).batches()
    for _ in range(batches):
        next(stream)
    assert table.context.budget.used_bytes > 0
    stream.close()  # type: ignore[attr-defined]

    assert table.context.budget.used_bytes == 0


@pytest.mark.parametrize("bucket", range(4))
def test_error_of_any_bucket_ends_the_read(bucket: int) -> None:
    table = many_buckets(buckets=4)
    splits = source_of(table).plan().splits
    for file in splits[bucket].files:
        table.context.store.put(f"{table.path}/bucket-{bucket}/{file.name}", b"PAR1 damaged PAR1")
    with pytest.raises(CorruptTable):
        list(source_of(table).batches())

    assert table.context.budget.used_bytes == 0


@pytest.mark.parametrize("at_once", [1, 2, 8])
def test_only_a_few_batches_are_read_ahead(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def numbers(stream: int) -> Iterator[pa.RecordBatch]:
        for number in range(100):
            made.append(stream)
            yield pa.record_batch({"n": [number]})

    monkeypatch.setattr(source, "_TASKS_AHEAD", 3)
    monkeypatch.setattr(source, "_TASK_BATCHES", at_once)
    stream = source.side_by_side([numbers(0), numbers(1), numbers(2)])
    for _ in range(5):
        next(stream)
    stream.close()

    # Of the task at hand, some may be left to give.
    assert made.count(0) <= 5 + (at_once - 1) + 3 * at_once
    assert made.count(1) <= 3 * at_once
    assert made.count(2) == 0


def test_many_small_splits_share_a_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    table = many_buckets(buckets=200, count=2_000)
    made: list[int] = []
    real = source.side_by_side

    def counted(streams: list[Iterator[pa.RecordBatch]], ahead: int) -> Iterator[pa.RecordBatch]:
        made.append(len(streams))
        return real(streams, ahead)

    monkeypatch.setattr(source, "side_by_side", counted)
    found = table.to_arrow()

    assert sorted(found["id"].to_pylist()) == list(range(2_000))
    assert len(made) == 1
    assert made[0] <= 17


@dataclass
class _Sized:
    size_bytes: int


@pytest.mark.parametrize(
    ("sizes", "shares"),
    [
        ([], []),
        ([5, 5], [[5], [5]]),  # of a small table, each has its own
        ([100] * 4, [[100]] * 4),
        ([1] * 64, [[1] * 4] * 16),
        ([1 << 30, 1, 1, 1 << 30], [[1 << 30], [1, 1, 1 << 30]]),
        ([1 << 20] * 1_000, [[1 << 20] * 8] * 125),
    ],
)
def test_shares_of_a_read(sizes: list[int], shares: list[list[int]]) -> None:
    splits: list[Any] = [_Sized(size) for size in sizes]

    assert [[each.size_bytes for each in share] for share in source.in_shares(splits)] == shares


def test_buckets_are_read_side_by_side_under_a_budget_of_a_byte() -> None:
    table = reopened(many_buckets(), budget_bytes=1)

    assert table.to_arrow().num_rows == 60


def test_one_batch_is_read_ahead_if_it_is_large() -> None:
    made: list[int] = []

    def numbers(stream: int) -> Iterator[pa.RecordBatch]:
        for number in range(10):
            made.append(stream)
            yield pa.record_batch({"n": [number] * 1000})

    stream = source.side_by_side([numbers(0), numbers(1)], ahead_bytes=1000)
    found = [batch.column(0)[0].as_py() for batch in islice(stream, 5)]
    stream.close()

    assert found == list(range(5))
    assert made.count(0) <= 5 + 1
    assert made.count(1) <= 1


def test_snapshot_is_read_as_it_was() -> None:
    table = new_table()
    for line in ("1 a", "1 b", "-D 1 b"):
        put(table, line)
    found = [
        pa.Table.from_batches(source_of(table, number).batches(), table.schema.arrow)
        for number in (1, 2, 3)
    ]

    assert [rows_["v"].to_pylist() for rows_ in found] == [["a"], ["b"], []]


def test_faces_that_ask_twice_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def counted(
        context: ScanContext,
        snapshot: Snapshot | None,
        where: Predicate | None,
        **others: Any,
    ) -> ScanPlan:
        asked.append(where)
        return plan_scan(context, snapshot, where, **others)

    monkeypatch.setattr(source, "plan_scan", counted)
    table = many_buckets()

    assert table.scan().collect().height == 60
    assert asked == [None]
    here = source_of(table)
    few, none = from_sql("id < 7", here.schema), from_sql("id < 0", here.schema)
    asked.clear()
    for where in (few, few, none, few, None, None):
        here.plan(where)
    assert asked == [few, none, few, None]


def test_engine_files_are_those_of_an_append_table(tmp_path: Path) -> None:
    table = new_table(keys=[], store=LocalStore(), path=str(tmp_path / "t"))
    put(table, "1 a")
    put(table, "2 b")
    files = source_of(table).engine_files(["v"])

    assert files is not None
    assert sum(pa.parquet.read_table(file.path).num_rows for file in files) == 2


@pytest.mark.parametrize("at", ["footer", "page"])
def test_damaged_file_is_named_whoever_reads_it(at: str, tmp_path: Path) -> None:
    store = LocalStore()
    table = new_table(keys=[], store=store, path=str(tmp_path / "t"), file__compression="none")
    put(table, " | ".join(f"{number} text{number}" for number in range(99)))
    (file,) = (tmp_path / "t").rglob("data-*.parquet")
    data = file.read_bytes()
    place = slice(-len(data) // 2, -len(data) // 2 + 20) if at == "footer" else slice(4, 24)
    file.write_bytes(data[: place.start] + b"\xff" * 20 + data[place.stop :])

    for rows_of in (table.to_polars, table.to_arrow, table.to_arrow_dataset().to_table):
        with pytest.raises(CorruptTable, match=file.name):
            rows_of()
    # A count reads no column, so it may not meet the damage: then it is right.
    with suppress(CorruptTable):
        assert table.to_arrow_dataset().count_rows() == 99
    with pytest.raises(CorruptTable, match=file.name):
        table.to_duckdb()


@pytest.mark.parametrize("reason", ["merge", "format", "memory"])
def test_engines_scan_no_files_where_anything_must_be_done(reason: str, tmp_path: Path) -> None:
    table = new_table(
        keys=["id"] if reason == "merge" else [],
        store=None if reason == "memory" else LocalStore(),
        path=str(tmp_path / "t"),
        file__format="orc" if reason == "format" else "parquet",
    )
    put(table, "1 a")
    put(table, "1 b")

    assert source_of(table).engine_files(["v"]) is None


def test_process_ends_though_a_read_was_neither_finished_nor_closed(tmp_path: Path) -> None:
    table = new_table(bucket="4", store=LocalStore(), path=str(tmp_path / "t"))
    for value in "ab":
        table.write(rows(table.schema, " | ".join(f"{n} {value}" for n in range(200))))
    code = (
        "import lakecore as lc\n"
        "from lakecore.table.sections import windows\n"
        "windows._BATCH_ROWS_MAX = 2\n"
        f"reader = lc.open_table({str(tmp_path / 't')!r}).to_batches()\n"
        "print(reader.read_next_batch().num_rows)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert (int(done.stdout) > 0, done.stderr) == (True, "")


def test_two_processes_see_the_same_rows() -> None:
    table = many_buckets()

    assert reopened(table).to_arrow().sort_by("id") == table.to_arrow().sort_by("id")


def test_engine_scans_no_file_of_which_few_row_groups_match(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "lakecore.table.run_writer.file_shape.WriteFormat",
        lambda **given: WriteFormat(**given, row_group_rows=10),
    )
    table = new_table(keys=(), store=LocalStore(), path=str(tmp_path))
    for _ in range(2):
        put(table, " | ".join(f"{number} a" for number in range(80)))

    def reason(where: str) -> Reason:
        predicate = from_sql(where, table.schema)
        return source_of(table).decide(["id"], predicate).reason

    # Few bytes are verified in any case.
    assert reason("id < 20") is not Reason.FEW_ROW_GROUPS
    monkeypatch.setattr(source, "_UNCHECKED_BYTES_MAX", 0)
    assert reason("id < 20") is Reason.FEW_ROW_GROUPS
    assert reason("id < 21") is not Reason.FEW_ROW_GROUPS
