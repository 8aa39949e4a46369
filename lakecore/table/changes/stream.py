"""Opens streams of changes, as `Table.stream` and other callers request them.

1. Check the arguments, which replace the options that name a start.
2. Read the progress of the consumer.
3. Find the start and the last snapshot (`starts.py`, `follow.py`).

Wrong arguments, and a start that has expired, are errors here, before the first snapshot is read.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from lakecore.errors import InvalidRequest, NotFound
from lakecore.model.merge_rules import check_changelog
from lakecore.model.option_rules import validate_scan
from lakecore.model.times import Time, to_milliseconds
from lakecore.options import DURATION, ScanMode, TableOptions, parse_options
from lakecore.table.changes.change_stream import ChangeStream, Progress, StreamReader
from lakecore.table.changes.changes import ChangesSource
from lakecore.table.changes.follow import START_OPTIONS, Follower, without_start_options
from lakecore.table.changes.starts import (
    Origin,
    Start,
    check_mode,
    find_start,
    mode_of,
    retained_changes,
)
from lakecore.table.context import TableContext, require_table, with_options
from lakecore.table.maintenance import consumers
from lakecore.table.maintenance.consumers import checked_consumer_id, read_consumer
from lakecore.table.maintenance.deletion import decide
from lakecore.table.reads.access_policy import FilteredSource, guarded
from lakecore.table.reads.readable import batch_reader, lazy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl
    import pyarrow as pa

    from lakecore.frames.source import RowSource
    from lakecore.model.snapshot import Snapshot

LATEST: Literal["latest"] = "latest"
POLL_SECONDS = 1.0
_TIME_KEYS = {
    ScanMode.FROM_FILE_CREATION_TIME: "scan.file-creation-time-millis",
    ScanMode.FROM_CREATION_TIMESTAMP: "scan.creation-time-millis",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """The arguments of `Table.stream`: what to read, from where, and until when."""

    from_snapshot: int | None = None
    from_timestamp: Time | None = None
    scan_mode: str | None = None
    until: int | Literal["latest"] | None = None
    consumer_id: str | None = None
    poll: str | float | timedelta | None = None
    columns: Sequence[str] | str | None = None
    where: pl.Expr | str | None = None


def open_stream(
    context: TableContext,
    request: StreamRequest,
    show: Callable[[ChangesSource], FilteredSource] | None = None,
    pack: Callable[[RowSource], RowSource] | None = None,
) -> ChangeStream[pl.LazyFrame]:
    """Open the stream that the request describes.

    `show` converts the changes of a snapshot before they become a frame (None: no conversion);
    `pack` converts the rows that the catalog shows.

    Raises NotFound if the start of the stream has expired.
    """
    until = _checked_until(request.until)
    poll_seconds = _poll_seconds(request.poll, context.options)
    options = start_options(context.options, request)
    check_mode(options, context.identifier)
    reading = without_start_options(context)
    reading.options.require_readable(filters_rows=True)
    check_changelog(context.schema, context.options)

    def shown(source: ChangesSource) -> RowSource:
        rows: FilteredSource = source if show is None else show(source)
        # A newer schema may say that the catalog filters the rows.
        own = source.context
        seen = guarded(rows, own if own.options.query_auth_enabled else reading)
        return seen if pack is None else pack(seen)

    def frame(source: ChangesSource) -> pl.LazyFrame:
        return lazy(shown(source), request.columns, request.where)

    def batches(source: ChangesSource) -> pa.RecordBatchReader:
        return batch_reader(shown(source), request.columns, request.where)

    frame(ChangesSource(context=reading, changes=()))  # reports wrong columns and conditions
    consumer_id = _consumer_id(request, options)
    recorded = None if consumer_id is None else read_consumer(context, consumer_id)
    ignored = options.consumer_ignore_progress
    origin = Origin(
        options=options,
        exact=request.from_snapshot is not None,
        consumer_id=consumer_id,
        progress=None if ignored else recorded,
    )
    latest = 0
    if until == LATEST:
        retained = retained_changes(context)
        until = latest = 0 if retained is None else retained.latest
    follower = Follower(reading, origin, until, latest)
    every_ms = options.continuous_discovery_interval_ms
    progress = Progress(reading, consumer_id, recorded, every_ms)
    reader = StreamReader(
        follower, progress, context.ambient, poll_seconds=poll_seconds, frame=frame, batches=batches
    )
    return ChangeStream(reader, frame)


def start_options(options: TableOptions, request: StreamRequest) -> TableOptions:
    """The options of the table, in which the start is replaced by the start of the request."""
    stated: dict[str, str] = {}
    mode = _checked_mode(request.scan_mode)
    if request.from_snapshot is not None:
        number = request.from_snapshot
        if isinstance(number, bool) or not isinstance(number, int):
            raise InvalidRequest("from_snapshot must be a snapshot id", from_snapshot=number)
        stated["scan.snapshot-id"] = str(max(number, 0))
    if request.from_timestamp is not None:
        key = _TIME_KEYS.get(ScanMode(mode or "default"), "scan.timestamp-millis")
        stated[key] = str(to_milliseconds(request.from_timestamp))
    if len(stated) > 1:
        raise InvalidRequest(
            "name the start of a stream in one way only: from_snapshot or from_timestamp",
            from_snapshot=request.from_snapshot,
            from_timestamp=request.from_timestamp,
        )
    if not stated and mode is None:
        return options
    dropped = START_OPTIONS if stated else {"scan.mode"}
    texts = {key: text for key, text in options.texts.items() if key not in dropped}
    given = parse_options({**texts, **stated, "scan.mode": mode or "default"}, table=options.table)
    validate_scan(given)
    return given


def _checked_mode(mode: object) -> str | None:
    if mode is None:
        return None
    modes = [str(each) for each in ScanMode]
    if not isinstance(mode, str) or mode not in modes:
        raise InvalidRequest("there is no such scan mode", scan_mode=mode, allowed=modes)
    return mode


def _checked_until(until: object) -> int | Literal["latest"] | None:
    if until is None or until == LATEST:
        return LATEST if until == LATEST else None
    if isinstance(until, bool) or not isinstance(until, int):
        raise InvalidRequest("until must be a snapshot id or 'latest'", until=until)
    return until


def _consumer_id(request: StreamRequest, options: TableOptions) -> str | None:
    given = request.consumer_id
    return options.consumer_id if given is None else checked_consumer_id(given)


def _poll_seconds(poll: object, options: TableOptions) -> float:
    """The seconds between two checks for new snapshots."""
    if poll is None:
        stated = "continuous.discovery-interval" in options.texts
        return options.continuous_discovery_interval_ms / 1000 if stated else POLL_SECONDS
    seconds = math.nan
    match poll:
        case str():
            try:
                seconds = DURATION.parse(poll) / 1000
            except ValueError as error:
                raise InvalidRequest(
                    "poll is not a valid duration", poll=poll, allowed=str(error)
                ) from error
        case timedelta():
            seconds = poll.total_seconds()
        case int() | float() if not isinstance(poll, bool):
            seconds = float(poll)
    if not 0 < seconds < math.inf:
        raise InvalidRequest(
            "poll must be a duration above 0: a string such as '10 s', a timedelta, or seconds",
            poll=poll,
        )
    return seconds


# --- positions -----------------------------------------------------------------------------------
# Positions of a stream that a job stores itself, as Spark does in its checkpoint.
#
# `begin` says where a new stream begins; `follow_from` continues with a given snapshot. Both raise
# NotFound if changes expired before they were read.

_WITH_STATE = frozenset(
    {
        ScanMode.LATEST_FULL,
        ScanMode.COMPACTED_FULL,
        ScanMode.FROM_SNAPSHOT_FULL,
        ScanMode.FROM_FILE_CREATION_TIME,
    }
)
_COMMIT_LENGTH = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Where a new stream begins.

    - `start`: None if the table has no snapshot yet;
    - `with_state`: the stream first reads a state of the table;
    - `recorded`: the consumer has recorded progress, and the stream continues there.
    """

    start: Start | None
    with_state: bool
    recorded: bool


