"""The files that a snapshot, tag, branch or long-lived changelog references, and that must stay.

A *state* is a snapshot, a tag or a long-lived changelog of a branch; `states` lists them. A pending
state is a snapshot that a tag, a branch or a rollback is about to keep (`pending_of`). A state
*reaches* (references) metadata files (`metadata_of`) and data files. A data file is identified by
partition, bucket and name (`KEY`), because migrated tables may have equal names in several
partitions. A file that only changed its level is the same file.

Data files are processed as columns, and only candidates for deletion are searched for: `Reach`
reads each manifest once, keeps the entries of candidates, and returns which of them are reached.

INVARIANT: a manifest that cannot be read raises an error. A read error never makes a file count as
unreached.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import polars as pl

from lakecore.errors import CorruptTable, NotFound
from lakecore.format import metadata
from lakecore.format.layout import BRANCH_PREFIX, MAIN_BRANCH, PENDING_PREFIX, one_name
from lakecore.format.metadata import decode_rollback
from lakecore.io.history import History, tag_names
from lakecore.io.parallel import read_all
from lakecore.model.manifest import FileKind, ManifestFile
from lakecore.model.snapshot import Snapshot, Tag
from lakecore.plan.manifests import holding, hull_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakecore.io.stores.store import FileStatus
    from lakecore.plan.partitions import Partitions
    from lakecore.table.context import TableContext

T = TypeVar("T")
KEY = ("_PARTITION", "_BUCKET", "_FILE_NAME")
"""The columns that identify a data file."""
_USED = (*KEY, "_KIND", "_EXTRA_FILES", "_EXTERNAL_PATH", "_FILE_SOURCE", "_FILE_SIZE")
_SCHEMA: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "_PARTITION": pl.Binary,
    "_BUCKET": pl.Int32,
    "_FILE_NAME": pl.String,
    "_KIND": pl.Int32,
    "_EXTRA_FILES": pl.List(pl.String),
    "_EXTERNAL_PATH": pl.String,
    "_FILE_SOURCE": pl.Int32,
    "_FILE_SIZE": pl.Int64,
}


class StateKind(StrEnum):
    """The kinds of states that keep files."""

    SNAPSHOT = "snapshot"
    TAG = "tag"
    PENDING = "pending"
    CHANGELOG = "changelog"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A snapshot, tag or long-lived changelog of a branch. `name` is the tag's name, or the id.

    A pending state has the name of its file.
    """

    kind: StateKind
    branch: str
    name: str
    snapshot: Snapshot


class Keepers(NamedTuple):
    """What keeps files of a table, as listed: tags with pending files, and branches.

    `is_rolled_back`: whether a rollback runs.
    """

    is_rolled_back: bool
    tags: Sequence[FileStatus]
    branches: Sequence[FileStatus]


def branch_names(
    context: TableContext, listed: Sequence[FileStatus] | None = None
) -> tuple[str, ...]:
    """The names of the directories of branches, sorted, without main. One may be incomplete.

    `listed` is what is in the directory of branches, if it was just listed.
    """
    statuses = context.store.list(context.layout.branches_dir) if listed is None else listed
    names = [status.path.rpartition("/")[2] for status in statuses if status.is_directory]
    found = [name for name in names if name.startswith(BRANCH_PREFIX)]
    return tuple(sorted(name.removeprefix(BRANCH_PREFIX) for name in found))


def history_of(context: TableContext, branch: str) -> History:
    """The history of a branch of the table, or of `main`."""
    if branch == context.layout.branch:
        return context.history
    return context.publication.history(context.store, context.layout.on_branch(branch))


def other_branches(
    context: TableContext, listed: Sequence[FileStatus] | None = None
) -> tuple[History, ...]:
    """The histories of all branches but the context's own; main's first. `listed`: as above."""
    names = (MAIN_BRANCH, *branch_names(context, listed))
    return tuple(history_of(context, name) for name in names if name != context.layout.branch)


def tags_of(history: History, names: Sequence[str] | None = None) -> tuple[Tag, ...]:
    """The tags of a branch, sorted by snapshot and name. Tags deleted meanwhile are left out.

    `names` are those of all its tags, if they were just listed.
    """

    def read(name: str) -> Tag | None:
        try:
            return history.tag(name)
        except NotFound:  # deleted since the listing
            return None

    names = history.tag_names() if names is None else names
    found = [tag for tag in read_all(read, names) if tag is not None]
    return tuple(sorted(found, key=lambda tag: (tag.snapshot.id, tag.name)))


