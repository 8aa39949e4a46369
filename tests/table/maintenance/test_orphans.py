"""Orphan files: what nothing reaches goes, everything else stays."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.table.maintenance.reachable import states
from tests.golden.test_fixtures import FIXTURES, READ
from tests.retention import branch_at, expire, history, tag
from tests.stores import FailingStore, files_below
from tests.tables import held, new_table, put, reopened, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakecore.io.stores.store import Store
    from lakecore.table.handle import Table

FUTURE = "2100-01-01"
LEFT_BY_JAVA = {"pk_dedup_delete_avro/table-head": 5}
"""Newer Java leaves the files of a deleted tag to the removal of orphans."""


def files(table: Table) -> set[str]:
    return set(files_below(table.context.store, table.path))


def clean(table: Table, *, dry_run: bool = False) -> tuple[str, ...]:
    return table.remove_orphan_files(older_than=FUTURE, force=True, dry_run=dry_run).paths


def plant(table: Table, *names: str) -> set[str]:
    """Put files that nothing reaches; their paths."""
    paths = {f"{table.path}/{name}" for name in names}
    for path in paths:
        table.context.store.put(path, b"left over")
    return paths


LEFT_OVER = (
    "bucket-0/data-left-over-0.parquet",
    "bucket-7/changelog-left-over-0.parquet",
    "manifest/manifest-left-over-0",
    "manifest/manifest-list-left-over-0",
    "index/index-left-over-0",
    "statistics/stat-left-over-0",
    "snapshot/.snapshot-9.0b1c.tmp",
    "schema/.schema-9.0b1c.tmp",
)
OF_OTHERS = (
    "README.txt",
    "elsewhere/data.parquet",
    "schema/notes.txt",
    "consumer/consumer-c1",
    "tag/notes",
    "bucket-0/data-9f-1.managed.blob",
)


def test_a_table_without_left_overs_keeps_all_its_files() -> None:
    table = history(commits=6)
    tag(table, "kept", 2)
    branch_at(table, "b1", 3)
    before = files(table)

    assert clean(table) == ()
    assert files(table) == before


def test_what_nothing_reaches_goes_and_what_is_not_the_tables_stays() -> None:
    table = history(commits=3)
    others = plant(table, *OF_OTHERS[:3], *OF_OTHERS[4:])
    before = files(table)
    orphans = plant(table, *LEFT_OVER)

    assert set(clean(table, dry_run=True)) == orphans
    assert files(table) == before | orphans
    result = table.remove_orphan_files(older_than=FUTURE, force=True)

    assert set(result.paths) == orphans
    assert (result.files, result.bytes) == (len(orphans), 9 * len(orphans))
    assert files(table) == before
    assert others <= files(table)


def test_files_of_an_expiry_that_lost_its_way_go() -> None:
    table = history(commits=4)
    kept = files(table)
    expire(table)
    removed = kept - files(table)
    for path in removed:
        table.context.store.put(path, b"came back")

    # Snapshot files that came back would be states again: they are damaged.
    for path in removed:
        if "/snapshot/" in path:
            table.context.store.delete(path)
    assert set(clean(table)) == {path for path in removed if "/snapshot/" not in path}
    assert table.count() == 1


def test_files_of_tags_and_branches_stay_after_their_snapshots_expired() -> None:
    table = history(commits=6)
    table.create_tag("old", 2)
    table.create_tag("base", 3)
    table.create_branch("b1", "base")
    branch = table.branch("b1")
    branch.write(rows(table.schema, "7 branch"))
    expire(table)

    assert clean(table) == ()
    assert table.to_arrow(tag="old").num_rows == 1
    assert branch.count() == 2


def test_files_of_long_lived_changelogs_stay() -> None:
    table = long_lived()

    assert table.context.history.changelog_ids()
    assert clean(table) == ()


def test_young_files_stay() -> None:
    table = history(commits=2)
    plant(table, *LEFT_OVER)

    assert table.remove_orphan_files().paths == ()
    assert table.remove_orphan_files(older_than="2 h").paths == ()


@pytest.mark.parametrize("age", ["30 min", "0 s", "2100-01-01"])
def test_an_age_below_an_hour_needs_force(age: str) -> None:
    table = history(commits=2)

    with pytest.raises(InvalidRequest, match="last hour"):
        table.remove_orphan_files(older_than=age)


def test_no_age_is_no_age() -> None:
    with pytest.raises(InvalidRequest, match="older_than"):
        history(commits=2).remove_orphan_files(older_than=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("lost", ["tag", "manifest", "list"])
def test_nothing_is_deleted_if_something_that_keeps_files_cannot_be_read(lost: str) -> None:
    table = history(commits=3)
    table.create_tag("old", 1)
    store, layout, past = table.context.store, table.context.layout, table.context.history
    snapshot = past.snapshot(1)
    (manifest,) = past.delta_manifests(snapshot)
    store.put(
        {
            "tag": layout.tag("old"),
            "manifest": layout.manifest(manifest.name),
            "list": layout.manifest(snapshot.delta_manifest_list),
        }[lost],
        b"damaged",
    )
    table = table.refresh()
    plant(table, *LEFT_OVER)
    before = files(table)

    with pytest.raises(CorruptTable):
        lc.Table(table.context).remove_orphan_files(older_than=FUTURE, force=True)
    assert files(table) == before


def test_a_branch_without_a_schema_stops_it() -> None:
    table = history(commits=2)
    plant(table, *LEFT_OVER, "branch/branch-b1/snapshot/snapshot-1")

    with pytest.raises(CorruptTable, match="no schema"):
        clean(table)


def test_empty_buckets_and_partitions_go_with_their_files(tmp_path: Path) -> None:
    table = lc.open_table(
        tmp_path / "t", create=True, schema={"id": "INT", "dt": "STRING"}, partition_keys=["dt"]
    )
    table.write({"id": [1], "dt": ["a"]})
    left = tmp_path / "t" / "dt=gone" / "bucket-0"
    left.mkdir(parents=True)
    (left / "data-x-0.parquet").write_bytes(b"left over")

    assert len(clean(table)) == 1
    assert not left.parent.exists()
    assert (tmp_path / "t" / "dt=a").exists()


@pytest.mark.parametrize("name", READ)
def test_tables_of_java_have_no_orphans(name: str, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / name, tmp_path / "table")
    table = lc.open_table(tmp_path / "table")

    assert len(clean(table, dry_run=True)) == LEFT_BY_JAVA.get(name, 0)


def test_a_branch_whose_creation_died_goes(tmp_path: Path) -> None:
    table = lc.open_table(tmp_path / "t", create=True, schema={"id": "INT"})
    table.write({"id": [1]})
    table.create_branch("kept")
    left = tmp_path / "t/branch/.creating-0b1c"
    for name in ("schema/schema-0", "snapshot/snapshot-1"):
        (left / name).parent.mkdir(parents=True)
        (left / name).write_bytes(b"half")

    assert table.remove_orphan_files().paths == ()
    assert len(clean(table)) == 2
    assert not left.exists()
    assert [branch.name for branch in table.branches()] == ["kept"]


def test_a_tag_does_not_need_the_changelog_of_its_snapshot() -> None:
    table = new_table(changelog_producer="input")
    for number in range(4):
        put(table, f"1 v{number}")
    table.create_tag("kept", snapshot_id=1)
    expire(table)
    before = files(table)

    assert clean(table) == ()
    assert files(table) == before
    table.create_branch("b1", tag="kept")
    assert clean(table) == ()
    put(table, "1 v5")
    assert expire(table).snapshots_expired
    table.rollback_to(tag="kept")
    assert clean(table) == ()
    assert held(table) == "1 v0"


# --- states that go meanwhile --------------------------------------------------------------------


class Meddled(FailingStore):
    """Does something before a list of manifests is read for the first time."""

    def __init__(self, inner: Store, deed: Callable[[], object]) -> None:
        super().__init__(inner)
        self.deed: Callable[[], object] | None = deed

    def read(self, path: str) -> bytes:
        if "/manifest-list-" in path and self.deed is not None:
            deed, self.deed = self.deed, None
            deed()
        return super().read(path)


def long_lived() -> Table:
    table = new_table(
        changelog_producer="input",
        changelog__num_retained__min="1",
        changelog__num_retained__max="100",
        snapshot__num_retained__min="1",
        snapshot__num_retained__max="1",
    )
    for number in range(5):
        put(table, f"1 v{number}")
    return table


def tagged() -> Table:
    table = history(commits=5)
    tag(table, "old", 2)
    expire(table)
    return table


def half_made() -> Table:
    """A table with the pending file of a tag; the snapshot has expired."""
    table = tagged()
    context = table.context
    context.store.put(context.layout.pending("x"), context.store.read(context.layout.tag("old")))
    context.store.delete(context.layout.tag("old"))
    return table


def give_up(table: Table) -> None:
    """What the end of a call and a removal of orphans do."""
    table.context.store.delete(table.context.layout.pending("x"))
    clean(table)


@pytest.mark.parametrize(
    ("made", "deed"),
    [
        (lambda: history(commits=5), expire),
        (tagged, lambda table: table.delete_tag("old")),
        (half_made, give_up),
        (long_lived, lambda table: table.expire_changelogs(delete_all=True)),
    ],
    ids=["snapshots", "tag", "pending", "changelogs"],
)
def test_states_that_go_during_the_removal_do_not_end_it(
    made: Callable[[], Table], deed: Callable[[Table], object]
) -> None:
    table = made()
    shown, other = held(table), reopened(table)
    orphans = plant(table, "bucket-0/data-left-over-0.parquet")
    meddled = reopened(table, store=Meddled(table.context.store, lambda: deed(other)))

    clean(meddled)
    assert not orphans & files(table)
    assert held(reopened(table)) == shown
    assert clean(table) == ()


@pytest.mark.parametrize(
    ("made", "number"),
    [(lambda: history(commits=5), 3), (tagged, 2), (half_made, 2), (long_lived, 3)],
    ids=["snapshot", "tag", "pending", "changelog"],
)
def test_states_that_stay_and_are_damaged_end_the_removal(
    made: Callable[[], Table], number: int
) -> None:
    table = made()
    context = table.context
    past = [each.snapshot for each in states(context.history)]
    lost = next(each for each in past if each.id == number)
    name = lost.changelog_manifest_list or lost.delta_manifest_list
    context.store.delete(context.layout.manifest(name))
    orphans = plant(table, "bucket-0/data-left-over-0.parquet")

    with pytest.raises(CorruptTable, match="nothing was deleted"):
        clean(reopened(table))
    assert orphans <= files(table)
