"""Positions of a stream that a job stores itself, as Spark does in its checkpoint.

`begin` says where a new stream begins; `follow_from` continues with a given snapshot. Both raise
NotFound if changes expired before they were read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecore.model.merge_rules import check_changelog
from lakecore.model.option_rules import validate_scan
from lakecore.options import ScanMode, parse_options
from lakecore.table.changes.changes import ChangesSource
from lakecore.table.changes.follow import Follower, without_start_options
from lakecore.table.changes.retained import retained_changes
from lakecore.table.changes.starts import Origin, Start, check_mode, find_start, mode_of
from lakecore.table.changes.stream import start_options
from lakecore.table.context import with_options
from lakecore.table.maintenance.consumers import read_consumer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.model.snapshot import Snapshot
    from lakecore.table.changes.stream import StreamRequest
    from lakecore.table.context import TableContext

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
