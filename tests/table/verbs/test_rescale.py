"""Rescale: partitions get another number of buckets, in one commit, and no row changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lakecore.errors import (
    CommitConflict,
    CorruptTable,
    InvalidRequest,
    LakecoreError,
    NotFound,
    StorageError,
)
from lakecore.table.commits.commit import CommitRequest, commit
from lakecore.table.verbs.rescale import RescaleRequest, one_by_one, rescale_table
from lakecore.table.writes.batch_write import nothing
from lakecore.table.writes.write import TableWrite
from lakecore.table.writes.write_start import WriteStart
from tests.retention import data_files
from tests.stores import FailingStore, MeddledStore
from tests.tables import held, in_directory, new_table, put, reopened, with_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.files import CommitMessage
    from lakecore.table.context import TableContext
    from lakecore.table.handle import Table
    from lakecore.table.verbs.rescale import RescalePart

PARTED = {"id": "INT NOT NULL", "v": "STRING", "p": "STRING"}


def counts(table: Table) -> dict[str, set[int]]:
    """The bucket counts of the files of each partition."""
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    found: dict[str, set[int]] = {}
    for entry in table.context.history.live_entries(snapshot):
        name = "/".join(table.context.partitions.texts(entry.partition).values())
        found.setdefault(name, set()).add(entry.total_buckets)
    return found


def empty(**options: Any) -> Table:
    return new_table(PARTED, keys=["id", "p"], partitions=["p"], **{"bucket": "2", **options})


def parted(**options: Any) -> Table:
    table = empty(**options)
    put(table, " | ".join(f"{number} x{number} {p}" for number in range(12) for p in "ab"))
    return table


def altered(table: Table, **options: str) -> Table:
    with_options(table, **options)
    return reopened(table)


def test_partition_keeps_its_bucket_count_until_it_is_rescaled() -> None:
    table = altered(parted(), bucket="5")
    before = held(table)

    with pytest.raises(InvalidRequest, match="another number of buckets"):
        put(table, "1 new a")
    put(table, "1 new c")
    assert counts(table) == {"a": {2}, "b": {2}, "c": {5}}

    result = table.rescale(partition={"p": "a"})
    assert counts(table) == {"a": {5}, "b": {2}, "c": {5}}
    assert (len(result.snapshot_ids), result.rows) == (1, 12)
    put(table, "1 new a")
    assert held(table) == before.replace("1 x1 a", "1 new a | 1 new c", 1)


def test_number_of_buckets_may_differ_from_the_option() -> None:
    table = parted()
    before = held(table)
    table.rescale(bucket_num=7, where="p = 'b'")

    assert counts(table) == {"a": {2}, "b": {7}}
    assert held(table) == before
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    assert (snapshot.commit_kind, snapshot.operation) == ("OVERWRITE", "OVERWRITE")
    assert table.scan(where="id = 3").collect().height == 2


def test_option_fits_the_buckets_of_all_partitions(caplog: pytest.LogCaptureFixture) -> None:
    table = parted()
    part = table.rescale(bucket_num=3, partition={"p": "a"})
    assert part.facts == {"buckets": 3, "option_bucket": 2}
    assert "set it, and rescale the other partitions" in caplog.text
    caplog.clear()

    whole = table.rescale(bucket_num=3)
    assert whole.facts == {"buckets": 3, "option_bucket": 3}
    put(table, "1 new a | 1 new b | 1 new c")
    put(reopened(table), "2 new a | 2 new b | 2 new c")
    assert counts(table) == {"a": {3}, "b": {3}, "c": {3}}

    with_options(table, bucket="2")  # as if the process had ended before the option was set
    assert table.rescale(bucket_num=3).facts["option_bucket"] == 3
    assert reopened(table).options.bucket == 3
    assert not caplog.text


def test_each_new_bucket_is_one_run_at_the_last_level() -> None:
    table = parted()
    put(table, "1 newer a | -D 2 x2 a")
    before = held(table)
    table.rescale(bucket_num=3)

    assert set(table.inspect.files()["level"]) == {5}
    assert held(table) == before
    table.compact(full=True)
    assert held(table) == before


def test_rescaled_partition_is_left_alone() -> None:
    table = parted()
    table.rescale(bucket_num=3, partition=[{"p": "a"}])
    again = table.rescale(bucket_num=3)

    assert counts(table) == {"a": {3}, "b": {3}}
    assert again.rows == 12
    assert table.rescale(bucket_num=3).snapshot_ids == ()
    assert new_table(bucket="2").rescale(bucket_num=3).snapshot_ids == ()


@pytest.mark.parametrize(
    "options",
    [
        {"merge_engine": "aggregation", "fields__v__aggregate-function": "listagg"},
        {"merge_engine": "partial-update"},
        {"merge_engine": "first-row"},
        {"deletion_vectors__enabled": "true"},
        {"deletion_vectors__enabled": "true", "write_only": "true"},
        {"merge_engine": "first-row", "write_only": "true"},
        {"changelog_producer": "input"},
        {"changelog_producer": "lookup"},
        {"sequence__field": "v"},
    ],
    ids=str,
)
@pytest.mark.sampled(2)
def test_rows_stay_under_every_merge_engine(options: dict[str, Any]) -> None:
    table = parted(**options)
    put(table, "1 more a | 2 again b | 40 new a")
    merged = empty(**options)
    put(merged, " | ".join(f"{number} x{number} {p}" for number in range(12) for p in "ab"))
    put(merged, "1 more a | 2 again b | 40 new a")
    reopened(merged).copy({"write-only": "false"}).compact(full=True)
    table.rescale(bucket_num=5)

    assert counts(table) == {"a": {5}, "b": {5}}
    assert held(table) == held(merged)
    assert "40 new a" in held(table)


def test_marked_rows_do_not_come_back() -> None:
    table = parted(deletion_vectors__enabled="true")
    put(table, "-D 1 x1 a | 2 newer a")
    before = held(table)
    table.rescale(bucket_num=1)

    assert held(table) == before
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    assert not table.context.history.index_entries(snapshot)


def test_partition_with_two_numbers_is_rewritten_as_a_whole() -> None:
    table = altered(parted(), bucket="5")
    # Java checks the number only against the bucket that it writes to.
    foreign = WriteStart(snapshot=None, bucket_counts={}, sequences={})
    with TableWrite(table.context, base=foreign) as writer:
        writer.write([{"id": 70, "v": "new", "p": "a"}])
        messages = writer.prepare_commit()
    commit(table.context, CommitRequest(messages=messages, user="java", overwrite=nothing))
    assert counts(table)["a"] == {2, 5}
    before = held(table)
    table.rescale()

    assert counts(table) == {"a": {5}, "b": {5}}
    assert held(table) == before
    assert set(table.inspect.files()["level"]) == {5}


def test_rows_without_a_key_stay_in_the_order_of_their_bucket_key() -> None:
    table = new_table(keys=[], bucket="2", bucket_key="id")
    put(table, "1 a | 2 b | 1 c")
    put(table, "1 d | 3 e")
    before = held(table)
    table.rescale(bucket_num=4)

    rows = table.to_polars()
    assert held(table) == before
    assert rows.filter(rows["id"] == 1)["v"].to_list() == ["a", "c", "d"]


def test_kinds_and_defaults_are_not_applied_again() -> None:
    table = new_table(
        {"id": "INT NOT NULL", "k": "STRING", "v": "STRING"}, bucket="2", rowkind__field="k"
    )
    put(table, "1 +U a | 2 +I _")
    with_options(table, fields__v__default_value="x")
    table = reopened(table)
    table.rescale(bucket_num=3)

    assert held(table) == "1 +U a | 2 +I _"


def test_changes_of_others_are_not_lost() -> None:
    table = parted()
    other = reopened(table)
    store = MeddledStore(table.context.store, lambda: put(other, "99 late b"))
    mine = reopened(table, store=store)

    with pytest.raises(CommitConflict, match="another commit changed a partition"):
        mine.rescale(bucket_num=3)
    assert "99 late b" in held(table)
    assert counts(table) == {"a": {2}, "b": {2}}
    assert all(len(in_directory(table, f"p={p}/bucket-2")) == 0 for p in "ab")


def test_changes_of_other_partitions_are_no_conflict() -> None:
    table = parted()
    other = reopened(table)
    store = MeddledStore(table.context.store, lambda: put(other, "99 late b"))
    mine = reopened(table, store=store)
    mine.rescale(bucket_num=3, partition={"p": "a"})

    assert counts(table) == {"a": {3}, "b": {2}}
    assert "99 late b" in held(table)


def test_wrong_arguments_are_refused() -> None:
    table = parted()
    for wrong in (0, -1, True, "4", 2.0):
        with pytest.raises(InvalidRequest, match="bucket_num is a whole number"):
            table.rescale(bucket_num=wrong)  # type: ignore[arg-type]
    with pytest.raises(NotFound, match="no data files"):
        table.rescale(bucket_num=3, partition={"p": "nowhere"})
    with pytest.raises(InvalidRequest, match="not a partition key"):
        table.rescale(bucket_num=3, partition={"id": 1})
    with pytest.raises(InvalidRequest, match="partition keys only"):
        table.rescale(bucket_num=3, where="id = 1")
    with pytest.raises(InvalidRequest, match="no fixed number"):
        new_table(bucket="-1").rescale(bucket_num=2)


def test_a_crash_at_any_call_leaves_the_rows() -> None:
    at, done = 1, False
    while not done:
        table = parted()
        before = held(table)
        store = FailingStore(table.context.store, at, after=at % 2 == 0)
        try:
            reopened(table, store=store).rescale(bucket_num=3)
        except (OSError, LakecoreError):
            at += 1
        else:
            done = not store.is_dead
            at += 1
        assert held(reopened(table)) == before
        assert counts(reopened(table)) in ({"a": {2}, "b": {2}}, {"a": {3}, "b": {3}})

    assert at > 5


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_rows_that_streams_have_yet_to_see_are_compacted_first(producer: str) -> None:
    table = empty(changelog_producer=producer, write_only="true")
    put(table, "1 a a")
    reopened(table).copy({"write-only": "false"}).compact(full=True)
    put(table, "1 b a | 2 c a")
    table = altered(table, bucket="3", write_only="false")
    with pytest.raises(InvalidRequest, match=r"compact\(full=True\) before the rescale"):
        table.rescale()
    assert counts(table) == {"a": {2}}

    table.compact(full=True)
    table.rescale()

    assert counts(table) == {"a": {3}}
    assert held(table) == "1 b a | 2 c a"
    kinds = table.changes().collect().sort("id", maintain_order=True)["_row_kind"].to_list()
    assert kinds == ["+I", "-U", "+U", "+I"]


# --- parts of others -----------------------------------------------------------------------------


def test_parts_have_the_bytes_of_their_files() -> None:
    table = parted()
    seen: list[int] = []

    def run(context: TableContext, parts: Sequence[RescalePart]) -> Sequence[CommitMessage]:
        seen.extend(part.size_bytes for part in parts)
        return one_by_one(context, parts)

    before = table.inspect.files()["file_size_in_bytes"].sum()
    rescale_table(table.context, RescaleRequest(bucket_num=4), run=run)
    assert (sum(seen), len(seen)) == (before, 4)


def test_bucket_that_two_parts_wrote_is_not_committed() -> None:
    table = parted()
    shown, before = held(table), data_files(table)

    def run(context: TableContext, parts: Sequence[RescalePart]) -> Sequence[CommitMessage]:
        return [*one_by_one(context, parts), *one_by_one(context, parts)]

    with pytest.raises(AssertionError, match="two parts"):
        rescale_table(table.context, RescaleRequest(bucket_num=4), run=run)
    assert (held(reopened(table)), data_files(table)) == (shown, before)


def test_state_that_was_rolled_back_meanwhile_is_not_rescaled() -> None:
    table = parted()
    put(table, "99 x b")

    def run(context: TableContext, parts: Sequence[RescalePart]) -> Sequence[CommitMessage]:
        messages = one_by_one(context, parts)
        reopened(table).rollback_to(1)
        return messages

    request = RescaleRequest(bucket_num=4, partitions=[{"p": "a"}])
    with pytest.raises(CommitConflict, match="was rolled back"):
        rescale_table(table.context, request, run=run)
    assert counts(reopened(table)) == {"a": {2}, "b": {2}}


def test_files_of_a_part_that_fails_go(monkeypatch: pytest.MonkeyPatch) -> None:
    table = parted()
    before = data_files(table)

    def fails(*_: object) -> bool:
        raise CorruptTable("the keys of a file cannot be read")

    monkeypatch.setattr("lakecore.table.writes.batch_write._is_one_run", fails)
    with pytest.raises(CorruptTable):
        table.rescale(bucket_num=4)
    assert data_files(table) == before


def test_option_that_cannot_be_set_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = parted()

    def fails(*_: object, **__: object) -> object:
        raise StorageError("no space left")

    monkeypatch.setattr("lakecore.table.verbs.rescale.evolve", fails)
    assert table.rescale(bucket_num=3).facts == {"buckets": 3, "option_bucket": 2}
    assert caplog.text.count("the option bucket was not set") == 1
