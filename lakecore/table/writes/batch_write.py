"""The common part of `write`, `overwrite` and dropping partitions: write rows, commit once.

If the commit certainly failed, the files that were written for it are removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, LakecoreError, Unsupported
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER, CommitResult
from lakecore.table.commits.commit import (
    CommitRequest,
    PartitionFilter,
    commit_compaction,
)
from lakecore.table.commits.commit_attempts import log_lost_compaction
from lakecore.table.commits.commit_change import check_watermark
from lakecore.table.commits.message_files import delete_files, delete_left_out
from lakecore.table.context import crosses_partitions
from lakecore.table.maintenance.after_commit import commit_and_maintain
from lakecore.table.writes import overwrite
from lakecore.table.writes.staged_write import batch_writer
from lakecore.table.writes.write_compaction import WriteCompaction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.files import CommitMessage
    from lakecore.table.context import TableContext
    from lakecore.table.writes.write_start import Unstored

COMPACTIONS_MAX = 3
"""How often a write retries its compaction before it leaves the work to the next write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """The commit user, the commit identifier and the watermark of a commit."""

    user: str
    identifier: int = BATCH_COMMIT_IDENTIFIER
    watermark: int | None = None


def author(
    context: TableContext,
    commit_user: str | None = None,
    identifier: int = BATCH_COMMIT_IDENTIFIER,
    watermark: int | None = None,
) -> Author:
    """The author of a commit: the given user, or a new random one.

    Raises InvalidRequest for an invalid user, identifier or watermark, and for an identifier
    without a user: the caller could not find the commit again without the random user.
    """
    check_author(commit_user, identifier)
    check_watermark(watermark)
    if commit_user is None and identifier != BATCH_COMMIT_IDENTIFIER:
        raise InvalidRequest(
            "an identifier is found again by its commit user: give both", identifier=identifier
        )
    if commit_user is None:
        prefix = context.options.commit_user_prefix
        drawn = context.ambient.new_uuid()
        commit_user = f"{prefix}_{drawn}" if prefix else drawn
    return Author(user=commit_user, identifier=identifier, watermark=watermark)


def check_author(commit_user: object, identifier: object) -> None:
    """Raise InvalidRequest for a user or identifier that a snapshot file cannot hold."""
    if not isinstance(identifier, int) or isinstance(identifier, bool):
        raise InvalidRequest("the identifier of a commit is a whole number", identifier=identifier)
    if not -BATCH_COMMIT_IDENTIFIER - 1 <= identifier <= BATCH_COMMIT_IDENTIFIER:
        raise InvalidRequest("the identifier of a commit has 64 bits", identifier=identifier)
    if commit_user is not None and not (isinstance(commit_user, str) and commit_user):
        raise InvalidRequest("a commit user is a text, and not empty", commit_user=commit_user)


def records_nothing(context: TableContext, identifier: int) -> bool:
    """Whether a commit without changes still makes a snapshot.

    The option `snapshot.ignore-empty-commit` decides. If it is not set, a commit with its own
    identifier makes a snapshot, because a job that numbers its commits looks for the number after a
    restart.
    """
    ignores = context.options.snapshot_ignore_empty_commit
    return identifier != BATCH_COMMIT_IDENTIFIER if ignores is None else not ignores


def write_rows(
    context: TableContext,
    data: object,
    by: Author,
    *,
    unstored: Unstored | None = None,
) -> CommitResult:
    """Add rows in one commit.

    If `unstored` is given, its schema is stored once all rows are known to fit it.
    """
    with batch_writer(context, base=None if unstored is None else unstored.base) as writer:
        writer.write(data)
        if unstored is not None:
            unstored.publish()
        messages = writer.prepare_commit()
    request = CommitRequest(
        messages=messages,
        user=by.user,
        identifier=by.identifier,
        watermark=by.watermark,
        force=records_nothing(context, by.identifier),
    )
    return compact_again(context, request, commit_or_clean(context, request))


def overwrite_rows(
    context: TableContext,
    data: object,
    partition: Mapping[str, object],
    by: Author,
    *,
    dynamic: bool,
    unstored: Unstored | None = None,
) -> CommitResult:
    """Replace the rows of some partitions in one commit; see `Table.overwrite`."""
    if crosses_partitions(context) and (partition or dynamic):
        raise Unsupported(
            "an overwrite of single partitions is not supported if the primary key lacks partition "
            "keys: keys of the new rows may be in other partitions",
            table=context.identifier,
            way_out="overwrite the whole table: dynamic=False, without a partition",
        )
    # Report a wrong partition before rows are written.
    given: object = partition
    if not isinstance(given, Mapping) or given:
        overwrite.matching(context, [partition])
    with batch_writer(
        context, overwrite=True, base=None if unstored is None else unstored.base
    ) as writer:
        writer.write(data)
        if unstored is not None:
            unstored.publish()
        messages = writer.prepare_commit()
    return commit_overwrite(context, messages, partition, by, dynamic=dynamic)


