from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import CorruptTable, InvalidRequest, LakecoreError, NotFound
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
from tests.stores import FailingStore, MeddledStore, StoreFailure
from tests.tables import held, new_table, put, reopened, rows, with_options

if TYPE_CHECKING:
    from lakecore.table.handle import Table


def reached(table: Table) -> set[str]:
    """All files that the snapshots and tags of a table without indexes need."""
    past = table.context.history
    states = [past.snapshot(number) for number in past.snapshot_ids()]
    states += [past.tag(name).snapshot for name in past.tag_names()]
    found = {f"snapshot/snapshot-{number}" for number in past.snapshot_ids()}
    found |= {f"tag/tag-{name}" for name in past.tag_names()}
    for each in states:
        found |= {f"manifest/{each.base_manifest_list}", f"manifest/{each.delta_manifest_list}"}
        found |= {f"manifest/{manifest.name}" for manifest in past.manifests(each)}
    found |= {"snapshot/EARLIEST", "snapshot/LATEST", "schema/schema-0"}
    return found | files_read(table)


def test_rolled_back_table_is_as_it_was() -> None:
    table = history()

    done = table.rollback_to(3)

    assert (done.snapshot_id, done.previous_snapshot_id, done.snapshots_removed) == (3, 8, 5)
    again = reopened(table)
    assert (held(again), again.context.history.snapshot_ids()) == ("1 v3", (1, 2, 3))
    assert names(again) == reached(again)
    assert done.files.data_files == 5


def test_commits_go_on_from_the_snapshot() -> None:
    table = history()
    table.rollback_to(snapshot_id=3)

    assert put(table, "2 x") == 4
    assert held(reopened(table)) == "1 v3 | 2 x"
    assert held(reopened(table), snapshot_id=2) == "1 v2"


def test_rollback_to_a_time() -> None:
    table = new_table()
    for number in range(3):
        put(table, f"1 v{number}")
        table.context.ambient.sleep(60)
    second = table.context.history.snapshot(2).time_ms

    assert table.rollback_to(timestamp=second + 1).snapshot_id == 2
    with pytest.raises(NotFound, match=r"is that old\. time"):
        table.rollback_to(timestamp=0)
    put(table, "1 v3")
    table.expire_snapshots(retain_max=1, retain_min=1)
    with pytest.raises(NotFound, match=r"is that old; the option snapshot\.time-retained"):
        table.to_polars(timestamp=second)


def test_rollback_to_a_tag() -> None:
    table = history()
    tag(table, "good", 5)

    assert table.rollback_to(tag="good").snapshot_id == 5
    assert held(reopened(table)) == "1 v5"
    assert table.context.history.tag_names() == ("good",)


def test_tag_older_than_the_earliest_snapshot_comes_back() -> None:
    table = history()
    tag(table, "old", 2)
    expire(table, 2)

    done = table.rollback_to(tag="old")

    again = reopened(table)
    assert (done.snapshot_id, done.snapshots_removed) == (2, 2)
    assert (held(again), again.context.history.snapshot_ids()) == ("1 v2", (2,))
    assert names(again) == reached(again)
    assert put(again, "2 x") == 3


def test_snapshot_that_only_a_tag_keeps_is_found_by_its_id() -> None:
    table = history()
    tag(table, "old", 2)
    expire(table, 2)

    assert table.rollback_to(snapshot_id=2).snapshot_id == 2
    assert held(reopened(table)) == "1 v2"


@pytest.mark.parametrize("left", [1, 3])
def test_the_error_beside_an_expiry_that_died_names_the_call_that_ends_it(left: int) -> None:
    table = history()
    tag(table, "kept", 3)
    store = FailingStore(table.context.store, 3)
    with suppress(StoreFailure, LakecoreError):
        reopened(table, store=store).expire_snapshots(retain_max=left, retain_min=left)
    table = reopened(table)
    assert table.context.history.snapshot_ids() == tuple(range(9 - left, 9))

    with pytest.raises(
        NotFound, match=rf"expire_snapshots\(retain_max={left}, retain_min={left}\)"
    ):
        table.rollback_to(3)
    table.expire_snapshots(retain_max=left, retain_min=left)
    table.rollback_to(3)

    assert held(reopened(table)) == "1 v3"


def test_later_tags_go_and_earlier_ones_stay() -> None:
    table = history()
    for name, number in (("early", 1), ("here", 3), ("late", 6), ("last", 8)):
        tag(table, name, number)

    done = table.rollback_to(3)

    again = reopened(table)
    assert done.tags_removed == ("late", "last")
    assert again.context.history.tag_names() == ("early", "here")
    assert names(again) == reached(again)


def test_later_tag_of_an_expired_snapshot_goes_with_its_files() -> None:
    table = history()
    tag(table, "old", 2)
    tag(table, "late", 4)
    expire(table, 2)

    table.rollback_to(tag="old")

    again = reopened(table)
    assert names(again) == reached(again)
    assert held(again) == "1 v2"


