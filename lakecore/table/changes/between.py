"""Reads the changes between two points of a table's history.

Works like Paimon's `incremental-between`
(https://paimon.apache.org/docs/master/flink/sql-query/#batch-incremental): the start is exclusive,
the end inclusive. A point is a snapshot id, a tag or a time; a time means the newest snapshot at
that time. A string is a tag if one has that name, else a snapshot id if it has only digits, else a
time: tags are often named after a day or hour.

- By default, the changelog of each snapshot is read; for a table without a changelog, the added
  rows. `incremental-between-scan-mode` overrides this.
- With data evolution, the rows of all these snapshots are read together: a row has the newest
  values that one of the snapshots wrote, and null for columns that none wrote.
- Between two tags, and with the mode `diff`, the two states are compared. The snapshots between
  them may have expired. With `incremental-between-tag-to-snapshot`, a tag is treated like the id of
  its snapshot: the snapshots between are read.

Paimon clips a range that begins before the earliest remaining snapshot. lakecore raises NotFound,
because changes would be missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from lakecore.errors import InvalidRequest, NotFound, Unsupported
from lakecore.model.option_rules import validate_scan
from lakecore.model.times import Time, is_time_text, to_milliseconds, whole_number
from lakecore.options import IncrementalScanMode, ScanMode
from lakecore.plan.changes import Taken, mode_between, taken_between
from lakecore.table.changes.changes import ChangesSource, StoredRows
from lakecore.table.changes.difference import Difference
from lakecore.table.changes.retained import retained_changes
from lakecore.table.reads.fallback import falls_back

if TYPE_CHECKING:
    from lakecore.model.snapshot import Snapshot, Tag
    from lakecore.table.changes.changes import Change
    from lakecore.table.changes.retained import RetainedChanges
    from lakecore.table.context import TableContext

Point: TypeAlias = Time | None
"""A point of the history: a snapshot id, a tag (or an id as text), or a time.

