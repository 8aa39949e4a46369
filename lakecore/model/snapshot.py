"""Snapshots and tags: the committed states of a table, numbered from 1 without gaps."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from lakecore.display import ShownFacts, facts_html, pairs_html, show_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

BATCH_COMMIT_IDENTIFIER = 9_223_372_036_854_775_807
"""The commit identifier of writers that do not number their commits."""


class CommitKind(StrEnum):
    """The kind of change that a snapshot made."""

    APPEND = "APPEND"
    COMPACT = "COMPACT"
    OVERWRITE = "OVERWRITE"
    ANALYZE = "ANALYZE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One committed state: the `base` manifests describe the state before it, `delta` its changes.

    `total_record_count` counts rows as stored, not merged. Times are milliseconds since the epoch.
    """

    id: int
    schema_id: int
    base_manifest_list: str
    delta_manifest_list: str
    commit_user: str
    commit_identifier: int
    commit_kind: CommitKind
    time_ms: int
    version: int = 3
    uuid: str | None = None
    base_manifest_list_size: int | None = None
    delta_manifest_list_size: int | None = None
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size: int | None = None
    index_manifest: str | None = None
    writer_version: str | None = None
    total_record_count: int | None = None
    delta_record_count: int | None = None
    changelog_record_count: int | None = None
    watermark: int | None = None
    statistics: str | None = None
    properties: Mapping[str, str] | None = None
    next_row_id: int | None = None
    operation: str | None = None

    def is_same(self, other: Snapshot | None) -> bool:
        """Whether both are the same commit.

        Only the id and the manifest lists are compared: other engines may omit fields in a tag or
        a branch.
        """
        return other is not None and (
            self.id == other.id
            and self.base_manifest_list == other.base_manifest_list
            and self.delta_manifest_list == other.delta_manifest_list
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """A named snapshot, whose rows can be read after the snapshot expires.

    - `name`: the name of the tag;
    - `snapshot`: the snapshot, with its id, its time and its schema;
    - `create_time`: when the tag was made, by its maker's wall clock, as (year, month, day, hour,
      minute, second, nanosecond). None for a tag that stays until it is deleted;
    - `retained_seconds`: how long the tag stays after that time; None for a tag that stays until it
      is deleted.

        tag = table.create_tag("before-migration")
        tag.name, tag.snapshot_id  # ('before-migration', 3)
    """

    name: str
    snapshot: Snapshot
    create_time: tuple[int, ...] | None = None
    retained_seconds: float | None = None

    def __repr__(self) -> str:
        return f"Tag({self.name!r}, snapshot_id={self.snapshot.id})"

    def _repr_html_(self) -> str:
        created = self.create_time and "{}-{:02}-{:02} {:02}:{:02}:{:02}".format(*self.create_time)
        kept = self.retained_seconds
        return pairs_html(
            "Tag",
            [
                ("name", self.name),
                ("snapshot", self.snapshot_id),
                ("created", created or "not recorded"),
                ("kept", "until it is deleted" if kept is None else f"{kept:,.0f} s"),
            ],
        )

    @property
    def snapshot_id(self) -> int:
        """The id of the snapshot."""
        return self.snapshot.id


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CommitResult(ShownFacts):
    """The result of a verb that writes. `snapshot_ids` is empty if there was nothing to commit.

    `rows` counts rows as stored. `rows_inserted`, `rows_updated` and `rows_deleted` count what
    `delete`, `update` and `merge` did, and are None for a plain write, which does not know which of
    its keys are new. `identifier` is None for writers that do not number their commits. If the
    commit existed already, `facts` has `already_committed`, and nothing is counted.

        done = table.update({"price": 0}, "id = 7")
        done.snapshot_id, done.rows_updated  # (4, 1)
    """

    _title: ClassVar[str] = "Commit"

    snapshot_ids: tuple[int, ...] = ()
    rows: int = 0
    rows_inserted: int | None = None
    rows_updated: int | None = None
    rows_deleted: int | None = None
    files_added: int = 0
    files_deleted: int = 0
    bytes_added: int = 0
    bytes_deleted: int = 0
    attempts: int = 0
    commit_user: str = ""
    identifier: int | None = None
    facts: Mapping[str, int] = field(default_factory=dict)

    def _shown(self) -> list[tuple[str, object]]:
        """The fields that are not empty."""
        if not self.snapshot_ids:
            return [("snapshots", "none: there was nothing to commit")]
        lines: list[tuple[str, object]] = [("snapshots", ", ".join(map(str, self.snapshot_ids)))]
        verbs = {
            "rows inserted": self.rows_inserted,
            "rows updated": self.rows_updated,
            "rows deleted": self.rows_deleted,
        }
        lines += [(name, f"{count:,}") for name, count in verbs.items() if count]
        if self.rows:
            lines.append(("rows stored", f"{self.rows:,}"))
        for name, files, size_bytes in (
            ("files added", self.files_added, self.bytes_added),
            ("files deleted", self.files_deleted, self.bytes_deleted),
        ):
            if files:
                lines.append((name, f"{files:,} ({show_bytes(size_bytes)})"))
        if self.attempts > 1:
            lines.append(("attempts", self.attempts))
        if self.identifier is not None:
            lines.append(("identifier", self.identifier))
        lines += [(name.replace("_", " "), value) for name, value in self.facts.items()]
        return lines

    @property
    def snapshot_id(self) -> int | None:
        """The last snapshot that the verb made."""
        return self.snapshot_ids[-1] if self.snapshot_ids else None


def stated_identifier(identifier: int) -> int | None:
    """The identifier of a commit; None if its writer does not number its commits."""
    return None if identifier == BATCH_COMMIT_IDENTIFIER else identifier


# --- consumer ------------------------------------------------------------------------------------
# A consumer: a named reader of a stream, and the snapshot that it reads next.


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """The recorded progress of a stream (https://paimon.apache.org/docs/master/flink/consumer-id/).

    `next_snapshot` is the id of the first snapshot that is not read yet. Snapshots from this one on
    do not expire. `modified_ms` is when the progress was last recorded, in milliseconds since
    1970; None if the storage keeps no times.

        table.reset_consumer("mails", next_snapshot=2)
        [mails] = table.consumers()
        mails.consumer_id, mails.next_snapshot  # ('mails', 2)
    """

    consumer_id: str
    next_snapshot: int
    modified_ms: int | None = None

    def _repr_html_(self) -> str:
        return facts_html(self)


# --- branches ------------------------------------------------------------------------------------
# Branches of a table, and the result of a fast-forward.


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A branch of a table.

    - `name`: the name of the branch;
    - `schema_id`: the id of its newest schema; None if there is none, because a process died while
      it created or deleted the branch;
    - `earliest_snapshot_id`, `latest_snapshot_id`: its live snapshots; None if it has none.

        [trial] = table.branches()
        trial.name, trial.latest_snapshot_id  # ('trial', 3)
    """

    name: str
    schema_id: int | None = None
    earliest_snapshot_id: int | None = None
    latest_snapshot_id: int | None = None

    def _repr_html_(self) -> str:
        return facts_html(self)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FastForwardResult(ShownFacts):
    """The changes that `Table.fast_forward` made to its table.

    - `branch`: the branch whose state the table has now;
    - `snapshot_id`: the latest snapshot, which is that of the branch;
    - `snapshots_copied`, `schemas_copied`, `tags_copied`: how many were copied from the branch.
      Objects that are the same in both are not counted;
    - `snapshots_deleted`, `schemas_deleted`, `tags_deleted`: how many were deleted, because the
      branch does not have them.

    In a dry run, these are the changes that a real run would make.

        table.branch("trial").write([{"id": 1, "n": 7}])
        table.fast_forward("trial").snapshots_copied  # 1
    """

    _title: ClassVar[str] = "Fast-forward"

    branch: str
    snapshot_id: int
    snapshots_copied: int = 0
    schemas_copied: int = 0
    tags_copied: int = 0
    snapshots_deleted: int = 0
    schemas_deleted: int = 0
    tags_deleted: int = 0

    def _shown(self) -> list[tuple[str, object]]:
        """The fields that are not empty."""
        lines: list[tuple[str, object]] = [("branch", self.branch), ("snapshot", self.snapshot_id)]
        counts = {
            "snapshots copied": self.snapshots_copied,
            "schemas copied": self.schemas_copied,
            "tags copied": self.tags_copied,
            "snapshots deleted": self.snapshots_deleted,
            "schemas deleted": self.schemas_deleted,
            "tags deleted": self.tags_deleted,
        }
        return lines + [(what, count) for what, count in counts.items() if count]


# --- iceberg --------------------------------------------------------------------------------------
# The metadata by which readers of Iceberg read a table.


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class IcebergExport(ShownFacts):
    """The Iceberg metadata of a table.

    - `metadata_path`: the document that a reader of Iceberg opens; None for a table without
      snapshots;
    - `snapshot_id`: the snapshot that it shows;
    - `snapshots_added`: the number of snapshots that the call added to the document;
    - `rebuilt`: whether the metadata begins again with this snapshot.

        done = table.export_iceberg()
        done.snapshot_id, done.rebuilt  # (3, True)
    """

    _title: ClassVar[str] = "Iceberg metadata"

    metadata_path: str | None = None
    snapshot_id: int | None = None
    snapshots_added: int = 0
    rebuilt: bool = False

    def _shown(self) -> list[tuple[str, object]]:
        if self.metadata_path is None:
            return [("metadata", "none: the table has no snapshot")]
        return [
            ("metadata", self.metadata_path),
            ("snapshot", self.snapshot_id),
            ("snapshots added", self.snapshots_added),
            *([("rebuilt", "yes")] if self.rebuilt else []),
        ]
