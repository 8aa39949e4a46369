"""Atomic creation, move and removal of the directories of tables, branches and databases.

A directory has many files, and a process may die between any two deletions. A table that lost only
its newest snapshots would open at an old one and accept writes. A table is therefore hidden first,
and its files are deleted afterwards.

If the storage renames a directory atomically (`Store.renames_at_once`):

1. the directory is renamed to the sibling `.dropped-UUID/NAME`, where no engine looks for a table;
2. `.dropped-UUID` is deleted. If the process dies or the storage fails before that, the next drop
   in the same parent directory deletes it, even if that drop finds no table.

If the storage does not:

1. the mark `schema/.dropped` is written: from then on lakecore sees no table
   (`io/dropped_mark.py`);
2. the schema files are deleted, oldest first, including those of branches. Engines that do not know
   the mark see the table with its newest schema until the last schema file is deleted;
3. everything else is deleted, the mark last. If the process dies, the next process that drops or
   creates a table of that name continues the deletion.

A new branch consists of several files. If the storage renames atomically, they are written to
`.creating-UUID`, which is then renamed to the branch. Otherwise, the mark is written first, and
deleted after all files are written. Another process that finds the mark does not touch the files.

A table that is copied to a new name has the mark at the new name while its files are copied. The
mark at the old name then decides: it hides the old table and shows the new one
(`dropped_mark.py`). A later drop, creation or move of either name finishes the move.

A failure of the storage after the table is hidden is logged: the drop has taken effect.

INVARIANT: no file of a table is deleted before the step that hides the table.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from lakecore.errors import AlreadyExists, CommitUnknown, LakecoreError, NotFound
from lakecore.format.iceberg.documents import (
    HINT,
    above_place,
    decode_document,
    document_name,
    is_own,
    warehouse_place,
)
from lakecore.format.layout import SCHEMA_PREFIX, Layout, canonical, parse_numbered
from lakecore.io.dropped_mark import moved_from, moved_to, settle
from lakecore.io.stores.guarded import guarded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakecore.io.ambient import Ambient
    from lakecore.io.stores.store import Store

log = logging.getLogger("lakecore.storage")

DROPPED_PREFIX = ".dropped-"
CREATING_PREFIX = ".creating-"


def create_directory(store: Store, path: str, files: Mapping[str, bytes], ambient: Ambient) -> bool:
    """Create a directory with these files atomically; False if something exists there.

    Keys of the files are paths relative to the directory.
    """
    if store.list(path):
        return False
    if not store.renames_at_once:
        mark = Layout(root=path).dropped_mark
        if not store.put_if_absent(mark, ambient.new_uuid().encode()):
            return False
        # Another process may have created the directory between the check and the mark.
        if [child.path for child in store.list(f"{path}/schema")] != [mark]:
            store.delete(mark)
            return False
        for name, data in files.items():
            store.put(f"{path}/{name}", data)
        try:
            store.delete(mark)
        except (LakecoreError, OSError) as error:
            if _answers(store, mark, error):
                raise
        return True
    made = f"{path.rpartition('/')[0]}/{CREATING_PREFIX}{ambient.new_uuid()}"
    try:
        for name, data in files.items():
            store.put(f"{made}/{name}", data)
        _rename(store, made, path)
    except AlreadyExists:
        store.delete_directory(made)
        return False
    except BaseException:
        with suppress(LakecoreError, OSError):
            store.delete_directory(made)
        raise
    return True


def drop_table(store: Store, path: str, ambient: Ambient) -> None:
    """Remove a table or branch atomically: a reader sees all of it or nothing."""
    if store.renames_at_once:
        _move_out_of_sight(store, path, ambient)
    else:
        settle(store, path)
        _put_mark(store, path, b"")
        with _hidden(path):
            finish_drop(store, path)
    _forget_iceberg(store, path)


def drop_database(store: Store, path: str, ambient: Ambient) -> None:
    """Remove a database with its contents: tables one by one, or the whole directory."""
    if store.renames_at_once:
        _move_out_of_sight(store, path, ambient)
        return
    for child in store.list(path):
        if child.is_directory and _schema_files(store, Layout(root=child.path)):
            drop_table(store, child.path, ambient)
    store.delete_directory(path)


def move_table(store: Store, source: str, target: str) -> None:
    """Move a table or a branch, which must have no writers, to a path where nothing exists."""
    if store.renames_at_once:
        _rename(store, source, target)
        _forget_iceberg(store, source)
        return
    settle(store, source)
    store.put(Layout(root=target).dropped_mark, moved_from(source, target))
    try:
        store.copy_directory(source, target)
        _put_mark(store, source, moved_to(target, source))
    except CommitUnknown:
        raise
    except BaseException:
        with suppress(LakecoreError, OSError):
            finish_drop(store, target)
        raise
    with _hidden(source):
        finish_drop(store, source)
    _forget_iceberg(store, source)


def _forget_iceberg(store: Store, path: str) -> None:
    """Delete the Iceberg metadata of a table in its warehouse; a failure leaves it behind."""
    place = warehouse_place(path)
    if place is None:
        return
    with suppress(LakecoreError, OSError, ValueError):
        version = int(store.read(f"{place}/metadata/{HINT}"))
        document = store.read(f"{place}/metadata/{document_name(version)}")
        location = decode_document(document, place)["location"]
        if canonical(location).rstrip("/") == path.rstrip("/"):
            store = guarded(store, Layout(root=above_place(place)))
            for child in store.list(f"{place}/metadata"):
                if not child.is_directory and is_own(child.path.rpartition("/")[2]):
                    store.delete(child.path)
            for directory in (f"{place}/metadata", place):
                store.remove_empty_directory(directory)


def finish_drop(store: Store, path: str) -> bool:
    """Finish deleting a table that its mark hides. Returns whether there was such a mark."""
    layout = Layout(root=path)
    settle(store, path)
    if not store.exists(layout.dropped_mark):
        return False
    branches = (child.path for child in store.list(layout.branches_dir) if child.is_directory)
    for each in (layout, *(Layout(root=branch) for branch in branches)):
        for file in _schema_files(store, each):
            store.delete(file)
    # Snapshots first: an open table then reports that it was dropped, not that manifests are gone.
    store.delete_directory(layout.snapshot_dir)
    for child in store.list(path):
        if not child.is_directory:
            store.delete(child.path)
        elif child.path != layout.schema_dir:
            store.delete_directory(child.path)
    # INVARIANT: a schema written concurrently is deleted before the mark is deleted.
    for child in store.list(layout.schema_dir):
        if child.path != layout.dropped_mark:
            store.delete(child.path)
    store.delete(layout.dropped_mark)
    store.delete_directory(path)
    return True


def sweep(store: Store, directory: str) -> None:
    """Delete the `.dropped-UUID` directories that interrupted drops left in a directory.

    Does nothing if the storage does not rename atomically.
    """
    for child in store.list(directory) if store.renames_at_once else ():
        if child.path.rpartition("/")[2].startswith(DROPPED_PREFIX):
            with suppress(LakecoreError, OSError):
                store.delete_directory(child.path)


def _move_out_of_sight(store: Store, path: str, ambient: Ambient) -> None:
    parent, _, name = path.rpartition("/")
    out_of_sight = f"{parent}/{DROPPED_PREFIX}{ambient.new_uuid()}"
    _rename(store, path, f"{out_of_sight}/{name}")
    with _hidden(path):
        store.delete_directory(out_of_sight)
        sweep(store, parent)


def _put_mark(store: Store, path: str, data: bytes) -> None:
    """Hide a table that has no mark. A failure that is only a lost reply is not raised."""
    mark = Layout(root=path).dropped_mark
    try:
        store.put(mark, data)
    except (LakecoreError, OSError) as error:
        if not _answers(store, mark, error):
            raise


def _rename(store: Store, source: str, target: str) -> None:
    """Rename a directory in one step. A failure that is only a lost reply is not raised."""
    try:
        store.rename_directory(source, target)
    except (AlreadyExists, NotFound):
        raise
    except (LakecoreError, OSError) as error:
        if _answers(store, source, error) or not _answers(store, target, error):
            raise


def _answers(store: Store, path: str, error: Exception) -> bool:
    """Whether a path exists, after a call that was to make it has failed with `error`.

    Raises CommitUnknown if the storage does not answer.
    """
    try:
        return store.exists(path)
    except (LakecoreError, OSError):
        raise CommitUnknown(
            "the reply of the storage was lost: the call may have taken effect", path=path
        ) from error


@contextmanager
def _hidden(path: str) -> Iterator[None]:
    """Log a failure of the storage within the block: the directory is out of sight already."""
    try:
        yield
    except (LakecoreError, OSError) as error:
        log.warning("dropped, but files are left: path=%s reason=%s", path, error)


def _schema_files(store: Store, layout: Layout) -> list[str]:
    """The schema files of a table or branch, oldest first."""
    numbered = {
        number: child.path
        for child in store.list(layout.schema_dir)
        if (number := parse_numbered(child.path.rpartition("/")[2], SCHEMA_PREFIX)) is not None
    }
    return [numbered[number] for number in sorted(numbered)]
