"""Orphan files: files in the directories of a table that no state references.

A crash, a failed write or an interrupted expiry leaves them. The steps:

1. List the directories of metadata, indexes, statistics and data, and keep only files that are old
   enough.
2. Read every state of every branch: snapshots, tags and long-lived changelogs. A file that one of
   them references is not an orphan. Files are compared by name, because names are never reused.
3. Look for states that were created during step 2, and read them too.
4. Delete the orphans, then empty directories of buckets and partitions.

Only files whose names Paimon or lakecore could have generated are examined. Other files in the
directories of the table stay. Managed files of BLOB values stay too, as in Paimon: the values of
rows refer to them, and no metadata names them.

Symbolic links are neither followed nor deleted.

INVARIANT: if a state cannot be read, nothing is deleted. A file that is younger than the age may
belong to a running commit; an age below an hour needs `force`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from lakecore.errors import CorruptTable, InvalidRequest, NotFound
from lakecore.format.layout import (
    BUCKET_PREFIX,
    CHANGELOG_PREFIX,
    EARLIEST,
    LATEST,
    MAIN_BRANCH,
    MANAGED_BLOB_SUFFIX,
    SNAPSHOT_PREFIX,
    Layout,
)
from lakecore.io.directories import CREATING_PREFIX, DROPPED_PREFIX
from lakecore.io.parallel import delete_all, read_all
from lakecore.io.progress import WorkBar
from lakecore.model.manifest import FileKind, ManifestFile
from lakecore.model.retention import OrphanFiles
from lakecore.table.context import TableContext, require_table, with_bar
from lakecore.table.maintenance.reachable import (
    State,
    StateKind,
    branch_names,
    changelog_manifests,
    entry_frame,
    history_of,
    in_lines,
    lists_of,
    metadata_of,
    pending_of,
    states,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakecore.io.history import History
    from lakecore.io.stores.store import FileStatus
    from lakecore.model.snapshot import Snapshot

AGE_MS_MIN = 3_600_000
"""Running commits are assumed to be younger than this."""

_HINTS = {EARLIEST, LATEST}
_HIDDEN = re.compile(r"\..+\.tmp")
_NAME = "name"


def remove_orphan_files(
    context: TableContext, older_than_ms: int, *, force: bool, dry_run: bool
) -> OrphanFiles:
    """Delete, or only list, the orphan files that were last changed before a time."""
    require_table(context)
    youngest = context.ambient.now_ms() - AGE_MS_MIN
    if older_than_ms > youngest and not force:
        raise InvalidRequest(
            "files of the last hour may belong to a running commit; wait, or set force if there"
            " are no writers",
            older_than_ms=older_than_ms,
            latest_allowed_ms=youngest,
            table=context.identifier,
        )
    with WorkBar() as bar:
        return _remove(with_bar(context, bar), bar, older_than_ms, dry_run=dry_run)


def _remove(
    context: TableContext, bar: WorkBar, older_than_ms: int, *, dry_run: bool
) -> OrphanFiles:
    histories = _histories(context)
    old = _old_files(context, histories, older_than_ms)
    abandoned = _abandoned(context, older_than_ms)
    orphans = pl.concat([_without_reached(context, bar, histories, old), *abandoned.values()])
    if not dry_run:
        context.bulk.delete_all(context.store, orphans["path"].to_list())
        _remove_empty_directories(context, orphans["path"].to_list())
        delete_all(context.store.delete_directory, abandoned)
    return OrphanFiles(
        files=len(orphans),
        bytes=int(orphans["size"].sum()),
        paths=tuple(orphans["path"].sort()),
        dry_run=dry_run,
    )


def _histories(context: TableContext) -> list[History]:
    """The histories of all branches. Raises CorruptTable for a branch without a schema."""
    found = [history_of(context, name) for name in (MAIN_BRANCH, *branch_names(context))]
    for history in found:
        if not history.schema_ids():
            raise CorruptTable(
                "a branch has no schema, so the files that it keeps are unknown; delete the branch",
                branch=history.layout.branch,
                table=context.identifier,
            )
    return found


# --- what is there --------------------------------------------------------------------------------


def _old_files(
    context: TableContext, histories: Sequence[History], older_than_ms: int
) -> pl.DataFrame:
    """Path, name and size of the files that may be orphans: one row a file."""
    layout = context.layout
    owned = (layout.manifest_dir, layout.index_dir, layout.statistics_dir)
    found = list(_files_in(context, [*owned, *_bucket_dirs(context)]))
    for history in histories:
        own = history.layout
        numbered = {own.snapshot_dir: SNAPSHOT_PREFIX, own.changelog_dir: CHANGELOG_PREFIX}
        for directory in (*numbered, own.schema_dir, own.tag_dir, own.consumer_dir):
            found += (
                status
                for status in _files_in(context, [directory])
                if _is_left_over(own, status, numbered.get(directory))
            )
    old = [
        status
        for status in found
        if status.modified_ms is not None
        and status.modified_ms < older_than_ms
        and not status.path.endswith(MANAGED_BLOB_SUFFIX)
    ]
    return _frame(old)


def _frame(statuses: Sequence[FileStatus]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "path": [status.path for status in statuses],
            _NAME: [status.path.rpartition("/")[2] for status in statuses],
            "size": [status.size_bytes for status in statuses],
        },
        schema={"path": pl.String, _NAME: pl.String, "size": pl.Int64},
    )


def _abandoned(context: TableContext, older_than_ms: int) -> dict[str, pl.DataFrame]:
    """The directories of branches whose creation or deletion was interrupted, and their files.

    Readers do not see these directories (`io/directories.py`). A directory with a young file stays.
    """
    found: dict[str, pl.DataFrame] = {}
    for place in _directories_in(context, [context.layout.branches_dir]):
        if not place.rpartition("/")[2].startswith((CREATING_PREFIX, DROPPED_PREFIX)):
            continue
        level: list[str] = [place]
        files: list[FileStatus] = []
        while level:
            files += _files_in(context, level)
            level = _directories_in(context, level)
        if all((status.modified_ms or older_than_ms) < older_than_ms for status in files):
            found[place] = _frame(files)
    return found


def _is_left_over(layout: Layout, status: FileStatus, prefix: str | None) -> bool:
    """Whether a file in a metadata directory is left over and may be deleted.

    The directories of snapshots and changelogs hold snapshot files, hints and the record of a
    rollback or a fast-forward; any other file there is left over, as in Paimon. In the directories
    of schemas, tags and consumers, only the remains of an unfinished local write are left over, and
    the pending files of calls that were interrupted.
    """
    name = status.path.rpartition("/")[2]
    if prefix is None:
        return _HIDDEN.fullmatch(name) is not None or status.path.startswith(layout.pending(""))
    records = (layout.rollback_record, layout.fast_forward_record)
    kept = _HINTS.union(path.rpartition("/")[2] for path in records)
    return not name.startswith(prefix) and name not in kept


def _bucket_dirs(context: TableContext) -> Iterator[str]:
    """The directories of all buckets of the table.

    External places are left out: they may hold files of other tables.
    """
    depth = len(context.schema.partition_keys)
    level = [context.layout.data_dir]
    for _ in range(depth):
        level = [path for path in _directories_in(context, level) if "=" in path.rpartition("/")[2]]
    for path in _directories_in(context, level):
        if path.rpartition("/")[2].startswith(BUCKET_PREFIX):
            yield path


def _directories_in(context: TableContext, parents: Sequence[str]) -> list[str]:
    listed = context.bulk.list_all(context.store, parents)
    return [
        status.path
        for some in listed
        for status in some
        if status.is_directory and not status.is_link
    ]


def _files_in(context: TableContext, directories: Iterable[str]) -> Iterator[FileStatus]:
    for some in context.bulk.list_all(context.store, list(directories)):
        yield from (each for each in some if not each.is_directory and not each.is_link)


# --- what is reached ------------------------------------------------------------------------------


def _without_reached(
    context: TableContext, bar: WorkBar, histories: Sequence[History], old: pl.DataFrame
) -> pl.DataFrame:
    """The files among `old` that no state of any branch references."""
    seen: set[tuple[str, str, str, str]] = set()
    left = old
    while not left.is_empty():
        fresh = [
            (history, [state for state in states(history) if _key(state) not in seen])
            for history in histories
        ]
        if not any(some for _, some in fresh):
            break
        for history, some in fresh:
            try:
                names = _reached(context, bar, history, some, left.select(_NAME))
            except CorruptTable as error:
                if all(_is_there(history, state) for state in some):
                    raise CorruptTable(
                        f"{error.message}; nothing was deleted. If an expiry or a rollback was "
                        "interrupted, run it again first",
                        **error.facts,
                    ) from error
                continue  # expired or deleted since the listing: read the remaining states again
            seen.update(map(_key, some))
            left = left.join(names, on=_NAME, how="anti", maintain_order="left")
    return left


def _is_there(history: History, state: State) -> bool:
    """Whether a state still exists, unchanged."""
    try:
        match state.kind:
            case StateKind.SNAPSHOT:
                return state.snapshot.is_same(history.snapshot_if_there(state.snapshot.id))
            case StateKind.TAG:
                return state.snapshot.is_same(history.tag(state.name).snapshot)
            case StateKind.PENDING:
                return any(state.name == pending.name for pending in pending_of(history))
            case StateKind.CHANGELOG:
                return state.snapshot.is_same(history.changelog(state.snapshot.id))
    except NotFound:
        return False


def _key(state: State) -> tuple[str, str, str, str]:
    """The identity of a state. A tag that moved to another snapshot has another identity."""
    return state.branch, state.kind, state.name, state.snapshot.delta_manifest_list


def _reached(
    context: TableContext,
    bar: WorkBar,
    history: History,
    found: Sequence[State],
    among: pl.DataFrame,
) -> pl.DataFrame:
    """The names of the metadata files, and of data files in `among`, that `found` references."""
    names = _Names(history, among)
    paths: set[str] = set()
    whole = [state.snapshot for state in found if state.kind is not StateKind.CHANGELOG]
    paths |= metadata_of(context, whole).paths
    for number, (state, follows) in enumerate(in_lines(found)):
        bar.at(f"{number:,} of {len(found):,} states read", number, len(found))
        snapshot = state.snapshot
        if state.kind is StateKind.CHANGELOG:
            paths |= _metadata_of_changelog(history, snapshot)
            names.add(changelog_manifests(history, snapshot))
            continue
        if follows:
            names.add(history.delta_manifests(snapshot))
        else:
            names.add_live(history.manifests(snapshot))
        if snapshot.changelog_manifest_list is not None:
            names.add(changelog_manifests(history, snapshot))
    own = pl.DataFrame({_NAME: [path.rpartition("/")[2] for path in paths]}, schema=among.schema)
    return pl.concat([own, names.reached()])


def _metadata_of_changelog(history: History, changelog: Snapshot) -> frozenset[str]:
    """The paths of the lists and manifests that a reader of a long-lived changelog needs."""
    lists = dict(lists_of(changelog)[1:])
    named = (each.name for each in changelog_manifests(history, changelog))
    return frozenset(map(history.layout.manifest, (*lists, *named)))


class _Names:
    """Collects which of some file names manifests reference; reads each manifest once."""

    def __init__(self, history: History, among: pl.DataFrame) -> None:
        self._history = history
        self._among = among.unique()
        self._frames: dict[str, pl.DataFrame] = {}
        self._reached = [among.clear()]

    def add(self, manifests: Sequence[ManifestFile]) -> None:
        """Record as referenced: the files that these manifests add."""
        frame = self._entries(manifests)
        self._reached.append(frame.filter(pl.col("_KIND") == FileKind.ADD).select(_NAME))

    def add_live(self, manifests: Sequence[ManifestFile]) -> None:
        """Record as referenced: the files that these manifests add and do not delete again."""
        sign = 1 - 2 * pl.col("_KIND")
        count = self._entries(manifests).group_by(_NAME).agg(sign.sum().alias("count"))
        self._reached.append(count.filter(pl.col("count") > 0).select(_NAME))

    def reached(self) -> pl.DataFrame:
        """All names that were found."""
        return pl.concat(self._reached).unique()

    def _entries(self, manifests: Sequence[ManifestFile]) -> pl.DataFrame:
        fresh = [m for m in {m.name: m for m in manifests}.values() if m.name not in self._frames]
        read = dict(zip((m.name for m in fresh), read_all(self._read, fresh), strict=True))
        self._frames |= read
        empty = pl.DataFrame(schema={_NAME: pl.String, "_KIND": pl.Int32})
        return pl.concat([empty, *(self._frames[manifest.name] for manifest in manifests)])

    def _read(self, manifest: ManifestFile) -> pl.DataFrame:
        frame = entry_frame(self._history, [manifest])
        own = frame.select(pl.col("_FILE_NAME").alias(_NAME), "_KIND")
        extra = frame.select(pl.col("_EXTRA_FILES").alias(_NAME), "_KIND").explode(
            _NAME, empty_as_null=False
        )
        return pl.concat([own, extra.drop_nulls(_NAME)]).join(self._among, on=_NAME, how="semi")


# --- what is empty then ---------------------------------------------------------------------------


def _remove_empty_directories(context: TableContext, paths: Sequence[str]) -> None:
    """Remove the directories of buckets that lost files, then of partitions, if they are empty."""
    remove = context.store.remove_empty_directory
    level = {path.rpartition("/")[0] for path in paths}
    level = {path for path in level if path.rpartition("/")[2].startswith(BUCKET_PREFIX)}
    while level:
        delete_all(remove, sorted(level))
        level = {path.rpartition("/")[0] for path in level}
        level = {
            path
            for path in level
            if path != context.layout.data_dir and "=" in path.rpartition("/")[2]
        }
