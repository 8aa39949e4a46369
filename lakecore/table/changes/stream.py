"""Opens streams of changes, as `Table.stream` and other callers request them.

1. Check the arguments. They replace the options that name a start.
2. Read the progress of the consumer.
3. Find the start and the last snapshot (`starts.py`, `follow.py`).

Wrong arguments, and a start that has expired, are errors here, before the first snapshot is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from lakecore.errors import InvalidRequest
from lakecore.model.merge_rules import check_changelog
from lakecore.model.option_rules import validate_scan
from lakecore.model.times import Time, to_milliseconds
from lakecore.options import DURATION, ScanMode, parse_options
from lakecore.table.changes.change_stream import ChangeStream, StreamReader
from lakecore.table.changes.changes import ChangesSource
from lakecore.table.changes.follow import START_OPTIONS, Follower, without_start_options
from lakecore.table.changes.progress import Progress
from lakecore.table.changes.retained import retained_changes
from lakecore.table.changes.starts import Origin, check_mode
from lakecore.table.maintenance.consumers import checked_consumer_id, read_consumer
from lakecore.table.reads.guarded import guarded
from lakecore.table.reads.readable import batch_reader, lazy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl
    import pyarrow as pa

    from lakecore.frames.source import RowSource
    from lakecore.options import TableOptions
    from lakecore.table.context import TableContext
    from lakecore.table.reads.guarded import FilteredSource

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
    `pack` converts what the catalog shows of them.

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
    if until == LATEST:
        retained = retained_changes(context)
        until = 0 if retained is None else retained.latest
    follower = Follower(reading, origin, until)
    every_ms = options.continuous_discovery_interval_ms
    progress = Progress(reading, consumer_id, recorded, every_ms)
    reader = StreamReader(
        follower,
        progress,
        context.ambient,
        poll_seconds=poll_seconds,
        frame=frame,
        batches=batches,
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
