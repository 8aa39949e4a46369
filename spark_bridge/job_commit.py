"""Commits the outcomes of all tasks at once, and removes leftover files.

1. If a task failed, its error is raised.
2. If two tasks wrote the same bucket, an error is raised: rows of one key would have equal sequence
   numbers, and the bucket would have two hash indexes.
3. The new schema of the write, if any, is stored.
4. `commit` makes one snapshot of all messages; it is idempotent for user and identifier.

Files of lost attempts are removed after the commit.
"""

from __future__ import annotations

import hashlib
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from lakecore import (
    CommitMessage,
    CommitResult,
    CorruptTable,
    InvalidRequest,
    LakecoreError,
    NotFound,
    Unsupported,
)
from lakecore.distributed import (
    BATCH_COMMIT_IDENTIFIER,
    BUCKET_PREFIX,
    JOB_ID_LENGTH,
    MANAGED_BLOB_SUFFIX,
    POSTPONE_BUCKET,
    Author,
    EncodedEntries,
    EncodedFiles,
    Evolution,
    TableContext,
    at_last_level,
    check_files_are_there,
    commit_append,
    commit_overwrite,
    crosses_partitions,
    delete_files,
    encode_files,
)
from spark_bridge.failures import DATA_ERRORS
from spark_bridge.task import TaskOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The files of a Spark job, by the id of the job; `lost`: see `Answers`."""

    job: str
    lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """How to commit the messages: append or overwrite, and the commit user.

    `assigners`: the number of tasks that shared the dynamic buckets of a partition. `skip_empty`:
    an append without rows makes no snapshot. `evolution`: the schema of the rows, if not yet
    stored. `staged`: the outcomes are stored before the commit, so that another driver may commit
    them.
    """

    by: Author
    overwrite: bool = False
    partition: Mapping[str, object] = field(default_factory=dict)
    dynamic: bool = False
    assigners: int = 1
    skip_empty: bool = False
    evolution: Evolution | None = None
    staged: bool = False


def publish(
    context: TableContext, outcomes: Sequence[TaskOutcome], how: Publication
) -> CommitResult:
    """Commit the files of the tasks once. If the commit certainly failed, remove the files."""
    messages, encoded = parts_of(outcomes)
    try:
        for outcome in outcomes:
            if outcome.failure is not None:
                raise outcome.failure
        refuse_shared_buckets(context, outcomes, how.assigners)
    except DATA_ERRORS:
        delete_files(context, messages, encoded)
        raise
    if how.evolution is not None:
        how.evolution.publish(context)
    cleans = not how.staged
    if how.overwrite:
        return commit_overwrite(
            context,
            messages,
            how.partition,
            how.by,
            encoded=encoded,
            dynamic=how.dynamic,
            cleans=cleans,
        )
    return commit_append(
        context, messages, how.by, encoded=encoded, skip_empty=how.skip_empty, cleans=cleans
    )


def parts_of(
    outcomes: Sequence[TaskOutcome],
) -> tuple[Sequence[CommitMessage], Sequence[EncodedFiles]]:
    """The messages of all outcomes, and the encoded files of those that have them."""
    messages = [message for outcome in outcomes for message in outcome.messages]
    return messages, [each.encoded for each in outcomes if each.encoded is not None]


_WRITTEN = {
    "partition": pl.Binary,
    "bucket": pl.Int32,
    "total_buckets": pl.Int32,
    "size_bytes": pl.Int64,
    "outcome": pl.Int32,
}


def files_of(outcomes: Sequence[TaskOutcome]) -> pl.DataFrame:
    """Where the new files are, with their bytes, and the outcome that has them."""
    stated = [
        (
            message.partition,
            message.bucket,
            message.total_buckets,
            sum(file.size_bytes for file in message.new_files),
            number,
        )
        for number, outcome in enumerate(outcomes)
        for message in outcome.messages
    ]
    encoded = [
        outcome.encoded.new.facts.select(
            partition="_PARTITION",
            bucket="_BUCKET",
            total_buckets="_TOTAL_BUCKETS",
            size_bytes="_FILE_SIZE",
            outcome=pl.lit(number, pl.Int32),
        )
        for number, outcome in enumerate(outcomes)
        if outcome.encoded is not None
    ]
    return pl.concat([pl.DataFrame(stated, schema=_WRITTEN, orient="row"), *encoded])


def refuse_shared_buckets(
    context: TableContext, outcomes: Sequence[TaskOutcome], assigners: int = 1
) -> None:
    """Raise InvalidRequest if two tasks wrote a bucket that only one task may write.

    A task may write any bucket of the assigners whose keys it has. If two tasks have keys of the
    same assigner, both may have written the same key.
    """
    options = context.options
    if not context.schema.primary_keys:
        return
    files = files_of(outcomes).filter(pl.col("bucket") != POSTPONE_BUCKET)
    counts = pl.col("total_buckets").n_unique()
    owned = files
    if crosses_partitions(context):  # the unit that one task may write is the table
        owned = files.with_columns(partition=pl.lit(b""), bucket=pl.lit(0))
    elif options.bucket == -1:  # an assigner
        owned = files.with_columns(pl.col("bucket") % assigners)
    owners = pl.col("outcome").n_unique()
    shared = owned.group_by("partition", "bucket", maintain_order=True).agg(owners)
    # If tasks decided on different numbers of buckets for a new partition, none had all its rows.
    differing = files.group_by("partition", maintain_order=True).agg(
        pl.lit(0).alias("bucket"), counts
    )
    found = [
        *shared.filter(pl.col("outcome") > 1).iter_rows(),
        *differing.filter(pl.col("total_buckets") > 1).iter_rows(),
    ]
    if found:
        partition, bucket, _ = found[0]
        by_bucket = options.bucket > 0
        raise InvalidRequest(
            f"several tasks wrote the same {'bucket' if by_bucket else 'partition'}: write "
            "spark_bridge.prepare(df, table) in place of df, or use spark_bridge.write(df, table); "
            "few rows go in by INSERT INTO ... SELECT /*+ COALESCE(1) */ ...",
            table=context.identifier,
            partition=dict(context.partitions.texts(partition)) if partition else {},
            bucket=bucket if by_bucket else "dynamic",
            shared=len(found),
        )


# --- job files -----------------------------------------------------------------------------------
# Removal of the files that lost attempts of a job (retried, run twice, killed) have left.
#
# After a commit, if an attempt may have been lost (`spread.attempts_lost`), the directories of the
# written buckets are searched for files of the job that are in no message; after a failed job, all
# directories.
#
# INVARIANT: only files of this job are removed, never a committed file, and none if it is not
# certain whether the commit happened. No message names the managed files of BLOB values, to which
# committed rows refer: after a commit, all of them stay.

_LISTERS = 16


def remove_leftovers(
    context: TableContext,
    job: str,
    messages: Sequence[CommitMessage],
    buckets: Iterable[tuple[bytes, int]] = (),
    *,
    encoded: Sequence[EncodedFiles] = (),
    lost: bool = True,
) -> int:
    """Remove the files of lost attempts from the written buckets. Returns their number.

    `messages`, `encoded`: the committed files. `buckets`: more buckets that lost attempts may have
    written, by partition and number. `lost`: if False, no attempt was lost, and nothing is listed.
    """
    if not lost:
        return 0
    kept = {name for message in messages for name in _names(message)}
    kept |= {name for each in encoded for name in each.file_names()}
    layout = context.layout
    written = {(message.partition, message.bucket) for message in messages}
    for part in (part for each in encoded for part in each.parts):
        written.update(part.facts.select("_PARTITION", "_BUCKET").unique().iter_rows())
    directories = {
        layout.bucket_dir(context.partitions.path(partition), bucket)
        for partition, bucket in {*written, *buckets}
    }
    if any(message.new_index_files for message in messages):
        directories.add(layout.index_dir)
    return _remove(context, job, sorted(directories), kept)


def remove_files_of_job(context: TableContext, job: str) -> int:
    """Remove every file of a job that did not commit. Returns their number."""
    layout = context.layout
    directories = [layout.data_dir]
    for _ in context.schema.partition_keys:
        with ThreadPoolExecutor(_LISTERS) as pool:
            below = pool.map(lambda each: _directories(context, each, "="), directories)
            directories = [child for children in below for child in children]
    with ThreadPoolExecutor(_LISTERS) as pool:
        below = pool.map(lambda each: _directories(context, each, BUCKET_PREFIX), directories)
        buckets = [child for children in below for child in children]
    return _remove(context, job, [*buckets, layout.index_dir], frozenset())


def _directories(context: TableContext, directory: str, mark: str) -> list[str]:
    return [
        child.path
        for child in context.store.list(directory)
        if child.is_directory and mark in child.path.rsplit("/", 1)[-1]
    ]


def _remove(
    context: TableContext, job: str, directories: Sequence[str], kept: Iterable[str]
) -> int:
    begin, known = job[:JOB_ID_LENGTH], frozenset(kept)
    staying = (MANAGED_BLOB_SUFFIX,) if known else ()

    def sweep(directory: str) -> int:
        removed = 0
        # A file that cannot be listed or removed is an orphan, not an error.
        with suppress(LakecoreError, OSError):
            for file in context.store.list(directory):
                name = file.path.rsplit("/", 1)[-1]
                is_kept = name in known or name.endswith(staying)
                if begin in name and not is_kept and not file.is_directory:
                    context.store.delete(file.path)
                    removed += 1
        return removed

    with ThreadPoolExecutor(_LISTERS) as pool:
        return sum(pool.map(sweep, directories))


def _names(message: CommitMessage) -> list[str]:
    data = (
        *message.new_files,
        *message.changelog_files,
        *message.compact_after,
        *message.compact_changelog_files,
    )
    extra = [name for file in data for name in file.extra_files]
    indexes = [file.name for file in message.new_index_files]
    return [file.name for file in data] + indexes + extra


# --- staged jobs ---------------------------------------------------------------------------------
# What the tasks of a write have answered, stored in the table until the commit is made: if the
# driver dies in between, another one commits the files without running a task.
#
# 1. After all tasks have answered, and before the commit, the driver writes a file in the directory
#    of manifests. Its name is a hash of the commit user, the identifier, what the commit replaces,
#    and the schema of the rows. The file holds manifests and numbers, no pickled objects: whoever
#    may write to the table cannot make a driver run code.
# 2. After the commit, the file is deleted.
# 3. A run that finds the file checks that the data files are there, and commits them.
#
# A file that nobody asks for again is an orphan, and so are its data files: the clean-up of any
# engine removes them.
#
# INVARIANT: a driver that was taken for dead may still commit. Once a job is staged, its data files
# are deleted only if another job has committed under its identifier.

_VERSION = 1
log = logging.getLogger("lakecore.spark")


def check_stageable(context: TableContext, by: Author) -> None:
    """Raise an error if the outcomes of a write to this table cannot be staged."""
    if by.identifier == BATCH_COMMIT_IDENTIFIER:
        raise InvalidRequest(
            "an interrupted write is found again by its author: give commit_user and identifier"
        )
    options = context.options
    reasons = {
        "dynamic buckets": options.bucket == -1 and bool(context.schema.primary_keys),
        "row-tracking.enabled": options.row_tracking_enabled,
        "sequence.snapshot-ordering": options.sequence_snapshot_ordering,
    }
    for reason, holds in reasons.items():
        if holds:
            raise Unsupported(
                "resume=True is not supported for this table; leave it out",
                table=context.identifier,
                because=reason,
            )


def stage(
    context: TableContext, job: str, outcomes: Sequence[TaskOutcome], how: Publication
) -> None:
    """Store the outcomes, none of which is a failure."""
    tasks: list[dict[str, object]] = []
    parts: list[bytes] = []
    for outcome in outcomes:
        files = outcome.encoded or _encoded(context, job, outcome.messages, how)
        task = {name: getattr(outcome, name) for name in _OF_TASK}
        if files is not None:
            own = [part.data for part in files.parts]
            task |= {name: getattr(files, name) for name in _OF_FILES}
            task["parts"] = [len(data) for data in own]
            parts += own
        tasks.append(task)
    head = json.dumps({"version": _VERSION, "job": job, "tasks": tasks}).encode()
    data = b"\n".join([head, b"".join(parts)])
    digest = hashlib.sha256(data).hexdigest().encode()
    context.store.put(_staged_path(context, how), b"\n".join([digest, data]))


_OF_TASK = ("partition", "attempt", "rows", "began_ms", "ended_ms")
_OF_FILES = ("job", "schema_id", "base_snapshot_id", "base_snapshot_uuid")


def _encoded(
    context: TableContext, job: str, messages: Sequence[CommitMessage], how: Publication
) -> EncodedFiles | None:
    if not messages:
        return None
    if how.overwrite:
        messages = at_last_level(context, messages)
    files = encode_files(context, messages, job)
    assert files is not None, "check_stageable has let the table through"
    return files


def staged(context: TableContext, how: Publication) -> tuple[str, Sequence[TaskOutcome]] | None:
    """The job and the outcomes that an earlier driver has staged.

    None if there are none, if they are damaged, or if data files are missing.
    """
    try:
        found = _unpacked(context.store.read(_staged_path(context, how)))
        for files in parts_of(() if found is None else found[1])[1]:
            check_files_are_there(context, files.messages())
    except NotFound:
        return None
    except (InvalidRequest, CorruptTable) as error:
        log.warning("an interrupted write cannot be resumed, and runs again: reason=%s", error)
        return None
    return found


def _unpacked(stored: bytes) -> tuple[str, Sequence[TaskOutcome]] | None:
    """The job and the outcomes; None for a file of another version. Raises CorruptTable."""
    digest, _, data = stored.partition(b"\n")
    if digest != hashlib.sha256(data).hexdigest().encode():
        raise CorruptTable("the staged files of a write are damaged")
    head, _, rest = data.partition(b"\n")
    stated = json.loads(head)
    if stated["version"] != _VERSION:
        return None
    outcomes: list[TaskOutcome] = []
    at = 0
    for task in stated["tasks"]:
        own: list[EncodedEntries] = []
        for size in task.get("parts", ()):
            own.append(EncodedEntries.read(rest[at : at + size]))
            at += size
        files = None
        if own:
            facts = {name: task[name] for name in _OF_FILES}
            files = EncodedFiles(new=own[0], changelog=own[1] if own[1:] else None, **facts)
        numbers = {name: task[name] for name in _OF_TASK}
        outcomes.append(TaskOutcome(messages=(), encoded=files, **numbers))
    return str(stated["job"]), outcomes


def unstage(context: TableContext, how: Publication) -> None:
    """Remove the staged outcomes. If that fails, they are an orphan."""
    with suppress(LakecoreError, OSError):
        context.store.delete(_staged_path(context, how))


def is_committed(context: TableContext, result: CommitResult, job: str) -> bool:
    """Whether the snapshots of an earlier commit have files of this job; True if unknown."""
    history, begin = context.history, job[:JOB_ID_LENGTH]
    try:
        for snapshot_id in result.snapshot_ids:
            for manifest in history.delta_manifests(history.snapshot(snapshot_id)):
                names = history.entry_columns(manifest)["_FILE_NAME"]
                if names.str.contains(begin, literal=True).any():
                    return True
    except (LakecoreError, OSError):
        return True
    return not result.snapshot_ids


def _staged_path(context: TableContext, how: Publication) -> str:
    partition = sorted((name, str(value)) for name, value in how.partition.items())
    of_job = [how.by.user, how.by.identifier, how.overwrite, partition, how.dynamic]
    schema = context.schema
    text = json.dumps([*of_job, schema.id, repr(schema.fields)])
    name = hashlib.sha256(text.encode()).hexdigest()
    return context.layout.manifest(f"staged-{name}")
