"""The changes of a table, snapshot by snapshot, up to a last one.

1. Without a start snapshot, the first item is the state of the latest snapshot, as +I rows (scan
   mode `latest-full`).
2. For each later relevant snapshot (`plan/changes.py`), its changes follow. An expired snapshot is
   read from its long-lived changelog; if there is none, NotFound is raised.

The rows of a snapshot are planned and read when its frame is collected. Consumers, endless streams
and other scan modes are Unsupported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.merge_rules import check_changelog
from lakecore.options import ScanMode
from lakecore.plan.changes import Taken, taken_by_stream
from lakecore.table.changes.changes import ChangesSource, Replaced, State, StoredRows
from lakecore.table.changes.retained import retained_changes
from lakecore.table.context import require_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.model.snapshot import Snapshot
    from lakecore.table.changes.changes import Change
    from lakecore.table.changes.retained import RetainedChanges
    from lakecore.table.context import TableContext

LATEST: Literal["latest"] = "latest"
_TO_COME = (
    "consumer-id",
    "scan.bounded.watermark",
    "streaming.read.snapshot.delay",
)
_STARTS = (
    "scan.snapshot-id",
    "scan.tag-name",
    "scan.timestamp",
    "scan.timestamp-millis",
    "scan.version",
    "incremental-between",
    "incremental-between-timestamp",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """The first snapshot (None: start with the latest state) and the last snapshot."""

    from_snapshot: int | None = None
    until: int | Literal["latest"] | None = None
    consumer_id: str | None = None


def stream_changes(
    context: TableContext, request: StreamRequest
) -> Iterator[tuple[int, ChangesSource]]:
    """Each relevant snapshot and its changes. The last snapshot is determined now.

    Raises NotFound if snapshots have expired, now or during iteration.
    """
    _check(context, request)
    retained = retained_changes(context)
    if retained is None:
        return iter(())
    last = retained.latest if request.until == LATEST else request.until
    assert isinstance(last, int)
    if last > retained.latest:
        raise Unsupported(
            "a stream that waits for snapshots to come is not supported; end it at one there is",
            until=last,
            latest=retained.latest,
            table=context.identifier,
        )
    first = request.from_snapshot
    if first is None:
        if last < retained.latest:
            raise InvalidRequest(
                "a stream without from_snapshot begins with the latest state, and this one would "
                "end before it",
                until=last,
                latest=retained.latest,
                table=context.identifier,
            )
        return iter(_whole(context, retained))
    if not retained.earliest <= first <= retained.latest + 1:
        raise retained.gone(first)
    if first > last + 1:
        raise InvalidRequest(
            "the stream begins after its end",
            from_snapshot=first,
            until=last,
            table=context.identifier,
        )
    return _follow(context, retained, first, last)


def _check(context: TableContext, request: StreamRequest) -> None:
    options = context.options
    options.require_readable()
    check_changelog(context.schema, options)
    if request.until is None:
        raise Unsupported(
            "a stream without an end is not supported; name its last snapshot, or until='latest'",
            until=None,
            table=context.identifier,
        )
    until = request.until
    if until != LATEST and (isinstance(until, bool) or not isinstance(until, int)):
        raise InvalidRequest("until is a snapshot id or 'latest'", until=until)
    first = request.from_snapshot
    if first is not None and (isinstance(first, bool) or not isinstance(first, int)):
        raise InvalidRequest("from_snapshot is a snapshot id", from_snapshot=first)
    if request.consumer_id is not None:
        raise _unsupported("consumer-id", request.consumer_id, context)
    for key in _TO_COME:
        if key in options.texts:
            raise _unsupported(key, options.texts[key], context)
    if first is not None:
        return
    if options.scan_mode not in (ScanMode.DEFAULT, ScanMode.LATEST_FULL, ScanMode.FULL):
        raise _unsupported("scan.mode", options.scan_mode, context)
    for key in _STARTS:
        if key in options.texts:
            raise _unsupported(key, options.texts[key], context)


def _unsupported(key: str, value: str, context: TableContext) -> Unsupported:
    return Unsupported(
        "a stream with this option is not supported; from_snapshot says where one begins",
        option=key,
        value=value,
        table=context.identifier,
    )


def _whole(context: TableContext, retained: RetainedChanges) -> list[tuple[int, ChangesSource]]:
    state = State(snapshot=retained.snapshot(retained.latest))
    return [(retained.latest, ChangesSource(context=context, changes=(state,)))]


def _follow(
    context: TableContext, retained: RetainedChanges, first: int, last: int
) -> Iterator[tuple[int, ChangesSource]]:
    for snapshot_id in range(first, last + 1):
        snapshot = retained.snapshot(snapshot_id)
        # The table may have been dropped or replaced since the previous item.
        require_table(context)
        change = _change(context, snapshot)
        if change is not None:
            yield snapshot_id, ChangesSource(context=context, changes=(change,))


def _change(context: TableContext, snapshot: Snapshot) -> Change | None:
    keyed = bool(context.schema.primary_keys)
    match taken_by_stream(snapshot, context.options, keyed=keyed):
        case None:
            return None
        case Taken.REPLACED:
            return Replaced(snapshot=snapshot)
        case taken:
            change = StoredRows(snapshot=snapshot, changelog=taken is Taken.CHANGELOG)
            return change if change.entries(context) else None
