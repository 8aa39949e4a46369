from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import LakecoreError, NotFound
from lakecore.options import parse_options
from lakecore.table.changes.starts import retained_changes
from lakecore.table.maintenance.expire_snapshots import keeps_changelogs
from property_tests.profile import calls_of
from tests.retention import consumer, copied, data_files, expire, files_read, names, tag
from tests.stores import FailingStore, StoreFailure
from tests.tables import changed, held, new_table, put, reopened, with_options

if TYPE_CHECKING:
    from lakecore.table.handle import Table

NEVER = "2100-01-01"


def long_lived(commits: int = 5, producer: str = "none") -> Table:
    """A table that keeps one snapshot, and the changelogs of all."""
    table = new_table(changelog_producer=producer, num_sorted_run__compaction_trigger="100")
    with_options(
        table,
        snapshot__num_retained__min="1",
        snapshot__num_retained__max="1",
        changelog__num_retained__min="1",
        changelog__num_retained__max="100",
    )
    table = reopened(table)
    for number in range(commits):
        put(table, f"{number % 2} v{number}")
    return table


@pytest.mark.parametrize(
    ("options", "longer"),
    [
        ({}, False),
        ({"num-retained.max": "20"}, False),
        ({"num-retained.max": "21"}, True),
        ({"num-retained.min": "10"}, False),
        ({"num-retained.min": "11"}, True),
        ({"time-retained": "60 min"}, False),
        ({"time-retained": "61 min"}, True),
    ],
)
def test_changelogs_live_longer_if_an_option_keeps_more(
    options: dict[str, str], *, longer: bool
) -> None:
    changelog = {f"changelog.{key}": text for key, text in options.items()}
    parsed = parse_options({"snapshot.num-retained.max": "20", **changelog})

    assert keeps_changelogs(parsed) is longer


def kept(table: Table) -> tuple[int, ...]:
    return table.context.history.changelog_ids()


@pytest.mark.parametrize("producer", ["none", "input"])
def test_changes_of_expired_snapshots_are_read(producer: str) -> None:
    table = long_lived(producer=producer)

    assert (table.context.history.snapshot_ids(), kept(table)) == ((5,), (1, 2, 3, 4))
    assert changed(reopened(table).changes(0)) == (
        "+I 0 v0 | +I 1 v1 | +I 0 v2 | +I 1 v3 | +I 0 v4"
    )
    assert table.context.store.read(table.context.layout.changelog_latest_hint) == b"4"
    assert held(reopened(table)) == "0 v4 | 1 v3"


def test_hints_of_changelogs_are_repaired() -> None:
    table = long_lived()
    layout, store = table.context.layout, table.context.store
    hints = layout.changelog_earliest_hint, layout.changelog_latest_hint
    for hint in hints:
        store.put(hint, b"9")

    assert reopened(table).repair_hints() == (5, 5)
    assert [store.read(hint) for hint in hints] == [b"1", b"4"]


def test_files_that_were_compacted_away_stay_for_their_changelog() -> None:
    table = long_lived()
    table.compact(full=True)

    assert changed(reopened(table).changes(0, 5)) == (
        "+I 0 v0 | +I 1 v1 | +I 0 v2 | +I 1 v3 | +I 0 v4"
    )
    assert held(reopened(table)) == "0 v4 | 1 v3"


@pytest.mark.parametrize("producer", ["none", "input"])
def test_expired_changelogs_go_with_their_files(producer: str) -> None:
    table = long_lived(producer=producer)
    table.compact(full=True)

    done = table.expire_changelogs(retain_max=3, retain_min=1)

    assert (done.changelogs_expired, done.earliest_changelog_id, kept(table)) == (3, 4, (4, 5))
    assert table.context.store.read(table.context.layout.changelog_earliest_hint) == b"4"
    assert changed(reopened(table).changes(3)) == "+I 1 v3 | +I 0 v4"
    with pytest.raises(NotFound, match="earliest=4"):
        reopened(table).changes(2)
    assert held(reopened(table)) == "0 v4 | 1 v3"


