"""What a user asks of a table about the past: expire it, or go back to it.

Every method is one call into this package; `Table` inherits them.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.model.arguments import check_flags
from lakecore.model.times import to_milliseconds
from lakecore.options import DURATION, parse_options
from lakecore.plan.retention import Retention
from lakecore.table.maintenance import expire_snapshots as snapshots
from lakecore.table.maintenance.expire_changelogs import changelog_retention_of, expire_changelogs
from lakecore.table.maintenance.expire_partitions import expire_partitions, partition_rule_of
from lakecore.table.maintenance.hints import repair_hints
from lakecore.table.maintenance.orphans import remove_orphan_files
from lakecore.table.maintenance.rollback import rollback_to
from lakecore.table.reads.travel import Travel

if TYPE_CHECKING:
    from lakecore.model.retention import (
        ExpiredChangelogs,
        ExpiredPartitions,
        ExpiredSnapshots,
        OrphanFiles,
        RolledBack,
    )
    from lakecore.model.times import Time
    from lakecore.table.context import TableContext

_SPAN = re.compile(r"\d+\s*[a-zµ]+", re.IGNORECASE)


class RetentionVerbs:
    """The verbs of retention; they need the property `_context` of a table."""

    @property
    def _context(self) -> TableContext:
        raise NotImplementedError

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

        Commits do this by themselves, as the options of the table say. What is not given is taken
        from these options:

        - `retain_max`: older snapshots than the newest `retain_max` expire, whatever their age
          (`snapshot.num-retained.max`);
        - `retain_min`: the newest `retain_min` always stay (`snapshot.num-retained.min`);
        - `older_than`: in between, what was replaced by a newer snapshot before this time expires.
          A time, or an age such as "2 h" (`snapshot.time-retained`);
        - `max_deletes`: the most that one call expires (`snapshot.expire.limit`).

        With `dry_run`, nothing is deleted; the result says what would be. The files of tags,
        branches and long-lived changelogs stay, and so does every snapshot from the next one of a
        consumer on. The rule is Paimon's
        (https://paimon.apache.org/docs/master/maintenance/manage-snapshots/).

            table.expire_snapshots(retain_max=20, retain_min=5)

        Raises InvalidRequest for numbers that contradict each other; CorruptTable, with nothing
        deleted, if the first snapshot to stay, a tag, a branch or a consumer cannot be read.
        """
        check_flags(dry_run=dry_run)
        context = self._context
        keep = snapshots.retention_of(context)
        given = Retention(
            retain_max=keep.retain_max if retain_max is None else retain_max,
            retain_min=keep.retain_min if retain_min is None else retain_min,
            older_than_ms=_moment(context, older_than, keep.older_than_ms),
            max_deletes=keep.max_deletes if max_deletes is None else max_deletes,
        )
        return snapshots.expire_snapshots(context, given, dry_run=dry_run)

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

        A long-lived changelog is what an expired snapshot leaves to `changes` and `stream`, if an
        option `changelog.*` keeps more than that of snapshots. Commits expire them by themselves.
        The arguments are those of `expire_snapshots`; the defaults are `changelog.num-retained.max`
        and so on. `retain_max` and `retain_min` count from the latest snapshot on, and the newest
        changelog stays. With `delete_all`, all go. What a consumer reads next always stays.

            table.expire_changelogs(retain_max=100, retain_min=1)

        Raises InvalidRequest for numbers that contradict each other; CorruptTable, with nothing
        deleted, if something that stays cannot be read.
        """
        check_flags(delete_all=delete_all, dry_run=dry_run)
        context = self._context
        keep = changelog_retention_of(context)
        given = Retention(
            retain_max=keep.retain_max if retain_max is None else retain_max,
            retain_min=keep.retain_min if retain_min is None else retain_min,
            older_than_ms=_moment(context, older_than, keep.older_than_ms),
            max_deletes=keep.max_deletes if max_deletes is None else max_deletes,
        )
        return expire_changelogs(context, given, all_of_them=delete_all, dry_run=dry_run)

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
        (`update-time`). What is not given is taken from the options of the table:
        `partition.expiration-time`, `partition.timestamp-formatter`, `partition.timestamp-pattern`,
        `partition.expiration-strategy`, `partition.expiration-max-num`. The rows go in a commit;
        the files go when its snapshot expires. A partition whose values say no time stays, and is
        named in the result. With `dry_run`, nothing is dropped. The rule is Paimon's
        (https://paimon.apache.org/docs/master/maintenance/manage-partitions/).

            table.expire_partitions(expiration_time="30 d", timestamp_formatter="yyyy-MM-dd")

        Raises InvalidRequest if the table has no partitions, or neither argument nor option says
        how long they live; Unsupported for a formatter with other parts than numbers.
        """
        check_flags(dry_run=dry_run)
        context = self._context
        given = {
            "partition.expiration-time": _span_text(expiration_time),
            "partition.timestamp-formatter": timestamp_formatter,
            "partition.timestamp-pattern": timestamp_pattern,
            "partition.expiration-strategy": expire_strategy,
            "partition.expiration-max-num": max_expires,
        }
        texts = {key: str(value) for key, value in given.items() if value is not None}
        options = parse_options({**context.options.texts, **texts}, table=context.identifier)
        rule = partition_rule_of(options)
        if rule is None:
            raise InvalidRequest(
                "say how long partitions live: expiration_time, or the option "
                "partition.expiration-time",
                table=context.identifier,
            )
        return expire_partitions(context, rule, dry_run=dry_run)

    def rollback_to(
        self,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp: Time | None = None,
        *,
        dry_run: bool = False,
    ) -> RolledBack:
        """Make an earlier snapshot the latest one; everything after it is removed.

        Name it by its id, by a tag, or by a time: then it is the newest snapshot of that time. A
        tag may be older than the earliest snapshot. Later snapshots, tags and long-lived
        changelogs are removed, with their files; the schema stays the newest one. With `dry_run`,
        nothing is changed.

        Writers should pause meanwhile: what is committed on top of a removed snapshot is removed,
        too. After a crash, the table is in one of its states; the next call finishes the work. The
        rule is Paimon's (https://paimon.apache.org/docs/master/maintenance/manage-snapshots/).

            table.rollback_to(snapshot_id=1)

        Raises NotFound, naming what is left, if the snapshot or the tag is not there; CorruptTable
        if it cannot be read; InvalidRequest unless one of the three is given.
        """
        check_flags(dry_run=dry_run)
        travel = Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp)
        return rollback_to(self._context, travel, dry_run=dry_run)

    def remove_orphan_files(
        self,
        older_than: Time | timedelta = "1 d",
        *,
        dry_run: bool = False,
        force: bool = False,
    ) -> OrphanFiles:
        """Delete the files in the directories of the table that nothing reaches.

        A crash, a write that was given up or an expiry that was interrupted leaves such files. A
        file stays if a snapshot, tag or long-lived changelog of any branch reaches it, or if it was
        changed after `older_than`: a time, or an age such as "2 d". A younger file may belong to a
        commit that is under way. With `dry_run`, nothing is deleted
        (https://paimon.apache.org/docs/master/maintenance/manage-snapshots/#remove-orphan-files).

        Raises InvalidRequest for an age below an hour, unless `force` says that nobody writes;
        CorruptTable, with nothing deleted, if something that keeps files cannot be read.

            table.remove_orphan_files(older_than="3 d", dry_run=True).paths
        """
        check_flags(dry_run=dry_run, force=force)
        older_than_ms = _moment(self._context, older_than, 0)
        return remove_orphan_files(self._context, older_than_ms, force=force, dry_run=dry_run)

    def repair_hints(self) -> tuple[int, int] | None:
        """Write the hints at the first and the last snapshot again, from what is listed.

        Returns the first and the last snapshot; None for a table without snapshots. Hints only
        save readers a listing, but a wrong one hides snapshots
        (https://paimon.apache.org/docs/master/concepts/spec/snapshot/).

            table.repair_hints()
        """
        return repair_hints(self._context)


def _span_text(given: object) -> str | None:
    """A span of time as an option states it."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, timedelta):
        return f"{given // timedelta(milliseconds=1)} ms"
    raise InvalidRequest(
        "a span of time is a text such as '30 d', or a timedelta", expiration_time=given
    )


def _moment(context: TableContext, given: Time | timedelta | None, default_ms: int) -> int:
    """A point in time: one that is given, or now less an age that is given."""
    if given is None:
        return default_ms
    if isinstance(given, timedelta):
        return context.ambient.now_ms() - given // timedelta(milliseconds=1)
    if isinstance(given, str) and _SPAN.fullmatch(given.strip()):
        try:
            return context.ambient.now_ms() - DURATION.parse(given)
        except ValueError as error:
            raise InvalidRequest(
                "the age is not one", older_than=given, allowed=str(error)
            ) from error
    return to_milliseconds(given)
