"""No tag and no branch ever names lost files, wherever its maker dies beside a deletion of files.

Two processes: the maker creates, moves or renames a tag, creates a branch, fast-forwards to it, or
rolls back to a tag, and is killed at any of its calls; the deleter expires snapshots, rolls back,
or deletes the only tag of an expired snapshot. One of them runs as a whole before any call of the
other.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from lakecore.errors import CommitUnknown, LakecoreError
from property_tests.profile import calls_of, sized
from tests.retention import copied, data_files, expire, files_read, history, tag
from tests.stores import FailingStore, StoreFailure
from tests.tables import reopened, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.io.stores.store import Store
    from lakecore.table.handle import Table

MAKERS: dict[str, Callable[[Table], object]] = {
    "create_tag": lambda table: table.create_tag("x", snapshot_id=2),
    "replace_tag": lambda table: table.replace_tag("y", snapshot_id=2),
    "rename_tag": lambda table: table.rename_tag("only", "x"),
    "create_branch": lambda table: table.create_branch("b", tag="only"),
    "fast_forward": lambda table: table.fast_forward("f"),
    "roll back to a tag": lambda table: table.rollback_to(tag="only"),
}
DELETERS: dict[str, Callable[[Table], object]] = {
    "expire": expire,
    "expire the tagged": expire,
    "delete_tag": lambda table: table.delete_tag("only"),
    "replace_tag": lambda table: table.replace_tag("only", snapshot_id=4),
    "roll back": lambda table: table.rollback_to(1),
    "delete_tag of the branch": lambda table: table.branch("f").delete_tag("only"),
    "replace_tag of the branch": lambda table: table.branch("f").replace_tag("only", snapshot_id=4),
    "expire the branch": lambda table: expire(table.branch("f")),
}
OWN = [maker for maker in MAKERS if maker not in ("fast_forward", "roll back to a tag")]
PAIRS = [
    ("create_tag", "expire"),
    ("replace_tag", "expire"),
    ("roll back to a tag", "expire the tagged"),
    *((maker, deleter) for maker in OWN for deleter in ("delete_tag", "replace_tag", "roll back")),
    *(("fast_forward", deleter) for deleter in DELETERS if "branch" in deleter),
]


class _Beside(FailingStore):
    """Runs a deed before the call `at`, counted from 1; those that `without` names do not count."""

    without: tuple[str, ...] = ()

    def __init__(self, inner: Store, at: int, deed: Callable[[], object], **given: Any) -> None:
        super().__init__(inner, **given)
        self._left, self._deed = at, deed

    @property
    def has_run(self) -> bool:
        return self._left <= 0

    def _require_life(self, call: str, path: str) -> None:
        super()._require_life(call, path)
        self._left -= call not in self.without
        if not self._left:
            with suppress(LakecoreError, StoreFailure):
                self._deed()


def _built(deleter: str) -> Table:
    """Snapshots 1 to 4. The tags: `y`, and `only` of snapshot 2 if the deleter needs it."""
    table = history(commits=4)
    if "branch" in deleter:
        table = history(commits=1)
        table.create_tag("begin")
        table.create_branch("f", tag="begin")
        branch = table.branch("f")
        for number in range(2, 5):
            branch.overwrite(rows(table.schema, f"1 v{number}"))
        if "tag" in deleter:
            tag(branch, "only", 2)
            expire(branch)
        return table
    if deleter in ("delete_tag", "replace_tag"):
        tag(table, "only", 2)
        expire(table)
    elif deleter in ("roll back", "expire the tagged"):
        tag(table, "only", 2)
    tag(table, "y", 4)
    return table


def _check(table: Table, where: object) -> None:
    """Every snapshot, tag and branch can be read."""
    for number in table.context.history.snapshot_ids():
        assert table.scan(snapshot_id=number).collect().height == 1, where
    for each in table.tags():
        assert table.scan(tag=each.name).collect().height == 1, where
    for branch in table.branches():
        assert table.branch(branch.name).to_polars().height == 1, where
    assert table.to_polars().height == 1, where


@pytest.mark.parametrize(("maker", "deleter"), PAIRS)
@pytest.mark.sampled(4)
def test_a_maker_that_dies_beside_a_deletion_names_no_lost_file(maker: str, deleter: str) -> None:
    built, deaths = _built(deleter), 0
    for call in calls_of(maker, deleter):
        for dies_at in calls_of(maker, deleter, str(call)):
            store = copied(built.context.store, renames_at_once=True)
            other = reopened(built, store=store)
            beside = _Beside(store, call, lambda: DELETERS[deleter](other), fail_at=dies_at)  # noqa: B023
            with suppress(LakecoreError, StoreFailure):
                MAKERS[maker](reopened(built, store=beside))
            _check(reopened(built, store=store), (call, dies_at))
            deaths += beside.is_dead
            if not beside.is_dead:
                break
        if not beside.has_run:
            break
    assert deaths >= sized(4, quick=0)


@pytest.mark.parametrize(("maker", "deleter"), PAIRS)
@pytest.mark.sampled(4)
def test_a_deletion_beside_a_maker_that_dies_loses_no_file(maker: str, deleter: str) -> None:
    built, deaths = _built(deleter), 0
    for call in calls_of(maker, deleter):
        for dies_at in calls_of(maker, deleter, str(call)):
            store = copied(built.context.store, renames_at_once=True)
            failing = FailingStore(store, dies_at)
            beside = _Beside(
                store,
                call,
                lambda: MAKERS[maker](reopened(built, store=failing)),  # noqa: B023
            )
            beside.without = ("read", "open_input")
            with suppress(LakecoreError):
                DELETERS[deleter](reopened(built, store=beside))
            _check(reopened(built, store=store), (call, dies_at))
            deaths += failing.is_dead
            if not failing.is_dead:
                break
        if not beside.has_run:
            break
    assert deaths >= sized(4, quick=0)


def test_what_a_killed_maker_announced_is_kept_until_orphans_are_removed() -> None:
    table = history(commits=4)
    failing = FailingStore(table.context.store, fail_at=2)  # the pending file is written
    with suppress(StoreFailure, CommitUnknown):
        reopened(table, store=failing).create_tag("x", snapshot_id=2)

    expire(table)

    kept = data_files(table) - files_read(table)
    assert len(kept) == 1
    assert table.tags() == ()
    layout = table.context.layout
    (pending,) = table.context.store.list(layout.tag_dir)
    table.context.ambient.sleep(90_000.0)
    assert table.remove_orphan_files().paths == (pending.path,)
    table.remove_orphan_files()
    assert data_files(table) == files_read(table)
