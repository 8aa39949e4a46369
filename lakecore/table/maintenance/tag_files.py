"""The files that only a tag keeps, and that may be deleted with the tag.

If the tag's snapshot has not expired, or another tag names it, the tag alone keeps no file.
Otherwise the data files, manifests and index files of the tag are compared with those of all other
states: the snapshots, tags and long-lived changelogs of all branches.

The history of a branch is linear: a file that is older than the first snapshot of the branch, and
not live in it, never becomes live later. Of the snapshots of a branch, it is therefore enough to
compare with the first.

INVARIANT: if one of these states cannot be read, no file is deleted.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import CorruptTable
from lakecore.table.maintenance.deletion import Deletion, delete_files_of, metadata_left
from lakecore.table.maintenance.reachable import (
    Metadata,
    Reach,
    StateKind,
    entry_frame,
    follows,
    live_files,
    metadata_of,
    other_branches,
    states,
)
from lakecore.table.reads.told import told_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from lakecore.io.history.history import History
    from lakecore.model.retention import FilesDeleted
    from lakecore.model.snapshot import Snapshot, Tag
    from lakecore.table.context import TableContext

__all__ = ["TagFiles", "files_of_tag"]

log = logging.getLogger("lakecore.tags")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TagFiles:
    """The files that a tag alone keeps: planned, not yet deleted."""

    context: TableContext
    plan: Deletion

    @property
    def counts(self) -> FilesDeleted:
        """The number of files of each kind."""
        return self.plan.counts

    @property
    def unreadable(self) -> tuple[int, ...]:
        """The snapshot of the tag, if its files stay because something could not be read."""
        return self.plan.unreadable

    def delete(self) -> None:
        """Delete the files. The tag must be deleted before."""
        delete_files_of(self.context, self.plan)


def files_of_tag(context: TableContext, tag: Tag) -> TagFiles:
    """The files that the tag alone keeps."""
    history = context.history
    none = entry_frame(history, ())
    unreadable: tuple[int, ...] = ()
    alive = history.snapshot_if_there(tag.snapshot.id)
    if tag.snapshot.is_same(alive) or _named_twice(context, tag):
        plan = Deletion(data=none, changelog=none, metadata=Metadata())
        return TagFiles(context=context, plan=plan)
    try:
        data, metadata = _unreached(context, tag)
    except CorruptTable as error:
        log.warning(
            "the files of a tag are kept, because a state that may need them cannot be read: "
            "table=%s tag=%s snapshot=%d reason=%s",
            context.identifier,
            tag.name,
            tag.snapshot.id,
            told_by(error, context),
        )
        data, metadata, unreadable = none, Metadata(), (tag.snapshot.id,)
    plan = Deletion(data=data, changelog=none, metadata=metadata, unreadable=unreadable)
    return TagFiles(context=context, plan=plan)


def _named_twice(context: TableContext, tag: Tag) -> bool:
    """Whether another tag of the branch names the snapshot."""
    own = states(context.history)
    return any(
        tag.snapshot.is_same(state.snapshot)
        for state in own
        if state.kind is StateKind.TAG and state.name != tag.name
    )


def _unreached(context: TableContext, tag: Tag) -> tuple[pl.DataFrame, Metadata]:
    history = context.history
    data = live_files(entry_frame(history, history.manifests(tag.snapshot)))
    metadata = metadata_of(context, [tag.snapshot], changelog=False)
    reach = Reach(history, data)
    snapshots, changelogs = [], []
    for branch in (history, *other_branches(context)):
        without = tag.name if branch is history else None
        for kind, snapshot in _roots(branch, without):
            if kind is StateKind.CHANGELOG:
                reach.add_changelog(snapshot)
                changelogs.append(snapshot)
            else:
                reach.add_live(snapshot)
                snapshots.append(snapshot)
    stays = metadata_of(context, snapshots, changelog=False)
    stays |= _of_changelogs(context, changelogs)
    return reach.without_reached(data), metadata - stays


def _roots(history: History, without: str | None) -> Iterator[tuple[StateKind, Snapshot]]:
    """The states to compare with in a branch: tags, changelogs, the first snapshot of each line.

    The tag named `without` is left out.
    """
    before: Snapshot | None = None
    for state in states(history):
        if state.kind is StateKind.SNAPSHOT:
            first = not follows(before, state.snapshot)
            before = state.snapshot
            if not first:
                continue
        elif state.kind is StateKind.TAG and state.name == without:
            continue
        yield state.kind, state.snapshot


def _of_changelogs(context: TableContext, changelogs: Sequence[Snapshot]) -> Metadata:
    found = metadata_left(context, changelogs, data=True, changelog=True)
    return Metadata(lists=found.lists, manifests=found.manifests)
