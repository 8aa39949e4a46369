"""Branches: made, renamed and deleted whole, written on by every verb, apart from the table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import polars as pl
import pytest

from lakecore.errors import (
    AlreadyExists,
    InvalidRequest,
    LakecoreError,
    NotFound,
    Unsupported,
)
from lakecore.format.layout import Layout
from lakecore.io.ambient import seeded
from lakecore.io.stores.guarded import unguarded
from lakecore.io.stores.store import MemoryStore
from lakecore.model.snapshot import Branch
from lakecore.table.handle import load_table
from lakecore.table.maintenance.branches import branch_times
from property_tests.profile import calls_of
from tests.stores import FailingStore, StoreFailure, files_below
from tests.tables import PATH, held, in_directory, new_table, put, reopened, rows, with_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.io.stores.store import FileStatus
    from lakecore.table.handle import Table


def tagged(*, renames_at_once: bool = True, **options: Any) -> Table:
    """A table with the snapshots `1 a`, `2 b`, `3 c`, and a tag for each of the first two."""
    table = new_table(store=MemoryStore(renames_at_once=renames_at_once), **options)
    for row in ("1 a", "2 b", "3 c"):
        put(table, row)
    table.create_tag("one", snapshot_id=1)
    table.create_tag("two", snapshot_id=2)
    return table


def test_branch_of_a_tag_has_its_rows() -> None:
    table = tagged()

    branch = table.create_branch("b", tag="two")

    assert branch == Branch(name="b", schema_id=0, earliest_snapshot_id=2, latest_snapshot_id=2)
    assert held(table.branch("b")) == "1 a | 2 b"
    assert [tag.name for tag in table.branch("b").tags()] == ["two"]
    assert table.branches() == reopened(table).branches() == (branch,)
    assert in_directory(table, "branch/branch-b") == {"schema", "snapshot", "tag"}


def test_branch_without_a_tag_is_empty_and_has_all_schemas() -> None:
    table = tagged()
    with_options(table, num_levels="7")

    branch = reopened(table).create_branch("b")

    assert branch == Branch(name="b", schema_id=1)
    assert held(table.branch("b")) == ""
    assert in_directory(table, "branch/branch-b") == {"schema"}
    assert table.branch("b").options.texts["num-levels"] == "7"


def test_branch_of_a_tag_has_no_newer_schema() -> None:
    table = tagged()
    with_options(table, num_levels="7")

    assert reopened(table).create_branch("b", tag="one").schema_id == 0


def test_branch_of_an_expired_snapshot_has_its_rows() -> None:
    table = tagged()
    table.context.store.delete(table.context.layout.snapshot(1))
    table.context.store.put(table.context.layout.earliest_hint, b"2")

    table.create_branch("b", tag="one")

    assert held(table.branch("b")) == "1 a"


def test_branch_of_a_branch_begins_with_its_tag() -> None:
    table = tagged()
    table.create_branch("b", tag="one")
    branch = table.branch("b")
    put(branch, "9 i")
    branch.create_tag("nine")

    branch.create_branch("c", tag="nine")

    assert held(table.branch("c")) == "1 a | 9 i"
    assert [each.name for each in table.branches()] == ["b", "c"]


def test_writes_on_a_branch_are_its_own() -> None:
    table = tagged()
    table.create_branch("b", tag="two")
    branch = table.branch("b")

    branch.write(rows(branch.schema, "4 d | 5 e | 6 f"))
    branch.delete("id = 1")
    branch.update({"v": "B"}, "id = 2")
    branch.merge(
        rows(branch.schema, "6 F | 7 g"), on=["id"]
    ).when_matched_update_all().when_not_matched_insert_all().execute()
    branch.compact(full=True)
    writer = branch.new_write()
    writer.write(rows(branch.schema, "8 h"))
    branch.commit(writer.prepare_commit())

    assert held(branch) == "2 B | 4 d | 5 e | 6 F | 7 g | 8 h"
    assert held(reopened(table).branch("b")) == held(branch)
    assert held(table) == held(reopened(table)) == "1 a | 2 b | 3 c"
    branch.overwrite(rows(branch.schema, "1 x"))
    assert (held(branch), branch.count()) == ("1 x", 1)
    branch.truncate()
    assert (held(branch), held(reopened(table))) == ("", "1 a | 2 b | 3 c")
    assert table.branch("main").count() == 3


def test_branch_keeps_the_options_of_the_object() -> None:
    table = tagged()
    table.create_branch("b", tag="two")

    assert held(table.copy({"scan.tag-name": "two"}).branch("b")) == "1 a | 2 b"
    assert load_table(table.context.store, PATH, branch="b").branch("main").count() == 3
    on_branch = load_table(table.context.store, PATH, dynamic_options={"branch": "b"})
    assert on_branch.branch("main").count() == 3


def test_branch_that_exists_is_not_made_again() -> None:
    table = tagged()
    table.create_branch("b", tag="two")

    with pytest.raises(AlreadyExists, match="branch=b"):
        table.create_branch("b")
    with pytest.raises(NotFound, match=r"no such tag.* tags=\[one, two\]"):
        table.create_branch("c", tag="three")
    assert [branch.name for branch in table.branches()] == ["b"]
    assert held(table.branch("b")) == "1 a | 2 b"


@pytest.mark.parametrize(
    "name", ["main", "", " ", "12", "a/b", ".hidden", "..", "x" * 300, "\0", 3, None]
)
def test_name_that_is_none_is_refused(name: Any) -> None:
    table = tagged()
    table.create_branch("b")
    before = files_below(table.context.store, PATH)

    for verb in (table.create_branch, table.delete_branch, table.fast_forward):
        with pytest.raises(InvalidRequest):
            verb(name)
    with pytest.raises(InvalidRequest):
        table.rename_branch("b", name)
    assert files_below(table.context.store, PATH) == before


def test_branch_that_is_not_there_is_not_found() -> None:
    table = tagged()
    table.create_branch("b")

    for verb in (table.branch, table.delete_branch, table.fast_forward):
        with pytest.raises(NotFound, match=r"no such branch. branch=c branches=\[b\]"):
            verb("c")
    with pytest.raises(NotFound, match="no such branch"):
        table.rename_branch("c", "d")


@pytest.mark.parametrize("renames_at_once", [True, False])
def test_renamed_branch_has_its_rows(*, renames_at_once: bool) -> None:
    table = tagged(renames_at_once=renames_at_once, commit__single_writer="true")
    table.create_branch("b", tag="two")
    table.create_branch("c")

    assert table.rename_branch("b", "d").latest_snapshot_id == 2

    assert [branch.name for branch in table.branches()] == ["c", "d"]
    assert held(table.branch("d")) == "1 a | 2 b"
    assert in_directory(table, "branch") == {"branch-c", "branch-d"}
    with pytest.raises(AlreadyExists, match="branch=c"):
        table.rename_branch("d", "c")


def test_object_store_renames_no_branch_under_writers() -> None:
    table = tagged(renames_at_once=False)
    table.create_branch("b")

    with pytest.raises(Unsupported, match=r"commit\.single-writer"):
        table.rename_branch("b", "c")
    assert [branch.name for branch in table.branches()] == ["b"]


@pytest.mark.parametrize("renames_at_once", [True, False])
def test_deleted_branch_is_gone(*, renames_at_once: bool) -> None:
    table = tagged(renames_at_once=renames_at_once)
    table.create_branch("b", tag="two")
    branch = table.branch("b")
    before = files_below(table.context.store, f"{PATH}/bucket-0")

    assert table.delete_branch("b", dry_run=True).latest_snapshot_id == 2
    assert table.delete_branch("b").latest_snapshot_id == 2

    assert table.branches() == ()
    assert files_below(table.context.store, f"{PATH}/branch") == []
    assert files_below(table.context.store, f"{PATH}/bucket-0") == before
    assert held(reopened(table)) == "1 a | 2 b | 3 c"
    with pytest.raises(NotFound):
        branch.write(rows(branch.schema, "4 d"))
    table.create_branch("b")
    assert held(table.branch("b")) == ""


def test_branch_that_is_used_is_neither_deleted_nor_renamed() -> None:
    table = tagged()
    table.create_branch("b")
    branch = table.branch("b")

    with pytest.raises(InvalidRequest, match="this table is on the branch"):
        branch.delete_branch("b")
    with pytest.raises(InvalidRequest, match="this table is on the branch"):
        branch.rename_branch("b", "c")
    assert [each.name for each in table.branches()] == ["b"]


def test_tag_that_goes_while_a_branch_is_made_leaves_no_branch() -> None:
    table = tagged()
    table.context.store.delete(table.context.layout.snapshot(1))

    class Losing(MemoryStore):
        """Loses the tag as soon as the branch is announced."""

        def put(self, path: str, data: bytes) -> None:
            super().put(path, data)
            if "/tag/pending-" in path:
                self.delete(table.context.layout.tag("one"))

    store = Losing()
    store._files = table.context.store._files  # type: ignore[attr-defined]  # noqa: SLF001

    with pytest.raises(NotFound, match="deleted while the branch was created"):
        reopened(table, store=store).create_branch("b", tag="one")
    assert table.branches() == ()
    left = [status.path for status in store.list(table.context.layout.tag_dir)]
    assert not [path for path in left if "pending-" in path]


# --- crashes --------------------------------------------------------------------------------------

DEEDS: dict[str, Callable[[Table], object]] = {
    "create": lambda table: table.create_branch("new", tag="two"),
    "create empty": lambda table: table.create_branch("new"),
    "rename": lambda table: table.rename_branch("b", "new"),
    "delete": lambda table: table.delete_branch("b"),
}


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
@pytest.mark.parametrize("renames_at_once", [True, False], ids=["local", "objects"])
@pytest.mark.parametrize("verb", [*DEEDS])
def test_crash_at_any_store_call_leaves_whole_branches(
    verb: str, *, renames_at_once: bool, after: bool
) -> None:
    for call in calls_of("branches", verb, str(renames_at_once), str(after)):
        table = tagged(renames_at_once=renames_at_once, commit__single_writer="true")
        with_options(table, num_levels="7")
        table = reopened(table)
        table.create_branch("b", tag="one")
        put(table.branch("b"), "9 i")
        failing = FailingStore(table.context.store, fail_at=call, after=after, seed=call)
        died = _tried(DEEDS[verb], reopened(table, store=failing))
        there = reopened(table)
        names = {branch.name for branch in there.branches()}

        assert names <= {"b", "new"}
        assert names >= ({"b"} if verb.startswith("create") else set())
        for name in names:
            rows_there = held(there.branch(name))
            if name == "b" or verb == "rename":
                assert rows_there == "1 a | 9 i"
            else:
                assert rows_there == ("1 a | 2 b" if verb == "create" else "")
                assert there.branch(name).schema.id == (0 if verb == "create" else 1)
        assert held(there) == "1 a | 2 b | 3 c"
        _finish(verb, there)
        if died is None:
            break


def _finish(verb: str, table: Table) -> None:
    """Do the deed again, after the clean-up that its error asks for: it succeeds."""
    names = {branch.name for branch in table.branches()}
    if verb == "delete":
        if table.context.store.list(f"{PATH}/branch/branch-b"):
            table.delete_branch("b")
        assert table.branches() == ()
        return
    if "new" in names and verb != "rename":
        return
    if verb == "rename" and "b" not in names:
        assert names == {"new"}
        return
    try:
        DEEDS[verb](table)
    except AlreadyExists:
        table.delete_branch("new")
        DEEDS[verb](table)
    assert "new" in {branch.name for branch in table.branches()}


def _tried(deed: Callable[[Table], object], table: Table) -> Exception | None:
    try:
        deed(table)
    except (LakecoreError, StoreFailure) as error:
        return error
    return None


def test_of_two_who_make_a_branch_one_succeeds() -> None:
    for renames_at_once in (True, False):
        table = tagged(renames_at_once=renames_at_once)

        class Raced(MemoryStore):
            """Lets another process make the branch before the first file of this one."""

            def __init__(self, table: Table) -> None:
                super().__init__(renames_at_once=table.context.store.renames_at_once)
                self.other: Table | None = table
                self._files = table.context.store._files  # type: ignore[attr-defined]  # noqa: SLF001

            def put(self, path: str, data: bytes) -> None:
                self._let_the_other_go_first()
                super().put(path, data)

            def put_if_absent(self, path: str, data: bytes) -> bool:
                self._let_the_other_go_first()
                return super().put_if_absent(path, data)

            def _let_the_other_go_first(self) -> None:
                other, self.other = self.other, None
                if other is not None:
                    other.create_branch("b", tag="one")

        slow = reopened(table, store=Raced(table), ambient=seeded(9))
        with pytest.raises(AlreadyExists):
            slow.create_branch("b", tag="two")
        assert held(reopened(table).branch("b")) == "1 a"


def test_branches_of_a_dropped_table_are_not_found() -> None:
    table = tagged()
    unguarded(table.context.store).delete_directory(PATH)

    with pytest.raises(NotFound):
        table.branches()
    with pytest.raises(NotFound):
        table.create_branch("b")
    assert not table.context.store.exists(Layout(root=PATH).branches_dir)


def test_rows_of_a_branch_show_its_name() -> None:
    table = tagged()
    table.create_branch("b", tag="one")

    assert table.branch("b").scan().collect().equals(pl.DataFrame(table.branch("b").to_arrow()))
    assert table.branch("b").context.layout.branch == "b"


def test_time_of_a_branch_is_that_of_its_directory_or_of_its_newest_schema() -> None:
    class Listing(FailingStore):
        times: ClassVar[dict[str, int]] = {}

        def list(self, directory: str) -> tuple[FileStatus, ...]:
            found = super().list(directory)
            return tuple(
                replace(each, modified_ms=self.times.get(each.path.rpartition("/")[2]))
                for each in found
            )

    table = new_table()
    for name in ("a", "b"):
        table.create_branch(name)
        table.context.ambient.sleep(60)
    made = {name: table.branch(name).schema.time_ms for name in ("a", "b")}
    Listing.times = {"branch-b": 5}
    listed = reopened(table, store=Listing(table.context.store))

    assert branch_times(listed.context) == (("a", made["a"]), ("b", 5))
