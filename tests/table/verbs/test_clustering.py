"""Clustering of append tables: sort compaction, and the rows and files that it must not change."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.format.layout import Layout
from lakecore.io.ambient import Clock, seeded
from lakecore.io.spill import SpillDirectory
from lakecore.model.evolution import evolve
from lakecore.model.schema_change import SchemaChange
from lakecore.table.publication import write_schema
from tests.stores import MeddledStore
from tests.tables import held, new_table, put, reopened, with_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.table.handle import Table

COLUMNS = {"x": "INT", "y": "BIGINT", "s": "STRING"}
STRATEGIES = ("order", "zorder", "hilbert")


def table_of(columns: dict[str, str] | None = None, **options: Any) -> Table:
    return new_table(columns or COLUMNS, keys=(), **options)


def kinds(table: Table) -> list[str]:
    return [str(kind) for kind in table.inspect.snapshots()["commit_kind"]]


def stored(table: Table) -> list[tuple[Any, ...]]:
    """The rows in the order in which they are stored."""
    return [tuple(row.values()) for row in reopened(table).to_arrow().to_pylist()]


def kept_share(table: Table, where: str) -> float:
    found = table.explain(where=where)
    return found.files_kept / found.files_total


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_stay_and_files_are_sorted_in_one_compact_snapshot(strategy: str) -> None:
    table = table_of()
    for text in ("3 1 c | 1 2 a | _ 3 b", "2 1 d | 1 1 _ | 3 _ e"):
        put(table, text)
    before = held(table)

    result = table.compact(order_strategy=strategy, order_by=["x", "y"])

    assert held(reopened(table)) == before
    assert kinds(table) == ["APPEND", "APPEND", "COMPACT"]
    assert (result.files_before, result.files_after, result.rows_after) == (2, 1, 6)
    assert held(table, snapshot_id=2) == before


def test_order_sorts_by_the_columns_with_null_first_and_keeps_the_order_of_equal_rows() -> None:
    table = table_of()
    put(table, "3 1 c | 1 2 a | _ 3 b | 1 _ z")
    put(table, "2 1 d | 1 2 A | 3 _ e")

    table.compact(order_strategy="ORDER", order_by="x, y")

    assert stored(table) == [
        (None, 3, "b"),
        (1, None, "z"),
        (1, 2, "a"),
        (1, 2, "A"),
        (2, 1, "d"),
        (3, None, "e"),
        (3, 1, "c"),
    ]


@pytest.mark.parametrize("strategy", ["zorder", "hilbert"])
def test_box_of_one_percent_is_read_from_a_fifth_of_the_files(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakecore.table.run_writer.file_shape._LOOK_BYTES_MIN", 1 << 14)
    count = 60_000
    chance = np.random.default_rng(5)
    table = table_of(target_file_size="4 kb")
    rows = {name: chance.integers(0, 1 << 20, count) for name in ("x", "y")}
    table.write(pa.table({**rows, "s": ["v"] * count}))
    tenth = (1 << 20) // 10
    where = f"x BETWEEN {tenth * 3} AND {tenth * 4} AND y BETWEEN {tenth * 6} AND {tenth * 7}"
    assert kept_share(table, where) == 1
    rows_before = table.to_arrow(where=where).num_rows

    table.compact(order_strategy=strategy, order_by=["x", "y"])

    assert len(table.inspect.files()) > 50
    assert kept_share(table, where) <= 0.2
    assert table.to_arrow(where=where).num_rows == rows_before > 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_table_larger_than_the_memory_is_sorted_on_disk(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 40_000
    table = table_of(local_sort__max_num_file_handles="2")
    chance = np.random.default_rng(9)
    rows = pa.table(
        {
            "x": pa.array(chance.integers(-5, 5, count), pa.int32()),
            "y": chance.integers(-(1 << 62), 1 << 62, count),
            "s": [f"{'text' * 5}{at % 50}" if at % 7 else None for at in range(count)],
        }
    )
    for start in range(0, count, 2_000):
        table.write(rows.slice(start, 2_000))
    monkeypatch.setattr("lakecore.table.compactions.compact_work._SORT_LEAST_BYTES", 1 << 20)
    spilled: list[int] = []
    write = SpillDirectory.write

    def counting(self: SpillDirectory, *given: Any) -> Any:
        spilled.append(1)
        return write(self, *given)

    monkeypatch.setattr(SpillDirectory, "write", counting)
    columns = ["s", "x"] if strategy == "order" else ["x", "y", "s"]

    reopened(table, budget_bytes=1 << 22).compact(order_strategy=strategy, order_by=columns)

    assert len(spilled) > 5
    found = reopened(table).to_arrow()
    by = [(name, "ascending") for name in ("x", "y", "s")]
    assert found.sort_by(by).equals(rows.cast(found.schema).sort_by(by))
    if strategy == "order":
        pairs = [(row["s"] or "", row["x"]) for row in found.to_pylist()]
        assert pairs == sorted(pairs)


def test_partitions_are_sorted_alone_and_may_be_chosen() -> None:
    table = new_table(
        {"day": "STRING", "x": "INT", "y": "INT"}, keys=(), partitions=("day",), bucket="-1"
    )
    put(table, "a 2 1 | a 1 1 | b 2 1 | b 1 1")

    result = table.compact(order_strategy="order", order_by=["x"], partitions=[{"day": "b"}])

    assert result.files_before == 1
    assert stored(table) == [("a", 2, 1), ("a", 1, 1), ("b", 1, 1), ("b", 2, 1)]


def test_steps_sort_each_partition_once() -> None:
    table = new_table({"day": "STRING", "x": "INT"}, keys=(), partitions=("day",), bucket="-1")
    put(table, "a 2 | a 1 | b 2 | b 1 | c 2 | c 1")

    result = table.compact(order_strategy="order", order_by=["x"], max_bytes=1)

    assert (result.steps, kinds(table)) == (3, ["APPEND", *["COMPACT"] * 3])
    assert stored(table) == [(day, x) for day in "abc" for x in (1, 2)]


@pytest.mark.parametrize("wide", ["false", "true"])
def test_marked_rows_are_not_copied(wide: str) -> None:
    table = table_of(deletion_vectors__enabled="true", deletion_vectors__bitmap64=wide)
    put(table, "3 1 c | 1 2 a | 2 3 b")
    table.delete("x = 2")
    assert table.explain().deletion_vectors

    table.compact(order_strategy="zorder", order_by=["x", "y"])

    assert held(reopened(table)) == "1 2 a | 3 1 c"
    assert not reopened(table).explain().deletion_vectors


def test_rows_of_an_older_schema_are_sorted_as_the_newest_says() -> None:
    table = table_of()
    put(table, "3 1 c | 1 2 a")
    changed = evolve(
        table.schema,
        [SchemaChange.add_column("n", "INT"), SchemaChange.rename_column("x", "z")],
        now_ms=1,
        has_snapshots=True,
    )
    assert write_schema(table.context.store, Layout(root=table.path), changed)
    table = reopened(table)
    put(table, "2 1 d 5")

    table.compact(order_strategy="zorder", order_by=["z", "n"])

    assert sorted(stored(table)) == [(1, 2, "a", None), (2, 1, "d", 5), (3, 1, "c", None)]


def test_rows_appended_meanwhile_stay() -> None:
    """Paimon's overwrite would remove them."""
    table = table_of()
    put(table, "3 1 c | 1 2 a")
    done: list[int] = []

    def meddle() -> None:
        if not done:
            done.append(1)
            put(reopened(table), "9 9 new")

    store = MeddledStore(table.context.store, meddle)

    reopened(table, store=store).compact(order_strategy="order", order_by=["x"])

    assert done
    assert held(reopened(table)) == "1 2 a | 3 1 c | 9 9 new"


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"order_strategy": "zorder"}, InvalidRequest, "at least one column"),
        ({"order_strategy": "spiral", "order_by": ["x"]}, InvalidRequest, "unknown order_strategy"),
        ({"order_strategy": 5, "order_by": ["x"]}, InvalidRequest, "unknown order_strategy"),
        ({"order_by": ["x"]}, InvalidRequest, "needs an order_strategy"),
        ({"order_strategy": "none", "order_by": ["x"]}, InvalidRequest, "needs an order_strategy"),
        ({"order_strategy": "order", "order_by": ["nope"]}, InvalidRequest, "unknown column"),
        ({"order_strategy": "order", "order_by": ["x", "x"]}, InvalidRequest, "twice"),
        ({"order_strategy": "order", "order_by": [1]}, InvalidRequest, "a list of columns"),
        ({"order_strategy": "order", "order_by": 1}, InvalidRequest, "a list of columns"),
        ({"order_strategy": "order", "order_by": "x,,y"}, InvalidRequest, "or none"),
        ({"order_strategy": "hilbert", "order_by": ["x"]}, InvalidRequest, "two columns"),
        ({"order_strategy": "order", "order_by": ["day"]}, InvalidRequest, "a partition key"),
        ({"order_strategy": "order", "order_by": ["list"]}, InvalidRequest, "a nested column"),
    ],
)
def test_bad_orders_are_refused(arguments: Any, error: type[Exception], said: str) -> None:
    columns = {"day": "STRING", "x": "INT", "y": "INT", "list": "ARRAY<INT>"}
    table = new_table(columns, keys=(), partitions=("day",), bucket="-1")

    with pytest.raises(error, match=said):
        table.compact(**arguments)