def test_files_that_changed_their_level_stay() -> None:
    table = new_table()
    put(table, "1 a")
    table.compact(full=True)
    put(table, "2 b")
    table.compact(full=True)
    table.rollback_to(1)

    again = reopened(table)
    assert held(again) == "1 a"
    assert names(again) == reached(again)


def test_changelog_files_of_later_snapshots_go() -> None:
    table = new_table(changelog_producer="input")
    for number in range(3):
        put(table, f"1 v{number}")

    assert table.rollback_to(1).files.changelog_files == 2
    assert len({name for name in names(table) if "/changelog-" in name}) == 1


def test_files_of_a_branch_stay() -> None:
    table = history()
    fork = branch_at(table, "b1", 6)
    table.rollback_to(2)

    assert held(fork) == "1 v6"
    assert held(reopened(table)) == "1 v2"


def test_files_stay_of_a_branch_whose_first_number_follows_the_last_of_another() -> None:
    table = new_table(write_only="true")
    for number in range(1, 7):
        put(table, f"{number} v{number}")
    for number in (13, 14, 15):
        put(branch_at(table, "b1", 2), f"{number} v{number}")
    fork = branch_at(table, "b2", 6)
    before = held(fork)

    table.rollback_to(snapshot_id=4)

    assert held(reopened(table).branch("b2")) == before


def test_consumers_that_are_ahead_are_named() -> None:
    table = history()
    for name, number in (("behind", 2), ("next", 4), ("ahead", 7)):
        consumer(table, name, number)

    assert table.rollback_to(3).consumers_ahead == ("ahead",)


def test_unreadable_consumer_is_an_error_before_anything_changes() -> None:
    table = history()
    table.context.store.put(table.context.layout.consumer("job"), b"{")

    with pytest.raises(CorruptTable, match="job"):
        table.rollback_to(3)

    assert table.context.history.latest_snapshot_id() == 8


def test_dry_run_changes_nothing() -> None:
    table = history()
    tag(table, "late", 8)
    before = names(table)
    would = table.rollback_to(3, dry_run=True)

    assert names(table) == before
    assert (would.snapshots_removed, would.tags_removed) == (5, ("late",))
    assert table.rollback_to(3).files == would.files


def test_rollback_to_the_latest_changes_nothing() -> None:
    table = history()
    before = names(table)

    assert table.rollback_to(8).snapshots_removed == 0
    assert names(table) == before


def test_what_is_not_there_is_one_clear_error() -> None:
    table = history()
    expire(table, 3)

    with pytest.raises(NotFound, match=r"snapshot_id=2 live=6\.\.8"):
        table.rollback_to(2)
    with pytest.raises(NotFound, match="no such tag"):
        table.rollback_to(tag="none")
    with pytest.raises(InvalidRequest, match="name the target of the rollback"):
        table.rollback_to()
    with pytest.raises(InvalidRequest, match="one way only"):
        table.rollback_to(6, tag="none")
    with pytest.raises(NotFound, match="no snapshot"):
        new_table().rollback_to(1)


def test_a_target_that_cannot_be_read_is_refused() -> None:
    table = history()
    lost = table.context.history.snapshot(3).delta_manifest_list
    table.context.store.put(table.context.layout.manifest(lost), b"no list")
    before = names(table)

    with pytest.raises(CorruptTable):
        reopened(table).rollback_to(3)

    assert names(table) == before


def test_damaged_latest_snapshot_can_be_left_behind() -> None:
    table = history()
    lost = table.context.history.snapshot(8).delta_manifest_list
    table.context.store.put(table.context.layout.manifest(lost), b"no list")

    reopened(table).rollback_to(7)

    assert held(reopened(table)) == "1 v7"


def test_unreadable_state_that_stays_keeps_all_files() -> None:
    table = history()
    lost = table.context.history.snapshot(1).delta_manifest_list
    table.context.store.put(table.context.layout.manifest(lost), b"no list")
    before = data_files(table)

    assert not reopened(table).rollback_to(3).is_complete
    assert data_files(table) == before
    assert held(reopened(table)) == "1 v3"


@pytest.mark.parametrize("after", [False, True])
def test_crash_at_any_call_is_finished_by_the_next_rollback(*, after: bool) -> None:
    table = history(commits=5)
    tag(table, "good", 2)
    tag(table, "late", 4)
    expire(table, 2)
    memory = table.context.store
    whole = reopened(table, store=copied(memory))
    whole.rollback_to(tag="good")
    counted = FailingStore(copied(memory))
    reopened(table, store=counted).rollback_to(tag="good")

    assert len(counted.calls) > 15
    for call in range(1, len(counted.calls) + 1):
        inner = copied(memory)
        failing = FailingStore(inner, fail_at=call, after=after)
        with suppress(StoreFailure, LakecoreError):
            reopened(table, store=failing).rollback_to(tag="good")
        assert failing.is_dead
        again = reopened(table, store=inner)
        assert held(again) in {"1 v5", "1 v2"}
        again.rollback_to(tag="good")
        assert held(reopened(table, store=inner)) == "1 v2"
        assert names(again) == names(whole), call


