"""A plan of files to delete, and its execution in an order that is safe after a crash.

1. data and changelog files, with their extra files;
2. the files that manifest lists and index manifests name, and statistics files;
3. the manifest lists and index manifests.

Afterwards, the caller deletes the snapshot file, which names the lists. Therefore a run after a
crash still finds every remaining file. Files that are already absent are ignored.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet

import polars as pl

from lakecore.errors import CommitConflict, CommitUnknown, CorruptTable, LakecoreError, NotFound
from lakecore.format import metadata
from lakecore.format.layout import MAIN_BRANCH
from lakecore.io.parallel import delete_all
from lakecore.io.stores.store import has_file
from lakecore.model.manifest import FileKind
from lakecore.model.retention import FilesDeleted
from lakecore.model.snapshot import Snapshot, Tag
from lakecore.table.maintenance.reachable import (
    KEY,
    Keepers,
    Metadata,
    Reach,
    State,
    data_paths,
    entry_frame,
    live_files,
    metadata_of,
    metadata_of_states,
    other_branches,
    states,
    tags_of,
)
from lakecore.table.reads.told import told_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lakecore.io.history import History
    from lakecore.io.stores.store import FileStatus
    from lakecore.table.context import TableContext


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Deletion:
    """The files to delete: frames of data files and of changelog files, and metadata files."""

    data: pl.DataFrame
    changelog: pl.DataFrame
    metadata: Metadata
    unreadable: tuple[int, ...] = field(default=())

    @property
    def counts(self) -> FilesDeleted:
        """The number of files of each kind."""
        metadata = self.metadata
        return FilesDeleted(
            data_files=len(self.data),
            data_bytes=int(self.data["_FILE_SIZE"].sum()),
            changelog_files=len(self.changelog),
            manifests=len(metadata.lists) + len(metadata.manifests),
            index_files=len(metadata.index_files),
            statistics=len(metadata.statistics),
        )


class Stays:
    """What states reference of some candidates for deletion; the rest goes."""

    def __init__(self, context: TableContext, *candidates: pl.DataFrame) -> None:
        self._context = context
        files = pl.concat(candidates)
        self._reach = Reach(context.history, files, context.partitions) if len(files) else None
        self._metadata = Metadata()

    def add(self, found: Iterable[State], *, data: bool = True) -> None:
        """Keep what these states of one branch reference; without `data`, only their metadata."""
        listed = list(found)
        self._metadata |= metadata_of_states(self._context, listed)
        if data and self._reach is not None:
            self._reach.add_states(listed)

    def add_branches(self, listed: Sequence[FileStatus] | None = None) -> None:
        """Keep what all other branches reference. `listed`: the directory of branches, if known."""
        for branch in other_branches(self._context, listed):
            self.add(states(branch))

    def without(
        self,
        data: pl.DataFrame,
        changelog: pl.DataFrame,
        metadata: Metadata,
        unreadable: tuple[int, ...] = (),
    ) -> Deletion:
        """The candidates that no state references."""
        if self._reach is not None:
            data, changelog = map(self._reach.without_reached, (data, changelog))
        left = metadata - self._metadata
        return Deletion(data=data, changelog=changelog, metadata=left, unreadable=unreadable)


_Plan = TypeVar("_Plan", bound=Deletion | None)


def delete_files_of(context: TableContext, plan: Deletion) -> None:
    """Delete the files of a plan, in parallel. Raises the first error of the storage."""
    store, bulk = context.store, context.bulk
    bulk.delete_all(store, data_paths(context, plan.data))
    bulk.delete_all(store, data_paths(context, plan.changelog))
    if context.options.snapshot_clean_empty_directories:
        _remove_empty_directories(context, [plan.data, plan.changelog])
    metadata = plan.metadata
    bulk.delete_all(store, sorted(metadata.manifests | metadata.index_files | metadata.statistics))
    bulk.delete_all(store, sorted(metadata.lists))


def changes_in(frame: pl.DataFrame) -> pl.DataFrame:
    """One row for each file, with a flag: true if the file is added, false if it is deleted."""
    added = (pl.col("_KIND") == FileKind.ADD).any().alias("added")
    others = [name for name in frame.columns if name not in {*KEY, "_KIND"}]
    return frame.group_by(KEY, maintain_order=True).agg(added, pl.col(others).last())


def _remove_empty_directories(context: TableContext, frames: Sequence[pl.DataFrame]) -> None:
    """Remove the directories of buckets that lost files, then of partitions, if they are empty."""
    layout, remove = context.layout, context.store.remove_empty_directory
    touched = pl.concat([frame.select(KEY[:2]) for frame in frames]).unique().rows()
    places = {(context.partitions.path(partition), bucket) for partition, bucket in touched}
    delete_all(remove, sorted(layout.bucket_dir(path, bucket) for path, bucket in places))
    level = {path for path, _ in places if path}
    while level:
        delete_all(remove, sorted(map(layout.partition_dir, level)))
        level = {path.rpartition("/")[0] for path in level} - {""}


# --- steps ---------------------------------------------------------------------------------------
# Verbs of several steps: one step decides; it is proved before it, and cleaned up after it.
#
# Before the deciding step, readers see the old state, and a failure is raised. After it, readers
# see the new state: a failure is logged, and a later call, or the removal of orphan files, does the
# rest.
#
# A verb that leads back to an older state proves first that the state is whole, because what would
# replace it is deleted afterwards.

log = logging.getLogger("lakecore.maintenance")


def decide(act: Callable[[], None], is_done: Callable[[], bool], **facts: object) -> None:
    """Carry out the deciding step of a verb.

    If the storage reports a failure, `is_done` looks whether the step took effect all the same.
    Raises the failure if it did not, CommitUnknown if that cannot be determined.
    """
    try:
        act()
    except (LakecoreError, OSError) as error:
        try:
            done = is_done()
        except (LakecoreError, OSError):
            raise CommitUnknown(
                "the reply of the storage was lost: the call may have taken effect", **facts
            ) from error
        if not done:
            raise


def is_at(context: TableContext, path: str, data: bytes) -> bool:
    """Whether a file exists with these bytes."""
    try:
        return context.store.read(path) == data
    except NotFound:
        return False


@contextmanager
def clean_up_after(context: TableContext, verb: str) -> Iterator[None]:
    """Log a failure of the storage within the block: the verb has already taken effect."""
    try:
        yield
    except CommitConflict:
        raise
    except (LakecoreError, OSError) as error:
        log.warning(
            "%s is done, but its clean-up is not; files may be left. table=%s reason=%s",
            verb,
            context.identifier,
            told_by(error, context),
        )


@contextmanager
def pending(context: TableContext, snapshot: Snapshot) -> Iterator[None]:
    """Keep the files of a snapshot within the block, which makes a tag or a branch of it.

    Whoever deletes files looks for pending files after the step that decides. In the block, the
    caller first checks that the snapshot is still kept: then no one can have looked before. If the
    process dies, the file stays, and the removal of orphan files deletes it.
    """
    path = context.layout.pending(context.ambient.new_uuid())
    context.store.put(path, metadata.encode_tag(Tag(name="", snapshot=snapshot)))
    try:
        yield
    except CommitUnknown:
        raise  # what is made may exist, and nobody has checked it
    except (LakecoreError, OSError):
        with suppress(LakecoreError, OSError):
            context.store.delete(path)
        raise
    with clean_up_after(context, "the call"):
        context.store.delete(path)


def fast_forward_of(context: TableContext) -> str | None:
    """The branch of a fast-forward that runs or was interrupted; None if there is none."""
    try:
        return context.store.read(context.layout.fast_forward_record).decode("utf-8", "replace")
    except NotFound:
        return None


NO_KEEPERS = Keepers(is_rolled_back=False, tags=(), branches=())
_ALONE: WeakSet[History] = WeakSet()
"""The histories of tables that had no keepers when `settled` last looked."""


def keepers(context: TableContext, without: str = "") -> Keepers:
    """What keeps files of a table, listed. `without` is the path of a tag that does not count."""
    store, layout = context.store, context.layout
    return Keepers(
        is_rolled_back=has_file(store, layout.rollback_record),
        tags=tuple(each for each in store.list(layout.tag_dir) if each.path != without),
        branches=tuple(store.list(layout.branches_dir)),
    )


def settled(
    context: TableContext,
    seen: Keepers | None,
    plan: _Plan,
    plan_again: Callable[[Keepers], _Plan],
    without: str = "",
) -> _Plan:
    """The plan, made again for as long as what keeps files has changed while it was made.

    `seen` is what `keepers` returned before. If it returns the same afterwards, all of that kept
    its files in between, and the plan has seen it. Another branch may have taken over what keeps
    files by a fast-forward, which leaves no trace in this one: a branch plans again in any case.
    """
    if context.layout.branch != MAIN_BRANCH:
        seen = None
    while (now := keepers(context, without)) != seen:
        seen, plan = now, planned(partial(plan_again, now))
    (_ALONE.add if now == NO_KEEPERS else _ALONE.discard)(context.history)
    return plan


def planned(plan: Callable[[], _Plan]) -> _Plan:
    """The plan, made again for as long as another file is missing each time.

    What keeps a file may be deleted while its files are read. Raises CorruptTable if a file is
    missing twice, or damaged: then something that is kept cannot be read.
    """
    missing: object = None
    while True:
        try:
            return plan()
        except CorruptTable as error:
            path = error.facts.get("path")
            if path is None or path == missing:
                raise
            missing = path


def is_alone(context: TableContext) -> bool:
    """Whether nothing kept files of the table when files were last deleted through its handle."""
    return context.history in _ALONE


def require_whole(context: TableContext, snapshot: Snapshot) -> None:
    """Raise CorruptTable if a file that a reader of the snapshot needs does not exist.

    Lists each directory that holds such files once; reads no data. Raises NotFound if the snapshot
    has expired, or its tag was deleted, since the caller found it.
    """
    try:
        _check_files(context, snapshot)
    except CorruptTable:
        kept = (tag.snapshot for tag in tags_of(context.history))
        alive = context.history.listed_snapshot(snapshot.id)
        if not snapshot.is_same(alive) and not any(map(snapshot.is_same, kept)):
            raise expired_during(context, snapshot.id) from None
        raise


def _check_files(context: TableContext, snapshot: Snapshot) -> None:
    live = live_files(entry_frame(context.history, context.history.manifests(snapshot)))
    metadata = metadata_of(context, [snapshot], changelog=False)
    needed: dict[str, set[str]] = defaultdict(set)
    for path in (*data_paths(context, live), *(metadata.paths - metadata.statistics)):
        directory, _, name = path.rpartition("/")
        needed[directory].add(name)
    directories = sorted(needed)
    listed = context.bulk.list_all(context.store, directories)
    for directory, statuses in zip(directories, listed, strict=True):
        there = {status.path.rpartition("/")[2] for status in statuses}
        missing = sorted(needed[directory] - there)
        if missing:
            raise CorruptTable(
                "files of the snapshot are missing, so the call would lose the table's rows; "
                "nothing was changed. Choose another snapshot or a tag",
                snapshot_id=snapshot.id,
                missing=len(missing),
                file=f"{directory}/{missing[0]}",
                table=context.identifier,
            )


def existing_snapshot(context: TableContext, snapshot_id: int) -> Snapshot:
    """The snapshot of that id, listed or kept by a tag. Raises NotFound if there is none."""
    found = context.history.listed_snapshot(snapshot_id)
    tagged = (tag.snapshot for tag in tags_of(context.history) if tag.snapshot.id == snapshot_id)
    found = found or next(tagged, None)
    if found is not None:
        return found
    context.history.snapshot(snapshot_id)  # raises NotFound if it does not exist
    raise NotFound(
        "the snapshot has expired: an expiry has begun to delete its files",
        snapshot_id=snapshot_id,
        earliest=context.history.earliest_snapshot_id(),
        table=context.identifier,
    )


def is_removed(context: TableContext, snapshot: Snapshot) -> bool:
    """Whether a rollback or a fast-forward took the snapshot away: it is gone without expiring."""
    if snapshot.is_same(context.history.snapshot_if_there(snapshot.id)):
        return False
    earliest = context.history.earliest_snapshot_id()
    return earliest is not None and earliest <= snapshot.id


def expired_during(context: TableContext, snapshot_id: int, **facts: object) -> NotFound:
    """The error for a snapshot that another process let expire during the call."""
    return NotFound(
        "the snapshot expired during the call; choose a newer one",
        snapshot_id=snapshot_id,
        **facts,
        table=context.identifier,
    )