@pytest.mark.parametrize(
    ("keys", "options", "error", "said"),
    [
        (("x",), {}, Unsupported, "with a primary key"),
        ((), {"bucket": "2", "bucket_key": "x"}, InvalidRequest, "bucket=-1"),
        ((), {"clustering__incremental": "true"}, InvalidRequest, "clusters incrementally"),
    ],
)
def test_other_tables_are_not_sorted(
    keys: Sequence[str], options: Any, error: type[Exception], said: str
) -> None:
    columns = {"x": "INT NOT NULL", "y": "INT"}
    table = new_table(columns, keys=keys, **{"clustering__columns": "x", **options})

    with pytest.raises(error, match=said):
        table.compact(order_strategy="order", order_by=["x"])


def test_empty_table_has_nothing_to_sort() -> None:
    assert not table_of().compact(order_strategy="order", order_by=["x"]).buckets


BUCKETED: dict[str, Any] = {
    "bucket": "2",
    "bucket_key": "k",
    "bucket_append_ordered": "false",
    "clustering__incremental": "true",
    "clustering__columns": "x",
    "num_sorted_run__compaction_trigger": "2",
}


def test_each_bucket_is_clustered_and_writes_leave_it_alone() -> None:
    table = new_table({"k": "INT", "x": "INT"}, keys=(), **BUCKETED)
    rows = [(at % 7, (at * 5) % 24) for at in range(24)]
    for start in range(0, 24, 4):
        put(table, " | ".join(f"{k} {x}" for k, x in rows[start : start + 4]))
    assert kinds(table) == ["APPEND"] * 6

    table.compact(full=True)

    assert kinds(table)[6:] == ["COMPACT"]
    assert sorted(stored(reopened(table))) == sorted(rows)
    files = table.inspect.files().sort("bucket")
    assert files["bucket"].to_list() == [0, 1]
    assert files["level"].n_unique() == 1
    xs = [x for _, x in stored(table)]
    assert sum(later < x for x, later in pairwise(xs)) <= 1
    assert not table.compact(full=True).buckets


