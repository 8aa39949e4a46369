"""Branches: separate lines of snapshots, which readers of `main` see only after a fast-forward.

A branch has its own schemas, snapshots, tags and consumers below `branch/branch-NAME`. It shares
data files, manifests and index files with the table. A new branch has the schemas of the table. If
it is created from a tag, it also has the snapshot of that tag. The rules are Paimon's
(https://paimon.apache.org/docs/master/maintenance/manage-branches/).

A branch is created and deleted atomically (`io/directories.py`). If a process dies on an object
store while it creates or deletes a branch, the name stays taken until the branch is deleted.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecore.errors import (
    AlreadyExists,
    CommitConflict,
    InvalidRequest,
    LakecoreError,
    NotFound,
    Unsupported,
)
from lakecore.format import metadata
from lakecore.format.layout import (
    BRANCH_PREFIX,
    MAIN_BRANCH,
    SCHEMA_PREFIX,
    SNAPSHOT_PREFIX,
    TAG_PREFIX,
    Layout,
)
from lakecore.io.directories import create_directory, drop_table, move_table
from lakecore.io.parallel import delete_all
from lakecore.io.stores.store import has_file
from lakecore.model.snapshot import Branch, FastForwardResult, Tag
from lakecore.table.context import TableContext, on_branch, require_own_references, require_table
from lakecore.table.maintenance.deletion import (
    clean_up_after,
    decide,
    fast_forward_of,
    pending,
    require_whole,
)
from lakecore.table.maintenance.reachable import branch_names, tags_of
from lakecore.table.maintenance.tags import known_tag

if TYPE_CHECKING:
    from lakecore.io.history import History


def list_branches(context: TableContext) -> tuple[Branch, ...]:
    """The branches, by name, without `main`."""
    require_table(context)
    found = (_branch_if_there(context, name) for name in branch_names(context))
    return tuple(branch for branch in found if branch is not None)


def branch_times(context: TableContext) -> tuple[tuple[str, int], ...]:
    """Name and time of each branch: when its directory changed, in milliseconds since 1970.

    If the storage does not record directory times, this is the time of the branch's newest schema.
    """
    children = context.store.list(context.layout.branches_dir)
    changed = {child.path.rpartition("/")[2]: child.modified_ms for child in children}
    found = []
    for branch in list_branches(context):
        time_ms = changed.get(BRANCH_PREFIX + branch.name)
        if time_ms is None:
            schema = branch_history(context, branch.name).latest_schema()
            time_ms = 0 if schema is None else schema.time_ms
        found.append((branch.name, time_ms))
    return tuple(found)


def create_branch(context: TableContext, name: str, tag: str | None) -> Branch:
    """Create a branch from the snapshot of the tag, or without rows. Returns the branch."""
    check_branch_name(context, name)
    kept = None if tag is None else known_tag(context, tag)
    require_table(context)
    if _branch_if_there(context, name) is not None:
        raise _taken(context, name)
    server = context.publication.references
    if server is not None:
        server.create_branch(name, tag)
        return known_branch(context, name)
    if kept is None:
        _make(context, name, None)
        return Branch(name=name, schema_id=context.history.schema_ids()[-1])
    with pending(context, kept.snapshot):
        if not _still_there(context, kept):
            raise NotFound(
                "the tag was deleted while the branch was created from it",
                tag=kept.name,
                branch=name,
                table=context.identifier,
            )
        _make(context, name, kept)
    number = kept.snapshot.id
    return Branch(
        name=name,
        schema_id=kept.snapshot.schema_id,
        earliest_snapshot_id=number,
        latest_snapshot_id=number,
    )


def _make(context: TableContext, name: str, tag: Tag | None) -> None:
    """Create the directory of a branch. Raises AlreadyExists if the name is taken."""
    path = _directory(context.layout, name)
    if not create_directory(context.store, path, _files(context, tag), context.ambient):
        if _branch_if_there(context, name) is not None:
            raise _taken(context, name)
        raise AlreadyExists(
            "a process creates or deletes a branch of this name; if it died, delete the branch",
            branch=name,
            table=context.identifier,
        )


def delete_branch(context: TableContext, name: str, *, dry_run: bool = False) -> Branch:
    """Delete a branch with its schemas, snapshots, tags and consumers. Returns the deleted branch.

    Its data files stay; files that nothing else references become orphans.
    """
    check_not_in_use(context, name, "delete")
    require_table(context)
    path = _directory(context.layout, name)
    branch = _branch_if_there(context, name)
    if branch is None and not context.store.list(path):
        raise _no_branch(context, name)
    server = context.publication.references
    if server is not None and not dry_run:
        server.delete_branch(name)
    elif not dry_run:
        drop_table(context.store, path, context.ambient)
    return branch or Branch(name=name)


def rename_branch(context: TableContext, name: str, new_name: str) -> Branch:
    """Rename a branch. Returns the branch under its new name."""
    require_own_references(context, "rename_branch")
    check_branch_name(context, new_name)
    check_not_in_use(context, name, "rename")
    branch = known_branch(context, name)
    if not context.store.renames_at_once and not context.options.commit_single_writer:
        raise Unsupported(
            "this storage cannot rename a directory in one step, so a writer could lose its "
            "commits; if nobody else writes, set commit.single-writer",
            branch=name,
            table=context.identifier,
        )
    if _branch_if_there(context, new_name) is not None:
        raise _taken(context, new_name)
    source, target = (_directory(context.layout, each) for each in (name, new_name))
    if context.store.list(target):
        raise _taken(context, new_name)
    try:
        move_table(context.store, source, target)
    except AlreadyExists as error:
        raise _taken(context, new_name) from error
    return replace(branch, name=new_name)


def known_branch(context: TableContext, name: str) -> Branch:
    """The branch of that name. Raises NotFound, naming the known ones."""
    require_table(context)
    found = _branch_if_there(context, name)
    if found is None:
        raise _no_branch(context, name)
    return found


def branch_context(context: TableContext, name: str) -> TableContext:
    """The table on a branch or on `main`, with its newest schema and the same dynamic options."""
    if name != MAIN_BRANCH:
        check_branch_name(context, name)
        known_branch(context, name)
    return on_branch(context, name, own=("branch",))


def branch_history(context: TableContext, name: str) -> History:
    """The history of a branch: its schemas and snapshots."""
    return context.publication.history(context.store, context.layout.on_branch(name))


def check_branch_name(context: TableContext, name: object) -> None:
    """Raise InvalidRequest for an invalid branch name."""
    if not isinstance(name, str):
        raise InvalidRequest("the name of a branch must be a string", branch=name)
    if not name.strip():
        raise InvalidRequest("the name of a branch must not be blank", branch=name)
    if name == MAIN_BRANCH:
        raise InvalidRequest("main is the name of the table itself, not of a branch", branch=name)
    if name.isdecimal():
        raise InvalidRequest("the name of a branch must not consist of digits only", branch=name)
    if name.startswith("."):
        raise InvalidRequest("the name of a branch must not begin with a dot", branch=name)
    _directory(context.layout, name)  # raises for a name that is a path to another directory


def _files(context: TableContext, tag: Tag | None) -> dict[str, bytes]:
    """The files of a new branch, by path relative to the branch. The newest schema comes last."""
    store, layout, files = context.store, context.layout, {}
    newest = context.history.schema_ids()[-1]
    if tag is not None:
        require_whole(context, tag.snapshot)
        newest = tag.snapshot.schema_id
        files[f"tag/{TAG_PREFIX}{tag.name}"] = store.read(layout.tag(tag.name))
        alive = tag.snapshot.is_same(context.history.snapshot_if_there(tag.snapshot.id))
        files[f"snapshot/{SNAPSHOT_PREFIX}{tag.snapshot.id}"] = (
            store.read(layout.snapshot(tag.snapshot.id))
            if alive
            else metadata.encode_snapshot(tag.snapshot)
        )
    for schema_id in context.history.schema_ids():
        if schema_id <= newest:
            files[f"schema/{SCHEMA_PREFIX}{schema_id}"] = store.read(layout.schema(schema_id))
    return files


def _still_there(context: TableContext, tag: Tag) -> bool:
    """Whether the tag's snapshot is alive or tagged: only then the branch's files are kept."""
    if tag.snapshot.is_same(context.history.listed_snapshot(tag.snapshot.id)):
        return True
    return any(tag.snapshot.is_same(other.snapshot) for other in tags_of(context.history))


def _branch_if_there(context: TableContext, name: str) -> Branch | None:
    history = branch_history(context, name)
    schema = history.latest_schema()
    if schema is None:
        return None
    ids = history.snapshot_ids()
    return Branch(
        name=name,
        schema_id=schema.id,
        earliest_snapshot_id=min(ids, default=None),
        latest_snapshot_id=max(ids, default=None),
    )


def check_not_in_use(context: TableContext, name: str, verb: str) -> None:
    """Raise InvalidRequest for the fallback branch of reads, and for this table's own branch."""
    check_branch_name(context, name)
    if name == context.options.scan_fallback_branch:
        raise InvalidRequest(
            f"reads fall back to this branch: unset scan.fallback-branch before you {verb} it",
            branch=name,
            table=context.identifier,
        )
    if name == context.layout.branch:
        raise InvalidRequest(
            f"this table is on the branch: open another one to {verb} it",
            branch=name,
            table=context.identifier,
        )