@pytest.mark.parametrize("producer", ["none", "input"])
def test_nothing_is_left_of_changelogs_that_are_all_deleted(producer: str) -> None:
    table = long_lived(producer=producer)
    table.compact(full=True)
    done = table.expire_changelogs(delete_all=True)

    assert (done.changelogs_expired, done.earliest_changelog_id) == (5, None)
    assert not {name for name in names(table) if name.startswith("changelog/")}
    assert not {name for name in names(table) if "bucket-0/changelog-" in name}
    assert held(reopened(table)) == "0 v4 | 1 v3"


def test_files_of_deleted_changelogs_are_gone_once_the_table_moved_on() -> None:
    table = long_lived()
    table.compact(full=True)
    put(table, "7 x")  # the compaction expires, and what it replaced
    table.expire_changelogs(delete_all=True)

    assert data_files(table) == files_read(table)


def test_newest_changelog_stays() -> None:
    table = long_lived()

    table.expire_changelogs(retain_max=1, retain_min=1)

    assert kept(table) == (4,)


def test_consumer_holds_changelogs_back() -> None:
    table = long_lived()
    consumer(table, "job", 3)

    done = table.expire_changelogs(retain_max=1, retain_min=1)

    assert (done.held_by_consumer, kept(table)) == ("job", (3, 4))


def test_consumer_may_hold_back_changelogs_alone() -> None:
    table = long_lived()
    consumer(table, "job", 5)
    put(table, "8 x")
    assert table.context.history.snapshot_ids() == (5, 6)

    with_options(table, consumer__changelog_only="true")
    put(reopened(table), "9 y")

    assert table.context.history.snapshot_ids() == (7,)


def test_commits_expire_changelogs() -> None:
    table = long_lived()
    with_options(table, changelog__num_retained__max="3")
    table = reopened(table)
    put(table, "9 x")

    assert kept(table) == (4, 5)


def test_files_of_a_tag_stay() -> None:
    table = long_lived(commits=1)
    tag(table, "keep", 1)
    put(table, "0 b")
    table.compact(full=True)
    put(table, "1 c")
    table.expire_changelogs(delete_all=True)

    assert held(reopened(table), tag="keep") == "0 v0"


@pytest.mark.parametrize("producer", ["none", "input"])
def test_changelogs_of_a_branch_do_not_stop_the_expiry_of_the_table(producer: str) -> None:
    table = long_lived(commits=1, producer=producer)
    table.create_tag("start")
    table.create_branch("b1", tag="start")
    fork = table.branch("b1")
    for number in range(1, 5):
        put(fork, f"1 v{number}")
    put(table, "0 b")
    put(table, "0 c")

    assert table.expire_changelogs(retain_max=1, retain_min=1).changelogs_expired == 1
    assert (table.context.history.snapshot_ids(), kept(fork)) == ((3,), (1, 2, 3, 4))
    assert changed(fork.changes(0)) == "+I 0 v0 | +I 1 v1 | +I 1 v2 | +I 1 v3 | +I 1 v4"


def test_changelogs_outlive_the_option_that_kept_them() -> None:
    table = long_lived()
    with_options(table, changelog__num_retained__max=None, changelog__num_retained__min=None)
    table = reopened(table)
    table.compact(full=True)
    put(table, "9 x")

    past = reopened(table).context.history
    added = past.deltas([past.changelog(number) for number in kept(table)])

    assert kept(table) == (1, 2, 3, 4)
    assert {f"bucket-0/{entry.file.name}" for some in added for entry in some} < data_files(table)


def test_dry_run_deletes_nothing() -> None:
    table = long_lived(producer="input")
    before = names(table)
    would = table.expire_changelogs(retain_max=3, retain_min=1, dry_run=True)

    assert names(table) == before
    assert table.expire_changelogs(retain_max=3, retain_min=1).files == would.files


def test_table_without_changelogs_has_nothing_to_expire() -> None:
    assert new_table().expire_changelogs().changelogs_expired == 0