def pending_of(history: History, listed: Sequence[FileStatus] | None = None) -> tuple[Tag, ...]:
    """The snapshots of a branch that a call which has not ended is about to keep.

    They are those of the pending files, and the target of a rollback that runs or was interrupted.
    The name of each is that of its file. `listed` is what is in the directory of tags, if it was
    just listed.
    """
    store, layout = history.store, history.layout
    found = []
    for status in store.list(layout.tag_dir) if listed is None else listed:
        name = status.path.rpartition("/")[2]
        if name.startswith(PENDING_PREFIX):
            with suppress(NotFound):  # the call has ended since the listing
                found.append(metadata.decode_tag(store.read(status.path), name, status.path))
    path = layout.rollback_record
    with suppress(NotFound, CorruptTable):  # a damaged record was never finished
        target = decode_rollback(store.read(path), path).target
        found.append(Tag(name=path.rpartition("/")[2], snapshot=target))
    return tuple(found)


def tags_near(history: History, end: int, listed: Sequence[FileStatus]) -> list[State]:
    """The tagged and the pending snapshots that may hold a file of a state before `end`.

    `listed` is what is in the directory of tags.

    These are all tags before `end`, not only the newest: after a fast-forward, an older tag may
    belong to another history, and hold files that newer tags lack. A later tag is also returned if
    its snapshot is not that of the table: an interrupted rollback has left it.
    """

    def is_foreign(tag: Tag) -> bool:
        return not tag.snapshot.is_same(history.snapshot_if_there(tag.snapshot.id))

    tags = (*pending_of(history, listed), *tags_of(history, tag_names(listed)))
    return [
        as_tagged(history, tag.snapshot, tag.name)
        for tag in tags
        if tag.snapshot.id < end or is_foreign(tag)
    ]


def states(history: History) -> Iterator[State]:
    """All states of a branch: its snapshots, its tags, and its long-lived changelogs."""
    ids = history.snapshot_ids()
    found = [each for each in read_all(history.snapshot_if_there, ids) if each is not None]
    for snapshot in _as_brought_back(history, found):
        yield _state(StateKind.SNAPSHOT, history, str(snapshot.id), snapshot)
    # Tags come after them: a call writes the tag before it deletes its pending file.
    for pending in pending_of(history):
        state = as_tagged(history, pending.snapshot, pending.name)
        yield replace(state, kind=StateKind.PENDING)
    for tag in tags_of(history):
        yield as_tagged(history, tag.snapshot, tag.name)
    yield from changelog_states(history)


def changelog_states(history: History) -> Iterator[State]:
    """The long-lived changelogs of a branch as states."""
    for changelog in changelogs_of(history):
        yield _state(StateKind.CHANGELOG, history, str(changelog.id), changelog)


def in_lines(found: Iterable[State]) -> Iterator[tuple[State, bool]]:
    """Each state, and whether it is a snapshot that was committed on top of the one before it.

    Then all of its files are among those of the one before it and those that it adds.
    """
    before: State | None = None
    for state in found:
        yield state, _follows(before, state)
        before = state


def _follows(last: State | None, state: State) -> bool:
    """Whether both are snapshots of a branch, and the second was committed on top of the first.

    After a fast-forward, the snapshot with the next number may belong to another history.
    """
    if last is None or {last.kind, state.kind} != {StateKind.SNAPSHOT}:
        return False
    before, snapshot = last.snapshot, state.snapshot
    if last.branch != state.branch or before.id + 1 != snapshot.id:
        return False
    rows = before.total_record_count, snapshot.delta_record_count, snapshot.total_record_count
    if None in rows:
        return True
    known = [number for number in rows if number is not None]
    return known[0] + known[1] == known[2]


def as_tagged(history: History, snapshot: Snapshot, name: str = "") -> State:
    """The state of a tag of a snapshot: it does not keep the changelog of the snapshot."""
    return _state(StateKind.TAG, history, name, _without_changelog(snapshot))


def _state(kind: StateKind, history: History, name: str, snapshot: Snapshot) -> State:
    return State(kind=kind, branch=history.layout.branch, name=name, snapshot=snapshot)


def changelogs_of(history: History) -> list[Snapshot]:
    """The long-lived changelogs of a branch, by id."""

    def read(snapshot_id: int) -> Snapshot | None:
        try:
            return history.changelog(snapshot_id)
        except NotFound:
            return None

    found = [each for each in read_all(read, history.changelog_ids()) if each is not None]
    return _as_brought_back(history, found)


def _as_brought_back(history: History, line: list[Snapshot]) -> list[Snapshot]:
    """The snapshots `line`; the first is returned without its changelog if that was deleted.

    A branch or a rollback may bring a snapshot back from a tag after its changelog has expired.
    Such a snapshot is the first of its line.
    """
    name = line[0].changelog_manifest_list if line else None
    if name is None or history.store.exists(history.layout.manifest(name)):
        return line
    return [_without_changelog(line[0]), *line[1:]]