def commit_overwrite(
    context: TableContext,
    messages: Sequence[CommitMessage],
    partition: Mapping[str, object],
    by: Author,
    *,
    dynamic: bool,
) -> CommitResult:
    """Replace the rows of some partitions by the rows of the messages, in one commit."""
    chosen = overwrite.matching(context, [partition]) if partition else overwrite.everything
    if partition:
        outside = _outside(chosen, messages)
        if outside:
            delete_files(context, messages)
            raise InvalidRequest(
                "the data has rows outside the partition to overwrite",
                table=context.identifier,
                partitions=[dict(context.partitions.texts(each)) for each in outside[:3]],
            )
    elif dynamic and context.schema.partition_keys:
        if not messages:
            # No partition is replaced; record the identifier as for a write without rows.
            force = records_nothing(context, by.identifier)
            return commit_and_maintain(
                context,
                CommitRequest(
                    messages=(),
                    user=by.user,
                    identifier=by.identifier,
                    watermark=by.watermark,
                    force=force,
                ),
            )
        chosen = overwrite.written_by(messages)
    messages = overwrite.at_last_level(context, messages)
    at_once = overwrite.in_one_snapshot(context, messages)
    delete_left_out(context, messages, at_once)
    request = CommitRequest(
        messages=at_once,
        user=by.user,
        identifier=by.identifier,
        watermark=by.watermark,
        overwrite=chosen,
    )
    return commit_or_clean(context, request)


def clear_partitions(
    context: TableContext, chosen: PartitionFilter, operation: str
) -> CommitResult:
    """Remove the rows of some partitions, in one commit."""
    schema = context.schema
    context.options.require_writable(
        primary_keys=schema.primary_keys, partition_keys=schema.partition_keys
    )
    request = CommitRequest(
        messages=(), user=author(context).user, overwrite=chosen, operation=operation
    )
    return commit_and_maintain(context, request)


def commit_or_clean(context: TableContext, request: CommitRequest) -> CommitResult:
    """Commit the messages.

    Their files are removed if the commit certainly failed, or if it was already made before.
    """
    result = commit_and_maintain(
        context, request, on_failure=lambda: delete_files(context, request.messages)
    )
    if result.facts.get("already_committed"):
        delete_files(context, request.messages)
    return result


def compact_again(
    context: TableContext, request: CommitRequest, result: CommitResult
) -> CommitResult:
    """The result of a commit; if its compaction was lost, compacts and commits again.

    The rows are committed already, so a failure of the compaction raises no error.
    """
    lost = [message for message in request.messages if message.compact_before]
    for _ in range(COMPACTIONS_MAX - 1):
        if "compaction_lost" not in result.facts:
            break
        try:
            messages = WriteCompaction(context, overwrite=False).compact_again(lost)
        except (LakecoreError, OSError) as error:
            log_lost_compaction(context, error)
            break
        if not messages:
            break
        # NOTE: keep the identifier of the commit. With the identifier of batch commits, Java would
        # regard every later checkpoint of this user as committed.
        again = CommitRequest(messages=messages, user=request.user, identifier=request.identifier)
        done = commit_compaction(context, again)
        result = replace(
            result,
            snapshot_ids=(*result.snapshot_ids, *done.snapshot_ids),
            attempts=result.attempts + done.attempts,
            files_added=result.files_added + done.files_added,
            files_deleted=result.files_deleted + done.files_deleted,
            bytes_added=result.bytes_added + done.bytes_added,
            bytes_deleted=result.bytes_deleted + done.bytes_deleted,
            facts={**_of_housekeeping(result), **done.facts},
        )
    return result


def _of_housekeeping(result: CommitResult) -> Mapping[str, int]:
    return {name: count for name, count in result.facts.items() if name == "housekeeping_failed"}


def _outside(chosen: PartitionFilter, messages: Sequence[CommitMessage]) -> list[bytes]:
    partitions = list({message.partition: None for message in messages})
    inside = chosen(partitions) if partitions else ()
    return [each for each, is_inside in zip(partitions, inside, strict=True) if not is_inside]
