"""Expiry of tags: a tag that is older than its time to live is deleted.

Times are wall clock times, as in Paimon's tag files: a tag has the time of the process that created
it, and "now" is the time of this process.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from lakecore.errors import NotFound
from lakecore.format.layout import TAG_PREFIX
from lakecore.plan.tag_periods import wall_ms
from lakecore.table.context import require_table
from lakecore.table.maintenance.auto_tags import create_automatic_tags
from lakecore.table.maintenance.reachable import tags_of
from lakecore.table.maintenance.tags import delete_tag

if TYPE_CHECKING:
    from lakecore.io.history.history import History
    from lakecore.io.stores.store import FileStatus
    from lakecore.model.retention import TagDeletion
    from lakecore.model.snapshot import Tag
    from lakecore.table.context import TableContext

__all__ = ["expire_tags", "maintain_tags"]

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


def maintain_tags(context: TableContext, *, batch: bool) -> None:
    """Create the automatic tags that are due, then delete the expired tags; run after a commit.

    `batch` is true after a batch commit, whose writer does not number its commits.
    """
    create_automatic_tags(context, batch=batch)
    if context.options.tag_time_expire_enabled:
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
