"""Splits read: raw files as they are, sections merged window by window."""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.format.index_files import encode_vectors
from lakecore.memory import Budget
from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import MergeSpec, Slice
from lakecore.model.evolution import evolve
from lakecore.model.files import DELETION_VECTORS, CommitMessage, IndexFile
from lakecore.model.rows import SEQUENCE_NUMBER
from lakecore.model.schema_change import SchemaChange
from lakecore.table.publication import write_schema
from lakecore.table.reads.source import TableSource
from lakecore.table.sections import windows as windows_plan
from lakecore.table.sections.windows import merge_slices
from lakecore.table.splits.read import read_split
from tests.stores import FailingStore
from tests.tables import held, new_table, put, reopened, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.io.stores.store import Store
    from lakecore.model.files import Split
    from lakecore.table.file_reader.read_plan import ReadPlan
    from lakecore.table.handle import Table


def source_of(table: Table) -> TableSource:
    context = table.context
    return TableSource(
        context=context, snapshot=context.history.latest_snapshot(), table_schema=table.schema
    )


def splits_of(
    table: Table, columns: Sequence[str] | None = None
) -> tuple[tuple[Split, ...], ReadPlan]:
    source = source_of(table)
    splits = tuple(source.plan().splits)
    return splits, source.read_plan(splits, columns)


