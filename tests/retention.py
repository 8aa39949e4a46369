"""Tables with a past, for the tests of what happens to snapshots over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.format.metadata import encode_consumer, encode_tag
from lakecore.io.stores.store import MemoryStore
from lakecore.model.snapshot import Tag
from lakecore.table.handle import load_table
from tests.stores import files_below
from tests.tables import new_table, put, rows

if TYPE_CHECKING:
    from lakecore.io.stores.store import Store
    from lakecore.model.retention import ExpiredSnapshots
    from lakecore.table.handle import Table


def history(*, commits: int = 8) -> Table:
    """A table of one row: each commit replaces the file of the one before."""
    table = new_table()
    put(table, "1 v1")
    for number in range(2, commits + 1):
        table.overwrite(rows(table.schema, f"1 v{number}"))
    return table


def expire(table: Table, least: int = 1, *, dry_run: bool = False) -> ExpiredSnapshots:
    """Expire all but the newest snapshots, whatever their age."""
    return table.expire_snapshots(
        retain_min=least, older_than="2100-01-01", max_deletes=1_000, dry_run=dry_run
    )


def tag(table: Table, name: str, snapshot_id: int) -> None:
    """Put a tag on a snapshot."""
    context = table.context
    value = Tag(name=name, snapshot=context.history.snapshot(snapshot_id))
    context.store.put(context.layout.tag(name), encode_tag(value))


def consumer(table: Table, name: str, next_snapshot: int) -> None:
    """Put a consumer in front of a snapshot."""
    context = table.context
    context.store.put(context.layout.consumer(name), encode_consumer(next_snapshot))


def branch_at(table: Table, name: str, snapshot_id: int) -> Table:
    """A new branch whose first snapshot is one of main."""
    store, layout = table.context.store, table.context.layout
    branch = layout.on_branch(name)
    for source, target in (
        (layout.schema(0), branch.schema(0)),
        (layout.snapshot(snapshot_id), branch.snapshot(snapshot_id)),
    ):
        store.put(target, store.read(source))
    return load_table(store, table.path, branch=name, ambient=table.context.ambient)


def names(table: Table) -> set[str]:
    """All files of the table, by their paths in it."""
    found = files_below(table.context.store, table.path)
    return {path.removeprefix(table.path + "/") for path in found}


def data_files(table: Table) -> set[str]:
    """The data files that are there."""
    return {name for name in names(table) if "/data-" in name}


def files_read(table: Table) -> set[str]:
    """The data files that snapshots and tags need, of a table with one bucket."""
    past = table.context.history
    states = [past.snapshot(number) for number in past.snapshot_ids()]
    states += [past.tag(name).snapshot for name in past.tag_names()]
    return {f"bucket-0/{e.file.name}" for each in states for e in past.live_entries(each)}


def copied(store: Store, *, renames_at_once: bool = False) -> MemoryStore:
    """The same files in another store."""
    other = MemoryStore(renames_at_once=renames_at_once)
    for path in files_below(store, "memory://warehouse"):
        other.put(path, store.read(path))
    return other