None as the start: before the first snapshot. None as the end: the latest snapshot.
"""


def changes_between(context: TableContext, start: Point, end: Point) -> ChangesSource:
    """The changes after the start up to the end; see the top of this file.

    If neither is given, options may name them. Raises NotFound if a point, or a snapshot between
    them, does not exist.
    """
    _check_no_fallback(context)
    points = _points_of_options(context) if start is None and end is None else None
    return ChangesSource(context=context, changes=_changes(context, *(points or (start, end))))


def changes_of_options(context: TableContext) -> ChangesSource | None:
    """The changes that the options `incremental-between...` name; None if they are not set.

    As in Paimon, only +I and +U rows are read, without their kinds.
    """
    points = _points_of_options(context)
    if points is None:
        return None
    _check_no_fallback(context)
    return ChangesSource(context=context, changes=_changes(context, *points), kinds=False)


def _check_no_fallback(context: TableContext) -> None:
    """Raise Unsupported for a table with a fallback branch: which changes to read is undefined."""
    if falls_back(context):
        raise Unsupported(
            "changes between two points cannot be read with a fallback branch; use "
            'table.copy({"scan.fallback-branch": ""})',
            option="scan.fallback-branch",
            table=context.identifier,
        )


def _points_of_options(context: TableContext) -> tuple[_Stated, _Stated] | None:
    options = context.options
    if options.incremental_between is not None:
        first, last = _pair("incremental-between", options.incremental_between, context)
        return _Text(first), _Text(last)
    if options.incremental_between_timestamp is not None:
        key, text = "incremental-between-timestamp", options.incremental_between_timestamp
        first, last = _pair(key, text, context)
        return _time(first), _time(last)
    if options.scan_mode is ScanMode.INCREMENTAL:
        validate_scan(options)
    return None


@dataclass(frozen=True, slots=True)
class _Time:
    """A point in time, in milliseconds since the epoch, and as it was given."""

    time_ms: int
    given: object


@dataclass(frozen=True, slots=True)
class _Text:
    """A tag or a snapshot id, never a time: a point that `incremental-between` names."""

    given: str


_Stated: TypeAlias = _Text | _Time


@dataclass(frozen=True, slots=True)
class _Found:
    """The snapshot that a point means. `tag` is set if the point is a tag."""

    id: int
    tag: Tag | None = None


def _changes(
    context: TableContext, start: Point | _Stated, end: Point | _Stated
) -> tuple[Change, ...]:
    retained = retained_changes(context)
    since, until = _named(context, start), _named(context, end)
    if retained is None:
        if isinstance(until, int) or (isinstance(since, int) and since != 0):
            raise NotFound(
                "the table has no snapshot yet",
                start=_given(start),
                end=_given(end),
                table=context.identifier,
            )
        return ()
    mode = mode_between(context.options)
    last = _found(retained, until, at_start=False)
    if start is None and mode is IncrementalScanMode.DIFF:
        first = _Found(0)  # comparing with the empty state needs no older snapshots
    else:
        first = _found(retained, since, at_start=True)
    if first.id > last.id:
        raise InvalidRequest(
            "the start is after the end",
            start=_given(start),
            end=_given(end),
            start_snapshot=first.id,
            end_snapshot=last.id,
            table=context.identifier,
        )
    if first.id == last.id:
        return ()
    tags = first.tag is not None and last.tag is not None
    if tags and not context.options.incremental_between_tag_to_snapshot:
        mode = IncrementalScanMode.DIFF
    if mode is IncrementalScanMode.DIFF:
        before = _state(context, first) if first.id > 0 else None
        return (Difference(before=before, after=_state(context, last)),)
    taken = [
        (each, taken_between(each, mode)) for each in retained.snapshots(first.id + 1, last.id)
    ]
    found = [
        StoredRows(snapshot=snapshot, changelog=what is Taken.CHANGELOG)
        for snapshot, what in taken
        if what is not None
    ]
    if context.options.data_evolution_enabled and found:
        # As in Paimon: files of all these snapshots that hold columns of the same rows are joined.
        earlier = tuple(each.snapshot for each in found[:-1])
        return (replace(found[-1], earlier=earlier),)
    return tuple(found)


_Named: TypeAlias = "int | Tag | _Time | None"


def _named(context: TableContext, point: Point | _Stated) -> _Named:
    """The tag, id or time that a point names. Raises NotFound for an unknown tag."""
    number = whole_number(point)
    if number is not None:
        return number
    if point is None or isinstance(point, _Time):
        return point
    if isinstance(point, _Text):
        return _named_by_text(context, point.given, may_be_time=False)
    if isinstance(point, str):
        return _named_by_text(context, point, may_be_time=True)
    try:
        return _time(point)
    except InvalidRequest as error:
        raise InvalidRequest(
            "a point must be a snapshot id, a tag or a time", given=point, why=error
        ) from error


def _named_by_text(context: TableContext, text: str, *, may_be_time: bool) -> _Named:
    if text not in context.history.tag_names():
        if text.isascii() and text.isdigit():
            return int(text)
        if may_be_time and is_time_text(text):
            return _time(text)
    return context.history.tag(text)


def _found(retained: RetainedChanges, point: _Named, *, at_start: bool) -> _Found:
    match point:
        case None:
            return _Found(_before_all(retained, "the beginning") if at_start else retained.latest)
        case int():
            return _Found(_known(retained, point, at_start=at_start))
        case _Time():
            return _at_time(retained, point, at_start=at_start)
        case tag:
            return _Found(tag.snapshot.id, tag)


def _known(retained: RetainedChanges, snapshot_id: int, *, at_start: bool) -> int:
    """Return `snapshot_id`. Raises NotFound if its changes have expired or are not committed yet.

    With `at_start`, the id before the earliest one is valid too, because a start is exclusive.
    """
    earliest = retained.earliest - 1 if at_start else retained.earliest
    if at_start and snapshot_id == 0:
        return _before_all(retained, "snapshot 0")
    if not earliest <= snapshot_id <= retained.latest:
        raise retained.gone(snapshot_id + 1 if at_start and snapshot_id < earliest else snapshot_id)
    return snapshot_id


def _at_time(retained: RetainedChanges, point: _Time, *, at_start: bool) -> _Found:
    newest = retained.newest_at(point.time_ms)
    if newest is not None:
        return _Found(newest)
    # A range that ends before the first snapshot is empty.
    return _Found(_before_all(retained, str(point.given)) if at_start else retained.earliest - 1)


def _before_all(retained: RetainedChanges, start: str) -> int:
    """The id before the first snapshot. Raises NotFound if the first snapshot has expired."""
    if retained.earliest > 1:
        raise NotFound(
            "changes since then have expired; begin at the earliest existing snapshot or later",
            start=start,
            earliest=retained.earliest,
            earliest_ms=retained.snapshot(retained.earliest).time_ms,
            table=retained.context.identifier,
        )
    return 0


def _state(context: TableContext, point: _Found) -> Snapshot:
    """The snapshot whose state a point names. Raises NotFound if it has expired."""
    return context.history.snapshot(point.id) if point.tag is None else point.tag.snapshot


def _pair(key: str, text: str, context: TableContext) -> tuple[str, str]:
    first, comma, last = (part.strip() for part in text.partition(","))
    if not comma or not first or not last or "," in last:
        raise InvalidRequest(
            "the option must name two points, separated by a comma",
            option=key,
            value=text,
            table=context.identifier,
        )
    return first, last


def _time(given: Time) -> _Time:
    return _Time(to_milliseconds(given), given)


def _given(point: Point | _Stated) -> object:
    return point.given if isinstance(point, _Stated) else point