def test_commit_after_a_crash_stays() -> None:
    table = history(commits=5)
    memory = table.context.store
    counted = FailingStore(copied(memory))
    reopened(table, store=counted).rollback_to(2)
    for call in range(2, len(counted.calls) + 1):
        inner = copied(memory)
        with suppress(StoreFailure, LakecoreError):
            reopened(table, store=FailingStore(inner, fail_at=call)).rollback_to(2)
        again = reopened(table, store=inner)
        before = held(again)
        number = put(again, "2 new")
        assert number is not None
        again.rollback_to(number)  # finishes the one that died, and goes nowhere itself

        assert held(reopened(table, store=inner)) == f"{before} | 2 new"
        left = reopened(table, store=inner)
        assert names(left) == reached(left)


def test_commit_on_top_of_the_target_stays() -> None:
    table = history(commits=4)
    inner = table.context.store

    class Meddled(MeddledStore):
        def delete(self, path: str) -> None:
            super().delete(path)
            if path.endswith("snapshot-4") and self.deeds:  # this decides
                self.deeds.pop(0)()

    other = reopened(table)
    meddled = Meddled(inner, lambda: put(other, "2 new"))
    reopened(table, store=meddled).rollback_to(2)

    assert held(reopened(table)) == "1 v2 | 2 new"
    assert names(table) == reached(reopened(table))


def test_commit_on_top_of_a_removed_snapshot_goes_with_it() -> None:
    table = history(commits=4)
    other = reopened(table)

    class Meddled(MeddledStore):
        def delete(self, path: str) -> None:
            if path.endswith("snapshot-4") and self.deeds:
                self.deeds.pop(0)()
            super().delete(path)

    meddled = Meddled(table.context.store, lambda: put(other, "2 new"), lambda: None)
    reopened(table, store=meddled).rollback_to(2)

    again = reopened(table)
    assert (held(again), again.context.history.snapshot_ids()) == ("1 v2", (1, 2))
    assert names(again) == reached(again)


def test_record_that_was_not_written_to_its_end_is_no_rollback() -> None:
    table = history()
    path = table.context.layout.rollback_record
    table.context.store.put(path, b"{")
    table.rollback_to(3)

    assert held(reopened(table)) == "1 v3"
    assert not table.context.store.exists(path)


def test_success_file_of_a_tag_goes_with_it() -> None:
    table = history().copy({"tag.create-success-file": "true"})
    table.create_tag("early", 2)
    table.create_tag("late", 5)
    table.rollback_to(3)

    assert {name for name in names(table) if "success" in name} == {
        "tag/tag-success-file/early_SUCCESS"
    }


@pytest.mark.parametrize("expired", [False, True])
def test_changelogs_of_later_snapshots_go(*, expired: bool) -> None:
    table = new_table(changelog_producer="input", num_sorted_run__compaction_trigger="100")
    with_options(
        table,
        snapshot__num_retained__min="1",
        snapshot__num_retained__max="1",
        changelog__num_retained__min="1",
        changelog__num_retained__max="100",
    )
    table = reopened(table)
    for number in range(1, 7):
        put(table, f"1 v{number}")
        if number == 3:
            table.create_tag("good")
    context = table.context
    store, layout = context.store, context.layout
    if expired:
        third = store.read(layout.changelog(3))
        table.expire_changelogs(retain_max=3, retain_min=1)
        store.put(layout.changelog(3), third)  # as an expiry that died leaves it
    assert context.history.changelog_ids() == ((4, 5) if expired else (1, 2, 3, 4, 5))

    table.rollback_to(tag="good")
    assert held(reopened(table)) == "1 v3"
    left = {name for name in names(table) if name.startswith("changelog/")}
    if expired:
        assert left == set()
    else:
        assert left == {
            f"changelog/{each}" for each in ("changelog-1", "changelog-2", "changelog-3", "LATEST")
        }
        assert store.read(layout.changelog_latest_hint) == b"3"


def test_overwritten_rows_come_back() -> None:
    table = new_table()
    put(table, "1 a | 2 b")
    table.overwrite(rows(table.schema, "9 z"))
    table.rollback_to(1)

    assert held(reopened(table)) == "1 a | 2 b"


def test_an_expiry_first_finishes_a_rollback_that_died() -> None:
    table = history(commits=5)
    dying = reopened(table, store=FailingStore(table.context.store, 2))
    with suppress(StoreFailure):
        dying.rollback_to(2)
    expire(table, least=1)

    assert table.context.history.snapshot_ids() == (2,)
    assert held(table) == "1 v2"
