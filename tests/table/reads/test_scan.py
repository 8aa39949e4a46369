"""Snapshots and predicates to splits: what is left out, and what never is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lakecore.io.stores.store import MemoryStore
from lakecore.model.types import parse_type
from lakecore.options import MergeEngine, parse_options
from lakecore.table.context import with_options
from lakecore.table.publication import write_schema
from lakecore.table.reads.scan import (
    ScanContext,
    ScanPlan,
    Skipped,
    hides_level_0,
    live_files,
    live_in,
    plan_scan,
    visible_partitions,
)
from tests.conditions import from_sql
from tests.tables import held, new_table, put, reopened

if TYPE_CHECKING:
    from lakecore.table.context import TableContext
    from lakecore.table.handle import Table

PARTITIONED = {"id": "INT NOT NULL", "p": "STRING NOT NULL", "v": "INT"}


def planned(table: Table, where: str | None = None) -> ScanPlan:
    context = table.context
    predicate = None if where is None else from_sql(where, context.schema)
    return plan_scan(scan_of(context), context.history.latest_snapshot(), predicate)


def scan_of(context: TableContext) -> ScanContext:
    return ScanContext(
        history=context.history,
        schema=context.schema,
        options=context.options,
        partitions=context.partitions,
    )


def places(plan: ScanPlan) -> list[tuple[str, int, bool, int]]:
    """Partition path, bucket, raw, number of files of each split."""
    return [(s.partition_path, s.bucket, s.raw, len(s.files)) for s in plan.splits]


def test_empty_table_has_no_splits() -> None:
    assert planned(new_table()) == ScanPlan(snapshot=None)


def test_splits_come_in_order_of_partition_and_bucket() -> None:
    table = new_table(PARTITIONED, keys=["id", "p"], partitions=["p"], bucket="2")
    put(table, " | ".join(f"{n} {p} 0" for p in "cab" for n in range(9)))

    assert places(planned(table)) == [
        (f"p={p}", bucket, True, 1) for p in "abc" for bucket in (0, 1)
    ]


def test_files_of_a_section_are_one_split_and_sections_are_splits() -> None:
    table = new_table()
    for line in ("1 a | 5 a", "3 b | 4 b", "7 c | -D 9 c"):
        put(table, line)

    assert places(planned(table)) == [("", 0, False, 2), ("", 0, False, 1)]


def test_raw_files_are_packed_to_the_target_size() -> None:
    table = new_table(keys=[], source__split__target_size="1 b")
    for line in ("1 a", "2 b"):
        put(table, line)
    assert places(planned(table)) == [("", 0, True, 1)] * 2
    packed = table.copy({"source.split.target-size": "1 gb"})

    assert places(planned(packed)) == [("", 0, True, 2)]


@pytest.mark.parametrize(
    ("where", "kept", "skipped"),
    [
        ("p = 'a'", 2, Skipped(by_partition=4)),
        ("p > 'a' AND v >= 0", 4, Skipped(by_partition=2)),
        ("p = 'z'", 0, Skipped(by_partition=6)),
        ("p = 'a' OR v = 99", 2, Skipped(by_statistics=4)),
        ("p = 'a' AND id = 3", 1, Skipped(by_partition=4, by_bucket=1)),
        ("id = 3", 3, Skipped(by_bucket=3)),
        ("id > 100", 0, Skipped(by_statistics=6)),
        ("v > 100", 0, Skipped(by_statistics=6)),
        ("v IS NULL", 0, Skipped(by_statistics=6)),
        ("v = 5", 6, Skipped()),
    ],
)
def test_what_cannot_match_is_left_out(where: str, kept: int, skipped: Skipped) -> None:
    table = new_table(PARTITIONED, keys=["id", "p"], partitions=["p"], bucket="2")
    put(table, " | ".join(f"{n} {p} {n}" for p in "abc" for n in range(9)))
    plan = planned(table, where)

    assert (plan.files_kept, plan.files_total) == (kept, 6)
    assert plan.skipped == skipped


def test_value_predicate_spares_the_newest_row_of_a_key() -> None:
    table = new_table({"id": "INT NOT NULL", "v": "INT"})
    put(table, "1 5")
    put(table, "1 9")

    assert planned(table, "v = 5").files_kept == 2
    assert held(table, where="v = 5") == ""
    assert held(table, where="v = 9") == "1 9"


def test_value_predicate_spares_the_deletion_of_a_key() -> None:
    table = new_table({"id": "INT NOT NULL", "v": "INT"})
    put(table, "1 5")
    put(table, "-D 1 9")

    assert held(table, where="v = 5") == ""


def test_key_predicate_leaves_out_files_of_a_section() -> None:
    table = new_table()
    for line in ("1 a | 5 a", "2 b | 9 b", "1 c | 2 c"):
        put(table, line)
    plan = planned(table, "id = 9")

    assert (plan.files_kept, plan.skipped.by_statistics) == (1, 2)
    assert held(table, where="id = 9") == "9 b"
    assert held(table, where="id = 5") == "5 a"


def test_section_whose_rows_are_folded_is_not_left_out_for_its_stored_values() -> None:
    table = new_table({"id": "INT NOT NULL", "v": "INT"})
    put(table, "1 5")
    put(table, "1 6")
    context = table.context
    fold = context.options.__class__(merge_engine=MergeEngine.AGGREGATION)
    scan = ScanContext(
        history=context.history, schema=context.schema, options=fold, partitions=context.partitions
    )
    predicate = from_sql("v > 10", context.schema)

    assert planned(table, "v > 10").files_kept == 0
    assert plan_scan(scan, context.history.latest_snapshot(), predicate).files_kept == 2


@pytest.mark.parametrize("mode", ["none", "counts", "truncate(2)", "full"])
def test_rows_are_found_whatever_the_statistics(mode: str) -> None:
    columns = {"id": "STRING NOT NULL", "v": "STRING"}
    table = new_table(columns, metadata__stats_mode=mode)
    put(table, "abcd x | abce _")
    put(table, "b wxyz")

    for where, wanted in (
        ("id = 'abcd'", "abcd x"),
        ("id > 'abcd'", "abce _ | b wxyz"),
        ("v >= 'wxy'", "abcd x | b wxyz"),
        ("v IS NULL", "abce _"),
        ("v IS NOT NULL AND id < 'b'", "abcd x"),
    ):
        assert held(table, where=where) == wanted


def test_files_at_level_0_are_hidden_where_their_rows_are_not_settled() -> None:
    options: list[tuple[dict[str, Any], bool]] = [
        ({}, False),
        ({"deletion_vectors__enabled": "true"}, True),
        ({"deletion_vectors__enabled": "true", "deletion_vectors__merge_on_read": "true"}, False),
    ]
    for stated, hides in options:
        table = new_table(**stated)
        assert hides_level_0(table.schema, table.options) is hides
    append = new_table(keys=[], deletion_vectors__enabled="true")
    assert not hides_level_0(append.schema, append.options)
    table = new_table()
    put(table, "1 a")
    hiding = table.context.options.__class__(deletion_vectors_enabled=True)
    scan = ScanContext(
        history=table.context.history,
        schema=table.schema,
        options=hiding,
        partitions=table.context.partitions,
    )

    plan = plan_scan(scan, table.context.history.latest_snapshot())
    assert (plan.splits, plan.skipped) == ((), Skipped(hidden_level_0=1, hidden_rows=1))


def test_bytes_are_those_of_the_files_to_read() -> None:
    table = new_table(keys=[])
    put(table, "1 a")
    (split,) = planned(table).splits

    assert planned(table).size_bytes == split.files[0].size_bytes == split.size_bytes


def test_rows_are_found_in_buckets_of_the_key_as_it_was_before() -> None:
    table = new_table(
        {"id": "INT", "v": "INT"}, keys=(), bucket="4", bucket_key="id", store=MemoryStore()
    )
    ids = range(-20, 20)
    put(table, " | ".join(f"{number} 1" for number in ids))
    context = table.context
    # lakecore refuses such a change, Java makes it.
    key, value = context.schema.fields
    wider = replace(key, type=parse_type("BIGINT"))
    changed = replace(context.schema, id=1, fields=(wider, value))
    assert write_schema(context.store, context.layout, changed)
    newest = reopened(table)
    put(newest, " | ".join(f"{number} 2" for number in ids))

    for number in ids:
        assert held(newest, where=f"id = {number}") == f"{number} 1 | {number} 2"


def test_char_is_found_in_orc_whatever_blanks_were_hashed() -> None:
    texts = ["a", "ab", "abc"]
    table = new_table({"id": "CHAR(5) NOT NULL", "v": "INT"}, bucket="4", file__format="orc")
    table.write({"id": text.ljust(5), "v": 1} for text in texts)

    for text in texts:
        assert table.to_arrow(where=f"id = '{text}'").to_pylist() == [{"id": text, "v": 1}]


# --- many files ----------------------------------------------------------------------------------
# Of a table with many files, only columns of the manifests are kept; the answers are the same.


@pytest.fixture(params=[1_000, 0], ids=["small", "large"])
def _size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakecore.io.history._SMALL_ENTRIES", request.param)


@pytest.mark.usefixtures("_size")
def test_partitions_with_visible_files_are_those_that_match() -> None:
    table = new_table(
        PARTITIONED,
        keys=["id", "p"],
        partitions=["p"],
        deletion_vectors__enabled="true",
        bucket="-2",
    )
    put(table, "1 a 0 | 1 b 0 | 1 c 0")
    put(table.copy({"postpone.batch-write-fixed-bucket": "false"}), "1 d 0 | 1 a 0")
    put(table.copy({"write-only": "true"}), "1 e 0")
    source = reopened(table).context

    def partitions(where: str | None, **options: str) -> str:
        context = with_options(source, parse_options({**source.options.texts, **options}))
        predicate = None if where is None else from_sql(where, context.schema)
        latest = context.history.latest_snapshot()
        found = visible_partitions(scan_of(context), latest, predicate)
        return " ".join(sorted(map(context.partitions.path, found)))

    merged = {"deletion-vectors.merge-on-read": "true"}
    assert partitions(None) == "p=a p=b p=c"
    assert partitions(None, **merged) == "p=a p=b p=c p=e"
    assert partitions("p IN ('b', 'd', 'e')", **merged) == "p=b p=e"
    assert partitions("p > 'a' AND v = 9") == "p=b p=c"
    assert partitions("p = 'x'") == ""


@pytest.mark.usefixtures("_size")
def test_files_of_matching_partitions_are_found_among_all() -> None:
    table = new_table(PARTITIONED, keys=["id", "p"], partitions=["p"])
    for line in ("1 a 0 | 1 b 0", "1 c 0", "3 a 0"):
        put(table, line)

    def of(where: str | None) -> tuple[str, int]:
        context = reopened(table).context
        condition = None if where is None else from_sql(where, context.schema)
        latest = context.history.snapshot(3)
        found, total = live_files(context.history, context.partitions, latest, condition)
        return " ".join(context.partitions.path(each.partition) for each in found), total

    assert of(None) == ("p=a p=b p=c p=a", 4)
    assert of("p = 'a'") == ("p=a p=a", 4)
    assert of("p > 'a'") == ("p=b p=c", 4)


@pytest.mark.usefixtures("_size")
def test_files_of_buckets_are_found_with_and_without_partitions() -> None:
    for partitions in ([], ["p"]):
        table = new_table(PARTITIONED, keys=["id", "p"], partitions=partitions, bucket="2")
        put(table, " | ".join(f"{number} {p} 0" for number in range(9) for p in "ab"))
        context = reopened(table).context
        latest = context.history.snapshot(1)
        live = table.context.history.live_entries(latest)
        wanted = live[0].partition, live[0].bucket

        found = live_in(context.history, context.partitions, latest, [wanted])
        assert [(each.partition, each.bucket) for each in found] == [wanted]
