"""Reads that fall back to a branch: a partition is read from the table, or else from the branch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, NotFound, Unsupported
from lakecore.io.ambient import seeded
from lakecore.io.stores.local import LocalStore
from lakecore.table.publication import write_schema
from lakecore.table.reads.time_travel import Travel
from tests.conditions import from_sql
from tests.tables import held, new_table, put, reopened, with_options

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.plan.predicate import Predicate
    from lakecore.table.handle import Table

COLUMNS = {"p": "INT NOT NULL", "id": "INT NOT NULL", "v": "STRING"}
FALLBACK = "scan.fallback-branch"


def forked(*, partitions: tuple[str, ...] = ("p",), **options: Any) -> Table:
    """A table with the partitions 1 and 2, and its branch `b` with 2, 3 and 4."""
    table = new_table(COLUMNS, keys=("p", "id"), partitions=partitions, **options)
    table.create_branch("b")
    branch = table.branch("b")
    for row in ("2 1 B", "3 1 B | 3 2 B", "4 1 B"):
        put(branch, row)
    put(branch, "3 2 BB")
    put(table, "1 1 M | 2 1 M")
    return table


def read(table: Table, **dynamic: str) -> Table:
    return table.copy({FALLBACK: "b", **dynamic})


WHOLE = "1 1 M | 2 1 M | 3 1 B | 3 2 BB | 4 1 B"


def test_partition_of_the_table_hides_that_of_the_branch() -> None:
    table = forked()

    assert held(table) == "1 1 M | 2 1 M"
    assert held(read(table)) == WHOLE
    assert held(table.branch("b")) == "2 1 B | 3 1 B | 3 2 BB | 4 1 B"


@pytest.mark.parametrize("form", ["frames", "batches"])
def test_limit_counts_the_rows_of_both_parts(form: str) -> None:
    source = read(forked())._source(Travel())  # noqa: SLF001 - what an engine scans
    in_second = from_sql("p > 2", source.table_schema)

    def count(predicate: Predicate | None, limit: int | None) -> int:
        return sum(len(part) for part in getattr(source, form)(None, predicate, limit))

    assert [count(None, limit) for limit in (0, 1, 2, 3, 5, 9, None)] == [0, 1, 2, 3, 5, 5, 5]
    # A predicate only prunes, so the limit is not exact; but no row is missing.
    assert all(count(in_second, limit) >= min(limit, 3) for limit in range(5))


def test_every_face_gives_the_same_rows(tmp_path: Path) -> None:
    root = f"{tmp_path}/t"
    ambient = seeded(3)
    table = read(forked(store=LocalStore(), path=root, ambient=ambient))
    order = ["p", "id"]
    rows = table.to_polars().sort(order)

    assert rows["v"].to_list() == ["M", "M", "B", "BB", "B"]
    assert table.scan().collect().sort(order).equals(rows)
    assert pl.DataFrame(table.to_arrow()).sort(order).equals(rows)
    assert pl.DataFrame(table.to_batches().read_all()).sort(order).equals(rows)
    assert pl.DataFrame(table).sort(order).equals(rows)
    assert pl.from_pandas(table.to_pandas())["v"].sort().to_list() == sorted(rows["v"])
    assert pl.DataFrame(table.to_arrow_dataset().to_table()).sort(order).equals(rows)
    connection = duckdb.connect()
    assert table.to_duckdb(connection).pl().sort(order).equals(rows)
    assert table.to_duckdb(connection).filter("v = 'B'").count("*").fetchall() == [(2,)]
    assert len(table.head(4)) == 4
    assert [len(table.head(n)) for n in range(7)] == [0, 1, 2, 3, 4, 5, 5]
    assert table.scan(limit=3).collect().height == 3
    assert table.scan(["v"], "p > 2").collect()["v"].sort().to_list() == ["B", "B", "BB"]
    assert table.to_arrow(["v", "p"]).schema.names == ["v", "p"]
    assert (table.count(), len(table), table.count("v = 'B'"), table.count("p = 2")) == (5, 5, 2, 1)


@pytest.mark.parametrize("full", [False, True])
def test_compacted_files_are_scanned_by_engines_of_both(tmp_path: Path, *, full: bool) -> None:
    table = forked(store=LocalStore(), path=f"{tmp_path}/t")
    if full:
        table.compact(full=True)
        table.branch("b").compact(full=True)

    assert held(read(table)) == WHOLE
    relation = read(table).to_duckdb(duckdb.connect())
    assert relation.order("p, id").project("v").fetchall() == [
        (each,) for each in ("M", "M", "B", "BB", "B")
    ]


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("p = 2", "2 1 M"),
        ("p = 3", "3 1 B | 3 2 BB"),
        ("p >= 2 AND v = 'B'", "3 1 B | 4 1 B"),
        ("p = 2 AND v = 'B'", ""),
        ("v = 'B'", "3 1 B | 4 1 B"),
        ("id = 2", "3 2 BB"),
        ("p = 9", ""),
    ],
)
def test_condition_never_uncovers_a_partition_of_the_branch(where: str, rows: str) -> None:
    table = read(forked())

    assert held(table, where=where) == rows
    assert table.count(where) == (rows.count("|") + 1 if rows else 0)


def test_plan_shows_the_files_of_both() -> None:
    plan = read(forked()).explain(where="p >= 2")
    assert [part.partition for part in plan.parts] == ["p=2", "p=3", "p=4"]

    assert (plan.files_total, plan.files_kept, plan.files_skipped_by_partition) == (6, 4, 2)
    assert plan.snapshot_id == 1
    assert plan.rows_stored == 5


def test_table_without_partitions_is_one() -> None:
    table = forked(partitions=())
    assert held(read(table)) == "1 1 M | 2 1 M"

    table.truncate()
    assert held(read(table)) == "2 1 B | 3 1 B | 3 2 BB | 4 1 B"


def test_partition_that_the_table_lost_is_read_from_the_branch() -> None:
    table = forked()
    table.drop_partition({"p": 2})

    assert held(read(table)) == "1 1 M | 2 1 B | 3 1 B | 3 2 BB | 4 1 B"


def test_table_without_a_snapshot_shows_the_branch() -> None:
    table = new_table(COLUMNS, keys=("p", "id"), partitions=("p",))
    table.create_branch("b")
    put(table.branch("b"), "1 1 B")

    assert held(read(table)) == "1 1 B"


def test_option_of_the_schema_counts_and_writes_go_to_the_table() -> None:
    table = forked()
    with_options(table, scan__fallback_branch="b")
    table = reopened(table)

    assert held(table) == WHOLE
    put(table, "3 1 M")
    assert held(table) == "1 1 M | 2 1 M | 3 1 M | 4 1 B"
    table.delete("v = 'B'")
    assert held(table.branch("b")) == "2 1 B | 3 1 B | 3 2 BB | 4 1 B"
    with pytest.raises(InvalidRequest, match=r"unset scan\.fallback-branch"):
        table.delete_branch("b")


def test_branch_that_names_itself_is_read_alone() -> None:
    table = forked()
    branch = table.branch("b").copy({FALLBACK: "b"})

    assert held(branch) == "2 1 B | 3 1 B | 3 2 BB | 4 1 B"
    assert held(table.branch("b").copy({FALLBACK: "main"})) == (
        "1 1 M | 2 1 B | 3 1 B | 3 2 BB | 4 1 B"
    )


def test_branch_may_have_other_buckets_and_another_merge_engine() -> None:
    table = forked()
    context = table.branch("b").context
    texts = {**context.schema.options, "bucket": "3", "merge-engine": "first-row"}
    other = replace(context.schema, id=1, options=texts)
    assert write_schema(context.store, context.layout, other)
    branch = table.branch("b")
    put(branch, "5 1 B | 5 2 B | 5 3 B")
    branch.compact()

    assert held(read(reopened(table)), where="p = 5") == "5 1 B | 5 2 B | 5 3 B"
    assert held(read(reopened(table)), where="p = 5 AND id = 2") == "5 2 B"


def test_past_states_are_those_of_both() -> None:
    ambient = seeded(4)
    table = new_table(COLUMNS, keys=("p", "id"), partitions=("p",), ambient=ambient)
    table.create_branch("b")
    branch = table.branch("b")
    times = []
    for number in (1, 2, 3):
        put(branch, f"9 {number} B")
        branch.create_tag(f"t{number}")
        ambient.sleep(1.0)
        put(table, f"1 {number} M")
        table.create_tag(f"t{number}")
        times.append(ambient.now_ms())
        ambient.sleep(1.0)
    both = read(table)

    assert held(both, snapshot_id=2) == "1 1 M | 1 2 M | 9 1 B | 9 2 B"
    assert held(both, tag="t1") == "1 1 M | 9 1 B"
    assert held(both, timestamp=times[1]) == "1 1 M | 1 2 M | 9 1 B | 9 2 B"
    assert held(read(table, **{"scan.snapshot-id": "1"})) == "1 1 M | 9 1 B"
    assert both.count(snapshot_id=2) == 4
    with pytest.raises(NotFound):
        both.count(snapshot_id=7)
    table.create_tag("alone")
    with pytest.raises(NotFound, match="no such tag"):
        both.count(tag="alone")


def test_branch_that_is_younger_than_the_time_has_no_rows_then() -> None:
    ambient = seeded(4)
    table = new_table(COLUMNS, keys=("p", "id"), partitions=("p",), ambient=ambient)
    put(table, "1 1 M")
    then = ambient.now_ms()
    ambient.sleep(1.0)
    table.create_branch("b")
    put(table.branch("b"), "9 1 B")

    assert held(read(table), timestamp=then) == "1 1 M"
    # By a snapshot id, Paimon takes the first snapshot of the branch.
    assert held(read(table), snapshot_id=1) == "1 1 M | 9 1 B"


def test_snapshot_before_the_first_of_the_branch_takes_its_earliest_live_one() -> None:
    table = new_table(COLUMNS, keys=("p", "id"), partitions=("p",))
    put(table, "1 1 M")
    table.create_branch("b")
    assert held(read(table), snapshot_id=1) == "1 1 M"  # the branch has no snapshot
    branch = table.branch("b")
    for row in ("9 1 B", "9 2 B"):
        put(branch, row)
    branch.expire_snapshots(retain_max=1, retain_min=1)
    assert [*branch.inspect.snapshots()["snapshot_id"]] == [2]
    assert held(read(table), snapshot_id=1) == "1 1 M | 9 1 B | 9 2 B"


def test_branch_of_a_later_tag_is_read_at_its_first_snapshot() -> None:
    table = new_table(COLUMNS, keys=("p", "id"), partitions=("p",))
    put(table, "1 1 M")
    put(table, "2 1 M")
    table.create_tag("later")
    table.create_branch("b", tag="later")
    assert held(read(table), snapshot_id=1) == "1 1 M | 2 1 M"


def test_rows_hidden_at_level_0_do_not_count_as_a_partition() -> None:
    table = forked(merge_engine="first-row", write_only="true")

    assert held(table) == ""
    assert held(read(table)) == ""
    table.copy({"write-only": "false"}).compact()
    assert held(read(table)) == "1 1 M | 2 1 M"
    table.branch("b").copy({"write-only": "false"}).compact()
    assert held(read(table)) == "1 1 M | 2 1 M | 3 1 B | 3 2 B | 4 1 B"


def test_branch_with_other_columns_is_refused() -> None:
    table = forked()
    context = table.branch("b").context
    path = context.layout.schema(0)
    context.store.put(path, context.store.read(path).replace(b'"name" : "v"', b'"name" : "w"'))

    with pytest.raises(InvalidRequest, match="must have the columns"):
        read(reopened(table)).count()


def test_branch_that_is_not_there_is_named() -> None:
    with pytest.raises(NotFound, match=r"scan\.fallback-branch does not exist\. branch=c"):
        forked().copy({FALLBACK: "c"}).count()


def test_changes_are_refused_and_streams_are_those_of_the_table() -> None:
    table = read(forked())

    with pytest.raises(Unsupported, match=r"option=scan\.fallback-branch"):
        table.changes()
    with pytest.raises(Unsupported, match=r"option=scan\.fallback-branch"):
        table.copy({"incremental-between": "0,1"}).count()
    assert table.copy({FALLBACK: ""}).changes().collect().height == 2
    assert [number for number, _ in table.stream(1, "latest")] == [1]
    assert table.inspect.snapshots().height == 1


def test_system_tables_show_one_branch_but_all_partitions() -> None:
    table = read(forked())

    assert table.inspect.files().height == 2
    partitions = table.inspect.partitions()
    assert partitions[partitions.columns[0]].to_list() == ["p=1", "p=2", "p=3", "p=4"]


def test_read_optimized_rows_fall_back_and_rows_with_kinds_are_refused(tmp_path: Path) -> None:
    session = lc.connect(tmp_path)
    session.create_database("d")
    table = session.create_table(
        "d.t", COLUMNS, primary_keys=["p", "id"], partition_keys=["p"], options={"bucket": "1"}
    )
    table.create_branch("b")
    branch = table.branch("b")
    put(branch, "1 1 B | 2 1 B")
    branch.compact(full=True)
    put(table, "1 1 M")
    session.alter_table("d.t", [lc.SchemaChange.set_option(FALLBACK, "b")])
    optimized, log = session.get_table("d.t$ro"), session.get_table("d.t$audit_log")

    assert sorted(optimized.to_polars().rows()) == [(1, 1, "B"), (2, 1, "B")]
    session.get_table("d.t").compact(full=True)
    assert sorted(optimized.to_polars().rows()) == [(1, 1, "M"), (2, 1, "B")]
    assert optimized.count() == 2
    with pytest.raises(Unsupported, match=r"option=scan\.fallback-branch"):
        log.count()