def _directory(layout: Layout, name: str) -> str:
    return replace(layout, branch=name).metadata_dir


def _taken(context: TableContext, name: str) -> AlreadyExists:
    return AlreadyExists(
        "the branch exists; delete it or choose another name",
        branch=name,
        table=context.identifier,
    )


def _no_branch(context: TableContext, name: str) -> NotFound:
    return NotFound(
        "no such branch", branch=name, branches=branch_names(context), table=context.identifier
    )


# --- fast forward --------------------------------------------------------------------------------
# Fast-forward: a table gets the snapshots, schemas and tags of one of its branches.
#
# The resulting files are those of Paimon's fast-forward
# (https://paimon.apache.org/docs/master/maintenance/manage-branches/): from the earliest snapshot E
# of the branch on, the table has the branch's snapshots, schemas and tags; below E it keeps its own
# snapshots and tags.
#
# Snapshots that both have in common stay. One step decides: before it, readers see the newest
# snapshot N of the table, after it the newest snapshot B of the branch. The steps:
#
# 1. prove that B is whole; write a record, so that an expiry knows that histories may be mixed, and
#    keeps B if the table has it. If an expiry has begun to delete B meanwhile, or a rollback has
#    begun, end here: of two verbs that run at the same time, one sees the other;
#    What is copied is announced in the branch (`pending` in `deletion.py`), so that a deletion of
#    files of the branch leaves these files;
# 2. delete the hint LATEST, so that readers list the snapshots; write the schemas of the branch;
# 3. delete the snapshots of the table that differ, but for N;
# 4. write B. **This step decides** if the number of B is N's, or a greater one. If it is a smaller
#    one, deleting N decides;
# 5. write the snapshots between, oldest first;
# 6. delete the tags of the table at or above E, then its schemas at or above that of E which the
#    branch does not have; write the tags of the branch;
# 7. write the hints. EARLIEST becomes E if the snapshots below E belong to another history;
# 8. delete the record.
#
# If both have changed the schema since they parted, the same number has two schemas. Readers then
# see the state in which they parted before they see that of the branch; if the table has expired
# that state, the call is refused.
#
# A failure after the deciding step is logged; the same call does the rest.
#
# INVARIANT: a snapshot is always read with the schemas it was committed with.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """The steps to do: names and numbers of files, in the order of deletion and writing.

    `is_one_history`: the first snapshot of the branch follows the table's own snapshots.
    """

    earliest: int
    latest: int
    before: int | None  # the newest snapshot of the table before the call
    snapshots_out: tuple[int, ...]
    tags_out: tuple[str, ...]
    schemas_out: tuple[int, ...]
    schemas_in: tuple[int, ...]
    schemas_changed: bool  # whether the table has another schema of such a number
    snapshots_in: tuple[int, ...]
    tags_in: tuple[str, ...]
    is_one_history: bool


def fast_forward(context: TableContext, name: str, *, dry_run: bool) -> FastForwardResult:
    """Give the table the state of the branch."""
    if name == context.layout.branch:
        raise InvalidRequest(
            "a branch cannot be fast-forwarded to itself", branch=name, table=context.identifier
        )
    check_branch_name(context, name)
    require_table(context)
    known_branch(context, name)
    # The caches of the context may hold schemas that are about to change.
    target = context.publication.history(context.store, context.layout)
    source = branch_history(context, name)
    steps = _plan(context, source, target)
    server = context.publication.references
    if server is not None and not dry_run:
        server.fast_forward(name)
    elif not dry_run:
        branch = branch_context(context, name)
        require_whole(branch, source.snapshot(steps.latest))
        with ExitStack() as announced:
            for number in steps.snapshots_in:
                announced.enter_context(pending(branch, source.snapshot(number)))
            if steps.snapshots_in and source.listed_snapshot(steps.snapshots_in[0]) is None:
                raise CommitConflict(
                    "snapshots of the branch expired during the call; call fast_forward again",
                    branch=name,
                    table=context.identifier,
                )
            _carry_out(context, branch, target, steps)
    return FastForwardResult(
        branch=name,
        snapshot_id=steps.latest,
        snapshots_copied=len(steps.snapshots_in),
        schemas_copied=len(steps.schemas_in),
        tags_copied=len(steps.tags_in),
        snapshots_deleted=len(steps.snapshots_out),
        schemas_deleted=len(steps.schemas_out),
        tags_deleted=len({*steps.tags_out} - {*steps.tags_in}),
    )


def _plan(context: TableContext, source: History, target: History) -> _Steps:
    ids = source.snapshot_ids()
    if not ids:
        raise InvalidRequest(
            "the branch has no snapshot; write to it first",
            branch=source.layout.branch,
            table=context.identifier,
        )
    coming = [source.snapshot(number) for number in ids]
    first = coming[0]
    own = [number for number in target.stored_snapshot_ids() if number >= first.id]
    same = 0
    while same < min(len(own), len(coming)) and coming[same].is_same(target.snapshot(own[same])):
        same += 1
    schemas = {number: source.schema(number) for number in source.schema_ids()}
    own_schemas = {number: target.schema(number) for number in target.schema_ids()}
    tags = tuple(source.tag(tag) for tag in source.tag_names())
    own_tags = tuple(target.tag(tag) for tag in target.tag_names())
    visible = target.snapshot_ids()
    coming_in = tuple(n for n, schema in schemas.items() if own_schemas.get(n) != schema)
    steps = _Steps(
        earliest=first.id,
        latest=coming[-1].id,
        before=max(visible, default=None),
        snapshots_out=tuple(reversed(own[same:])),
        tags_out=tuple(
            tag.name for tag in own_tags if tag.snapshot.id >= first.id and tag not in tags
        ),
        schemas_out=tuple(
            number
            for number in sorted(own_schemas, reverse=True)
            if number >= first.schema_id and number not in schemas
        ),
        schemas_in=coming_in,
        schemas_changed=not {*own_schemas}.isdisjoint(coming_in),
        snapshots_in=tuple(ids[same:]),
        tags_in=tuple(tag.name for tag in tags if tag not in own_tags),
        is_one_history=same > 0 and visible[0] <= first.id,
    )
    used = [tag.snapshot.schema_id for tag in own_tags if tag.snapshot.id < first.id]
    used += [target.snapshot(number).schema_id for number in visible if number < first.id][-1:]
    _check_older(context, steps, {*own_schemas}, used)
    if steps.schemas_changed and steps.snapshots_out and not same:
        raise InvalidRequest(
            "both the table and the branch have changed the schema since they parted, and the table"
            " has expired that state; create a branch from a newer tag",
            schema_ids=sorted({*own_schemas}.intersection(coming_in)),
            branch=source.layout.branch,
            table=context.identifier,
        )
    return steps


def _check_older(
    context: TableContext, steps: _Steps, own_schemas: set[int], used: list[int]
) -> None:
    """Raise InvalidRequest if a state that stays would be read with a schema other than its own.

    `used` are the schemas of the states that stay. Their files may have any older schema.
    """
    lost = {*steps.schemas_out, *own_schemas.intersection(steps.schemas_in)}
    if lost and max(used, default=-1) >= min(lost):
        raise InvalidRequest(
            "older snapshots or tags of the table use a schema that the branch does not have; let "
            "them expire, or delete the tags",
            schema_ids=sorted(lost),
            before_snapshot=steps.earliest,
            table=context.identifier,
        )


def _carry_out(context: TableContext, branch: TableContext, target: History, steps: _Steps) -> None:
    store, layout, source = context.store, target.layout, branch.layout
    out, newest = steps.snapshots_out, steps.latest
    removed = [target.snapshot_if_there(number) for number in out]
    _begin(context, target, source, steps)
    store.delete(layout.latest_hint)
    last = next(iter(out), 0)  # N of the module
    if steps.schemas_changed:
        # Show the state in which both parted, as it has no schema that changes.
        delete_all(store.delete, [layout.snapshot(number) for number in out[1:]])
        if out:
            _sync(context, layout, source)
            store.delete(layout.snapshot(last))
        _write_schemas(context, source, layout, steps)
        last = 0
    else:
        _write_schemas(context, source, layout, steps)
        gone = [layout.snapshot(number) for number in out[1:]]
        delete_all(store.delete, gone)
    if not steps.schemas_changed and target.latest_snapshot_id() != steps.before:
        raise _conflict(context, target.latest_snapshot_id())
    if newest in steps.snapshots_in:
        _publish(context, source, layout, newest, replaces=last == newest)
    if last > newest:
        _sync(context, layout, source)
        path = layout.snapshot(last)
        decide(lambda: store.delete(path), lambda: not store.exists(path), table=context.identifier)
    with clean_up_after(context, "the fast-forward"):
        for number in steps.snapshots_in:
            if number != newest:
                _publish(context, source, layout, number, replaces=number == last)
        # A tag may have been made of one since the plan.
        late = {tag.name for tag in tags_of(target) if any(map(tag.snapshot.is_same, removed))}
        _finish(context, branch, target, replace(steps, tags_out=(*late.union(steps.tags_out),)))


def _begin(context: TableContext, target: History, source: Layout, steps: _Steps) -> None:
    """Write the record of a fast-forward, beside which no other verb leads the table anywhere."""
    store, path, newest = context.store, target.layout.fast_forward_record, steps.latest
    stays = newest not in steps.snapshots_in
    _check_alone(context, target, newest, stays=stays)
    made = store.put_if_absent(path, source.branch.encode())
    other = source.branch if made else fast_forward_of(context)
    if other not in (None, source.branch) and other in branch_names(context):
        raise CommitConflict(
            "the table is being fast-forwarded to another branch, or that was interrupted; call "
            "fast_forward for that one again first, or delete it",
            branch=other,
            table=context.identifier,
        )
    try:
        _check_alone(context, target, newest, stays=stays)
        # What has ended since may have changed the table. The caches of `target` do not see it.
        now = context.publication.history(store, target.layout)
        if _plan(context, branch_history(context, source.branch), now) != steps:
            raise _conflict(context, now.latest_snapshot_id())
    except (LakecoreError, OSError):
        if made:
            store.delete(path)
        raise
    if not made:
        store.put(path, source.branch.encode())


def _check_alone(context: TableContext, target: History, newest: int, *, stays: bool) -> None:
    """Raise CommitConflict beside a rollback, or an expiry that deletes what is to stay as newest.

    A rollback looks for the record of a fast-forward after it has written its own.
    """
    if has_file(context.store, target.layout.rollback_record):
        raise CommitConflict(
            "the table is being rolled back; call fast_forward again afterwards. If the rollback "
            "was interrupted, rollback_to or expire_snapshots finishes it",
            table=context.identifier,
        )
    if stays and target.listed_snapshot(newest) is None:
        raise CommitConflict(
            "an expiry has begun to delete the snapshot of the branch from the table; finish it by"
            " expire_snapshots, then call fast_forward again",
            snapshot_id=newest,
            table=context.identifier,
        )


def _sync(context: TableContext, layout: Layout, source: Layout) -> None:
    """Make earlier deletions durable: on local disk, a write in the same directory does that."""
    context.store.put(layout.fast_forward_record, source.branch.encode())


def _write_schemas(context: TableContext, source: Layout, layout: Layout, steps: _Steps) -> None:
    if steps.schemas_changed:
        for number in steps.schemas_out:
            context.store.delete(layout.schema(number))
    for number in steps.schemas_in:
        context.store.put(layout.schema(number), context.store.read(source.schema(number)))


def _publish(
    context: TableContext, source: Layout, layout: Layout, number: int, *, replaces: bool
) -> None:
    """Write a snapshot of the branch; with `replaces`, over that of the table."""
    store, path = context.store, layout.snapshot(number)
    data = store.read(source.snapshot(number))

    def is_there() -> bool:
        return store.exists(path) and store.read(path) == data

    def write() -> None:
        if replaces:
            store.put(path, data)
        elif not store.put_if_absent(path, data) and not is_there():
            raise _conflict(context, number)

    decide(write, is_there, snapshot_id=number, table=context.identifier)


def _finish(context: TableContext, branch: TableContext, target: History, steps: _Steps) -> None:
    """Carry out steps 6 to 8 (see the module)."""
    store, layout = context.store, target.layout
    for name in steps.tags_out:
        store.delete(layout.tag(name))
    for number in steps.schemas_out:
        store.delete(layout.schema(number))
    made = [name for name in steps.tags_in if _copy_tag(branch, layout.tag(name), name)]
    if not steps.is_one_history:
        target.write_earliest_hint(steps.earliest)
    store.put(layout.latest_hint, str(steps.latest).encode())
    gone = [name for name in steps.tags_out if name not in steps.tags_in]
    context.publication.note_tags(target, made=made, gone=gone)
    store.delete(layout.fast_forward_record)


def _copy_tag(branch: TableContext, path: str, name: str) -> bool:
    """Write the tag of the branch to the path. Returns False if it was deleted since the plan."""
    store, source = branch.store, branch.layout.tag(name)
    with suppress(NotFound):
        while True:
            data = store.read(source)
            # A process that deletes or replaces the tag then keeps its files.
            with pending(branch, metadata.decode_tag(data, name, source).snapshot):
                if store.read(source) == data:
                    store.put(path, data)
                    return True
    return False


def _conflict(context: TableContext, snapshot_id: int | None) -> CommitConflict:
    return CommitConflict(
        "another process committed to the table, or rolled it back, during the call; call "
        "fast_forward again to replace its snapshot with that of the branch",
        snapshot_id=snapshot_id,
        table=context.identifier,
    )
