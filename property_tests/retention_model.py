"""What a table over time must hold: lines of snapshots, tags and consumers, and their files.

`Line` is the model of main or of a branch: plain dictionaries of rows. Each verb is one method that
returns the line after it. `needed_files` lists the files that a table needs, by plain loops over
its metadata; it shares no code with what decides on deletions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lakecore.model.files import FileSource
from lakecore.model.manifest import FileKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore.io.history import History
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext
    from lakecore.table.handle import Table

Rows = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A snapshot or a tag: its id, its uuid, its time and its rows."""

    id: int
    uuid: str
    time_ms: int
    rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Main or a branch."""

    snapshots: Mapping[int, Held] = field(default_factory=dict)
    tags: Mapping[str, Held] = field(default_factory=dict)
    consumers: Mapping[str, int] = field(default_factory=dict)

    @property
    def latest(self) -> int:
        """The id of the newest snapshot; 0 before the first."""
        return max(self.snapshots, default=0)

    @property
    def earliest(self) -> int:
        """The id of the oldest snapshot; 0 before the first."""
        return min(self.snapshots, default=0)

    @property
    def rows(self) -> Rows:
        """The rows of the newest snapshot."""
        return self.snapshots[self.latest].rows if self.snapshots else ()

    def committed(self, *held: Held) -> Line:
        """With more snapshots."""
        return replace(self, snapshots={**self.snapshots, **{each.id: each for each in held}})

    def tagged(self, name: str, held: Held) -> Line:
        """With a tag that is new or replaced."""
        return replace(self, tags={**self.tags, name: held})

    def untagged(self, name: str) -> Line:
        """Without a tag."""
        return replace(self, tags={each: held for each, held in self.tags.items() if each != name})

    def consumed(self, name: str, following: int | None) -> Line:
        """With a consumer in front of a snapshot, or without it."""
        left = {each: at for each, at in self.consumers.items() if each != name}
        return replace(self, consumers=left if following is None else {**left, name: following})

    def expired(self, least: int, older_than_ms: int) -> Line:
        """Without the oldest snapshots: `least` stay, and those that were the latest since then.

        A consumer keeps the snapshots from its next one on.
        """
        if not self.snapshots:
            return self
        end = self.earliest
        while end < self.latest - least + 1 and self.snapshots[end + 1].time_ms < older_than_ms:
            end += 1
        end = max(self.earliest, min([end, *self.consumers.values()]))
        return replace(self, snapshots={n: held for n, held in self.snapshots.items() if n >= end})

    def rolled_back(self, target: Held) -> Line:
        """With the target as the latest snapshot."""
        kept = {n: held for n, held in self.snapshots.items() if n <= target.id}
        tags = {name: held for name, held in self.tags.items() if held.id <= target.id}
        return replace(self, snapshots={**kept, target.id: target}, tags=tags)

    def brought_back(self, before: Line, target: Held) -> Line:
        """With the snapshots after the target that a rollback removed before it was given up."""
        again = {n: held for n, held in before.snapshots.items() if n > target.id}
        return replace(self, snapshots={**again, **self.snapshots})

    def branched(self, tag: str | None) -> Line:
        """A new branch: of a tag, or empty."""
        if tag is None:
            return Line()
        held = self.tags[tag]
        return Line(snapshots={held.id: held}, tags={tag: held})

    def fast_forwarded(self, branch: Line) -> Line:
        """With all that the branch has, from its earliest snapshot on."""
        first = branch.snapshots[branch.earliest]
        kept = {n: held for n, held in self.snapshots.items() if n < first.id}
        own = self.snapshots.get(first.id)
        if own is None or own.uuid != first.uuid:
            kept = {}  # of another history: out of sight
        tags = {name: held for name, held in self.tags.items() if held.id < first.id}
        return replace(self, snapshots={**kept, **branch.snapshots}, tags={**tags, **branch.tags})


def rows_of(table: Table, **travel: Any) -> Rows:
    """The rows that a table shows, sorted."""
    read = table.to_arrow(**travel)
    return tuple(sorted(zip(*(column.to_pylist() for column in read.columns), strict=True)))


def held_of(snapshot: Snapshot, rows: Rows) -> Held:
    """A snapshot as the model notes it."""
    assert snapshot.uuid is not None
    return Held(id=snapshot.id, uuid=snapshot.uuid, time_ms=snapshot.time_ms, rows=rows)


# --- files ----------------------------------------------------------------------------------------


def needed_files(contexts: Sequence[TableContext], *, compacted: bool = False) -> set[str]:
    """The paths of all files that main and the branches need, their hints aside.

    Where added files are the changelog, it does not need those that compactions wrote. They may
    stay as long as it does: `compacted` counts them too.
    """
    return {path for context in contexts for path in _of_line(context, compacted=compacted)}


def _of_line(context: TableContext, *, compacted: bool) -> Iterator[str]:
    history, layout = context.history, context.layout
    yield from (layout.schema(number) for number in history.schema_ids())
    for number in history.snapshot_ids():
        yield layout.snapshot(number)
        snapshot = history.snapshot(number)
        yield from _of_state(context, snapshot)
        if snapshot.changelog_manifest_list is not None:
            name, size = snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size
            # A tag that brought the snapshot back does not keep its changelog.
            if context.store.exists(layout.manifest(name)):
                yield from _of_list(context, name, size, with_files=True)
    for tag in history.tag_names():
        yield layout.tag(tag)
        yield from _of_state(context, history.tag(tag).snapshot)
    for number in history.changelog_ids():
        yield layout.changelog(number)
        yield from _of_changelog(context, history.changelog(number), compacted=compacted)
        if compacted:
            # A delta list that a tag kept stays as long as the changelog.
            yield layout.manifest(history.changelog(number).delta_manifest_list)
    yield from (status.path for status in context.store.list(layout.consumer_dir))


def _of_state(context: TableContext, snapshot: Snapshot) -> Iterator[str]:
    """What the rows of a snapshot or a tag need."""
    history, layout = context.history, context.layout
    yield from _of_list(context, snapshot.base_manifest_list, snapshot.base_manifest_list_size)
    yield from _of_list(context, snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)
    for entry in history.live_entries(snapshot):
        place = context.partitions.path(entry.partition)
        yield layout.data_file(place, entry.bucket, entry.file)
    if snapshot.index_manifest is not None:
        yield layout.manifest(snapshot.index_manifest)
        for index in history.index_entries(snapshot):
            place = context.partitions.path(index.partition)
            yield layout.live_index_file(place, index.bucket, index.file)
    if snapshot.statistics is not None:
        yield layout.statistics(snapshot.statistics)


def _of_changelog(context: TableContext, changelog: Snapshot, *, compacted: bool) -> Iterator[str]:
    """What the changes of an expired snapshot need: its changelog, else what it added."""
    name, size = changelog.changelog_manifest_list, changelog.changelog_manifest_list_size
    if name is None:
        name, size = changelog.delta_manifest_list, changelog.delta_manifest_list_size
        if _has_producer(context) or not context.store.exists(context.layout.manifest(name)):
            return
        yield from _of_list(context, name, size, with_files=True, appended=not compacted)
        return
    yield from _of_list(context, name, size, with_files=True)


def _has_producer(context: TableContext) -> bool:
    return str(context.options.changelog_producer) != "none"


def _of_list(
    context: TableContext,
    name: str,
    size: int | None,
    *,
    with_files: bool = False,
    appended: bool = False,
) -> Iterator[str]:
    history: History = context.history
    yield context.layout.manifest(name)
    for manifest in history.manifest_list(name, size):
        yield context.layout.manifest(manifest.name)
        if with_files:
            for entry in history.manifest(manifest):
                source = entry.file.file_source
                if appended and source is FileSource.COMPACT:
                    continue
                if entry.kind is FileKind.ADD:
                    place = context.partitions.path(entry.partition)
                    yield context.layout.data_file(place, entry.bucket, entry.file)
