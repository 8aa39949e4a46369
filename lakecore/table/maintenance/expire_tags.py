"""Expiry of tags: a tag that is older than its time to live is deleted.

Times are wall clock times, as in Paimon's tag files: a tag has the time of the process that created
it, and "now" is the time of this process.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from lakecore.errors import AlreadyExists, InvalidRequest, NotFound
from lakecore.format.layout import TAG_PREFIX
from lakecore.options.choices import TagCreation
from lakecore.plan.retention import DAYS, NO_WATERMARK, TagPeriods, tag_periods, wall_ms
from lakecore.table.context import TableContext, require_table
from lakecore.table.maintenance.reachable import tags_of
from lakecore.table.maintenance.tags import LOOK_AGAIN_MS, delete_tag, make_tag, put_tag

if TYPE_CHECKING:
    from lakecore.io.history import History
    from lakecore.io.stores.store import FileStatus
    from lakecore.model.retention import TagDeletion
    from lakecore.model.snapshot import Snapshot, Tag


# --- auto tags -----------------------------------------------------------------------------------
# Tags that a commit creates automatically (`tag.automatic-creation`).
#
# The rules for the modes process time and watermark are Paimon's
# (https://paimon.apache.org/docs/master/maintenance/manage-tags/):
#
# 1. The newest automatic tag determines the next period and the next snapshot to examine. Without a
#    tag, the first live snapshot is tagged.
# 2. A snapshot gets a tag if its time, less `tag.creation-delay`, is at or after the end of that
#    period. The tag is named after the last period that ended. With `tag.automatic-completion` it
#    is
#    named after the next period, so that later snapshots fill periods without a commit.
# 3. If there are more automatic tags than `tag.num-retained-max`, the oldest are deleted.
#
# In the mode batch, the tag of the last batch moves to the newest snapshot, and
# `tag.num-retained-max` counts all tags.

_BATCH_PREFIX = "batch-write-"


def create_automatic_tags(context: TableContext, *, batch: bool) -> tuple[str, ...]:
    """Create the tags that are due, and delete those above the maximum number.

    `batch` is true after a batch commit, whose writer does not number its commits. Returns the
    names of new tags.
    """
    mode = context.options.tag_automatic_creation
    latest = None if mode is TagCreation.NONE else context.history.latest_snapshot()
    if latest is None:
        return ()
    if mode is TagCreation.BATCH:
        return (_tag_batch(context, latest),) if batch else ()
    periods = tag_periods(context.options)
    assert periods is not None, "both other modes have periods"
    _check_delay(context, periods)
    made = _tag_periods(context, periods, latest)
    if made and context.options.tag_num_retained_max is not None:
        own = [tag for tag in tags_of(context.history) if periods.is_automatic(tag.name)]
        kept = sorted({tag.snapshot.id for tag in own})[-context.options.tag_num_retained_max :]
        _delete(context, [tag for tag in own if tag.snapshot.id not in kept])
    return made


def _tag_periods(context: TableContext, periods: TagPeriods, latest: Snapshot) -> tuple[str, ...]:
    options, history = context.options, context.history
    started = {name: periods.start_ms(name) for name in history.tag_names()}
    automatic = {name: start for name, start in started.items() if start is not None}
    next_ms: int | None = None
    first = 0
    if automatic:
        newest = max(automatic, key=lambda name: automatic[name])
        next_ms = automatic[newest] + periods.length_ms
        first = history.tag(newest).snapshot.id + 1

    def is_due(time_ms: int | None) -> bool:
        if time_ms is None or next_ms is None:
            return time_ms is not None
        return time_ms - options.tag_creation_delay_ms >= next_ms + periods.length_ms

    if not is_due(_time_of(context, latest)):
        return ()  # then no earlier snapshot is due, either
    made = []
    for number in history.snapshot_ids():
        snapshot = history.snapshot_if_there(number) if number >= first else None
        time_ms = None if snapshot is None else _time_of(context, snapshot)
        if snapshot is None or time_ms is None or not is_due(time_ms):
            continue
        completes = options.tag_automatic_completion and next_ms is not None
        start = next_ms if completes and next_ms is not None else periods.ended_ms(time_ms)
        name = periods.name(start)
        with suppress(AlreadyExists):  # a user or another process created it
            try:
                make_tag(context, name, snapshot, options.tag_default_time_retained_ms)
            except NotFound:  # another process let the snapshot expire: the next one gets the tag
                continue
            made.append(name)
        next_ms = start + periods.length_ms
    return tuple(made)


def _time_of(context: TableContext, snapshot: Snapshot) -> int | None:
    """The wall clock time that decides the tag of a snapshot; None if there is no such time."""
    options = context.options
    if options.tag_automatic_creation is TagCreation.PROCESS_TIME:
        return wall_ms(snapshot.time_ms, options.sink_process_time_zone)
    if snapshot.watermark is None or snapshot.watermark == NO_WATERMARK:
        return None
    return wall_ms(snapshot.watermark, options.sink_watermark_time_zone)


def _tag_batch(context: TableContext, latest: Snapshot) -> str:
    options = context.options
    shown = wall_ms(latest.time_ms, options.sink_process_time_zone) or 0
    name = options.tag_batch_customized_name or f"{_BATCH_PREFIX}{DAYS.name(shown)}"
    retained = options.tag_default_time_retained_ms
    tags = {tag.name: tag for tag in tags_of(context.history)}
    if name in tags:
        put_tag(context, tags[name], latest, retained)
    else:
        make_tag(context, name, latest, retained)
    if options.tag_num_retained_max is not None:
        others = [tag for tag in tags_of(context.history) if tag.name != name]
        _delete(context, others[: max(0, len(others) + 1 - options.tag_num_retained_max)])
    return name


def _delete(context: TableContext, tags: list[Tag]) -> None:
    for tag in tags:
        with suppress(NotFound):
            delete_tag(context, tag.name)


def _check_delay(context: TableContext, periods: TagPeriods) -> None:
    """Raise InvalidRequest unless the creation delay of tags is shorter than their period."""
    delay_ms = context.options.tag_creation_delay_ms
    if delay_ms >= periods.length_ms:
        raise InvalidRequest(
            "tag.creation-delay must be less than the period of automatic tags",
            delay_ms=delay_ms,
            period_ms=periods.length_ms,
            table=context.identifier,
        )


# --- expire tags ---------------------------------------------------------------------------------

_LOOK_MS = 60_000
"""How often a handle lists the tags after its commits, unless the time of a known tag is over."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENDS: WeakKeyDictionary[History, dict[FileStatus, float | None]] = WeakKeyDictionary()
"""When each tag of a table expires, by the status of its file (size, modification time)."""


