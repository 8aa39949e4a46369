"""Where a stream begins: a state to read first, if any, and the first snapshot to follow.

The rules are Paimon's (https://paimon.apache.org/docs/master/flink/sql-query/#streaming-query):

| `scan.mode` | first | then |
|---|---|---|
| `latest-full` (the default) | the state of the latest snapshot | the snapshots after it |
| `compacted-full` | the state of the newest compaction, else of the latest snapshot | as above |
| `from-snapshot-full` | the state of the named snapshot | as above |
| `from-file-creation-time` | the files of the latest state that were made since then | as above |
| `latest` | | the snapshots after the latest |
| `from-snapshot` | | the named snapshot and those after it |
| `from-timestamp` | | the snapshots of that time and later |
| `from-creation-timestamp` | | as `from-timestamp`; as `from-file-creation-time` if the time is before the earliest or after the latest snapshot |

A consumer that has progress overrides all of these: the stream continues at its position.

A start that has expired is an error for the argument `from_snapshot` and for a consumer: changes
would be missing. The options `scan.snapshot-id`, `scan.timestamp` and `scan.timestamp-millis` begin
with the earliest existing snapshot, as in Paimon.
"""  # noqa: E501

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import KEPT_LONGER, InvalidRequest, NotFound
from lakecore.io.parallel import read_all
from lakecore.model.snapshot import CommitKind, Snapshot
from lakecore.model.times import to_milliseconds
from lakecore.options import ChangelogProducer, ScanMode, TableOptions
from lakecore.table.context import TableContext, require_table

if TYPE_CHECKING:
    from collections.abc import Callable


_LAST_IDENTIFIER = 2**63 - 1
"""The commit identifier of batch jobs, whose compactions are full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A state to read first (None: no state), and the id of the first snapshot to follow."""

    next_id: int
    state: Snapshot | None = None
    created_since_ms: int | None = None
    """Only files of the state that were created at this time or later are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What determines the start of a stream: options, or the progress of a consumer.

    `options` holds `scan.mode` and the related options. `exact`: the start must not have expired.
    If the consumer `consumer_id` was recorded before, `progress` is its next snapshot.
    """

    options: TableOptions
    exact: bool = False
    consumer_id: str | None = None
    progress: int | None = None


def mode_of(options: TableOptions) -> ScanMode:
    """The scan mode; if it is not set, the other options decide."""
    mode = options.scan_mode
    if mode is ScanMode.FULL:
        return ScanMode.LATEST_FULL
    if mode is not ScanMode.DEFAULT:
        return mode
    named = (
        (ScanMode.FROM_TIMESTAMP, (options.scan_timestamp_millis, options.scan_timestamp)),
        (
            ScanMode.FROM_SNAPSHOT,
            (
                options.scan_snapshot_id,
                options.scan_tag_name,
                options.scan_version,
                options.scan_watermark,
            ),
        ),
        (ScanMode.FROM_FILE_CREATION_TIME, (options.scan_file_creation_time_millis,)),
        (ScanMode.FROM_CREATION_TIMESTAMP, (options.scan_creation_time_millis,)),
        (
            ScanMode.INCREMENTAL,
            (
                options.incremental_between,
                options.incremental_between_timestamp,
                options.incremental_to_auto_tag,
            ),
        ),
    )
    for found, values in named:
        if any(value is not None for value in values):
            return found
    return ScanMode.LATEST_FULL


def check_mode(options: TableOptions, table: str) -> None:
    """Raise InvalidRequest for a mode that is only valid for bounded reads, as in Paimon."""
    mode = mode_of(options)
    if mode in (ScanMode.INCREMENTAL, ScanMode.LATEST_DELTA):
        raise InvalidRequest(
            "a stream cannot begin with this scan mode; changes(start, end) reads what changed "
            "between two points",
            option="scan.mode",
            value=mode,
            table=table,
        )
    if options.scan_watermark is not None:
        raise InvalidRequest(
            "a stream cannot begin at a watermark; name a snapshot or a time",
            option="scan.watermark",
            value=options.scan_watermark,
            table=table,
        )


