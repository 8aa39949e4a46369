"""A fast-forward: the table gets the branch's states, whatever happens on the way."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from lakecore.errors import CommitConflict, InvalidRequest, LakecoreError
from lakecore.io.stores.store import MemoryStore
from lakecore.model.snapshot import FastForwardResult
from property_tests.profile import calls_of
from tests.stores import FailingStore, StoreFailure, files_below
from tests.tables import PATH, held, in_directory, new_table, put, reopened, with_options

if TYPE_CHECKING:
    from lakecore.table.handle import Table


def forked(**options: Any) -> Table:
    """A table at `1 a | 2 b`, whose branch `b` of tag `two` has `3 c | 4 d` more."""
    table = new_table(**options)
    for row in ("1 a", "2 b"):
        put(table, row)
    table.create_tag("one", snapshot_id=1)
    table.create_tag("two", snapshot_id=2)
    table.create_branch("b", tag="two")
    branch = table.branch("b")
    put(branch, "3 c")
    put(branch, "4 d")
    branch.create_tag("four")
    return table


def test_table_that_did_not_change_gets_what_the_branch_added() -> None:
    table = forked()

    result = table.fast_forward("b")

    assert result == FastForwardResult(branch="b", snapshot_id=4, snapshots_copied=2, tags_copied=1)
    assert held(table) == held(reopened(table)) == "1 a | 2 b | 3 c | 4 d"
    assert table.context.history.snapshot_ids() == (1, 2, 3, 4)
    assert [tag.name for tag in table.tags()] == ["one", "two", "four"]
    assert str(result).splitlines()[0].split() == ["branch", "b"]
    put(table, "5 e")
    assert held(reopened(table)) == "1 a | 2 b | 3 c | 4 d | 5 e"
    assert held(table.branch("b")) == "1 a | 2 b | 3 c | 4 d"


def test_what_the_table_wrote_since_is_gone() -> None:
    table = forked()
    for row in ("7 g", "8 h"):
        put(table, row)
    table.create_tag("mine", snapshot_id=4)

    result = table.fast_forward("b")

    assert (result.snapshots_deleted, result.tags_deleted) == (2, 1)
    assert held(reopened(table)) == "1 a | 2 b | 3 c | 4 d"
    assert table.context.history.snapshot_ids() == (1, 2, 3, 4)
    assert [tag.name for tag in table.tags()] == ["one", "two", "four"]
    assert held(table.copy({"scan.snapshot-id": "3"})) == "1 a | 2 b | 3 c"


def test_dry_run_says_the_same_and_changes_nothing() -> None:
    table = forked()
    put(table, "7 g")
    store = table.context.store
    before = {path: store.read(path) for path in files_below(store, PATH)}

    planned = table.fast_forward("b", dry_run=True)

    assert {path: store.read(path) for path in files_below(store, PATH)} == before
    assert table.fast_forward("b") == planned


def test_second_fast_forward_has_nothing_to_do() -> None:
    table = forked()
    table.fast_forward("b")

    assert table.fast_forward("b") == FastForwardResult(branch="b", snapshot_id=4)


def test_branch_may_be_forwarded_to_another() -> None:
    table = forked()
    table.create_branch("c", tag="one")
    other = table.branch("c")

    assert other.fast_forward("b").snapshots_copied == 3
    assert held(table.branch("c")) == "1 a | 2 b | 3 c | 4 d"
    assert held(reopened(table)) == "1 a | 2 b"


def test_schemas_become_those_of_the_branch() -> None:
    table = forked()
    with_options(table, num_levels="5")
    with_options(table, num_levels="6")
    branch = table.branch("b")
    context = branch.context
    changed = context.store.read(table.context.layout.schema(1)).replace(b'"5"', b'"7"')
    context.store.put(context.layout.schema(1), changed)
    put(table.branch("b"), "5 e")
    table = reopened(table)
    put(table, "9 i")

    result = table.fast_forward("b")

    assert (result.schemas_copied, result.schemas_deleted) == (1, 1)
    assert table.schema.id == 1
    assert table.options.texts["num-levels"] == "7"
    assert held(table) == held(reopened(table)) == "1 a | 2 b | 3 c | 4 d | 5 e"


def test_no_schema_of_the_table_is_newer_than_the_shown_state_once_schemas_change() -> None:
    table = forked()
    with_options(table, num_levels="5")
    with_options(table, num_levels="6")
    store, layout = table.context.store, table.branch("b").context.layout
    changed = store.read(table.context.layout.schema(1)).replace(b'"5"', b'"7"')
    store.put(layout.schema(1), changed)
    put(table.branch("b"), "5 e")
    table = reopened(table)
    put(table, "9 i")
    seen: list[tuple[int, ...]] = []

    class Looking(MemoryStore):
        """Lists the schemas when the first snapshot of the branch is about to be written."""

        def put_if_absent(self, path: str, data: bytes) -> bool:
            if path.startswith(f"{table.context.layout.snapshot_dir}/snapshot-"):
                seen.append(reopened(table).context.history.schema_ids())
            return super().put_if_absent(path, data)

    looking = Looking()
    looking._files = store._files  # type: ignore[attr-defined]  # noqa: SLF001
    reopened(table, store=looking).fast_forward("b")

    assert seen[0] == (0, 1)
    assert reopened(table).options.texts["num-levels"] == "7"


def test_branch_of_another_history_hides_older_snapshots() -> None:
    table = forked()
    branch = table.branch("b")
    for number in (2, 3):
        branch.context.store.delete(branch.context.layout.snapshot(number))
    branch.context.store.put(branch.context.layout.earliest_hint, b"4")
    branch.delete_tag("two")
    put(table, "7 g")
    put(table, "8 h")

    result = table.fast_forward("b")

    assert (result.snapshots_copied, result.snapshots_deleted) == (1, 1)
    assert table.context.history.snapshot_ids() == (4,)
    assert held(reopened(table)) == "1 a | 2 b | 3 c | 4 d"


def test_schema_that_older_states_need_is_not_replaced() -> None:
    table = forked()
    branch = table.branch("b")
    for number in (2, 3):
        branch.context.store.delete(branch.context.layout.snapshot(number))
    branch.context.store.put(branch.context.layout.earliest_hint, b"4")
    branch.delete_tag("two")
    with_options(table, num_levels="5")
    table = reopened(table)
    put(table, "7 g")
    context = table.branch("b").context
    changed = context.store.read(table.context.layout.schema(1)).replace(b'"5"', b'"7"')
    context.store.put(context.layout.schema(1), changed)

    with pytest.raises(InvalidRequest, match=r"schema that the branch does not have.*\[1\]"):
        table.fast_forward("b")
    assert held(reopened(table)) == "1 a | 2 b | 7 g"


def test_branch_without_a_snapshot_is_refused() -> None:
    table = forked()
    table.create_branch("empty")

    with pytest.raises(InvalidRequest, match="has no snapshot"):
        table.fast_forward("empty")
    with pytest.raises(InvalidRequest, match="to itself"):
        table.branch("b").fast_forward("b")
    assert held(reopened(table)) == "1 a | 2 b"


def test_commit_in_between_is_a_conflict_and_a_second_call_replaces_it() -> None:
    table = forked()
    late = reopened(table)

    class Interrupted(MemoryStore):
        """Lets another writer commit before the first snapshot is copied."""

        def delete(self, path: str) -> None:
            super().delete(path)
            if path.endswith("/snapshot/LATEST"):
                put(late, "9 i")

    store = Interrupted()
    store._files = table.context.store._files  # type: ignore[attr-defined]  # noqa: SLF001
    with pytest.raises(CommitConflict, match="call fast_forward again"):
        reopened(table, store=store).fast_forward("b")
    assert held(reopened(table)) == "1 a | 2 b | 9 i"

    reopened(table).fast_forward("b")
    assert held(reopened(table)) == "1 a | 2 b | 3 c | 4 d"


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
@pytest.mark.parametrize("moved", [False, True], ids=["table as it was", "table went on"])
def test_crash_at_any_store_call_shows_the_old_or_the_new_state_and_is_finished(
    *, moved: bool, after: bool
) -> None:
    whole = "1 a | 2 b | 3 c | 4 d"
    states = {"1 a | 2 b | 7 g | 8 h" if moved else "1 a | 2 b", whole}
    for call in calls_of("forward", str(moved), str(after)):
        table = forked()
        if moved:
            put(table, "7 g")
            put(table, "8 h")
            table.create_tag("mine")
            with_options(table, num_levels="5")
        failing = FailingStore(table.context.store, fail_at=call, after=after)
        with suppress(LakecoreError, StoreFailure):
            reopened(table, store=failing).fast_forward("b")
        there = reopened(table)

        assert held(there) in states
        there.fast_forward("b")
        assert held(reopened(there)) == whole
        assert reopened(there).context.history.snapshot_ids() == (1, 2, 3, 4)
        assert reopened(there).schema.id == 0
        assert [tag.name for tag in there.tags()] == ["one", "two", "four"]
        assert in_directory(table, "schema") == {"schema-0"}
        if not failing.is_dead:
            break
    assert call > 4