def expire_tags(
    context: TableContext, older_than_ms: int | None = None, *, dry_run: bool = False
) -> tuple[TagDeletion, ...]:
    """Delete the tags past their time to live, and those created before a time.

    `older_than_ms` is in milliseconds since 1970. A tag without a time to live does not state when
    it was created; the modification time of its file is used.
    """
    require_table(context)
    before = None if older_than_ms is None else wall_ms(older_than_ms, None)
    deleted = []
    for tag in tags_of(context.history):
        if _is_over(context, tag) or (before is not None and _is_older(context, tag, before)):
            with suppress(NotFound):  # another process deleted it
                deleted.append(delete_tag(context, tag.name, dry_run=dry_run))
    return tuple(deleted)


def expire_due_tags(context: TableContext) -> None:
    """Delete the tags past their time to live, unless an option forbids it; run after a commit.

    A tag that another process made since the last look is found a minute later at most.
    """
    now_ms = context.ambient.local_wall_clock_ms()
    look_ms = LOOK_AGAIN_MS.get(context.history)
    is_soon = look_ms is not None and look_ms - _LOOK_MS <= now_ms <= look_ms
    if context.options.tag_time_expire_enabled and not is_soon:
        for tag in _due(context):
            if _is_over(context, tag):
                with suppress(NotFound):  # another process deleted it
                    delete_tag(context, tag.name)


def _due(context: TableContext) -> list[Tag]:
    """The tags that may have expired, with their current contents.

    A tag's file is not read again unless it has changed, because a table may have many tags and
    commit often.
    """
    known, ends = _ENDS.get(context.history, {}), {}
    now_ms = context.ambient.local_wall_clock_ms()
    due = []
    for file in context.store.list(context.layout.tag_dir):
        name = file.path.rpartition("/")[2]
        if file.is_directory or not name.startswith(TAG_PREFIX):
            continue
        end_ms = known.get(file, -1)
        if file.modified_ms is None or (end_ms is not None and now_ms > end_ms):
            with suppress(NotFound):
                tag = context.history.tag(name.removeprefix(TAG_PREFIX))
                end_ms = _end_ms(tag)
                due.append(tag)
        ends[file] = end_ms
    _ENDS[context.history] = ends
    known_ms = [end_ms for end_ms in ends.values() if end_ms is not None]
    LOOK_AGAIN_MS[context.history] = min([now_ms + _LOOK_MS, *known_ms])
    return due


def _is_over(context: TableContext, tag: Tag) -> bool:
    end_ms = _end_ms(tag)
    return end_ms is not None and context.ambient.local_wall_clock_ms() > end_ms


def _is_older(context: TableContext, tag: Tag, before_ms: int) -> bool:
    made = _made_ms(tag)
    if made is None or tag.retained_seconds is None:
        path = context.layout.tag(tag.name)
        files = {file.path: file.modified_ms for file in context.store.list(context.layout.tag_dir)}
        modified = files.get(path)
        made = None if modified is None else wall_ms(modified, None)
    return made is not None and made < before_ms


def _end_ms(tag: Tag) -> float | None:
    """When a tag expires, in milliseconds of wall clock time; None if it never does."""
    made = _made_ms(tag)
    if made is None or tag.retained_seconds is None:
        return None
    return made + tag.retained_seconds * 1000


def _made_ms(tag: Tag) -> float | None:
    """When the tag was created, in milliseconds of wall clock time."""
    if tag.create_time is None:
        return None
    *parts, nanos = tag.create_time
    made = datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]
    return (made - _EPOCH) // timedelta(milliseconds=1) + nanos / 1_000_000
