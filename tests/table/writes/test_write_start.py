"""What a writer reads of a large table: the manifests of the partitions that it touches."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from lakecore.io import history as history_module
from lakecore.table.writes import write_start
from lakecore.table.writes.write_start import overwritten_since, read_start
from tests.stores import ReadCounter
from tests.tables import held, new_table, reopened, rows

if TYPE_CHECKING:
    from lakecore.table.handle import Table

COLUMNS = {"id": "INT NOT NULL", "v": "STRING", "p": "STRING NOT NULL"}


@pytest.fixture(autouse=True)
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each table counts as large."""
    monkeypatch.setattr(history_module, "_SMALL_ENTRIES", 0)


def table_of(*partitions: str) -> Table:
    """A table with a commit for each partition."""
    table = new_table(
        COLUMNS,
        keys=["id", "p"],
        partitions=["p"],
        bucket="2",
        write_only="true",
        manifest__merge_min_count="100",
    )
    for partition in partitions:
        table.write(rows(table.schema, f"1 a {partition} | 2 b {partition}"))
    return table


def manifests_read(store: ReadCounter) -> set[str]:
    return {name for name in store.reads if name.startswith("manifest-") and "list" not in name}


def test_a_write_reads_the_manifests_of_its_partitions() -> None:
    written = table_of("x", "y", "z")
    store = ReadCounter(written.context.store)
    table = reopened(written, store=store)
    table.write(rows(table.schema, "1 c y"))

    assert len(manifests_read(store)) == 1
    store.reads.clear()
    other = reopened(written, store=store)
    other.overwrite(rows(table.schema, "3 d z"), partition={"p": "z"})
    assert held(other) == "1 a x | 1 c y | 2 b x | 2 b y | 3 d z"


def test_facts_of_a_large_table_are_those_of_all_its_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = table_of(*(f"p{number}" for number in range(20)))
    snapshot = table.context.history.latest_snapshot()
    large = read_start(table.context, snapshot)
    one_by_one = {key: large.sequences[key] for key in large.sequences}
    copied = pickle.loads(pickle.dumps(large))
    monkeypatch.setattr(history_module, "_SMALL_ENTRIES", 1_000)
    small = read_start(table.context, snapshot)

    assert one_by_one == small.sequences
    assert copied == small
    assert dict(large.bucket_counts) == small.bucket_counts
    assert large.sequences.get((b"unknown", 0), -1) == -1


def test_facts_of_many_partitions_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_start, "_ONE_BY_ONE_MAX", 2)
    written = table_of("v", "w", "x", "y", "z")
    expected = dict(read_start(written.context, written.context.history.snapshot(5)).bucket_counts)
    store = ReadCounter(written.context.store)
    table = reopened(written, store=store)
    facts = read_start(table.context, table.context.history.snapshot(5)).bucket_counts
    read = []
    for partition in expected:
        assert facts[partition] == 2
        read.append(len(manifests_read(store)))

    assert read == [1, 2, 5, 5, 5]
    again = reopened(written).context
    assert len(read_start(again, again.history.snapshot(5)).bucket_counts) == 5


def test_rows_may_have_gone_if_the_table_was_or_is_empty() -> None:
    table = table_of()
    empty = read_start(table.context, None)
    assert not overwritten_since(table.context, empty)

    table.write(rows(table.schema, "1 a x"))
    first = read_start(table.context, table.context.history.snapshot(1))
    assert overwritten_since(table.context, empty)
    assert not overwritten_since(table.context, first)
    table.context.store.delete(table.context.layout.snapshot(1))
    table.context.store.delete(table.context.layout.latest_hint)
    assert overwritten_since(reopened(table).context, first)


def test_facts_of_a_partition_come_from_a_later_snapshot_if_theirs_has_expired() -> None:
    table = table_of("x", "y")
    first = table.context.history.snapshot(1)
    start = read_start(reopened(table).context, first)
    (partition,) = read_start(table.context, first).bucket_counts
    table.write(rows(table.schema, "3 c x"))
    table.compact_manifests()
    table.expire_snapshots(retain_max=1, retain_min=1)
    latest = table.context.history.latest_snapshot()

    assert start.bucket_counts[partition] == 2
    assert start.sequences == dict(read_start(table.context, latest).sequences)