@pytest.fixture(params=[1, 2, 3, 1000])
def batch_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The rows of a batch of each run, at most."""
    rows_max: int = request.param
    monkeypatch.setattr(windows_plan, "_BATCH_ROWS_MAX", rows_max)
    return rows_max


# --- windows ------------------------------------------------------------------------------------

SPEC = MergeSpec(key=("k",), in_key_order=True)
DEDUPLICATE = MERGE_FUNCTIONS["deduplicate"]


def slices(text: str, first: int = 0) -> Iterator[Slice]:
    """A run as slices of its rows: `"ab//cd"` are three, the second without rows."""
    for part in text.split("/"):
        table = pa.table(
            {
                "k": pa.array(list(part), pa.string()),
                "from": pa.array([text] * len(part), pa.string()),
                SEQUENCE_NUMBER: pa.array([first] * len(part), pa.int64()),
            }
        )
        yield Slice(
            rows=table, keys=order_columns([table["k"]]), sequence_min=first, sequence_max=first
        )


def windows(*runs: str) -> list[str]:
    """The keys of each table that merging runs gives, the oldest run first."""
    streams = [slices(run, first) for first, run in enumerate(runs)]
    return ["".join(t["k"].to_pylist()) for t in merge_slices(streams, DEDUPLICATE, SPEC)]


@pytest.mark.parametrize(
    ("runs", "wanted"),
    [
        ([""], []),
        (["", ""], []),
        (["abc"], ["abc"]),
        (["ab/cd"], ["ab", "cd"]),
        (["ab/cd", "bc"], ["ab", "cd"]),
        (["ab/cd", "c/e"], ["ab", "c", "de"]),
        (["/a//b/", "/"], ["a", "b"]),
        (["ab/cd", ""], ["ab", "cd"]),
        (["a/b/c/d", "abcd"], ["a", "b", "c", "d"]),
        (["az", "b/c/d"], ["ab", "c", "dz"]),
    ],
)
def test_window_ends_at_the_smallest_last_key_that_has_more_behind_it(
    runs: list[str], wanted: list[str]
) -> None:
    assert windows(*runs) == wanted


@pytest.mark.parametrize("seed", range(20))
def test_windows_together_are_all_keys_once_in_order(seed: int) -> None:
    chance = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    runs = []
    for _ in range(chance.randint(1, 6)):
        keys = sorted(chance.sample(letters, chance.randint(0, 20)))
        runs.append("".join(key + "/" * chance.choice([0, 0, 1, 2]) for key in keys))
    found = "".join(windows(*runs))

    assert list(found) == sorted(set("".join(runs)) - {"/"})


def test_windows_do_not_depend_on_how_fast_runs_are_read() -> None:
    def slow(stream: Iterator[Slice]) -> Iterator[Slice]:
        for part in stream:
            threading.Event().wait(0.005)
            yield part

    runs = ["ab/cd/e", "a/f", "c/d/e"]
    found = []
    for late in range(len(runs)):
        streams = [slices(run, first) for first, run in enumerate(runs)]
        streams[late] = slow(streams[late])
        found.append([t["k"].to_pylist() for t in merge_slices(streams, DEDUPLICATE, SPEC)])

    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("seed", range(20))
def test_large_batches_are_merged_to_the_same_rows_and_none_is_read_ahead(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("lakecore.table.sections.windows._HELD_LEAST_BYTES", 0)
    chance = random.Random(seed)
    runs = ["/".join(sorted(chance.sample("abcdefghij", chance.randint(1, 9)))) for _ in range(3)]
    read = [0] * len(runs)

    def counted(number: int) -> Iterator[Slice]:
        for part in slices(runs[number], number):
            read[number] += 1
            yield part

    one_row = next(slices(runs[0])).rows.nbytes
    streams = [counted(number) for number in range(len(runs))]
    found: list[str] = []
    for table in merge_slices(streams, DEDUPLICATE, SPEC, Budget(4 * one_row * len(runs))):
        found += table["k"].to_pylist()
        below = [sum(key <= found[-1] for key in run if key != "/") for run in runs]
        assert all(count <= beneath + 1 for count, beneath in zip(read, below, strict=True))

    assert found == sorted(set("".join(runs)) - {"/"})


def test_runs_of_which_a_batch_each_is_more_than_the_budget_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lakecore.table.sections.windows._HELD_LEAST_BYTES", 0)
    closed: list[str] = []
    streams = [noted(slices("a/b", n), closed, str(n)) for n in range(4)]
    size_bytes = next(slices("a/b")).rows.nbytes
    merged = merge_slices(streams, DEDUPLICATE, SPEC, Budget(3 * size_bytes))
    with pytest.raises(InvalidRequest, match="memory budget"):
        list(merged)

    assert len(closed) == 4


def counted(text: str, first: int = 0) -> Iterator[Slice]:
    """The slices of `text`, which say whether more come."""
    left = len(text.replace("/", ""))
    for part in slices(text, first):
        left -= part.rows.num_rows
        yield replace(part, more=left > 0)


@pytest.mark.parametrize("seed", range(20))
def test_windows_are_the_same_whether_batches_are_counted_or_waited_for(seed: int) -> None:
    chance = random.Random(seed)
    runs = []
    for _ in range(chance.randint(1, 4)):
        keys = sorted(chance.sample("abcdefghij", chance.randint(0, 9)))
        runs.append("".join(key + "/" * chance.choice([0, 0, 1, 2]) for key in keys))
    streams = [counted(run, first) for first, run in enumerate(runs)]

    found = ["".join(t["k"].to_pylist()) for t in merge_slices(streams, DEDUPLICATE, SPEC)]
    assert found == windows(*runs)


def test_window_does_not_wait_for_a_batch_that_is_known_to_come() -> None:
    may_come = threading.Event()

    def late() -> Iterator[Slice]:
        for number, part in enumerate(counted("ab/cd")):
            assert not number or may_come.wait(60)
            yield part

    runs = [late(), counted("a/b/c", 1)]
    with closing(merge_slices(runs, DEDUPLICATE, SPEC, readers=2)) as merged:
        first = next(merged)["k"].to_pylist()
        may_come.set()

        assert first == ["a"]
        assert [t["k"].to_pylist() for t in merged] == [["b"], ["c", "d"]]


def test_runs_are_read_side_by_side_where_there_are_readers() -> None:
    together = threading.Barrier(3)

    def meeting(text: str, first: int) -> Iterator[Slice]:
        together.wait(60)
        yield from counted(text, first)

    runs = [meeting(text, first) for first, text in enumerate(["a/c", "b", "c/d"])]
    merged = pa.concat_tables(merge_slices(runs, DEDUPLICATE, SPEC, readers=3))

    assert merged["k"].to_pylist() == ["a", "b", "c", "d"]


def noted(stream: Iterator[Slice], closed: list[str], name: str) -> Iterator[Slice]:
    try:
        yield from stream
    finally:
        closed.append(name)


def test_streams_are_closed_when_merging_is_given_up() -> None:
    closed: list[str] = []
    streams = [noted(slices("a/b/c/d/e/f", n), closed, str(n)) for n in range(3)]
    with closing(merge_slices(streams, DEDUPLICATE, SPEC)) as merged:
        assert next(merged)["k"].to_pylist() == ["a"]
        assert closed == []

    assert sorted(closed) == ["0", "1", "2"]


def test_error_of_a_run_is_raised_and_the_others_are_closed() -> None:
    def failing() -> Iterator[Slice]:
        yield from slices("a")
        raise CorruptTable("the file is damaged")

    closed: list[str] = []
    before = set(threading.enumerate())
    streams = [noted(slices("a/b/c/d/e", 1), closed, "good"), noted(failing(), closed, "bad")]
    with pytest.raises(CorruptTable, match="damaged"):
        list(merge_slices(streams, DEDUPLICATE, SPEC))

    assert sorted(closed) == ["bad", "good"]
    assert set(threading.enumerate()) <= before


# --- splits -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("batch_rows")
def test_section_of_many_runs_is_merged_whatever_the_batches() -> None:
    table = new_table()
    chance = random.Random(4)
    alive: dict[int, str] = {}
    for number in range(8):
        keys = sorted(chance.sample(range(30), 12))
        put(table, " | ".join(f"{key} v{number}" for key in keys))
        alive |= dict.fromkeys(keys, f"v{number}")
        gone = keys[number]
        put(table, f"-D {gone} _")
        del alive[gone]
    splits, _ = splits_of(table)

    assert [split.raw for split in splits] == [False]
    assert held(table) == " | ".join(sorted(f"{key} {value}" for key, value in alive.items()))
    assert table.context.budget.used_bytes == 0


@pytest.mark.usefixtures("batch_rows")
def test_sequence_numbers_decide_where_writers_overlap() -> None:
    table = new_table()
    put(table, "9 z")
    with closing(reopened(table).new_write()) as writer:
        writer.write(rows(table.schema, "1 early | 2 early"))
        early = writer.prepare_commit()
    put(table, "1 later")
    put(table, "1 latest | 3 x")
    table.commit(early)

    assert held(table) == "1 latest | 2 early | 3 x | 9 z"


def test_columns_come_as_asked_though_merging_needs_others() -> None:
    columns = {"id": "INT NOT NULL", "v": "STRING", "n": "INT"}
    table = new_table(columns, sequence__field="n")
    put(table, "1 a 5 | 2 b 1")
    put(table, "1 c 3")
    splits, plan = splits_of(table, ["v"])
    context = table.context
    found = pa.Table.from_batches(
        [b for s in splits for b in read_split(s, plan, context.store, context.budget)], plan.output
    )

    assert found.column_names == ["v"]
    assert sorted(found["v"].to_pylist()) == ["a", "b"]


@pytest.mark.parametrize("keyed", [True, False])
def test_rows_are_counted_without_any_column(*, keyed: bool) -> None:
    table = new_table(keys=["id"] if keyed else [])
    put(table, "1 a | 2 b")
    put(table, "1 c")
    splits, plan = splits_of(table, [])
    context = table.context
    batches = [b for s in splits for b in read_split(s, plan, context.store, context.budget)]

    assert sum(batch.num_rows for batch in batches) == (2 if keyed else 3)


def test_plan_crosses_processes() -> None:
    table = new_table()
    put(table, "1 a")
    splits, plan = splits_of(table)
    moved_splits, moved_plan = pickle.loads(pickle.dumps((splits, plan)))
    context = table.context
    found = list(read_split(moved_splits[0], moved_plan, context.store, context.budget))

    assert pa.Table.from_batches(found).to_pylist() == [{"id": 1, "v": "a"}]


def test_batches_of_raw_files_take_a_third_of_their_lease() -> None:
    names = "abcdefgh"
    table = new_table(dict.fromkeys(names, "BIGINT"), keys=[], budget_bytes=32 << 20)
    table.write(pa.table({name: np.arange(80_000) for name in names}))

    counts = [batch.num_rows for batch in table.to_batches()]

    lease, row_bytes = 8 << 20, 8 * len(names) + 16
    assert sum(counts) == 80_000
    assert max(counts) <= lease // 3 // row_bytes


def test_lease_is_given_back_when_a_read_is_given_up() -> None:
    table = new_table()
    for number in range(3):
        put(table, f"{number} a | 9 b")
    splits, plan = splits_of(table)
    context = table.context
    stream = read_split(splits[0], plan, context.store, context.budget)
    assert isinstance(stream, Iterator)
    next(stream)
    assert context.budget.used_bytes > 0
    stream.close()  # type: ignore[attr-defined]

    assert context.budget.used_bytes == 0


def test_missing_data_file_says_so() -> None:
    table = new_table()
    put(table, "1 a")
    splits, _ = splits_of(table)
    (file,) = splits[0].files
    table.context.store.delete(f"{table.path}/bucket-0/{file.name}")

    with pytest.raises(CorruptTable, match=r"data-.*\.parquet"):
        held(table)


def test_file_with_more_rows_than_its_manifest_entry_is_damaged() -> None:
    table = new_table()
    put(table, "1 a | 2 b | 3 c")
    put(table, "2 d")
    splits, plan = splits_of(table)
    few = [
        tuple(replace(file, row_count=min(2, file.row_count)) for file in run)
        for run in splits[0].runs
    ]
    context = table.context
    damaged = replace(splits[0], runs=tuple(few))

    with pytest.raises(CorruptTable, match="more rows than the manifest says"):
        list(read_split(damaged, plan, context.store, context.budget))


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("keys", [("id",), ()])
@pytest.mark.parametrize("row_count", [2, 4])
def test_data_file_of_other_rows_than_its_manifest_entry_is_damaged(
    row_count: int, keys: tuple[str, ...], file_format: str
) -> None:
    table = new_table(keys=keys, write_only="true", file__format=file_format)
    put(table, "1 a | 2 b | 3 c")
    put(table, " | ".join(f"{number} x" for number in range(row_count)))
    (first, second) = (file for split in splits_of(table)[0] for file in split.files)
    store, folder = table.context.store, f"{table.path}/bucket-0"
    other = store.read(f"{folder}/{second.name}")
    store.delete(f"{folder}/{first.name}")
    assert store.put_if_absent(f"{folder}/{first.name}", other)

    with pytest.raises(CorruptTable, match=f"{first.name}.* expected=3"):
        held(table)
    with pytest.raises(CorruptTable, match=f"{first.name}.* expected=3"):
        table.compact(full=True)
    assert len(table.inspect.snapshots()) == 2


@pytest.mark.parametrize(
    "kind",
    [
        *("INT", "BIGINT", "DATE", "TIMESTAMP(6)", "TIME(3)", "DECIMAL(10, 2)", "DECIMAL(30, 2)"),
        *("STRING", "VARCHAR(9)", "BYTES", "BINARY(2)"),
    ],
)
@pytest.mark.parametrize("order", [[0, 2, 1, 3], [3, 0, 1, 2], [0, 1, 3, 2]])
@pytest.mark.usefixtures("batch_rows")
@pytest.mark.sampled(3)
def test_file_whose_keys_are_out_of_order_is_damaged(order: list[int], kind: str) -> None:
    table = new_table({"id": f"{kind} NOT NULL", "v": "STRING"}, write_only="true")
    ids = pa.array([10, 20, 30, 40], pa.int64())
    arrow = table.schema.arrow.field("id").type
    by_way_of = {"DATE": pa.int32(), "TIME(3)": pa.int32(), "BYTES": pa.string()}
    by_way_of |= {"BINARY(2)": pa.string()}
    by_way_of |= dict.fromkeys(("DECIMAL(10, 2)", "DECIMAL(30, 2)"), pa.decimal128(38, 0))
    keys = ids.cast(by_way_of.get(kind, pa.int64())).cast(arrow)
    for value in "ab":
        table.write(pa.table({"id": keys, "v": [value] * 4}))
    (file, _) = (file for split in splits_of(table)[0] for file in split.files)
    store, path = table.context.store, f"{table.path}/bucket-0/{file.name}"
    stored = pq.read_table(pa.BufferReader(store.read(path)))
    out = pa.BufferOutputStream()
    pq.write_table(stored.take(pa.array(order)), out)
    store.delete(path)
    assert store.put_if_absent(path, out.getvalue().to_pybytes())

    with pytest.raises(CorruptTable, match=rf"keys.* out of order.*{file.name}"):
        table.to_arrow()
    with pytest.raises(CorruptTable, match=rf"keys.* out of order.*{file.name}"):
        table.compact(full=True)


class MeetingStore(FailingStore):
    """A store that opens no data file before so many are asked for."""

    def __init__(self, inner: Store, count: int) -> None:
        super().__init__(inner)
        self._together = threading.Barrier(count)

    def open_input(self, path: str) -> pa.NativeFile:
        self._together.wait(60)
        return super().open_input(path)


def test_runs_of_a_remote_store_are_opened_side_by_side() -> None:
    table = new_table()
    for number in range(4):
        put(table, f"{number} a | 9 {number}")

    slow = reopened(table, store=MeetingStore(table.context.store, 4))
    assert held(slow) == "0 a | 1 a | 2 a | 3 a | 9 3"


# --- deletion vectors ---------------------------------------------------------------------------


def hide(table: Table, positions: dict[str, list[int]]) -> None:
    """Commit deletion vectors of the bucket's data files, by their names."""
    context = table.context
    vectors = {name: np.array(places, np.int64) for name, places in positions.items()}
    data, ranges = encode_vectors(vectors)
    path = context.layout.index_file("index-1")
    context.store.put(path, data)
    file = IndexFile(
        index_type=DELETION_VECTORS,
        name="index-1",
        size_bytes=len(data),
        row_count=len(ranges),
        vectors=tuple(ranges),
    )
    table.commit(
        [
            CommitMessage(
                partition=bytes(12),
                bucket=0,
                total_buckets=table.options.bucket,
                compact_index_files=(file,),
            )
        ]
    )


