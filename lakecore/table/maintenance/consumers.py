"""The consumers of a table: one file each, `consumer/consumer-ID`, which holds the next snapshot.

The file is overwritten in place (https://paimon.apache.org/docs/master/flink/consumer-id/).
Expiry keeps every snapshot from the smallest `next_snapshot` on. A branch has its own consumers.

INVARIANT: a consumer whose file cannot be read is an error, and never counts as absent: expiry
would delete snapshots that it needs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakecore.errors import CorruptTable, InvalidRequest, NotFound
from lakecore.format.layout import CONSUMER_PREFIX
from lakecore.format.metadata import decode_consumer, encode_consumer
from lakecore.model.snapshot import Consumer

if TYPE_CHECKING:
    from lakecore.io.stores.store import FileStatus
    from lakecore.table.context import TableContext

_READS_MAX, _WAIT_SECONDS = 10, 0.2
"""How often, and after which wait, a damaged file is read again, as in Java.

Another writer may be overwriting the file.
"""


def list_consumers(context: TableContext) -> tuple[Consumer, ...]:
    """All consumers, sorted by id. Raises CorruptTable if a file is damaged."""
    found = []
    for name, status in _files(context):
        number = read_consumer(context, name)
        if number is not None:  # else it was deleted after the listing
            found.append(
                Consumer(consumer_id=name, next_snapshot=number, modified_ms=status.modified_ms)
            )
    return tuple(sorted(found, key=lambda consumer: consumer.consumer_id))


def consumer_ids(context: TableContext) -> tuple[str, ...]:
    """The ids of all consumers, sorted, without reading their files."""
    return tuple(sorted(name for name, _ in _files(context)))


def read_consumer(context: TableContext, consumer_id: str) -> int | None:
    """The next snapshot of a consumer; None if the consumer does not exist.

    Raises InvalidRequest for an id that cannot be a file name, CorruptTable for a damaged file.
    """
    path = context.layout.consumer(checked_consumer_id(consumer_id))
    for attempt in range(_READS_MAX):
        try:
            number = decode_consumer(context.store.read(path), path)
        except NotFound:
            return None
        except CorruptTable:
            if attempt + 1 == _READS_MAX:
                raise
            context.ambient.sleep(_WAIT_SECONDS)
        else:
            return number
    return None


def write_consumer(context: TableContext, consumer_id: str, next_snapshot: int) -> None:
    """Record that a consumer reads this snapshot next. The consumer is created if it is absent."""
    path = context.layout.consumer(checked_consumer_id(consumer_id))
    context.store.put(path, encode_consumer(next_snapshot))


def delete_consumer(context: TableContext, consumer_id: str) -> None:
    """Delete a consumer. Does nothing if it does not exist."""
    context.store.delete(context.layout.consumer(checked_consumer_id(consumer_id)))


def stored_consumer(context: TableContext, consumer_id: str) -> bytes | None:
    """The bytes of a consumer's file, which may be damaged; None if there is no file."""
    try:
        return context.store.read(context.layout.consumer(consumer_id))
    except NotFound:
        return None


def restore_consumer(context: TableContext, consumer_id: str, stored: bytes | None) -> None:
    """Put back what `stored_consumer` returned."""
    if stored is None:
        delete_consumer(context, consumer_id)
    else:
        context.store.put(context.layout.consumer(consumer_id), stored)


def clear_consumers(
    context: TableContext,
    including: str | None = None,
    excluding: str | None = None,
    *,
    dry_run: bool = False,
) -> tuple[str, ...]:
    """Delete the consumers whose whole id matches a pattern; returns the ids, sorted.

    If `including` is None, all match; if `excluding` is None, none is excluded. Damaged consumers
    are deleted too. Raises InvalidRequest if a pattern is not a valid regular expression.
    """
    chosen = _pattern("including", including)
    spared = _pattern("excluding", excluding)
    names = sorted(
        name
        for name, _ in _files(context)
        if (chosen is None or chosen.fullmatch(name))
        and (spared is None or not spared.fullmatch(name))
    )
    if not dry_run:
        for name in names:
            delete_consumer(context, name)
    return tuple(names)


def expire_consumers(context: TableContext) -> tuple[str, ...]:
    """Delete consumers that are older than `consumer.expiration-time`; returns their ids, sorted.

    The age is the time since the progress was last recorded: the modification time of the file. No
    consumer expires if the option is not set or the storage does not record modification times. A
    consumer that records progress meanwhile stays.
    """
    age_ms = context.options.consumer_expiration_time_ms
    if age_ms is None:
        return ()
    oldest_ms = context.ambient.now_ms() - age_ms
    old = {
        name: status
        for name, status in _files(context)
        if status.modified_ms is not None and status.modified_ms < oldest_ms
    }
    deleted = []
    for name in sorted(old):
        # Listed again for each one: the deletions before it take time.
        if dict(_files(context)).get(name) == old[name]:
            delete_consumer(context, name)
            deleted.append(name)
    return tuple(deleted)


def checked_consumer_id(consumer_id: object) -> str:
    """Return the id. Raises InvalidRequest unless it is a string that is not blank."""
    if not isinstance(consumer_id, str) or not consumer_id.strip():
        raise InvalidRequest(
            "a consumer id must be a string that is not blank", consumer_id=consumer_id
        )
    return consumer_id


def _files(context: TableContext) -> list[tuple[str, FileStatus]]:
    """The ids and files of all consumers, including those that cannot be read."""
    children = context.store.list(context.layout.consumer_dir)
    named = [(status.path.rpartition("/")[2], status) for status in children]
    return [
        (name.removeprefix(CONSUMER_PREFIX), status)
        for name, status in named
        if name.startswith(CONSUMER_PREFIX) and name != CONSUMER_PREFIX and not status.is_directory
    ]


def _pattern(argument: str, text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text)
    except (re.error, TypeError) as error:
        raise InvalidRequest(
            "the pattern of consumer ids is not a regular expression",
            argument=argument,
            pattern=text,
            why=error,
        ) from error