@pytest.mark.parametrize("producer", ["none", "input"])
def test_crash_at_any_call_is_finished_by_the_next_run(producer: str) -> None:
    table = long_lived(producer=producer)
    table.compact(full=True)
    memory = table.context.store
    whole = reopened(table, store=copied(memory))
    whole.expire_changelogs(retain_max=3, retain_min=1)
    counted = FailingStore(copied(memory))
    reopened(table, store=counted).expire_changelogs(retain_max=3, retain_min=1)

    for call in range(1, len(counted.calls) + 1):
        inner = copied(memory)
        failing = FailingStore(inner, fail_at=call)
        with suppress(StoreFailure, LakecoreError):
            reopened(table, store=failing).expire_changelogs(retain_max=3, retain_min=1)
        again = reopened(table, store=inner)
        assert changed(again.changes(3)) == "+I 1 v3 | +I 0 v4"
        again.expire_changelogs(retain_max=3, retain_min=1)
        hint = {"changelog/EARLIEST"}  # which only saves a listing
        assert names(again) - hint == names(whole) - hint, call


@pytest.mark.parametrize("keep", [3, None])
@pytest.mark.parametrize("producer", ["none", "input"])
def test_after_a_crash_no_changelog_is_listed_whose_files_are_gone(
    producer: str, keep: int | None
) -> None:
    table = long_lived(producer=producer)
    table.compact(full=True)
    memory = table.context.store

    def run(table: Table) -> None:
        if keep is None:
            table.expire_changelogs(delete_all=True)
        else:
            table.expire_changelogs(retain_max=keep, retain_min=1)

    for call in calls_of(producer, str(keep)):
        inner = copied(memory)
        failing = FailingStore(inner, fail_at=call)
        with suppress(StoreFailure, LakecoreError):
            run(reopened(table, store=failing))
        again = reopened(table, store=inner)
        again.repair_hints()
        retained = retained_changes(again.context)
        assert retained is not None
        commits = [f"v{number}" for number in range(retained.earliest - 1, 5)]
        assert changed(again.changes(retained.earliest - 1)).split()[2::4] == commits, call
        if not failing.is_dead:
            break


@pytest.mark.parametrize("producer", ["none", "input"])
def test_crash_while_changelogs_are_kept_loses_none(producer: str) -> None:
    table = new_table(changelog_producer=producer)
    with_options(table, changelog__num_retained__max="100", snapshot__num_retained__max="50")
    for number in range(3):
        put(reopened(table), f"1 v{number}")
    memory = table.context.store
    counted = FailingStore(copied(memory))
    expire(reopened(table, store=counted))
    for call in range(1, len(counted.calls) + 1):
        inner = copied(memory)
        with suppress(StoreFailure, LakecoreError):
            expire(reopened(table, store=FailingStore(inner, fail_at=call)))
        again = reopened(table, store=inner)
        expire(again)

        assert changed(again.changes(0)) == "+I 1 v0 | +I 1 v1 | +I 1 v2"
        assert kept(again) == (1, 2)


@pytest.mark.parametrize("producer", ["none", "input"])
def test_snapshot_that_a_rollback_brought_back_keeps_its_files(producer: str) -> None:
    table = long_lived(commits=3, producer=producer)
    table.create_tag("good", 3)
    put(table, "0 later")
    table.rollback_to(tag="good")
    table.delete_tag("good")
    again = reopened(table)
    assert (again.context.history.snapshot_ids(), kept(again)) == ((3,), (1, 2, 3))

    again.expire_changelogs(delete_all=True)
    assert kept(reopened(table)) == ()
    assert held(reopened(table)) == "0 v2 | 1 v1"
    ((number, frame),) = reopened(table).stream(3, "latest")
    assert (number, changed(frame)) == (3, "+I 0 v2")
    files = [name for name in names(table) if "bucket-0/changelog-" in name]
    assert len(files) == (1 if producer == "input" else 0)
