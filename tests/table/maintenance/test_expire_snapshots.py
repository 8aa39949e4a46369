from __future__ import annotations

from contextlib import suppress

import pytest

from lakecore.errors import CorruptTable, InvalidRequest, LakecoreError
from lakecore.io.stores.store import MemoryStore
from lakecore.model.retention import FilesDeleted
from tests.retention import (
    branch_at,
    consumer,
    copied,
    data_files,
    expire,
    files_read,
    history,
    names,
    tag,
)
from tests.stores import FailingStore, StoreFailure
from tests.tables import held, new_table, put, reopened, rows, with_options

NEVER = "2100-01-01"


def test_nothing_expires_by_default_within_an_hour() -> None:
    assert history().expire_snapshots().snapshots_expired == 0


def test_expired_snapshots_go_with_their_files() -> None:
    table = history()

    done = expire(table, 2)

    assert (done.snapshots_expired, done.earliest_snapshot_id) == (6, 7)
    assert table.context.history.snapshot_ids() == (7, 8)
    assert data_files(table) == files_read(table)
    assert held(reopened(table)) == "1 v8"


def test_manifests_of_expired_snapshots_go_and_those_in_use_stay() -> None:
    table = history()
    expire(table)
    past = table.context.history
    (last,) = past.snapshot_ids()
    snapshot = past.snapshot(last)
    used = {snapshot.base_manifest_list, snapshot.delta_manifest_list}
    used |= {manifest.name for manifest in past.manifests(snapshot)}

    left = {name for name in names(table) if name.startswith("manifest/")}

    assert left == {f"manifest/{name}" for name in used}


def test_hint_names_the_earliest_snapshot_left() -> None:
    table = history()
    expire(table, 3)

    assert table.context.store.read(table.context.layout.earliest_hint) == b"6"


def test_newest_are_kept_however_old_they_are() -> None:
    assert history(commits=12).expire_snapshots(older_than=NEVER).earliest_snapshot_id == 3


def test_a_snapshot_is_as_old_as_the_one_that_replaced_it() -> None:
    table = new_table()
    for number in range(3):
        put(table, f"1 v{number}")
        table.context.ambient.sleep(3600)
    second = table.context.history.snapshot(2).time_ms

    assert table.expire_snapshots(retain_min=1, older_than=second).snapshots_expired == 0
    assert table.expire_snapshots(retain_min=1, older_than=second + 1).earliest_snapshot_id == 2


def test_retain_max_expires_what_is_young() -> None:
    assert history().expire_snapshots(retain_max=3, retain_min=1).earliest_snapshot_id == 6


def test_a_call_is_bound_by_no_default_that_the_table_does_not_state() -> None:
    table = history(commits=60)

    stated = table.copy({"snapshot.expire.limit": "3"})
    assert stated.expire_snapshots(retain_max=2, dry_run=True).snapshots_expired == 3
    assert table.expire_snapshots(retain_max=2).snapshots_expired == 58


def test_one_call_expires_no_more_than_max_deletes() -> None:
    done = history().expire_snapshots(retain_min=1, older_than=NEVER, max_deletes=2)

    assert (done.snapshots_expired, done.earliest_snapshot_id) == (2, 3)


def test_age_may_be_a_span() -> None:
    table = history()
    table.context.ambient.sleep(7200)

    assert table.expire_snapshots(retain_min=1, older_than="3 h").snapshots_expired == 0
    assert table.expire_snapshots(retain_min=1, older_than="1 h").snapshots_expired == 7


def test_clock_that_went_back_expires_nothing() -> None:
    table = history()

    assert table.expire_snapshots(retain_min=1, older_than="1 h").snapshots_expired == 0


def test_dry_run_counts_and_deletes_nothing() -> None:
    table = history()
    before = names(table)
    would = expire(table, dry_run=True)

    assert names(table) == before
    assert (would.snapshots_expired, would.files.data_files) == (7, 7)
    assert expire(table).files == would.files


def test_files_of_a_tag_stay() -> None:
    table = history()
    tag(table, "keep", 4)
    expire(table)

    assert held(reopened(table), tag="keep") == "1 v4"
    assert data_files(table) == files_read(table)


