"""The writer: rows become data files of each bucket, and commit messages name the files.

Nothing is visible before the commit.

1. `write` fits the rows to the schema (`rows/conform.py`), computes partition and bucket of each
   row (`cross_partition.py`), and adds it to the buffer of its bucket.
2. All buffers together hold a lease of the memory budget. When the lease cannot grow, the largest
   buffer is emptied: rows of a primary-key table are sorted, merged and spilled to local disk as
   one sorted run; rows of an append table are written to the bucket's open data file.
3. `prepare_commit` empties every buffer. For a primary-key table, the spilled runs and the buffer
   of a bucket are merged into one level-0 run of data files in key order, with each key at most
   once. A new file begins at `target-file-size`.
4. The buffers are released. Unless the table is `write-only`, compactions that are due in these
   buckets run (`write_compaction.py`).

Sequence numbers: each row takes the next number of its bucket, in order of arrival. With
`changelog-producer` = `input`, every input row is also written to a changelog file, unmerged.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest, LakecoreError
from lakecore.frames.incoming import incoming_batches
from lakecore.io.progress import WorkBar
from lakecore.io.spill import SpillDirectory
from lakecore.memory import Share
from lakecore.merge.spec import merge_spec, refused_kinds
from lakecore.model.files import CommitMessage
from lakecore.model.rows import VALUE_KIND, RowKind
from lakecore.options import POSTPONE_BUCKET
from lakecore.rows.conform import ConformedBatch, KindRule, conform
from lakecore.table.commits.commit_change import (
    Seen,
    check_messages,
    check_not_committed,
    delete_files,
)
from lakecore.table.reads.told import gated
from lakecore.table.writes.bucket_buffer import (
    UNLEASED_BYTES,
    BucketBuffer,
    BucketKey,
    PostponedBuffer,
    batch_limit,
    buffer_limit,
    held_bytes,
    limit_open_files,
    postponed_prefix,
)
from lakecore.table.writes.cross_partition import RealBuckets, Routing
from lakecore.table.writes.write_compaction import WriteCompaction
from lakecore.table.writes.write_start import WriteStart, overwritten_since, read_base

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext

_LEASE_STEP_BYTES = 16 << 20
_FLUSHERS = 4
_ENDED = (
    "the writer has ended, by close or a failure, and what it took in since the last "
    "prepare_commit is dropped: write that again, with a new writer"
)


class TableWrite:
    """A writer of one table: `write`, then `prepare_commit`; pass its messages to `Table.commit`.

    A context manager; leaving it drops rows that were not prepared. A writer that was closed or has
    failed accepts no more calls.

        with table.new_write() as writer:
            writer.write(rows)
            table.commit(writer.prepare_commit())
    """

    def __init__(
        self,
        context: TableContext,
        *,
        overwrite: bool = False,
        base: WriteStart | None = None,
        streaming: bool = False,
        user: str | None = None,
        real_buckets: RealBuckets | None = None,
    ) -> None:
        """`base` has the facts of the table that a writer needs, by default of the latest snapshot.

        With `streaming`, `prepare_commit` may be called again before earlier messages are
        committed. `user` is the commit user, if known. `real_buckets` says which rows of a table
        with postponed buckets are written to real buckets.
        """
        context.options.require_writable(
            primary_keys=context.schema.primary_keys, partition_keys=context.schema.partition_keys
        )
        self._context = context
        self._overwrite = overwrite
        self._streaming = streaming
        self._schema, self._options = context.schema, context.options
        self._keyed = bool(self._schema.primary_keys)
        self._kinds = KindRule(
            rowkind_field=self._options.rowkind_field,
            keyed=self._keyed,
            ignore_delete=self._options.ignore_delete,
            ignore_update_before=self._options.ignore_update_before,
        )
        spec = merge_spec(self._schema, self._options, keep_deletions=True, in_key_order=True)
        self._spec = replace(spec, lacks_older=True)
        self._refused = refused_kinds(self._options.merge_engine, self._spec)
        self._lease = context.budget.acquire(0)
        self._spills = SpillDirectory()
        self._given = base
        self._base = base
        self._looks_again = False
        self._buckets: dict[BucketKey, BucketBuffer | PostponedBuffer] = {}
        self._sequences: dict[BucketKey, int] = {}
        self._compaction = WriteCompaction(context, overwrite=overwrite)
        self._rows = 0
        self._ended = False
        self._routing = Routing(context, self._base_state, overwrite=overwrite, real=real_buckets)
        self._prefix = ""
        if self._options.bucket == POSTPONE_BUCKET:
            self._prefix = postponed_prefix(context, user)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def row_count(self) -> int:
        """The number of rows written so far."""
        return self._rows

    @property
    def seen(self) -> Seen | None:
        """What the last `prepare_commit` has read of the table, for the commit of its messages."""
        return self._compaction.seen

    @gated
    def write(self, data: object) -> int:
        """Add rows and return their number. `Table.write` describes `data`.

        Raises InvalidRequest, naming column, value and row, if a row does not fit; then all rows of
        this writer are dropped.
        """
        self._require_open()
        before = self._rows
        try:
            limit = batch_limit(self._context.budget.size_bytes)
            with WorkBar() as bar:
                for batch in incoming_batches(data, self._schema.fields, bytes_max=limit):
                    rows = conform(batch, self._schema, first_row=self._rows, kinds=self._kinds)
                    self._check_kinds(rows)
                    self._rows += batch.num_rows
                    table = pa.Table.from_batches([rows.rows])
                    if self._keyed:
                        count = rows.rows.num_rows
                        zeros = pa.array(np.zeros(count, np.int8))
                        kinds = zeros if rows.kinds is None else rows.kinds
                        table = table.append_column(VALUE_KIND, kinds)
                    self._route(table)
                    bar.at(f"{self._rows:,} rows written", self._rows)
                    del batch, rows, table
        except BaseException:
            self.close()
            raise
        return self._rows - before

    def add_stored(self, rows: pa.Table) -> None:
        """Add rows that the table already stored: all columns, and the kind of each row."""
        self._require_open()
        self._rows += rows.num_rows
        self._route(rows)

    @gated
    def prepare_commit(self) -> list[CommitMessage]:
        """Write all buffers and run due compactions. Returns one message for each changed bucket.

        The writer can then write more rows. With dynamic buckets, commit the messages first: the
        writer knows new keys only from committed files. If this method fails, all files of the
        writer are removed.
        """
        return self.prepare_after(())

    def prepare_after(
        self, in_flight: Sequence[Sequence[CommitMessage]], *, waiting: Iterable[BucketKey] = ()
    ) -> list[CommitMessage]:
        """Like `prepare_commit`, but earlier messages of this writer may still be uncommitted.

        `in_flight` has the messages of each uncommitted commit, oldest first. With dynamic buckets,
        the writer remembers which buckets it gave to their keys. `waiting` are further buckets, to
        be compacted only if a full compaction is due.
        """
        self._require_open()
        try:
            seen = None if self._base is None else self._base.seen
            finished = self._finish_all([bucket for _, bucket in sorted(self._buckets.items())])
            messages = [self._with_index(message) for message in finished if message is not None]
        except BaseException:
            self.close()
            raise
        for key, bucket in self._buckets.items():
            self._sequences[key] = bucket.next_sequence
        written = [*self._buckets.values()]
        self._forget(keeps_index=self._streaming)
        try:
            return self._compaction.compact(messages, in_flight, waiting, seen=seen)
        except BaseException:
            _abort(written)
            delete_files(self._context, messages)
            raise

    def abort(self, messages: Sequence[CommitMessage] = ()) -> None:
        """Remove the files of messages that will not be committed, and drop buffered rows.

        The writer can then write more rows. Raises InvalidRequest and removes nothing if the
        messages were committed.
        """
        check_messages(messages, "abort")
        self._drop()
        check_not_committed(self._context, messages)
        delete_files(self._context, messages)

    def follow(self, before: Snapshot | None, after: Snapshot) -> None:
        """Use `after` as the base: since `before`, only this writer has changed the key index."""
        if self._base is not None and self._base.snapshot == before:
            self._base = replace(self._base, snapshot=after)

    def read_again(self) -> None:
        """After the commit of all messages, forget the table's state, unless rows are buffered.

        The partitions and buckets of keys are kept until an overwrite or a rollback removes rows:
        if another writer adds rows, the next commit fails, so they stay right.
        """
        if not self._buckets:
            self._forget(keeps_index=self._routing.keeps_keys)
            self._looks_again = self._routing.keeps_keys

    def close(self) -> None:
        """Close the writer and drop the rows written since the last `prepare_commit`."""
        self._ended = True
        self._drop()

    def _require_open(self) -> None:
        if self._ended:
            raise InvalidRequest(_ENDED, table=self._context.identifier)

    def _drop(self) -> None:
        _abort(self._buckets.values())
        self._forget()

    def _forget(self, *, keeps_index: bool = False) -> None:
        self._buckets = {}
        if not self._routing.forget(keeps_index=keeps_index):
            self._base = self._given
        self._spills.close()
        self._lease.release()

    def _check_kinds(self, rows: ConformedBatch) -> None:
        if self._refused is None or rows.kinds is None:
            return
        refused = pa.array([int(kind) for kind in self._refused.kinds], pa.int8())
        at = pc.index(pc.is_in(rows.kinds, refused), value=True).as_py()
        if at >= 0:
            raise InvalidRequest(
                self._refused.reason,
                **self._refused.facts,
                kind=RowKind(rows.kinds[at].as_py()).text,
                key=rows.rows.select(list(self._schema.primary_keys)).slice(at, 1).to_pylist()[0],
                table=self._context.identifier,
            )

    # --- routing ---------------------------------------------------------------------------------

    def _route(self, rows: pa.Table) -> None:
        if self._looks_again:
            self._looks_again = False
            if overwritten_since(self._context, self._base_state()):
                self._forget()
        for partition, number, own in self._routing.route(rows):
            self._add(self._bucket(partition, number), own)
        self._make_room()

    def _base_state(self) -> WriteStart:
        if self._base is None:
            self._base = read_base(self._context)
        return self._base

    def _bucket(self, partition: bytes, number: int) -> BucketBuffer | PostponedBuffer:
        key = (partition, number)
        found = self._buckets.get(key)
        if found is None and number == POSTPONE_BUCKET:
            found = self._buckets[key] = PostponedBuffer(self._context, key, self._prefix)
        elif found is None:
            counts_on = self._keyed or self._routing.count(partition) > 0
            base = self._base_state().sequences.get(key, -1) + 1
            ignores = self._overwrite or not counts_on
            start = max(0 if ignores else base, self._sequences.get(key, 0) if counts_on else 0)
            found = self._buckets[key] = BucketBuffer(
                self._context,
                self._spec,
                self._spills,
                key,
                next_sequence=start,
                keeps_changelog=not self._overwrite,
                streaming=self._streaming,
            )
        return found

    def _add(self, bucket: BucketBuffer | PostponedBuffer, rows: pa.Table) -> None:
        held = bucket.add(rows)
        row_bytes = held.nbytes / max(1, held.num_rows)
        if self._context.budget.is_large(row_bytes, Share.UNBUFFERED_ROW):
            # Encode large rows before more rows arrive.
            bucket.empty(spill=False)

    def _make_room(self) -> None:
        """Empty the largest buffers until all buffers fit their share of the budget.

        A few rows may stay buffered without a lease. Otherwise, while other writers hold the whole
        budget, each small batch would become a file.
        """
        budget = self._context.budget
        limit = buffer_limit(budget.size_bytes)
        if "write-buffer-size" in self._options.texts:
            limit = min(limit, self._options.write_buffer_size_bytes)
        limit_open_files(self._buckets.values())
        while True:
            held = sum(map(held_bytes, self._buckets.values()))
            wanted = -(-held // _LEASE_STEP_BYTES) * _LEASE_STEP_BYTES
            if held <= limit and (self._lease.resize(wanted) or held <= UNLEASED_BYTES):
                return
            largest = max(self._buckets.values(), key=held_bytes)
            if largest.blob_bytes > largest.size_bytes:
                largest.end_blobs()
            elif largest.size_bytes:
                largest.empty(spill=self._options.write_buffer_spillable is not False)
            else:
                return

    # --- finishing -------------------------------------------------------------------------------

    def _with_index(self, message: CommitMessage) -> CommitMessage:
        """The message, with the new hash index of its bucket if the bucket got new keys."""
        index = self._routing.indexes.get(message.partition)
        if index is None or message.bucket not in index.grown:
            return message
        file, path = index.write(message.bucket)
        self._buckets[message.partition, message.bucket].index_paths.append(path)
        return replace(message, new_index_files=(file,))

    def _finish_all(
        self, buckets: Sequence[BucketBuffer | PostponedBuffer]
    ) -> list[CommitMessage | None]:
        """The message of each bucket; None if the bucket has no changes.

        Small buckets are finished concurrently, because they mostly wait for the store. A large
        bucket is finished alone: it uses all cores and much memory.
        """
        small = [bucket for bucket in buckets if bucket.is_small]
        with ThreadPoolExecutor(_FLUSHERS) as pool:
            coming = {bucket.key: pool.submit(self._finish, bucket) for bucket in small}
            done = {key: future.result() for key, future in coming.items()}
        for bucket in buckets:
            if bucket.key not in done:
                done[bucket.key] = self._finish(bucket)
        return [done[bucket.key] for bucket in buckets]

    def _finish(self, bucket: BucketBuffer | PostponedBuffer) -> CommitMessage | None:
        files, changelog = bucket.finish()
        if not files and not changelog:
            return None
        partition, number = bucket.key
        return CommitMessage(
            partition=partition,
            bucket=number,
            total_buckets=self._routing.count(partition),
            new_files=files,
            changelog_files=changelog,
            base_snapshot_id=self._base_state().snapshot_id,
            base_snapshot_uuid=self._base_state().snapshot_uuid,
        )


def _abort(buckets: Iterable[BucketBuffer | PostponedBuffer]) -> None:
    for bucket in buckets:
        # A file that cannot be removed is an orphan; report the original error instead.
        with suppress(LakecoreError, OSError):
            bucket.abort()