def find_start(
    context: TableContext, origin: Origin, retained: RetainedChanges | None
) -> Start | None:
    """Where the stream begins now; None if that needs a snapshot and there is none yet.

    Raises NotFound if an exact start has expired or is after the next snapshot.
    """
    options = origin.options
    mode = mode_of(options)
    if retained is None:
        # The mode `latest` skips only existing snapshots, and there is none.
        fresh = mode is ScanMode.LATEST and origin.progress is None
        return Start(next_id=1) if fresh else None
    if origin.progress is not None:
        return Start(next_id=_of_consumer(retained, origin))
    match mode:
        case ScanMode.LATEST:
            return Start(next_id=retained.latest + 1)
        case ScanMode.COMPACTED_FULL:
            return _from_state(_compacted(retained, options))
        case ScanMode.FROM_SNAPSHOT:
            named = _named_snapshot(context, options)
            return Start(next_id=_reached(retained, named, exact=origin.exact))
        case ScanMode.FROM_SNAPSHOT_FULL:
            named = _named_snapshot(context, options)
            return _from_state(_live(retained, named, exact=origin.exact))
        case ScanMode.FROM_TIMESTAMP:
            return Start(next_id=_first_since(retained, _time_ms(options)))
        case ScanMode.FROM_FILE_CREATION_TIME:
            assert options.scan_file_creation_time_millis is not None
            return _files_since(retained, options.scan_file_creation_time_millis)
        case ScanMode.FROM_CREATION_TIMESTAMP:
            assert options.scan_creation_time_millis is not None
            return _created_since(retained, options.scan_creation_time_millis)
        case _:
            return _from_state(retained.snapshot(retained.latest))


def _from_state(state: Snapshot, created_since_ms: int | None = None) -> Start:
    return Start(next_id=state.id + 1, state=state, created_since_ms=created_since_ms)


def _of_consumer(retained: RetainedChanges, origin: Origin) -> int:
    number = origin.progress
    assert number is not None
    if retained.earliest <= number <= retained.latest + 1:
        return number
    expired = number < retained.earliest
    raise NotFound(
        "the consumer has not read snapshots that have expired; use reset_consumer to continue "
        "with the earliest existing one"
        if expired
        else "the consumer waits for a snapshot beyond the next one: the table was rolled back or "
        "created again; use reset_consumer to continue with another snapshot",
        consumer_id=origin.consumer_id,
        next_snapshot=number,
        earliest=retained.earliest,
        latest=retained.latest,
        table=retained.context.identifier,
    )


def _named_snapshot(context: TableContext, options: TableOptions) -> int:
    """The snapshot that the options name: by id, by tag, or by `scan.version` (an id or a tag)."""
    if options.scan_snapshot_id is not None:
        return options.scan_snapshot_id
    version = options.scan_version
    if version is not None and version not in context.history.tag_names():
        if version.isascii() and version.isdecimal():
            return int(version)
        raise NotFound("no tag or snapshot of that name", version=version)
    name = options.scan_tag_name or version
    assert name is not None
    return context.history.tag(name).snapshot.id


def _reached(retained: RetainedChanges, snapshot_id: int, *, exact: bool) -> int:
    if snapshot_id > retained.latest + 1 or (exact and snapshot_id < retained.earliest):
        raise retained.gone(snapshot_id)
    return max(snapshot_id, retained.earliest)


def _live(retained: RetainedChanges, snapshot_id: int, *, exact: bool) -> Snapshot:
    """The named snapshot; if it has expired, the earliest snapshot that still exists.

    A snapshot counts as expired even if its changelog exists. With `exact`, raises NotFound for
    such a snapshot.
    """
    earliest = retained.earliest_state
    if snapshot_id > retained.latest or (exact and snapshot_id < earliest):
        raise retained.gone(snapshot_id)
    return retained.snapshot(max(snapshot_id, earliest))


def _compacted(retained: RetainedChanges, options: TableOptions) -> Snapshot:
    """The newest snapshot of a compaction; if there is none, the latest snapshot.

    If full compactions are scheduled, only full compactions count.
    """
    commits = options.full_compaction_delta_commits
    full = commits is not None or options.changelog_producer is ChangelogProducer.FULL_COMPACTION
    every = commits or 1

    def picked(snapshot: Snapshot) -> bool:
        number = snapshot.commit_identifier
        scheduled = not full or number % every == 0 or number == _LAST_IDENTIFIER
        return snapshot.commit_kind is CommitKind.COMPACT and scheduled

    return _newest(retained, picked) or retained.snapshot(retained.latest)


