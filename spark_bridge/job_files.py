"""Removal of the files that lost attempts of a job (retried, run twice, killed) have left.

After a commit, the directories of the written buckets are searched for files of the job that are in
no message; after a failed job, all directories.

INVARIANT: only files of this job are removed, never a committed file, and none if it is not certain
whether the commit happened. No message names the managed files of BLOB values, to which committed
rows refer: after a commit, all of them stay.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from lakecore import LakecoreError
from lakecore.distributed.tables import JOB_ID_LENGTH
from lakecore.distributed.values import BUCKET_PREFIX, MANAGED_BLOB_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakecore import CommitMessage
    from lakecore.distributed.tables import TableContext

__all__ = ["remove_files_of_job", "remove_leftovers"]

_LISTERS = 16


def remove_leftovers(
    context: TableContext,
    job: str,
    messages: Sequence[CommitMessage],
    buckets: Iterable[tuple[bytes, int]] = (),
) -> int:
    """Remove the files of lost attempts from the written buckets. Returns their number.

    `buckets`: more buckets that lost attempts may have written, by partition and number.
    """
    kept = {name for message in messages for name in _names(message)}
    layout = context.layout
    written = {(message.partition, message.bucket) for message in messages}
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