def names_of(table: Table) -> list[str]:
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    return [entry.file.name for entry in table.context.history.live_entries(snapshot)]


@pytest.mark.usefixtures("batch_rows")
@pytest.mark.parametrize(
    ("hidden", "wanted"),
    [
        ([], "1 a | 2 b | 3 c | 4 d"),
        ([0], "2 b | 3 c | 4 d"),
        ([1, 2], "1 a | 4 d"),
        ([0, 1, 2, 3], ""),
    ],
)
def test_rows_that_a_vector_names_are_left_out_of_raw_files(hidden: list[int], wanted: str) -> None:
    table = new_table(keys=[], deletion_vectors__enabled="true")
    put(table, "1 a | 2 b | 3 c | 4 d")
    hide(table, {names_of(table)[0]: hidden})

    assert held(table) == wanted
    assert sum(batch.num_rows for batch in table.to_batches(["v"])) == wanted.count("|") + bool(
        wanted
    )


@pytest.mark.parametrize("keys", [[], ["id"]])
def test_row_that_a_vector_names_needs_no_cast(keys: list[str]) -> None:
    table = new_table(keys=keys, write_only="true")
    put(table, "1 abc | 2 5 | 3 6")
    hide(table, {names_of(table)[0]: [0]})
    change = [SchemaChange.update_column_type("v", "INT")]
    schema = evolve(table.schema, change, now_ms=0, has_snapshots=True)
    assert write_schema(table.context.store, table.context.layout, schema)
    table = reopened(table)

    assert held(table) == "2 5 | 3 6"
    assert held(table, columns=["v"]) == "5 | 6"

    put(table, "1 7 | 4 8")

    assert held(table) == "1 7 | 2 5 | 3 6 | 4 8"


@pytest.mark.usefixtures("batch_rows")
@pytest.mark.parametrize("hidden", [[0], [0, 1], [0, 1, 2, 3], [2, 3], [1, 2]])
def test_rows_that_a_vector_names_are_left_out_of_merged_runs(hidden: list[int]) -> None:
    table = new_table()
    put(table, "1 a | 2 b | 3 c | 4 d")
    old = names_of(table)[0]
    put(table, "2 x | 5 y")
    hide(table, {old: hidden})
    left = {1: "a", 2: "b", 3: "c", 4: "d"}
    for place in hidden:
        del left[place + 1]
    left |= {2: "x", 5: "y"}

    assert held(table) == " | ".join(f"{key} {value}" for key, value in sorted(left.items()))
