"""A tag that goes takes the files with it that nothing else needs, and no others."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import LakecoreError
from lakecore.model.retention import FilesDeleted
from property_tests.profile import calls_of
from tests.retention import data_files, expire, files_read, history, names
from tests.stores import FailingStore, StoreFailure
from tests.tables import held, new_table, put, reopened, rows

if TYPE_CHECKING:
    from lakecore.table.handle import Table


def tagged(*numbers: int) -> Table:
    """Eight snapshots of one row, each with a file of its own; tags of some; only 8 is alive."""
    table = history()
    for number in numbers:
        table.create_tag(f"t{number}", snapshot_id=number)
    expire(table)
    return table


def rows_of_tags(table: Table) -> dict[str, str]:
    return {tag.name: held(table, tag=tag.name) for tag in table.tags()}


def test_files_that_only_the_tag_kept_go_with_it() -> None:
    table = tagged(4)
    without = names(tagged())

    deleted = table.delete_tag("t4")

    assert deleted.files.data_files == 1
    assert deleted.files.data_bytes > 0
    assert deleted.files.manifests > 0
    assert names(table) == without
    assert data_files(table) == files_read(table)
    assert held(reopened(table)) == "1 v8"


def test_dry_run_counts_the_same_and_deletes_nothing() -> None:
    table = tagged(4)
    before = names(table)

    planned = table.delete_tag("t4", dry_run=True)

    assert names(table) == before
    assert table.delete_tag("t4").files == planned.files != FilesDeleted()
    assert str(planned).splitlines()[-1].split() == ["dry", "run", "nothing", "was", "deleted"]


@pytest.mark.parametrize("order", [(3, 5, 6), (6, 5, 3), (5, 3, 6)])
def test_other_tags_keep_what_they_read(order: tuple[int, ...]) -> None:
    table = tagged(3, 5, 6)

    for number in order:
        table.delete_tag(f"t{number}")
        there = reopened(table)
        left = [each for each in (3, 5, 6) if f"t{each}" in rows_of_tags(there)]
        assert rows_of_tags(there) == {f"t{each}": f"1 v{each}" for each in left}
        assert data_files(there) == files_read(there)
    assert names(table) == names(tagged())


def test_files_stay_while_the_snapshot_is_alive() -> None:
    table = history()
    table.create_tag("a", snapshot_id=4)

    assert table.delete_tag("a").files == FilesDeleted()
    assert held(table, snapshot_id=4) == "1 v4"


def test_files_stay_while_another_tag_names_the_snapshot() -> None:
    table = tagged(4)
    table.create_tag("again", snapshot_id=4)

    assert table.delete_tag("t4").files == FilesDeleted()
    assert held(reopened(table), tag="again") == "1 v4"
    assert table.delete_tag("again").files.data_files == 1


def test_files_that_a_branch_reads_stay() -> None:
    table = tagged(4)
    table.create_branch("b", tag="t4")
    put(table.branch("b"), "2 x")

    assert table.delete_tag("t4").files == FilesDeleted()
    assert held(reopened(table).branch("b")) == "1 v4 | 2 x"

    table.branch("b").delete_tag("t4")
    assert held(reopened(table).branch("b")) == "1 v4 | 2 x"


def test_tag_of_a_branch_leaves_what_the_table_reads() -> None:
    table = tagged(4)
    table.create_branch("b", tag="t4")
    branch = table.branch("b")
    put(branch, "2 x")
    branch.expire_snapshots(retain_max=1, retain_min=1)

    branch.delete_tag("t4")

    assert held(reopened(table), tag="t4") == "1 v4"
    assert held(reopened(table).branch("b")) == "1 v4 | 2 x"


def test_files_stay_after_a_fast_forward_of_a_branch_with_another_history() -> None:
    table = tagged(4)
    table.create_branch("b", tag="t4")
    branch = table.branch("b")
    for number in range(5):
        put(branch, f"{number + 2} x")
    branch.expire_snapshots(retain_max=1, retain_min=1)
    table.fast_forward("b")
    table.delete_tag("t4")

    assert held(reopened(table)).startswith("1 v4 | 2 x")


def forwarded() -> Table:
    """A table with the three newest snapshots of its branch `b`: two were written to the branch."""
    table = new_table(write_only="true")
    put(table, "1 a")
    table.create_tag("start")
    table.create_branch("b", tag="start")
    for row in ("2 b", "3 c"):
        put(table.branch("b"), row)
    table.fast_forward("b")
    return reopened(table)


def test_files_stay_that_a_branch_has_written_before_a_fast_forward() -> None:
    table = forwarded()
    table.create_tag("keep")
    table.overwrite(rows(table.schema, "9 z"))
    expire(table)

    assert table.delete_tag("keep").files == FilesDeleted()
    assert held(reopened(table).branch("b")) == "1 a | 2 b | 3 c"


def test_tag_that_a_fast_forward_has_left_behind_takes_no_live_file_with_it() -> None:
    table = forwarded()
    put(table, "4 d")
    table.create_tag("old")
    path = table.context.layout.tag("old")
    kept = table.context.store.read(path)
    put(table.branch("b"), "5 e")
    table.fast_forward("b")
    table.context.store.put(path, kept)  # as if the call had ended before it deleted the tag
    table = reopened(table)

    assert table.delete_tag("old").files.data_files == 1
    assert held(reopened(table)) == "1 a | 2 b | 3 c | 5 e"


def test_replaced_tag_leaves_no_files() -> None:
    table = tagged(3, 5)

    table.replace_tag("t3")

    assert rows_of_tags(reopened(table)) == {"t3": "1 v8", "t5": "1 v5"}
    assert data_files(table) == files_read(table)


def test_no_file_goes_if_something_cannot_be_read() -> None:
    table = tagged(3, 5)
    store, layout = table.context.store, table.context.layout
    damaged = table.context.history.tag("t5").snapshot.base_manifest_list
    store.put(layout.manifest(damaged), b"damaged")
    before = names(table)

    deleted = reopened(table).delete_tag("t3")

    assert (deleted.unreadable_snapshots, deleted.files) == ((3,), FilesDeleted())
    assert names(table) == before - {"tag/tag-t3"}
    assert "a state that may need them" in str(deleted)


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
@pytest.mark.parametrize("verb", ["delete", "replace"])
def test_crash_at_any_store_call_loses_nothing_that_is_read(verb: str, *, after: bool) -> None:
    for call in calls_of(verb, str(after)):
        table = tagged(3, 5)
        failing = FailingStore(table.context.store, fail_at=call, after=after)
        slow = reopened(table, store=failing)
        with suppress(LakecoreError, StoreFailure):
            slow.delete_tag("t3") if verb == "delete" else slow.replace_tag("t3")
        there = reopened(table)

        assert held(there) == "1 v8"
        tags = rows_of_tags(there)
        assert tags.pop("t3", None) in {None, "1 v3", "1 v8"}
        assert tags == {"t5": "1 v5"}
        if not failing.is_dead:
            break
    assert call > 3
