"""Verbs of several steps: one step decides; it is proved before it, and cleaned up after it.

Before the deciding step, readers see the old state, and a failure is raised. After it, readers see
the new state: a failure is logged, and a later call, or the removal of orphan files, does the rest.

A verb that leads back to an older state proves first that the state is whole, because what would
replace it is deleted afterwards.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakecore.errors import CommitConflict, CommitUnknown, CorruptTable, LakecoreError, NotFound
from lakecore.table.maintenance.reachable import (
    data_paths,
    entry_frame,
    live_files,
    metadata_of,
    tags_of,
)
from lakecore.table.reads.told import told_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext

__all__ = ["clean_up_after", "decide", "existing_snapshot", "expired_during", "require_whole"]

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


def require_whole(context: TableContext, snapshot: Snapshot) -> None:
    """Raise CorruptTable if a file that a reader of the snapshot needs does not exist.

    Lists each directory that holds such files once; reads no data.
    """
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


def expired_during(context: TableContext, snapshot_id: int, **facts: object) -> NotFound:
    """The error for a snapshot that another process let expire during the call."""
    return NotFound(
        "the snapshot expired during the call; choose a newer one",
        snapshot_id=snapshot_id,
        **facts,
        table=context.identifier,
    )