def begin(
    context: TableContext, request: StreamRequest, stated: Mapping[str, str] | None = None
) -> Beginning:
    """Where a stream begins, according to the request, the options and the consumer.

    `stated` are options that name a start, in addition to those of the table.

    Raises NotFound if a named snapshot or the progress of the consumer has expired, InvalidRequest
    for arguments that contradict each other.
    """
    texts = {**context.options.texts, **(stated or {})}
    given = parse_options(texts, table=context.identifier) if stated else context.options
    if stated:
        validate_scan(given)
    options = start_options(given, request)
    check_mode(options, context.identifier)
    consumer_id = options.consumer_id
    recorded = None if consumer_id is None else read_consumer(context, consumer_id)
    progress = None if options.consumer_ignore_progress else recorded
    origin = Origin(options=options, exact=True, consumer_id=consumer_id, progress=progress)
    start = find_start(context, origin, retained_changes(context))
    with_state = mode_of(options) in _WITH_STATE and progress is None
    return Beginning(
        start=start,
        with_state=with_state if start is None else start.state is not None,
        recorded=progress is not None,
    )


def streamed(context: TableContext) -> TableContext:
    """The table as its stream reads it: without the options that name a start.

    Raises Unsupported or InvalidRequest for a table whose changes cannot be read.
    """
    reading = without_start_options(context)
    reading.options.require_readable()
    check_changelog(context.schema, context.options)
    ChangesSource(context=reading, changes=())
    return reading