@pytest.mark.parametrize(
    "changed", [{"bucket_append_ordered": "true"}, {"deletion_vectors__enabled": "true"}]
)
def test_buckets_that_keep_an_order_or_have_vectors_are_not_clustered(
    changed: dict[str, Any],
) -> None:
    with pytest.raises(InvalidRequest, match="bucket-append-ordered=false"):
        new_table({"k": "INT", "x": "INT"}, keys=(), **(BUCKETED | changed))


# --- clustered writes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "strategy", "wanted"),
    [
        ("x", "auto", [(1, 2, "a"), (2, 1, "d"), (3, 1, "c")]),
        ("y,x", "order", [(2, 1, "d"), (3, 1, "c"), (1, 2, "a")]),
        ("x,y", "zorder", [(1, 2, "a"), (2, 1, "d"), (3, 1, "c")]),
        ("x,y", "auto", [(1, 2, "a"), (2, 1, "d"), (3, 1, "c")]),
        ("x,y", "hilbert", None),
    ],
)
def test_batch_write_sorts_its_rows(columns: str, strategy: str, wanted: Any) -> None:
    table = table_of(clustering__columns=columns, clustering__strategy=strategy)

    put(table, "3 1 c | 1 2 a | 2 1 d")

    assert held(table) == "1 2 a | 2 1 d | 3 1 c"
    if wanted is not None:
        assert stored(table) == wanted


