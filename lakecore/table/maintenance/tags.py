"""Tags: names for snapshots. A tag keeps the rows of its snapshot after the snapshot expires.

A tag is one file, and each verb has one step that takes effect: the tag exists, or it does not.

1. `create_tag` proves that a snapshot other than the latest one is whole. It writes a pending file
   (`pending` in `deletion.py`), looks whether the snapshot is still kept, creates the file of the
   tag if it does not exist, and deletes the pending file.
2. `replace_tag` does the same, and overwrites the file.
3. `rename_tag` writes a pending file, too, and creates the new file, which names the old tag. Then
   it deletes the old file, and writes the new one again without that name. After a crash both tags
   exist; then the same call, whose new tag names the old one, does the rest.
4. `delete_tag` deletes the file.

After a tag is deleted or replaced, the files that it alone kept are deleted. A failure of the
deletion is logged (`deletion.py`).

INVARIANT: the files of a tag exist from the moment when the tag does. Whoever deletes files first
takes away what kept them (an expiry moves EARLIEST, `delete_tag` deletes the tag), and then looks
for pending files. A verb here writes its pending file before it looks at what keeps the snapshot.
One of the two sees the other. A rollback and a fast-forward delete the tags of the snapshots that
they take away: a verb here looks once more when its tag exists, and takes the tag back.

The names and rules are Paimon's (https://paimon.apache.org/docs/master/maintenance/manage-tags/).
With `tag.create-success-file`, the file `tag/tag-success-file/NAME_SUCCESS` is written after a tag
is created, and deleted with the tag.

A tag that is older than its time to live is deleted. Times are wall clock times, as in Paimon's tag
files: a tag has the time of the process that created it, and "now" is the time of this process.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from lakecore.errors import (
    AlreadyExists,
    CommitConflict,
    CorruptTable,
    InvalidRequest,
    LakecoreError,
    NotFound,
)
from lakecore.format import metadata
from lakecore.format.layout import SUCCESS_FOLDER, TAG_PREFIX
from lakecore.model.retention import FilesDeleted, TagDeletion
from lakecore.model.snapshot import Snapshot, Tag
from lakecore.model.times import to_milliseconds
from lakecore.options.choices import TagCreation
from lakecore.options.kinds import DURATION
from lakecore.plan.retention import DAYS, NO_WATERMARK, TagPeriods, tag_periods, wall_ms
from lakecore.table.context import TableContext, require_own_references, require_table
from lakecore.table.maintenance.deletion import (
    Deletion,
    Stays,
    clean_up_after,
    decide,
    delete_files_of,
    existing_snapshot,
    expired_during,
    is_at,
    is_removed,
    keepers,
    pending,
    require_whole,
    settled,
)
from lakecore.table.maintenance.reachable import (
    Keepers,
    Metadata,
    StateKind,
    entry_frame,
    in_lines,
    live_files,
    metadata_of,
    other_branches,
    states,
    tags_of,
)
from lakecore.table.reads.told import told_by

if TYPE_CHECKING:
    import polars as pl

    from lakecore.io.history import History
    from lakecore.io.stores.store import FileStatus
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.reads.time_travel import Travel

# --- tag files -----------------------------------------------------------------------------------
# The files that only a tag keeps, and that may be deleted with the tag.
#
# If the tag's snapshot has not expired, or another tag names it, the tag alone keeps no file.
# Otherwise the data files, manifests and index files of the tag are compared with those of all
# other states: the snapshots, tags and long-lived changelogs of all branches.
#
# The history of a branch is linear: a file that is older than a snapshot of the branch, and not
# live in it, never becomes live later. Of the snapshots of a branch, it is therefore enough to
# compare with the first, and with those up to the number of the tag's snapshot: after a
# fast-forward, they may belong to the history of the tag.
#
# INVARIANT: if one of these states cannot be read, no file is deleted.

log = logging.getLogger("lakecore.tags")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TagFiles:
    """The files that a tag alone keeps: planned, not yet deleted."""

    context: TableContext
    tag: Tag
    plan: Deletion
    seen: Keepers  # what kept files before the plan was made

    @property
    def counts(self) -> FilesDeleted:
        """The number of files of each kind."""
        return self.plan.counts

    @property
    def unreadable(self) -> tuple[int, ...]:
        """The snapshot of the tag, if its files stay because something could not be read."""
        return self.plan.unreadable

    def delete(self) -> None:
        """Delete the files, but for those that anything keeps now. The tag must be gone."""
        if self.counts == FilesDeleted():
            return
        path = self.context.layout.tag(self.tag.name)

        def plan_again(_: Keepers) -> Deletion:
            return _plan(self.context, self.tag)

        plan = settled(self.context, self.seen, self.plan, plan_again, without=path)
        delete_files_of(self.context, plan)


def files_of_tag(context: TableContext, tag: Tag) -> TagFiles:
    """The files that the tag alone keeps."""
    seen = keepers(context, without=context.layout.tag(tag.name))
    return TagFiles(context=context, tag=tag, plan=_plan(context, tag), seen=seen)


def _plan(context: TableContext, tag: Tag) -> Deletion:
    history = context.history
    none = entry_frame(history, ())
    unreadable: tuple[int, ...] = ()
    alive = history.snapshot_if_there(tag.snapshot.id)
    is_kept = tag.snapshot.is_same(alive) or _named_twice(context, tag)
    try:
        if not is_kept:
            return _unreached(context, tag, none)
    except CorruptTable as error:
        log.warning(
            "the files of a tag are kept, because a state that may need them cannot be read: "
            "table=%s tag=%s snapshot=%d reason=%s",
            context.identifier,
            tag.name,
            tag.snapshot.id,
            told_by(error, context),
        )
        unreadable = (tag.snapshot.id,)
    return Deletion(data=none, changelog=none, metadata=Metadata(), unreadable=unreadable)


def _named_twice(context: TableContext, tag: Tag) -> bool:
    """Whether another tag of the branch names the snapshot, or is about to."""
    own = states(context.history)
    return any(
        tag.snapshot.is_same(state.snapshot)
        for state in own
        if state.kind is StateKind.PENDING
        or (state.kind is StateKind.TAG and state.name != tag.name)
    )


def _unreached(context: TableContext, tag: Tag, none: pl.DataFrame) -> Deletion:
    history = context.history
    data = live_files(entry_frame(history, history.manifests(tag.snapshot)))
    stays = Stays(context, data)
    for branch in (history, *other_branches(context)):
        without = tag.name if branch is history else None
        stays.add(
            state
            for state, follows in in_lines(states(branch))
            if not (follows and state.snapshot.id > tag.snapshot.id)
            and not (state.kind is StateKind.TAG and state.name == without)
        )
    return stays.without(data, none, metadata_of(context, [tag.snapshot], changelog=False))


# --- tags ----------------------------------------------------------------------------------------

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RESERVED = SUCCESS_FOLDER.removeprefix(TAG_PREFIX)


def create_tag(
    context: TableContext, name: str, at: Travel, time_retained: str | timedelta | None
) -> Tag:
    """Create a tag of the snapshot; `tag.default-time-retained` is the default time to live."""
    check_tag_name(context, name)
    retained = retained_ms(time_retained)
    require_table(context)
    if name in context.history.tag_names():
        raise _taken(context, name)
    if retained is None:
        retained = context.options.tag_default_time_retained_ms
    snapshot = _snapshot_at(context, at)
    _check_no_second_automatic(context, name, snapshot)
    return make_tag(context, name, snapshot, retained)


LOOK_AGAIN_MS: WeakKeyDictionary[History, float] = WeakKeyDictionary()
"""When tags whose time is over are next looked for after a commit, as wall clock time."""


def make_tag(context: TableContext, name: str, snapshot: Snapshot, retained: int | None) -> Tag:
    """Create a tag of a snapshot; `retained` is in milliseconds, None for ever.

    Raises AlreadyExists if the name is taken, NotFound if the snapshot expires during the call.
    """
    LOOK_AGAIN_MS.pop(context.history, None)
    server = context.publication.references
    if server is not None:
        lasts = None if retained is None else f"{retained} ms"
        server.create_tag(context.layout.branch, name, snapshot.id, lasts)
        return context.history.tag(name)
    if context.options.tag_create_success_file:
        context.layout.tag_success(name)  # raises if the name is too long
    _check_whole(context, snapshot)
    tag = _tag(context, name, snapshot, retained)
    path, data = context.layout.tag(name), metadata.encode_tag(tag)
    made = True  # a reply that is lost is one of this call, if its bytes are there

    def create() -> None:
        nonlocal made
        made = context.store.put_if_absent(path, data)

    with pending(context, snapshot):
        _check_kept(context, snapshot, name, without=None)
        decide(create, lambda: is_at(context, path, data), tag=name, table=context.identifier)
        if not made:
            raise _taken(context, name)
        with clean_up_after(context, "the creation of a tag"):
            _check_stays(context, tag)
    with clean_up_after(context, "the creation of a tag"):
        _write_success(context, name)
        context.publication.note_tags(context.history, made=[name])
    return tag


def replace_tag(
    context: TableContext, name: str, at: Travel, time_retained: str | timedelta | None
) -> Tag:
    """Let the tag name another snapshot. Its old time to live is discarded."""
    retained = retained_ms(time_retained)
    old = known_tag(context, name)
    snapshot = _snapshot_at(context, at)
    _check_no_second_automatic(context, name, snapshot)
    return put_tag(context, old, snapshot, retained)


def put_tag(context: TableContext, old: Tag, snapshot: Snapshot, retained: int | None) -> Tag:
    """Let the tag name that snapshot, and delete the files that only the old tag kept."""
    require_own_references(context, "replace_tag")
    LOOK_AGAIN_MS.pop(context.history, None)
    name = old.name
    tag = _tag(context, name, snapshot, retained)
    files = None if snapshot.is_same(old.snapshot) else files_of_tag(context, old)
    path, data = context.layout.tag(name), metadata.encode_tag(tag)
    if files is not None:
        _check_whole(context, snapshot)
    with pending(context, snapshot):
        _check_kept(context, snapshot, name, without=None if files is None else name)
        decide(
            lambda: context.store.put(path, data),
            lambda: is_at(context, path, data),
            tag=name,
            table=context.identifier,
        )
        with clean_up_after(context, "the replacement of a tag"):
            _check_stays(context, tag, old)
            if files is not None:
                files.delete()
    return tag


def rename_tag(context: TableContext, name: str, new_name: str) -> Tag:
    """Rename the tag. Returns it under its new name."""
    require_own_references(context, "rename_tag")
    check_tag_name(context, new_name)
    tag = known_tag(context, name)
    renamed = replace(tag, name=new_name)
    old_path, path = context.layout.tag(name), context.layout.tag(new_name)
    data = metadata.renamed_tag(context.store.read(old_path), old_path, None)
    marked = metadata.renamed_tag(data, old_path, name)
    with pending(context, tag.snapshot):
        _check_kept(context, tag.snapshot, new_name, without=None)
        if not is_at(context, path, marked) and not context.store.put_if_absent(path, marked):
            raise _taken(context, new_name)
        decide(
            lambda: context.store.delete(old_path),
            lambda: not context.store.exists(old_path),
            tag=name,
            table=context.identifier,
        )
        with clean_up_after(context, "the renaming of a tag"):
            # A rollback may have removed the tag meanwhile; this makes it again.
            context.store.put(path, data)
            _check_stays(context, renamed)
    with clean_up_after(context, "the renaming of a tag"):
        context.publication.note_tags(context.history, made=[new_name], gone=[name])
    return renamed


def delete_tag(context: TableContext, name: str, *, dry_run: bool = False) -> TagDeletion:
    """Delete a tag, and the files that only the tag kept."""
    tag = known_tag(context, name)
    files = files_of_tag(context, tag)
    server = context.publication.references
    if server is not None and not dry_run:
        server.delete_tag(context.layout.branch, name)
    elif not dry_run:
        path = context.layout.tag(name)
        decide(
            lambda: context.store.delete(path),
            lambda: not context.store.exists(path),
            tag=name,
            table=context.identifier,
        )
        with clean_up_after(context, "the deletion of a tag"):
            if context.options.tag_create_success_file:
                context.store.delete(context.layout.tag_success(name))
            context.publication.note_tags(context.history, gone=[name])
            files.delete()
    return TagDeletion(
        name=name,
        snapshot_id=tag.snapshot.id,
        files=files.counts,
        unreadable_snapshots=files.unreadable,
        dry_run=dry_run,
    )


def known_tag(context: TableContext, name: str) -> Tag:
    """The tag of that name. Raises NotFound, naming the known ones."""
    check_tag_name(context, name)
    require_table(context)
    return context.history.tag(name)


def check_tag_name(context: TableContext, name: object) -> None:
    """Raise InvalidRequest for an invalid tag name."""
    if not isinstance(name, str):
        raise InvalidRequest("the name of a tag must be a string", tag=name)
    if not name.strip():
        raise InvalidRequest("the name of a tag must not be blank", tag=name)
    if name == _RESERVED:
        raise InvalidRequest(
            "a tag cannot have this name: its file would be the folder of success files", tag=name
        )
    context.layout.tag(name)  # raises for a name that is a path to another directory


def retained_ms(given: str | timedelta | None) -> int | None:
    """How long a tag is kept, in milliseconds; None for ever."""
    if given is None:
        return None
    if isinstance(given, timedelta):
        milliseconds = given // timedelta(milliseconds=1)
    elif isinstance(given, str):
        try:
            milliseconds = DURATION.parse(given)
        except ValueError as error:
            raise InvalidRequest(
                "time_retained is not a duration such as '1 d' or '12 h'",
                time_retained=given,
                why=error,
            ) from error
    else:
        raise InvalidRequest(
            "time_retained must be a string such as '1 d', or a timedelta",
            time_retained=given,
        )
    if milliseconds < 0:
        raise InvalidRequest("time_retained is negative", time_retained=given)
    return milliseconds


def _snapshot_at(context: TableContext, at: Travel) -> Snapshot:
    """The snapshot to tag, alive or kept by another tag. Raises NotFound if there is none."""
    if at.snapshot_id is not None:
        return existing_snapshot(context, at.snapshot_id)
    if at.timestamp is not None:
        return _first_since(context, to_milliseconds(at.timestamp))
    latest = context.history.latest_snapshot()
    if latest is None:
        raise NotFound("the table has no snapshot to tag", table=context.identifier)
    return latest


def _first_since(context: TableContext, time_ms: int) -> Snapshot:
    """The oldest snapshot, alive or tagged, that was committed at or after a time."""
    history = context.history
    ids = history.snapshot_ids()
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        if history.snapshot(ids[middle]).time_ms < time_ms:
            low = middle + 1
        else:
            high = middle
    found = [history.snapshot(ids[low])] if low < len(ids) else []
    found += [tag.snapshot for tag in tags_of(context.history) if tag.snapshot.time_ms >= time_ms]
    if not found:
        raise NotFound(
            "no snapshot was committed at or after this time",
            time_ms=time_ms,
            latest_ms=history.snapshot(ids[-1]).time_ms if ids else None,
            table=context.identifier,
        )
    return min(found, key=lambda snapshot: (snapshot.time_ms, snapshot.id))


def _tag(context: TableContext, name: str, snapshot: Snapshot, retained: int | None) -> Tag:
    """The tag to write. It has no times if it stays for ever, because old readers expect that."""
    if retained is None:
        return Tag(name=name, snapshot=snapshot)
    seconds, milliseconds = divmod(context.ambient.local_wall_clock_ms(), 1000)
    then = _EPOCH + timedelta(seconds=seconds)
    return Tag(
        name=name,
        snapshot=snapshot,
        create_time=(*then.timetuple()[:6], milliseconds * 1_000_000),
        retained_seconds=retained / 1000,
    )


def _check_no_second_automatic(context: TableContext, name: str, snapshot: Snapshot) -> None:
    """Raise InvalidRequest if the snapshot already has an automatic tag, and `name` is one too."""
    periods = tag_periods(context.options)
    if periods is None or not periods.is_automatic(name):
        return
    for tag in tags_of(context.history):
        if tag.snapshot.is_same(snapshot) and periods.is_automatic(tag.name) and tag.name != name:
            raise InvalidRequest(
                "the snapshot already has an automatic tag; give the tag a name that is not a "
                "period",
                snapshot_id=snapshot.id,
                automatic_tag=tag.name,
                tag=name,
                table=context.identifier,
            )


def _check_kept(
    context: TableContext, snapshot: Snapshot, name: str, *, without: str | None
) -> None:
    """Raise NotFound unless the history, or a tag other than `without`, keeps the snapshot."""
    if snapshot.is_same(context.history.listed_snapshot(snapshot.id)):
        return
    others = (tag.snapshot for tag in tags_of(context.history) if tag.name != without)
    if not any(map(snapshot.is_same, others)):
        raise expired_during(context, snapshot.id, tag=name)


def _check_stays(context: TableContext, tag: Tag, old: Tag | None = None) -> None:
    """Raise CommitConflict, with `old` in its place, if the snapshot of a new tag was taken away.

    A rollback and a fast-forward look for tags after they have taken away snapshots: either they
    see the tag, or this sees what they did.
    """
    if not is_removed(context, tag.snapshot):
        return
    path = context.layout.tag(tag.name)
    if old is None or is_removed(context, old.snapshot):
        context.store.delete(path)
    else:
        context.store.put(path, metadata.encode_tag(old))
    raise CommitConflict(
        "the table was rolled back or fast-forwarded during the call; choose a snapshot that is"
        " there now",
        tag=tag.name,
        snapshot_id=tag.snapshot.id,
        table=context.identifier,
    )


def _check_whole(context: TableContext, snapshot: Snapshot) -> None:
    """Raise CorruptTable if a file of the snapshot is missing; the latest one never expires."""
    if not snapshot.is_same(context.history.latest_snapshot()):
        require_whole(context, snapshot)


def _write_success(context: TableContext, name: str) -> None:
    """Write the success file of a tag, if the option asks for one."""
    if not context.options.tag_create_success_file:
        return
    path, now = context.layout.tag_success(name), context.ambient.now_ms()
    created = now
    with suppress(LakecoreError):
        created = metadata.decode_success(context.store.read(path), path)
    context.store.put(path, metadata.encode_success(created, now))


def _taken(context: TableContext, name: str) -> AlreadyExists:
    return AlreadyExists(
        "the tag exists; delete it, replace it or choose another name",
        tag=name,
        table=context.identifier,
    )


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