def _without_changelog(snapshot: Snapshot) -> Snapshot:
    if snapshot.changelog_manifest_list is None:
        return snapshot
    return replace(snapshot, changelog_manifest_list=None, changelog_manifest_list_size=None)


# --- metadata -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The paths of the metadata files that a set of states references.

    `lists` are manifest lists and index manifests. The lists name `manifests`, and the index
    manifests name `index_files`.
    """

    lists: frozenset[str] = frozenset()
    manifests: frozenset[str] = frozenset()
    index_files: frozenset[str] = frozenset()
    statistics: frozenset[str] = frozenset()

    def __or__(self, other: Metadata) -> Metadata:
        return Metadata(
            lists=self.lists | other.lists,
            manifests=self.manifests | other.manifests,
            index_files=self.index_files | other.index_files,
            statistics=self.statistics | other.statistics,
        )

    def __sub__(self, other: Metadata) -> Metadata:
        return Metadata(
            lists=self.lists - other.lists,
            manifests=self.manifests - other.manifests,
            index_files=self.index_files - other.index_files,
            statistics=self.statistics - other.statistics,
        )

    @property
    def paths(self) -> frozenset[str]:
        """All paths."""
        return self.lists | self.manifests | self.index_files | self.statistics


def metadata_of(
    context: TableContext,
    found: Iterable[Snapshot],
    *,
    data: bool = True,
    changelog: bool = True,
    partly: bool = False,
) -> Metadata:
    """The metadata that these snapshots reach; they may be snapshots of tags.

    Without `data`, base and delta lists are omitted; without `changelog`, changelog lists. Raises
    CorruptTable if a list cannot be read. With `partly`, only the files that it names are left
    out, because they are unknown: an interrupted run may have deleted the list.
    """
    history, layout = context.history, context.layout
    names: dict[str, int | None] = {}
    index_manifests: dict[str, Snapshot] = {}
    statistics: set[str] = set()
    for snapshot in found:
        names |= dict(lists_of(snapshot, data=data, changelog=changelog))
        if snapshot.index_manifest is not None:
            index_manifests.setdefault(snapshot.index_manifest, snapshot)
        if snapshot.statistics is not None:
            statistics.add(snapshot.statistics)

    def named(read: Callable[[], Sequence[T]]) -> Sequence[T]:
        try:
            return read()
        except CorruptTable:
            if partly:
                return ()
            raise

    listed = read_all(lambda item: named(lambda: history.manifest_list(*item)), list(names.items()))
    indexes = read_all(
        lambda each: named(lambda: history.index_entries(each)), list(index_manifests.values())
    )
    return Metadata(
        lists=frozenset(map(layout.manifest, (*names, *index_manifests))),
        manifests=frozenset(layout.manifest(m.name) for some in listed for m in some),
        index_files=frozenset(
            layout.live_index_file(context.partitions.path(e.partition), e.bucket, e.file)
            for some in indexes
            for e in some
        ),
        statistics=frozenset(map(layout.statistics, statistics)),
    )


def metadata_of_states(context: TableContext, found: Iterable[State]) -> Metadata:
    """The metadata that states reach; of changelogs, what expiry has left of their lists."""
    kept: list[Snapshot] = []
    changelogs: list[Snapshot] = []
    for state in found:
        (changelogs if state.kind is StateKind.CHANGELOG else kept).append(state.snapshot)
    left = metadata_of(context, changelogs, partly=True)
    return metadata_of(context, kept) | Metadata(lists=left.lists, manifests=left.manifests)


def lists_of(
    snapshot: Snapshot, *, data: bool = True, changelog: bool = True
) -> list[tuple[str, int | None]]:
    """The names of the manifest lists of a snapshot, with their sizes where they are known."""
    found: list[tuple[str, int | None]] = []
    if data:
        found += [
            (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
            (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
        ]
    if changelog and snapshot.changelog_manifest_list is not None:
        size = snapshot.changelog_manifest_list_size
        found.append((snapshot.changelog_manifest_list, size))
    return found


# --- data files -----------------------------------------------------------------------------------


def entry_frame(history: History, manifests: Sequence[ManifestFile]) -> pl.DataFrame:
    """The entries of manifests as columns, in order. Raises CorruptTable."""
    frames = read_all(lambda each: _frame(history, each), manifests)
    return pl.concat(frames) if frames else pl.DataFrame(schema=_SCHEMA)


def _frame(history: History, manifest: ManifestFile) -> pl.DataFrame:
    frame = history.entry_columns(manifest)
    return frame.select(pl.col(name).cast(_SCHEMA[name]) for name in _USED)


def changelog_manifests(history: History, changelog: Snapshot) -> Sequence[ManifestFile]:
    """The manifests that a reader of a snapshot's changes needs: changelog, or else delta."""
    name = changelog.changelog_manifest_list
    if name is not None:
        return history.manifest_list(name, changelog.changelog_manifest_list_size)
    try:
        return history.delta_manifests(changelog)
    except CorruptTable:
        # With a changelog producer, expiry removes the delta, so there is nothing to read.
        if history.store.exists(history.layout.manifest(changelog.delta_manifest_list)):
            raise
        return ()