def test_larger_write_is_sorted_on_disk() -> None:
    table = table_of(
        clustering__columns="x", write_buffer_size="100 kb", local_sort__max_num_file_handles="3"
    )
    count = 30_000
    numbers = pa.array(np.random.default_rng(3).permutation(count).astype(np.int32))
    rows = pa.table(
        {"x": numbers, "y": numbers.cast(pa.int64()), "s": [f"v{n}" for n in range(count)]}
    )

    table.overwrite(
        row for start in range(0, count, 1_000) for row in rows.slice(start, 1_000).to_batches()
    )

    found = reopened(table).to_arrow()
    assert found.column("x").to_pylist() == list(range(count))
    assert set(found.column("s").to_pylist()) == set(rows.column("s").to_pylist())


def test_partitions_of_a_write_are_sorted_alone() -> None:
    columns = {"day": "STRING", "x": "INT"}
    table = new_table(columns, keys=(), partitions=("day",), bucket="-1", clustering__columns="x")

    put(table, "b 2 | a 3 | b 1 | a 1")

    assert stored(table) == [("a", 1), ("a", 3), ("b", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("keys", "options", "sorts"),
    [
        ((), {"bucket": "-1"}, True),
        ((), {"bucket": "1", "bucket_key": "y"}, False),
        ((), {"bucket": "-1", "clustering__incremental": "true"}, False),
        (
            (),
            {
                "bucket": "-1",
                "clustering__incremental": "true",
                "clustering__incremental__optimize_write": "true",
            },
            True,
        ),
        (("y",), {"bucket": "1"}, False),
    ],
)
def test_only_tables_without_buckets_sort_writes(
    keys: Sequence[str], options: Any, *, sorts: bool
) -> None:
    columns = {"x": "INT", "y": "INT NOT NULL"}
    options = {
        key.replace("incremental__optimize_write", "incremental.optimize-write"): text
        for key, text in options.items()
    }
    table = new_table(columns, keys=keys, clustering__columns="x", **options)

    put(table, "3 1 | 1 2")

    assert stored(table) == ([(1, 2), (3, 1)] if sorts else [(3, 1), (1, 2)])


def test_stream_writes_are_not_sorted() -> None:
    table = table_of(clustering__columns="x")
    writer = table.new_stream_write("job")
    writer.write(pa.table({"x": pa.array([3, 1], pa.int32()), "y": [1, 2], "s": ["a", "b"]}))

    writer.commit(1, writer.prepare_commit(1))

    assert stored(table) == [(3, 1, "a"), (1, 2, "b")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"clustering__columns": "nope"}, "a column that is not there"),
        ({"clustering__columns": "list"}, "a nested column"),
        ({"clustering__columns": "x", "clustering__strategy": "hilbert"}, "two clustering.columns"),
        ({"clustering__columns": "x", "clustering__strategy": "spiral"}, "clustering.strategy"),
        ({"clustering__incremental": "true"}, "needs clustering.columns"),
    ],
)
def test_bad_clustering_options_are_refused(options: Any, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        new_table({"x": "INT", "list": "ARRAY<INT>"}, keys=(), **options)


# --- incremental clustering -----------------------------------------------------------------------


def incremental(**options: Any) -> Table:
    given = {"num_sorted_run__compaction_trigger": "3", "clustering__columns": "x", **options}
    return new_table(
        {"day": "STRING", "x": "INT"},
        keys=(),
        partitions=("day",),
        bucket="-1",
        clustering__incremental="true",
        **given,
    )


def levels(table: Table) -> list[tuple[str, int]]:
    files = reopened(table).inspect.files()
    return sorted((row["partition"], row["level"]) for row in files.rows(named=True))


def test_incremental_clustering_takes_runs_as_universal_compaction_picks_them() -> None:
    table = incremental()
    for number in (5, 3):
        put(table, f"a {number} | a {number - 1}")
    assert not table.compact().buckets
    put(table, "a 9 | a 1")

    table.compact()

    assert levels(table) == [("{a}", 3)]
    assert stored(table) == [("a", x) for x in (1, 2, 3, 4, 5, 9)]
    put(table, "a 7 | a 6")
    assert not reopened(table).compact().buckets
    assert levels(table) == [("{a}", 0), ("{a}", 3)]


def test_full_clustering_takes_all_runs_once() -> None:
    table = incremental()
    put(table, "a 9 | a 1 | b 1")

    table.compact(full=True)

    assert levels(table) == [("{a}", 3), ("{b}", 3)]
    assert not reopened(table).compact(full=True).buckets
    with_options(table, clustering__columns="day,x")
    assert reopened(table).compact(full=True).buckets == 2
    assert not reopened(table).compact(full=True).buckets


def test_files_of_a_table_that_stopped_clustering_are_packed() -> None:
    table = incremental()
    put(table, "a 9 | a 1")
    table.compact(full=True)
    with_options(table, clustering__incremental=None)
    plain = reopened(table)
    put(plain, "a 5")

    plain.compact(full=True)

    assert levels(table) == [("{a}", 0)]
    assert sorted(stored(table)) == [("a", 1), ("a", 5), ("a", 9)]


def test_idle_partitions_are_clustered_with_the_chosen_ones() -> None:
    table = incremental(
        **{
            "clustering__history_partition.idle-to-full-sort": "1 h",
            "clustering__history_partition.limit": "1",
        }
    )
    put(table, "a 2 | a 1 | b 2 | b 1 | c 1")
    ambient = seeded(77, Clock(table.context.ambient.now_ms() + 2 * 3_600_000))

    reopened(table).compact(full=True, where="day = 'c'")
    assert levels(table) == [("{a}", 0), ("{b}", 0), ("{c}", 3)]
    reopened(table, ambient=ambient).compact(full=True, where="day = 'c'")

    assert levels(table) == [("{a}", 3), ("{b}", 0), ("{c}", 3)]


def test_local_sort_orders_by_the_columns() -> None:
    table = incremental(
        clustering__columns="day,x",
        clustering__strategy="zorder",
        clustering__incremental__mode="local-sort",
    )
    put(table, "a -1 | a 2 | a 1")

    table.compact(full=True)

    assert stored(table) == [("a", -1), ("a", 1), ("a", 2)]


def test_table_that_names_no_columns_to_cluster_by_is_an_error_of_compaction() -> None:
    table = incremental()
    put(table, "a 1")
    with_options(table, clustering__columns=None)

    with pytest.raises(InvalidRequest, match=r"needs clustering.columns"):
        reopened(table).compact(full=True)