def test_files_of_several_tags_stay_and_no_others() -> None:
    table = history()
    for name, number in (("a", 1), ("b", 4), ("c", 7)):
        tag(table, name, number)
    expire(table, 4)
    expire(table)

    assert [held(reopened(table), tag=name) for name in "abc"] == ["1 v1", "1 v4", "1 v7"]
    assert data_files(table) == files_read(table)


def test_files_of_a_tag_that_a_later_snapshot_still_has_stay() -> None:
    table = new_table()
    put(table, "1 a")
    put(table, "2 b")
    tag(table, "keep", 1)
    table.overwrite(rows(table.schema, "3 c"))
    expire(table)

    assert held(reopened(table), tag="keep") == "1 a"
    assert data_files(table) == files_read(table)


def test_snapshot_that_a_consumer_reads_next_stays() -> None:
    table = history()
    consumer(table, "job", 3)

    done = expire(table)

    assert (done.earliest_snapshot_id, done.held_by_consumer) == (3, "job")


def test_consumer_that_read_everything_holds_the_next_snapshot_only() -> None:
    table = history()
    consumer(table, "job", 9)

    assert expire(table).held_by_consumer is None


def test_unreadable_consumer_stops_the_expiry() -> None:
    table = history()
    table.context.store.put(table.context.layout.consumer("job"), b"{")

    with pytest.raises(CorruptTable, match="job"):
        expire(table)

    assert table.context.history.snapshot_ids()[0] == 1


def test_files_that_a_branch_reaches_stay() -> None:
    table = history()
    fork = branch_at(table, "b1", 2)
    expire(table)

    assert held(fork) == "1 v2"
    assert held(reopened(table)) == "1 v8"


def test_expiry_on_a_branch_leaves_what_main_reads() -> None:
    table = history(commits=2)
    fork = branch_at(table, "b1", 2)
    fork.overwrite(rows(table.schema, "1 forked"))
    expire(fork)

    assert held(fork) == "1 forked"
    assert [held(reopened(table), snapshot_id=each) for each in (1, 2)] == ["1 v1", "1 v2"]


def test_damaged_tag_stops_the_expiry() -> None:
    table = history()
    tag(table, "keep", 2)
    lost = table.context.history.snapshot(2).delta_manifest_list
    table.context.store.put(table.context.layout.manifest(lost), b"no list")
    before = names(table)

    with pytest.raises(CorruptTable):
        expire(reopened(table))

    assert names(table) == before


def test_data_files_that_an_unreadable_delta_deletes_stay() -> None:
    table = history(commits=3)
    context = table.context
    lost = context.history.snapshot(2).delta_manifest_list
    context.store.put(context.layout.manifest(lost), b"no list")
    before = context.history.live_entries(context.history.snapshot(1))

    done = expire(reopened(table))

    first = {f"bucket-0/{entry.file.name}" for entry in before}
    assert done.unreadable_snapshots == (2,)
    assert data_files(table) == first | files_read(reopened(table))
    assert held(reopened(table)) == "1 v3"


def test_a_file_that_only_changed_its_level_stays() -> None:
    table = new_table()
    put(table, "1 a")
    table.compact(full=True)
    (file,) = data_files(table)
    put(table, "2 b")
    expire(table)

    assert file in data_files(table)
    assert held(reopened(table)) == "1 a | 2 b"


def test_what_compactions_replaced_goes() -> None:
    table = new_table()
    for number in range(4):
        put(table, f"{number} a")
        table.compact(full=True)
    expire(table)

    assert len(data_files(table)) == 1
    assert held(reopened(table)) == "0 a | 1 a | 2 a | 3 a"


def test_changelog_files_go_with_their_snapshots() -> None:
    table = new_table(changelog_producer="input")
    for number in range(4):
        put(table, f"1 v{number}")

    assert expire(table).files.changelog_files == 3
    assert len({name for name in names(table) if "/changelog-" in name}) == 1


