"""Branches: separate lines of snapshots, which readers of `main` see only after a fast-forward.

A branch has its own schemas, snapshots, tags and consumers below `branch/branch-NAME`. It shares
data files, manifests and index files with the table. A new branch has the schemas of the table. If
it is created from a tag, it also has the snapshot of that tag. The rules are Paimon's
(https://paimon.apache.org/docs/master/maintenance/manage-branches/).

A branch is created and deleted atomically (`io/directories.py`). If a process dies on an object
store while it creates or deletes a branch, the name stays taken until the branch is deleted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.errors import AlreadyExists, InvalidRequest, NotFound, Unsupported
from lakecore.format import metadata
from lakecore.format.layout import (
    BRANCH_PREFIX,
    MAIN_BRANCH,
    SCHEMA_PREFIX,
    SNAPSHOT_PREFIX,
    TAG_PREFIX,
)
from lakecore.io.directories import create_directory, drop_table, move_table
from lakecore.model.branches import Branch
from lakecore.table.context import on_branch, require_own_references, require_table
from lakecore.table.maintenance.reachable import branch_names, tags_of
from lakecore.table.maintenance.steps import require_whole
from lakecore.table.maintenance.tags import known_tag

if TYPE_CHECKING:
    from lakecore.format.layout import Layout
    from lakecore.io.history.history import History
    from lakecore.model.snapshot import Tag
    from lakecore.table.context import TableContext

__all__ = [
    "branch_context",
    "branch_history",
    "branch_times",
    "check_branch_name",
    "create_branch",
    "delete_branch",
    "known_branch",
    "list_branches",
    "rename_branch",
]


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
    path = _directory(context.layout, name)
    if not create_directory(context.store, path, _files(context, kept), context.ambient):
        if _branch_if_there(context, name) is not None:
            raise _taken(context, name)
        raise AlreadyExists(
            "a process creates or deletes a branch of this name; if it died, delete the branch",
            branch=name,
            table=context.identifier,
        )
    if kept is None:
        return Branch(name=name, schema_id=context.history.schema_ids()[-1])
    try:
        there = _still_there(context, kept)
    except BaseException:
        drop_table(context.store, path, context.ambient)
        raise
    if not there:
        drop_table(context.store, path, context.ambient)
        raise NotFound(
            "the tag was deleted while the branch was created from it",
            tag=kept.name,
            branch=name,
            table=context.identifier,
        )
    number = kept.snapshot.id
    return Branch(
        name=name,
        schema_id=kept.snapshot.schema_id,
        earliest_snapshot_id=number,
        latest_snapshot_id=number,
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
