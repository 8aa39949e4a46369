"""Fast-forward: a table gets the snapshots, schemas and tags of one of its branches.

The resulting files are those of Paimon's fast-forward
(https://paimon.apache.org/docs/master/maintenance/manage-branches/): from the earliest snapshot E
of the branch on, the table has the branch's snapshots, schemas and tags; below E it keeps its own
snapshots and tags.

Snapshots that both have in common stay, so that a table whose branch was created from one of its
tags is never without a snapshot:

1. delete the hint LATEST, because it points to a snapshot that is deleted next;
2. delete the snapshots of the table that differ, newest first: readers see older states of the
   table;
3. delete the tags of the table at or above E, then its schemas at or above that of E which the
   branch does not have;
4. write the schemas of the branch, then its snapshots, oldest first: readers see states of the
   branch;
5. write its tags, then the hints. EARLIEST becomes E if the snapshots below E belong to another
   history.

INVARIANT: a snapshot is always read with the schemas it was committed with. The table's schemas are
deleted after its snapshots; the branch's schemas are written before its snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import CommitConflict, InvalidRequest
from lakecore.format.layout import SNAPSHOT_PREFIX, parse_numbered
from lakecore.model.branches import FastForwardResult
from lakecore.table.context import require_table
from lakecore.table.maintenance.branches import branch_history, check_branch_name, known_branch

if TYPE_CHECKING:
    from lakecore.format.layout import Layout
    from lakecore.io.history.history import History
    from lakecore.table.context import TableContext

__all__ = ["fast_forward"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """The steps to do: names and numbers of files, in the order of deletion and writing.

    `is_one_history`: the first snapshot of the branch follows the table's own snapshots.
    """

    earliest: int
    latest: int
    snapshots_out: tuple[int, ...]
    tags_out: tuple[str, ...]
    schemas_out: tuple[int, ...]
    schemas_in: tuple[int, ...]
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
        _carry_out(context, source.layout, target.layout, steps)
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
    own = [number for number in _snapshot_files(target) if number >= first.id]
    same = 0
    while same < min(len(own), len(coming)) and coming[same].is_same(target.snapshot(own[same])):
        same += 1
    schemas = {number: source.schema(number) for number in source.schema_ids()}
    own_schemas = {number: target.schema(number) for number in target.schema_ids()}
    tags = tuple(source.tag(tag) for tag in source.tag_names())
    own_tags = tuple(target.tag(tag) for tag in target.tag_names())
    visible = target.snapshot_ids()
    steps = _Steps(
        earliest=first.id,
        latest=coming[-1].id,
        snapshots_out=tuple(reversed(own[same:])),
        tags_out=tuple(
            tag.name for tag in own_tags if tag.snapshot.id >= first.id and tag not in tags
        ),
        schemas_out=tuple(
            number
            for number in sorted(own_schemas, reverse=True)
            if number >= first.schema_id and number not in schemas
        ),
        schemas_in=tuple(n for n, schema in schemas.items() if own_schemas.get(n) != schema),
        snapshots_in=tuple(ids[same:]),
        tags_in=tuple(tag.name for tag in tags if tag not in own_tags),
        is_one_history=same > 0 and visible[0] <= first.id,
    )
    used = [tag.snapshot.schema_id for tag in own_tags if tag.snapshot.id < first.id]
    used += [target.snapshot(number).schema_id for number in visible if number < first.id][-1:]
    _check_older(context, steps, {*own_schemas}, used)
    return steps


def _snapshot_files(history: History) -> list[int]:
    """The ids of all snapshot files, ascending, including those below the hint EARLIEST."""
    files = history.store.list(history.layout.snapshot_dir)
    names = (file.path.rpartition("/")[2] for file in files)
    numbers = (parse_numbered(name, SNAPSHOT_PREFIX) for name in names)
    return sorted(number for number in numbers if number is not None)


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


def _carry_out(context: TableContext, source: Layout, target: Layout, steps: _Steps) -> None:
    store = context.store
    store.delete(target.latest_hint)
    for number in steps.snapshots_out:
        store.delete(target.snapshot(number))
    for name in steps.tags_out:
        store.delete(target.tag(name))
    for number in steps.schemas_out:
        store.delete(target.schema(number))
    for number in steps.schemas_in:
        store.put(target.schema(number), store.read(source.schema(number)))
    for number in steps.snapshots_in:
        path, data = target.snapshot(number), store.read(source.snapshot(number))
        if not store.put_if_absent(path, data) and store.read(path) != data:
            raise CommitConflict(
                "another writer committed to the table during the call; call fast_forward again"
                " to replace its snapshot with that of the branch",
                snapshot_id=number,
                table=context.identifier,
            )
    for name in steps.tags_in:
        store.put(target.tag(name), store.read(source.tag(name)))
    if not steps.is_one_history:
        store.put(target.earliest_hint, str(steps.earliest).encode())
    store.put(target.latest_hint, str(steps.latest).encode())
    gone = [name for name in steps.tags_out if name not in steps.tags_in]
    history = context.publication.history(store, target)
    context.publication.note_tags(history, made=steps.tags_in, gone=gone)