def test_index_files_of_expired_snapshots_go() -> None:
    table = new_table(bucket="-1")
    for number in range(3):
        put(table, f"{number} a")

    assert expire(table).files.index_files == 2
    assert len({name for name in names(table) if name.startswith("index/")}) == 1
    put(reopened(table), "1 b")
    assert held(reopened(table)) == "0 a | 1 b | 2 a"


def test_empty_directories_go_where_the_option_says_so() -> None:
    columns = {"id": "INT NOT NULL", "dt": "STRING NOT NULL"}
    table = new_table(
        columns, keys=("id", "dt"), partitions=("dt",), snapshot__clean_empty_directories="true"
    )
    store = table.context.store
    for partition in ("old", "new"):
        store.make_directory(f"{table.path}/dt={partition}/bucket-0")
        put(table, f"1 {partition}")
    table.drop_partition({"dt": "old"})
    expire(table)

    assert not store.exists(f"{table.path}/dt=old")
    assert held(reopened(table)) == "1 new"


def test_contradicting_numbers_are_refused() -> None:
    table = history(commits=1).copy({"snapshot.num-retained.min": "5"})

    with pytest.raises(InvalidRequest, match="give retain_min"):
        table.expire_snapshots(retain_max=3)
    with pytest.raises(InvalidRequest, match="retain_min"):
        table.expire_snapshots(retain_min=0)
    with pytest.raises(InvalidRequest, match="age"):
        table.expire_snapshots(older_than="3 moons")


def test_empty_table_has_nothing_to_expire() -> None:
    done = new_table().expire_snapshots()

    assert (done.snapshots_expired, done.earliest_snapshot_id) == (0, None)
    assert done.files == FilesDeleted()


@pytest.mark.parametrize("after", [False, True])
def test_crash_at_any_call_is_finished_by_the_next_run(*, after: bool) -> None:
    table = history(commits=5)
    tag(table, "keep", 1)
    memory = table.context.store
    whole = reopened(table, store=copied(memory))
    expire(whole)
    counted = FailingStore(copied(memory))
    expire(reopened(table, store=counted))

    assert len(counted.calls) > 8
    for call in range(1, len(counted.calls) + 1):
        inner = copied(memory)
        with suppress(StoreFailure, LakecoreError):
            expire(reopened(table, store=FailingStore(inner, fail_at=call, after=after)))
        again = reopened(table, store=inner)
        assert (held(again), held(again, tag="keep")) == ("1 v5", "1 v1")
        expire(again)
        assert names(again) == names(whole), call


def test_power_failure_that_brings_files_back_loses_nothing() -> None:
    table = history(commits=3)
    memory = table.context.store
    counted = FailingStore(copied(memory))
    expire(reopened(table, store=counted))
    for call in range(1, len(counted.calls) + 1):
        inner = copied(memory, renames_at_once=True)
        with suppress(StoreFailure, LakecoreError):
            expire(reopened(table, store=FailingStore(inner, fail_at=call, seed=call)))
        expire(reopened(table, store=inner))

        assert held(reopened(table, store=inner)) == "1 v3"


def test_options_of_the_table_are_the_default() -> None:
    table = history()
    with_options(table, snapshot__num_retained__min="1", snapshot__num_retained__max="2")

    assert reopened(table).expire_snapshots().earliest_snapshot_id == 7


def test_memory_store_keeps_a_directory_that_holds_a_file() -> None:
    store = MemoryStore()
    store.put("memory://w/d/f", b"")
    store.remove_empty_directory("memory://w/d")

    assert store.exists("memory://w/d/f")


def test_an_older_tag_keeps_its_files_after_a_fast_forward_to_another_history() -> None:
    table = history(commits=1)
    table.create_tag("old")
    table.create_branch("b1", tag="old")
    branch = table.branch("b1")
    for text in ("2 b", "3 c"):
        put(branch, text)
    expire(branch)
    table.overwrite(rows(table.schema, "5 e"))
    table.create_tag("other")
    table.fast_forward("b1")
    table.delete_branch("b1")
    table.overwrite(rows(table.schema, "9 z"))
    expire(table)

    assert table.to_arrow(tag="old").to_pylist() == [{"id": 1, "v": "v1"}]
    assert table.to_arrow(tag="other").to_pylist() == [{"id": 5, "v": "e"}]
