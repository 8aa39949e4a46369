"""The methods of a table for retention: expiry, rollback, and orphan files.

Every method is one call into this package; `Table` inherits the methods.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from lakecore.deferred import deferred, deferred_module
from lakecore.errors import CorruptTable, InvalidRequest, NotFound, check_flags
from lakecore.format.layout import CHANGELOG_PREFIX, SNAPSHOT_PREFIX, parse_numbered
from lakecore.model.times import Time, to_milliseconds
from lakecore.options import DURATION, parse_options
from lakecore.table.context import TableContext, require_table
from lakecore.table.maintenance.iceberg_hooks import republished
from lakecore.table.reads.time_travel import Travel
from lakecore.table.reads.told import gated

if TYPE_CHECKING:
    from lakecore.model.retention import (
        ExpiredChangelogs,
        ExpiredPartitions,
        ExpiredSnapshots,
        OrphanFiles,
        RolledBack,
    )
    from lakecore.model.snapshot import IcebergExport
    from lakecore.plan.retention import Retention
    from lakecore.table.maintenance import deletion, orphans, rollback
    from lakecore.table.maintenance import expire_partitions as partitions
    from lakecore.table.maintenance import expire_snapshots as snapshots
    from lakecore.table.maintenance.iceberg import export_iceberg
else:
    deletion = deferred_module("lakecore.table.maintenance.deletion")
    orphans = deferred_module("lakecore.table.maintenance.orphans")
    partitions = deferred_module("lakecore.table.maintenance.expire_partitions")
    rollback = deferred_module("lakecore.table.maintenance.rollback")
    snapshots = deferred_module("lakecore.table.maintenance.expire_snapshots")
    export_iceberg = deferred("lakecore.table.maintenance.iceberg", "export_iceberg")


# --- hints ---------------------------------------------------------------------------------------
# Repair of the hints EARLIEST and LATEST, which name the first and the last snapshot.
#
# A hint saves readers a listing. It may be missing or outdated. A wrong hint costs time, and a hint
# EARLIEST above the first snapshot hides snapshots from readers that trust it.


def repair_hints(context: TableContext) -> tuple[int, int] | None:
    """Write the hints of snapshots and long-lived changelogs from a listing.

    Returns the first and the last snapshot. Returns None and writes nothing if there are no
    snapshots.
    """
    require_table(context)
    layout = context.layout
    for directory, prefix, earliest, latest in (
        (
            layout.changelog_dir,
            CHANGELOG_PREFIX,
            layout.changelog_earliest_hint,
            layout.changelog_latest_hint,
        ),
        (layout.snapshot_dir, SNAPSHOT_PREFIX, layout.earliest_hint, layout.latest_hint),
    ):
        names = (status.path.rpartition("/")[2] for status in context.store.list(directory))
        ids = [number for name in names if (number := parse_numbered(name, prefix)) is not None]
        if ids:
            # The first id of the last contiguous range: a fast-forward may leave older ids behind.
            first = last = max(ids)
            while first - 1 in ids and not _is_expiring(context, directory, first - 1):
                first -= 1
            context.store.put(earliest, str(first).encode())
            context.store.put(latest, str(last).encode())
    return (first, last) if ids else None


def _is_expiring(context: TableContext, directory: str, snapshot_id: int) -> bool:
    """Whether an interrupted expiry has deleted files of a snapshot that readers do not list."""
    if directory != context.layout.snapshot_dir:
        return snapshot_id not in context.history.changelog_ids()
    snapshot = context.history.snapshot_if_there(snapshot_id)
    if snapshot is None or context.history.listed_snapshot(snapshot_id) is not None:
        return False
    try:
        deletion.require_whole(context, snapshot)
    except (CorruptTable, NotFound):
        return True
    return False


def repair_earliest_snapshot(context: TableContext, snapshot_id: object) -> int:
    """Point the hint EARLIEST at the first snapshot after a gap. Returns the former first one.

    Every snapshot from `snapshot_id` to the newest must exist. The snapshot before it must not
    exist, unless EARLIEST already points at `snapshot_id`.
    """
    require_table(context)
    if not isinstance(snapshot_id, int) or isinstance(snapshot_id, bool):
        raise InvalidRequest("a snapshot is named by its id", snapshot_id=snapshot_id)
    layout = context.layout
    names = (status.path.rpartition("/")[2] for status in context.store.list(layout.snapshot_dir))
    ids = {
        number for name in names if (number := parse_numbered(name, SNAPSHOT_PREFIX)) is not None
    }
    first = context.history.earliest_snapshot_id()
    if not ids or first is None:
        raise NotFound("the table has no snapshot", table=context.identifier)
    last = max(ids)
    if not first <= snapshot_id <= last:
        raise InvalidRequest(
            "the snapshot is not between the first and the newest one",
            snapshot_id=snapshot_id,
            first=first,
            newest=last,
        )
    missing = [number for number in range(snapshot_id, last + 1) if number not in ids]
    if missing:
        raise NotFound("a snapshot does not exist", snapshot_id=missing[0], newest=last)
    if snapshot_id != first and snapshot_id - 1 in ids:
        raise InvalidRequest(
            "the snapshot does not follow a gap: the one before it exists", snapshot_id=snapshot_id
        )
    context.history.write_earliest_hint(snapshot_id)
    return first


# --- retention verbs -----------------------------------------------------------------------------

_SPAN = re.compile(r"\d+\s*[a-zµ]+", re.IGNORECASE)


_LEAST = ("snapshot.num-retained.min", "changelog.num-retained.min")
_LIMIT = "snapshot.expire.limit"


def _wanted(
    context: TableContext,
    keep: Retention,
    retain_max: int | None,
    retain_min: int | None,
    max_deletes: int | None,
) -> Retention:
    """What a call keeps. Defaults of options that the table does not state bind only commits."""
    stated = context.options.texts
    most = keep.retain_max if retain_max is None else retain_max
    least = keep.retain_min if retain_min is None else retain_min
    is_number = isinstance(most, int)  # `Retention` refuses other values
    if retain_min is None and is_number and not any(key in stated for key in _LEAST):
        least = max(min(least, most), 1)
    limit = keep.max_deletes if _LIMIT in stated else sys.maxsize
    return replace(
        keep,
        retain_max=most,
        retain_min=least,
        max_deletes=limit if max_deletes is None else max_deletes,
    )


class RetentionVerbs:
    """The verbs of retention; they need the property `_context` of a table."""

    @property
    def _context(self) -> TableContext:
        raise NotImplementedError

    @gated
    @republished
    def expire_snapshots(
        self,
        *,
        retain_max: int | None = None,
        retain_min: int | None = None,
        older_than: Time | timedelta | None = None,
        max_deletes: int | None = None,
        dry_run: bool = False,
    ) -> ExpiredSnapshots:
        """Expire the oldest snapshots and delete the files that only they need.

        Commits do this automatically according to the options of the table. These options are the
        defaults of the arguments:

        - `retain_max`: snapshots before the newest `retain_max` expire, whatever their age
          (`snapshot.num-retained.max`);
        - `retain_min`: the newest `retain_min` always stay (`snapshot.num-retained.min`; its
          default yields to a smaller `retain_max`);
        - `older_than`: of the remaining snapshots, those that were replaced by a newer one before
          this time expire. A time, or an age such as "2 h" (`snapshot.time-retained`);
        - `max_deletes`: the maximum number of snapshots that one call expires
          (`snapshot.expire.limit` if the table states it; otherwise there is no limit).

        With `dry_run`, nothing is deleted; the result states what would be deleted. The files of
        tags, branches and long-lived changelogs stay. Every snapshot that a consumer has not read
        yet stays. The rule is Paimon's
        (https://paimon.apache.org/docs/master/maintenance/manage-snapshots/).

            table.expire_snapshots(retain_max=20, retain_min=5)

        Raises InvalidRequest for numbers that contradict each other; CorruptTable, with nothing
        deleted, if the first snapshot to stay, a tag, a branch or a consumer cannot be read.
        """
        check_flags(dry_run=dry_run)
        context = self._context
        keep = _wanted(
            context, snapshots.retention_of(context), retain_max, retain_min, max_deletes
        )
        given = replace(keep, older_than_ms=_moment(context, older_than, keep.older_than_ms))
        return snapshots.expire_snapshots(context, given, dry_run=dry_run)

    @gated
    def expire_changelogs(
        self,
        *,
        retain_max: int | None = None,
        retain_min: int | None = None,
        older_than: Time | timedelta | None = None,
        max_deletes: int | None = None,
        delete_all: bool = False,
        dry_run: bool = False,
    ) -> ExpiredChangelogs:
        """Expire the oldest long-lived changelogs and delete the files that only they need.

        A long-lived changelog keeps the changes of an expired snapshot for `changes` and `stream`.
        It exists if an option `changelog.*` keeps more than the option `snapshot.*` of the same
        meaning. Commits expire long-lived changelogs automatically. The arguments are those of
        `expire_snapshots`; the defaults are the options `changelog.*`, such as
        `changelog.num-retained.max`. `retain_max` and `retain_min` count back from the latest
        snapshot, and the newest changelog stays. With `delete_all`, all expire, except those that
        a consumer has not read yet.

            table.expire_changelogs(retain_max=100, retain_min=1)

        Raises InvalidRequest for numbers that contradict each other; CorruptTable, with nothing
        deleted, if something that stays cannot be read.
        """
        check_flags(delete_all=delete_all, dry_run=dry_run)
        context = self._context
        keep = _wanted(
            context, snapshots.changelog_retention_of(context), retain_max, retain_min, max_deletes
        )
        given = replace(keep, older_than_ms=_moment(context, older_than, keep.older_than_ms))
        return snapshots.expire_changelogs(context, given, all_of_them=delete_all, dry_run=dry_run)

    @gated
    @republished
    def expire_partitions(
        self,
        *,
        expiration_time: str | timedelta | None = None,
        timestamp_formatter: str | None = None,
        timestamp_pattern: str | None = None,
        expire_strategy: str | None = None,
        max_expires: int | None = None,
        dry_run: bool = False,
    ) -> ExpiredPartitions:
        """Drop the partitions that are older than `expiration_time`, now.

        The age of a partition is that of its values (`values-time`), or of its newest file
        (`update-time`). The defaults of the arguments are the options of the table:
        `partition.expiration-time`, `partition.timestamp-formatter`, `partition.timestamp-pattern`,
        `partition.expiration-strategy`, `partition.expiration-max-num`. A commit removes the rows;
        the files are deleted when older snapshots expire. A partition whose values are not a time
        stays, and the result names it. With `dry_run`, nothing is dropped. The rule is Paimon's
        (https://paimon.apache.org/docs/master/maintenance/manage-partitions/).

            form = "yyyy-MM-dd"
            table.expire_partitions(expiration_time="30 d", timestamp_formatter=form)

        Raises InvalidRequest if the table has no partitions, or if neither argument nor option sets
        an expiration time; Unsupported for a formatter with parts that are not numbers.
        """
        check_flags(dry_run=dry_run)
        context = self._context
        # The result names partitions. Commits expire them by the options all the same.
        context.options.require_all_rows()
        given = {
            "partition.expiration-time": _span_text(expiration_time),
            "partition.timestamp-formatter": timestamp_formatter,
            "partition.timestamp-pattern": timestamp_pattern,
            "partition.expiration-strategy": expire_strategy,
            "partition.expiration-max-num": max_expires,
        }
        texts = {key: str(value) for key, value in given.items() if value is not None}
        options = parse_options({**context.options.texts, **texts}, table=context.identifier)
        rule = partitions.partition_rule_of(options)
        if rule is None:
            raise InvalidRequest(
                "set how long partitions live: expiration_time, or the option "
                "partition.expiration-time",
                table=context.identifier,
            )
        return partitions.expire_partitions(context, rule, dry_run=dry_run)

    @gated
    def export_iceberg(self, *, rebuild: bool = False) -> IcebergExport:
        """Write Iceberg metadata of the latest snapshot, which readers of Iceberg can open.

        The data files are not copied. The metadata is stored where `metadata.iceberg.storage` says,
        and in the directory `metadata` of the table without that option; with it, each commit does
        the same. The call adds the snapshots that are not published yet, so it also repairs what a
        failed publication left out. With `rebuild`, the metadata begins again from the files of the
        latest snapshot (https://paimon.apache.org/docs/master/iceberg/).

        Returns the path of the document to open. Raises Unsupported or InvalidRequest, naming the
        column or the option, for a table that Iceberg readers would misread.

            table.export_iceberg().metadata_path
        """
        check_flags(rebuild=rebuild)
        return export_iceberg(self._context, rebuild=rebuild)

    @gated
    @republished
    def rollback_to(
        self,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp: Time | None = None,
        *,
        dry_run: bool = False,
    ) -> RolledBack:
        """Make an earlier snapshot the latest one, and remove everything after it.

        The snapshot is named by its id, by a tag, or by a time, which means the newest snapshot at
        that time. A tag may be older than the earliest snapshot. Later snapshots, tags and
        long-lived changelogs are removed, with their files; the schema stays the newest one. With
        `dry_run`, nothing is changed.

        Pause all writers during the call: a commit on top of a removed snapshot is removed, too.
        After a crash, the table is in one of its states; the next call finishes the work. The rule
        is Paimon's (https://paimon.apache.org/docs/master/maintenance/manage-snapshots/).

            table.rollback_to(snapshot_id=1)

        Raises NotFound, naming what exists, if there is no such snapshot or tag; CorruptTable if it
        cannot be read; InvalidRequest unless one of the three is given.
        """
        check_flags(dry_run=dry_run)
        travel = Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp)
        return rollback.rollback_to(self._context, travel, dry_run=dry_run)

    @gated
    def remove_orphan_files(
        self,
        older_than: Time | timedelta = "1 d",
        *,
        dry_run: bool = False,
        force: bool = False,
    ) -> OrphanFiles:
        """Delete the files in the directories of the table that nothing references.

        A crash, an aborted write or an interrupted expiry leaves such files. A file stays if a
        snapshot, tag or long-lived changelog of any branch references it, or if it was changed
        after `older_than`: a time, or an age such as "2 d". A younger file may belong to a running
        commit. With `dry_run`, nothing is deleted
        (https://paimon.apache.org/docs/master/maintenance/manage-snapshots/#remove-orphan-files).

        Raises InvalidRequest for an age below an hour, unless `force` states that there are no
        writers; CorruptTable, with nothing deleted, if a snapshot, tag or changelog cannot be read.

            table.remove_orphan_files(older_than="3 d", dry_run=True).paths
        """
        check_flags(dry_run=dry_run, force=force)
        given: object = older_than
        if given is None:
            raise InvalidRequest("state the age or the time of older_than, such as '1 d'")
        older_than_ms = _moment(self._context, older_than, 0)
        return orphans.remove_orphan_files(
            self._context, older_than_ms, force=force, dry_run=dry_run
        )

    @gated
    def repair_hints(self) -> tuple[int, int] | None:
        """Rewrite the hints EARLIEST and LATEST from a listing of the snapshots.

        Returns the first and the last snapshot; None for a table without snapshots. Hints only
        save readers a listing, but a wrong one hides snapshots
        (https://paimon.apache.org/docs/master/concepts/spec/snapshot/).

            table.repair_hints()
        """
        return repair_hints(self._context)


def _span_text(given: object) -> str | None:
    """A time span in the text form of an option."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, timedelta):
        return f"{given // timedelta(milliseconds=1)} ms"
    raise InvalidRequest(
        "a time span must be a string such as '30 d', or a timedelta", expiration_time=given
    )


def _moment(context: TableContext, given: Time | timedelta | None, default_ms: int) -> int:
    """A point in time: the given time, or now minus the given age."""
    if given is None:
        return default_ms
    if isinstance(given, timedelta):
        return context.ambient.now_ms() - given // timedelta(milliseconds=1)
    if isinstance(given, str) and _SPAN.fullmatch(given.strip()):
        try:
            return context.ambient.now_ms() - DURATION.parse(given)
        except ValueError as error:
            raise InvalidRequest(
                "the age is not a valid duration", older_than=given, allowed=str(error)
            ) from error
    return to_milliseconds(given)