def _newest(retained: RetainedChanges, picked: Callable[[Snapshot], bool]) -> Snapshot | None:
    for number in range(retained.latest, retained.earliest_state - 1, -1):
        snapshot = retained.snapshot(number)
        if picked(snapshot):
            return snapshot
    return None


def _time_ms(options: TableOptions) -> int:
    millis = options.scan_timestamp_millis
    return to_milliseconds(options.scan_timestamp) if millis is None else millis


def _first_since(retained: RetainedChanges, time_ms: int) -> int:
    """The id of the first snapshot at this time or later; if there is none, the next unused id."""
    before = retained.newest_at(time_ms - 1)
    return retained.earliest if before is None else before + 1


def _files_since(retained: RetainedChanges, time_ms: int) -> Start:
    return _from_state(retained.snapshot(retained.latest), time_ms)


def _created_since(retained: RetainedChanges, time_ms: int) -> Start:
    before = retained.newest_at(time_ms - 1)
    if before is None or before == retained.latest:
        return _files_since(retained, time_ms)
    return Start(next_id=before + 1)


# --- retained ------------------------------------------------------------------------------------
# How far back the changes of a table can be read: live snapshots and long-lived changelogs.
#
# A snapshot that expires may leave its changelog behind (`changelog.num-retained.*`,
# `changelog.time-retained`; https://paimon.apache.org/docs/master/maintenance/manage-snapshots/).
# Ids have no gaps, so everything from the earliest id on can be read.


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedChanges:
    """The snapshots whose changes exist: the ids from `earliest` to `latest`."""

    context: TableContext
    earliest: int
    latest: int
    kept: frozenset[int]
    """The ids of expired snapshots whose changelog was kept."""

    @property
    def earliest_state(self) -> int:
        """The first snapshot whose rows can still be read.

        Earlier snapshots have only their changes.
        """
        number = self.earliest
        while number in self.kept:
            number += 1
        return number

    def snapshot(self, snapshot_id: int) -> Snapshot:
        """The snapshot, or its long-lived changelog if the snapshot has expired.

        Raises NotFound, naming the earliest id, if neither exists.
        """
        if not self.earliest <= snapshot_id <= self.latest:
            raise self.gone(snapshot_id)
        history = self.context.history
        try:
            if snapshot_id in self.kept:
                return history.changelog(snapshot_id)
            try:
                return history.snapshot(snapshot_id)
            except NotFound:
                return history.changelog(snapshot_id)
        except NotFound as error:
            # The snapshot has expired in the meantime.
            raise (retained_changes(self.context) or self).gone(snapshot_id) from error

    def snapshots(self, first: int, last: int) -> list[Snapshot]:
        """The snapshots from `first` to `last` (inclusive). Raises NotFound as `snapshot` does."""
        return read_all(self.snapshot, range(first, last + 1))

    def newest_at(self, time_ms: int) -> int | None:
        """The id of the newest snapshot committed at or before a time; None if there is none."""
        low, high = self.earliest, self.latest + 1
        while low < high:
            middle = (low + high) // 2
            if self.snapshot(middle).time_ms <= time_ms:
                low = middle + 1
            else:
                high = middle
        return None if low == self.earliest else low - 1

    def gone(self, snapshot_id: int) -> NotFound:
        """The error for a snapshot whose changes do not exist any more."""
        if snapshot_id < 1:
            message = "the first snapshot of a table is 1"
        elif snapshot_id > self.latest:
            message = "there is no such snapshot yet"
        else:
            message = f"the changes of the snapshot have expired; {KEPT_LONGER}"
        return NotFound(
            message,
            snapshot_id=snapshot_id,
            earliest=self.earliest,
            latest=self.latest,
            table=self.context.identifier,
        )


def retained_changes(context: TableContext) -> RetainedChanges | None:
    """The changes that can be read now; None if nothing was ever committed.

    Raises NotFound if the table was dropped or replaced.
    """
    history = context.history
    live = history.snapshot_ids()
    require_table(context)
    if not live:
        return None
    kept = set(history.changelog_ids()) - set(live)
    there, earliest = kept.union(live), live[-1]
    first = min(there)
    # A listing may lack a file, but reading it by its name does not.
    while earliest > first and (
        earliest - 1 in there or history.snapshot_if_there(earliest - 1) is not None
    ):
        earliest -= 1
    reached = frozenset(each for each in kept if each >= earliest)
    return RetainedChanges(context=context, earliest=earliest, latest=live[-1], kept=reached)
