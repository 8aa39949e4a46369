"""The results of expiry and rollback, and of their dry runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lakecore.display import ShownFacts, show_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FilesDeleted(ShownFacts):
    """The files that an expiry or a rollback deletes, by kind.

    `data_bytes` is the size of the data files, as manifests state it. A file that belongs to a data
    file (its file index) is counted with it.

        done = table.expire_snapshots(retain_max=1, retain_min=1, dry_run=True)
        done.files.manifests, done.files.shown()  # (4, [('manifests', '4')])
    """

    data_files: int = 0
    data_bytes: int = 0
    changelog_files: int = 0
    manifests: int = 0
    index_files: int = 0
    statistics: int = 0
    _title: ClassVar[str] = "Deleted files"

    def _shown(self) -> list[tuple[str, object]]:
        return self.shown()

    def shown(self) -> list[tuple[str, object]]:
        """The non-zero counts of each kind, for people."""
        lines: list[tuple[str, object]] = []
        if self.data_files:
            lines.append(("data files", f"{self.data_files:,} ({show_bytes(self.data_bytes)})"))
        for name, count in (
            ("changelog files", self.changelog_files),
            ("manifests", self.manifests),
            ("index files", self.index_files),
            ("statistics", self.statistics),
        ):
            if count:
                lines.append((name, f"{count:,}"))
        return lines


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExpiredSnapshots(ShownFacts):
    """The result of `Table.expire_snapshots`.

    - `snapshots_expired`: how many snapshots expired;
    - `earliest_snapshot_id`: the earliest snapshot that still exists; None if the table has none;
    - `changelogs_kept`: the changelogs of expired snapshots that are kept as long-lived ones;
    - `files`: what was deleted, by kind;
    - `held_by_consumer`: the consumer that kept more from expiring, or None;
    - `unreadable_snapshots`: expired snapshots of which a manifest was missing or damaged: their
      data files are left to `remove_orphan_files`;
    - `is_complete`: False if the storage failed while files were deleted: the snapshots have
      expired, and the next expiry deletes the rest;
    - `dry_run`: whether nothing was deleted; the numbers are then those of a real run.

        done = table.expire_snapshots(retain_max=1, retain_min=1)
        done.snapshots_expired, done.earliest_snapshot_id  # (2, 3)
    """

    _title: ClassVar[str] = "Expiry of snapshots"

    snapshots_expired: int = 0
    earliest_snapshot_id: int | None = None
    changelogs_kept: int = 0
    files: FilesDeleted = FilesDeleted()
    held_by_consumer: str | None = None
    unreadable_snapshots: tuple[int, ...] = ()
    is_complete: bool = True
    dry_run: bool = False

    def _shown(self) -> list[tuple[str, object]]:
        lines: list[tuple[str, object]] = [("snapshots expired", f"{self.snapshots_expired:,}")]
        if self.earliest_snapshot_id is not None:
            lines.append(("earliest snapshot", self.earliest_snapshot_id))
        if self.changelogs_kept:
            lines.append(("changelogs kept", f"{self.changelogs_kept:,}"))
        lines += self.files.shown()
        if self.held_by_consumer is not None:
            lines.append(("held by consumer", self.held_by_consumer))
        if self.unreadable_snapshots:
            lines.append(("unreadable", ", ".join(map(str, self.unreadable_snapshots))))
        if not self.is_complete:
            lines.append(("files", "some are left to the next expiry: the storage failed"))
        if self.dry_run:
            lines.append(("dry run", "nothing was deleted"))
        return lines


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TagDeletion(ShownFacts):
    """The result of `Table.delete_tag`.

    - `name`, `snapshot_id`: the tag, and the snapshot that it kept;
    - `files`: the files that only the tag kept, by kind; they were deleted with the tag;
    - `unreadable_snapshots`: the snapshot of the tag, if its files were left to
      `remove_orphan_files`, because a manifest that may need them was missing or damaged;
    - `dry_run`: whether nothing was deleted; the numbers are then those of a real run.

        table.create_tag("old")
        table.delete_tag("old").snapshot_id  # 3
    """

    _title: ClassVar[str] = "Deletion of a tag"

    name: str
    snapshot_id: int
    files: FilesDeleted = FilesDeleted()
    unreadable_snapshots: tuple[int, ...] = ()
    dry_run: bool = False

    def _shown(self) -> list[tuple[str, object]]:
        lines: list[tuple[str, object]] = [("tag", self.name), ("snapshot", self.snapshot_id)]
        lines += self.files.shown()
        if self.unreadable_snapshots:
            lines.append(("files", "kept: a state that may need them cannot be read"))
        if self.dry_run:
            lines.append(("dry run", "nothing was deleted"))
        return lines


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExpiredChangelogs(ShownFacts):
    """The result of `Table.expire_changelogs`.

    - `changelogs_expired`: how many long-lived changelogs expired;
    - `earliest_changelog_id`: the earliest long-lived changelog that still exists, or None;
    - `files`: what was deleted, by kind;
    - `held_by_consumer`: the consumer that kept more from expiring, or None;
    - `unreadable_changelogs`: expired changelogs of which a manifest was missing or damaged: their
      data files are left to `remove_orphan_files`;
    - `dry_run`: whether nothing was deleted.

        table.expire_changelogs(retain_max=100).changelogs_expired  # 0
    """

    _title: ClassVar[str] = "Expiry of changelogs"

    changelogs_expired: int = 0
    earliest_changelog_id: int | None = None
    files: FilesDeleted = FilesDeleted()
    held_by_consumer: str | None = None
    unreadable_changelogs: tuple[int, ...] = ()
    dry_run: bool = False

    def _shown(self) -> list[tuple[str, object]]:
        lines: list[tuple[str, object]] = [("changelogs expired", f"{self.changelogs_expired:,}")]
        if self.earliest_changelog_id is not None:
            lines.append(("earliest changelog", self.earliest_changelog_id))
        lines += self.files.shown()
        if self.held_by_consumer is not None:
            lines.append(("held by consumer", self.held_by_consumer))
        if self.unreadable_changelogs:
            lines.append(("unreadable", ", ".join(map(str, self.unreadable_changelogs))))
        if self.dry_run:
            lines.append(("dry run", "nothing was deleted"))
        return lines


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExpiredPartitions(ShownFacts):
    """The result of `Table.expire_partitions`.

    - `partitions`: the dropped partitions, as texts by partition key;
    - `snapshot_ids`: the snapshots that dropped them;
    - `partitions_without_time`: partitions that never expire, because no time can be read from
      their values;
    - `dry_run`: whether nothing was dropped.

        form = "yyyy-MM-dd"
        done = table.expire_partitions(expiration_time="30 d", timestamp_formatter=form)
        done.partitions[0]  # {'day': '2026-01-01'}
    """

    _title: ClassVar[str] = "Expiry of partitions"

    partitions: tuple[Mapping[str, str], ...] = ()
    snapshot_ids: tuple[int, ...] = ()
    partitions_without_time: tuple[Mapping[str, str], ...] = ()
    dry_run: bool = False

    def _shown(self) -> list[tuple[str, object]]:
        lines: list[tuple[str, object]] = [("partitions expired", f"{len(self.partitions):,}")]
        lines += [("partition", _path_text(each)) for each in self.partitions]
        if self.snapshot_ids:
            lines.append(("snapshots", ", ".join(map(str, self.snapshot_ids))))
        if self.partitions_without_time:
            lines.append(("without a time", f"{len(self.partitions_without_time):,}"))
        if self.dry_run:
            lines.append(("dry run", "nothing was dropped"))
        return lines


def _path_text(partition: Mapping[str, str]) -> str:
    return "/".join(f"{key}={value}" for key, value in partition.items())


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RolledBack(ShownFacts):
    """The result of `Table.rollback_to`.

    - `snapshot_id`: the snapshot that is the latest one now;
    - `previous_snapshot_id`: the snapshot that was the latest one before the call;
    - `snapshots_removed`: how many later snapshots were removed;
    - `tags_removed`: the names of the removed tags, those of later snapshots;
    - `changelogs_removed`: how many later long-lived changelogs were removed;
    - `files`: what was deleted, by kind;
    - `consumers_ahead`: consumers that miss changes, because their next snapshot is later than
      `snapshot_id`; `reset_consumer` moves a consumer;
    - `is_complete`: False if a state that the table keeps cannot be read, so that it is unknown
      which files are needed, or if the storage failed after the rollback. Files were left: the next
      rollback or `remove_orphan_files` deletes them;
    - `dry_run`: whether nothing was changed.

        done = table.rollback_to(snapshot_id=1)
        done.snapshot_id, done.snapshots_removed  # (1, 2)
    """

    _title: ClassVar[str] = "Rollback"

    snapshot_id: int
    previous_snapshot_id: int
    snapshots_removed: int = 0
    tags_removed: tuple[str, ...] = ()
    changelogs_removed: int = 0
    files: FilesDeleted = FilesDeleted()
    consumers_ahead: tuple[str, ...] = ()
    is_complete: bool = True
    dry_run: bool = False

    def _shown(self) -> list[tuple[str, object]]:
        lines: list[tuple[str, object]] = [
            ("snapshot", f"{self.snapshot_id}, before {self.previous_snapshot_id}"),
            ("snapshots removed", f"{self.snapshots_removed:,}"),
        ]
        if self.tags_removed:
            lines.append(("tags removed", ", ".join(self.tags_removed)))
        if self.changelogs_removed:
            lines.append(("changelogs removed", f"{self.changelogs_removed:,}"))
        lines += self.files.shown()
        if self.consumers_ahead:
            lines.append(("consumers ahead", ", ".join(self.consumers_ahead)))
        if not self.is_complete:
            lines.append(("files", "some are left to remove_orphan_files; the log says why"))
        if self.dry_run:
            lines.append(("dry run", "nothing was changed"))
        return lines


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OrphanFiles(ShownFacts):
    """The result of `Table.remove_orphan_files`.

    - `files` and `bytes`: the number and the size of the orphan files, which no snapshot, tag,
      branch or long-lived changelog references;
    - `paths`: their paths, sorted;
    - `dry_run`: True if they were only listed, not deleted.

        table.remove_orphan_files(dry_run=True).files  # 0
    """

    _title: ClassVar[str] = "Orphan files"

    files: int = 0
    bytes: int = 0
    paths: tuple[str, ...] = ()
    dry_run: bool = False

    def _shown(self) -> list[tuple[str, object]]:
        lines: list[tuple[str, object]] = [
            ("orphan files", f"{self.files:,} ({show_bytes(self.bytes)})")
        ]
        if self.dry_run:
            lines.append(("dry run", "nothing was deleted"))
        return lines


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Purged(ShownFacts):
    """The result of `Table.purge_files`.

    - `snapshot_id`: the snapshot that is left; None if the table never had one;
    - `branches`, `tags`, `consumers`: the names of the deleted ones;
    - `snapshots_expired`: how many snapshots expired;
    - `orphan_files`: how many orphan files were deleted;
    - `is_complete`: False if the storage failed after the rows were removed: call `purge_files`
      again to delete the rest.

        done = table.purge_files()
        done.snapshot_id, done.snapshots_expired  # (4, 3)
    """

    _title: ClassVar[str] = "Purge"

    snapshot_id: int | None = None
    branches: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    snapshots_expired: int = 0
    orphan_files: int = 0
    is_complete: bool = True

    def _shown(self) -> list[tuple[str, object]]:
        lines: list[tuple[str, object]] = [
            ("snapshot left", self.snapshot_id),
            ("snapshots expired", f"{self.snapshots_expired:,}"),
            ("orphan files", f"{self.orphan_files:,}"),
        ]
        if not self.is_complete:
            lines.append(("files", "some are left: the storage failed; purge again"))
        named = {"branches": self.branches, "tags": self.tags, "consumers": self.consumers}
        return lines + [(what, ", ".join(names)) for what, names in named.items() if names]