def live_files(frame: pl.DataFrame) -> pl.DataFrame:
    """One row for each file that is live after these manifest entries."""
    sign = 1 - 2 * pl.col("_KIND")
    others = [name for name in frame.columns if name not in {*KEY, "_KIND"}]
    added = pl.col(others).filter(pl.col("_KIND") == FileKind.ADD).last()
    found = frame.group_by(KEY, maintain_order=True).agg(sign.sum().alias("count"), added)
    return found.filter(pl.col("count") > 0).drop("count")


class Reach:
    """Finds which of some candidate files are reached.

    Reads each manifest once, and only if it may hold a file of the candidates' partitions.
    """

    def __init__(self, history: History, candidates: pl.DataFrame, partitions: Partitions) -> None:
        """`candidates` has the columns `KEY`; `history` is the history of any branch."""
        self._history = history
        self._among = candidates.select(KEY).unique()
        self._partitions = partitions
        values = partitions.values(self._among["_PARTITION"].unique().to_list())
        self._hull = hull_of(values) if partitions.fields and values.num_rows else None
        self._frames: dict[str, pl.DataFrame] = {}
        self._reached: list[pl.DataFrame] = []

    def add_live(self, snapshot: Snapshot) -> None:
        """Record as reached: the live files of a snapshot."""
        frame = self._entries(self._history.manifests(snapshot))
        sign = 1 - 2 * pl.col("_KIND")
        live = frame.group_by(KEY).agg(sign.sum().alias("count")).filter(pl.col("count") > 0)
        self._reached.append(live.select(KEY))

    def add_added(self, manifests: Sequence[ManifestFile]) -> None:
        """Record as reached: the files that these manifests add."""
        frame = self._entries(manifests)
        self._reached.append(frame.filter(pl.col("_KIND") == FileKind.ADD).select(KEY))

    def add_states(self, found: Iterable[State]) -> None:
        """Record as reached: all files that these states keep. Snapshots are in order of id.

        For a snapshot that follows the previous one, only the files that it adds are read.
        """
        for state, follows in in_lines(found):
            if state.kind is StateKind.CHANGELOG:
                self.add_changelog(state.snapshot)
                continue
            if follows:
                self.add_added(self._history.delta_manifests(state.snapshot))
            else:
                self.add_live(state.snapshot)
            self._add_changelog(state.snapshot)

    def add_changelog(self, changelog: Snapshot) -> None:
        """Record as reached: the files that a reader of a long-lived changelog needs."""
        self.add_added(changelog_manifests(self._history, changelog))

    def _add_changelog(self, snapshot: Snapshot) -> None:
        if snapshot.changelog_manifest_list is not None:
            self.add_added(changelog_manifests(self._history, snapshot))

    def without_reached(self, candidates: pl.DataFrame) -> pl.DataFrame:
        """The candidates that no state references."""
        if not self._reached:
            return candidates
        return candidates.join(
            pl.concat(self._reached).unique(), on=KEY, how="anti", maintain_order="left"
        )

    def _entries(self, manifests: Sequence[ManifestFile]) -> pl.DataFrame:
        if self._hull is not None:
            manifests = holding(self._hull, manifests, self._partitions)
        fresh = [m for m in {m.name: m for m in manifests}.values() if m.name not in self._frames]
        columns = (*KEY, "_KIND")

        def read(manifest: ManifestFile) -> pl.DataFrame:
            frame = _frame(self._history, manifest).select(columns)
            return frame.join(self._among, on=KEY, how="semi")

        self._frames |= dict(zip((m.name for m in fresh), read_all(read, fresh), strict=True))
        frames = [self._frames[manifest.name] for manifest in manifests]
        empty = pl.DataFrame(schema={name: _SCHEMA[name] for name in columns})
        return pl.concat([empty, *frames])


def data_paths(context: TableContext, files: pl.DataFrame) -> Iterator[str]:
    """The paths of data files; each is followed by the paths of its extra files."""
    layout, partitions = context.layout, context.partitions
    columns = (*KEY, "_EXTRA_FILES", "_EXTERNAL_PATH")
    for partition, bucket, name, extra, external in files.select(columns).iter_rows():
        if external is not None:
            path = layout.external(external)
        else:
            path = layout.file_in_bucket(partitions.path(partition), bucket, name)
        yield path
        parent = path.rpartition("/")[0]
        for each in extra or ():
            yield f"{parent}/{one_name(each)}"