def follow_from(context: TableContext, next_id: int, last: int | None = None) -> Follower:
    """A follower that begins with the changes of snapshot `next_id`, and ends after `last`.

    Raises NotFound, naming the earliest snapshot, if these changes have expired.
    """
    texts = {**context.options.texts, "scan.snapshot-id": str(next_id)}
    options = parse_options(texts, table=context.identifier)
    return Follower(context, Origin(options=options, exact=True), last)


def without_delay(context: TableContext) -> TableContext:
    """The table without a snapshot delay: streams return each snapshot as soon as they find it."""
    options = replace(context.options, streaming_read_snapshot_delay_ms=None)
    return with_options(context, options)


def commit_mark(snapshot: Snapshot) -> str:
    """A short text that identifies the commit of a snapshot.

    The snapshot id is not enough: after a rollback, another commit may get the same id.
    """
    name = snapshot.delta_manifest_list.encode()
    return hashlib.sha256(name).hexdigest()[:_COMMIT_LENGTH]


# --- consumer verbs ------------------------------------------------------------------------------
# Consumers that are set by hand.


def reset_consumer(context: TableContext, consumer_id: str, next_snapshot: int | None) -> None:
    """Set the snapshot that a consumer reads next; with None, delete the consumer."""
    name = consumers.checked_consumer_id(consumer_id)
    if next_snapshot is None:
        require_table(context)
        known = consumers.consumer_ids(context)
        if name not in known:
            raise NotFound(
                "no such consumer", consumer_id=name, consumers=known, table=context.identifier
            )
        decide(
            lambda: consumers.delete_consumer(context, name),
            lambda: name not in consumers.consumer_ids(context),
            consumer_id=name,
        )
        return
    if isinstance(next_snapshot, bool) or not isinstance(next_snapshot, int):
        raise InvalidRequest("next_snapshot must be a snapshot id", next_snapshot=next_snapshot)
    _require_retained(context, next_snapshot)
    before = consumers.stored_consumer(context, name)
    decide(
        lambda: consumers.write_consumer(context, name, next_snapshot),
        lambda: consumers.read_consumer(context, name) == next_snapshot,
        consumer_id=name,
    )
    try:
        # An expiry that listed the consumers before does not keep this snapshot.
        _require_retained(context, next_snapshot)
    except NotFound:
        consumers.restore_consumer(context, name, before)
        raise


def _require_retained(context: TableContext, next_snapshot: int) -> None:
    retained = retained_changes(context)
    earliest, latest = (1, 0) if retained is None else (retained.earliest, retained.latest)
    if not earliest <= next_snapshot <= latest + 1:
        raise NotFound(
            "the consumer would wait for a snapshot that has expired, or is not the next one",
            next_snapshot=next_snapshot,
            earliest=earliest,
            latest=latest,
            table=context.identifier,
        )
