"""Rows -> data files of each bucket -> commit messages. Nothing is visible before the commit.

1. `write` makes the rows fit the schema (`plan/conform.py`), gives each its partition and bucket
   (`plan/bucketing.py`), and puts it in the buffer of its bucket.
2. All buffers together hold a lease of the memory budget. When it cannot grow, the largest buffer
   is emptied: rows of a primary-key table are sorted, merged and spilled to local disk as one
   sorted run; rows of an append table go on the bucket's open data file.
3. `prepare_commit` empties every buffer. A bucket of a primary-key table: its spilled runs and its
   buffer are merged to one level-0 run of data files in key order, with a key at most once. Files
   roll at `target-file-size`.

Sequence numbers: each row takes the next number of its bucket, in order of arrival. With
`changelog-producer` = `input`, every row that was handed in goes to a changelog file too, unmerged.

INVARIANT: a row goes to the bucket that its partition's own bucket count gives. A partition that
was written with another count is refused.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.format.binary_row import hash_rows
from lakecore.format.hash_index import decode_hashes, encode_hashes
from lakecore.format.layout import index_file_name
from lakecore.frames.incoming import incoming_batches
from lakecore.io.spill import SpillDirectory
from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge.keys import order_columns, shared_codes
from lakecore.merge.spec import MergeSpec, Slice, merge_spec
from lakecore.model.files import HASH_INDEX, CommitMessage, IndexFile
from lakecore.model.rows import SEQUENCE_NUMBER, VALUE_KIND
from lakecore.options import ChangelogProducer
from lakecore.plan.bucketing import bucket_ids, split_by_bucket, split_by_partition
from lakecore.plan.conform import KindRule, conform
from lakecore.plan.dynamic_bucket import (
    BUCKETS_MAX,
    Assignment,
    DynamicBucketRule,
    HashIndexState,
    assign_dynamic,
)
from lakecore.plan.partitions import bucket_key_fields
from lakecore.table.bucket_files import (
    BucketPlace,
    FileNames,
    RollingWriter,
    changelog_shape,
    data_shape,
)
from lakecore.table.message_files import delete_files
from lakecore.table.read import merge_slices

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from lakecore.io.spill import SpilledRun
    from lakecore.model.files import DataFile
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext

BUFFER_SHARE = 0.35
"""Of the budget, for rows that wait. Sorting and encoding need room beside them."""
_LEASE_STEP_BYTES = 16 << 20
_SPILL_PIECE_SHARE = 128
_PIECE_ROWS = 131_072
_FLUSHERS = 2

BucketKey = tuple[bytes, int]


class TableWrite:
    """A writer of one table: `write`, then `prepare_commit`, and `Table.commit` the messages.

    A context manager; leaving it without `prepare_commit` drops what was written.
    """

    def __init__(self, context: TableContext, *, overwrite: bool = False) -> None:
        context.options.require_writable(
            primary_keys=context.schema.primary_keys,
            partition_keys=context.schema.partition_keys,
        )
        self._context = context
        self._overwrite = overwrite
        self._schema, self._options = context.schema, context.options
        self._keyed = bool(self._schema.primary_keys)
        self._kinds = KindRule(
            rowkind_field=self._options.rowkind_field,
            keyed=self._keyed,
            ignore_delete=self._options.ignore_delete,
            ignore_update_before=self._options.ignore_update_before,
        )
        self._spec = merge_spec(
            self._schema, self._options, keep_deletions=True, in_key_order=True
        )
        self._lease = context.budget.acquire(0)
        self._spills = SpillDirectory()
        self._base: _Base | None = None
        self._buckets: dict[BucketKey, _Bucket] = {}
        self._indexes: dict[bytes, _DynamicPartition] = {}
        self._sequences: dict[BucketKey, int] = {}
        self._rows = 0
        self._prepared: list[_Bucket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def row_count(self) -> int:
        """The rows handed in so far."""
        return self._rows

    def write(self, data: object) -> int:
        """Take in rows; how many. See `Table.write` for what `data` may be.

        Raises InvalidRequest, naming column, value and row, if a row does not fit; then everything
        this writer took in is dropped.
        """
        before = self._rows
        try:
            for batch in incoming_batches(data):
                rows = conform(batch, self._schema, first_row=self._rows, kinds=self._kinds)
                self._rows += batch.num_rows
                table = pa.Table.from_batches([rows.rows])
                if self._keyed:
                    count = rows.rows.num_rows
                    zeros = pa.array(np.zeros(count, np.int8))
                    kinds = zeros if rows.kinds is None else rows.kinds
                    table = table.append_column(VALUE_KIND, kinds)
                self._route(table)
        except BaseException:
            self.close()
            raise
        return self._rows - before

    def prepare_commit(self) -> list[CommitMessage]:
        """Write out every buffer; the messages to commit, one a bucket. The writer can go on."""
        try:
            buckets = [bucket for _, bucket in sorted(self._buckets.items())]
            if len(buckets) > 1:
                with ThreadPoolExecutor(_FLUSHERS) as pool:
                    messages = list(pool.map(self._finish, buckets))
            else:
                messages = [self._finish(bucket) for bucket in buckets]
            messages = [*self._with_indexes([m for m in messages if m is not None])]
        except BaseException:
            self.close()
            raise
        for key, bucket in self._buckets.items():
            self._sequences[key] = bucket.next_sequence
        self._prepared += buckets
        self._buckets = {}
        self._indexes = {}
        self._base = None
        self._lease.resize(0)
        return messages

    def abort(self, messages: Sequence[CommitMessage] = ()) -> None:
        """Remove the files of messages that will not be committed, and drop what is buffered."""
        self.close()
        delete_files(self._context, messages)

    def close(self) -> None:
        """Drop what was written since the last `prepare_commit`."""
        for bucket in self._buckets.values():
            bucket.abort()
        self._buckets = {}
        self._spills.close()
        self._lease.release()

    # --- routing ---------------------------------------------------------------------------------

    def _route(self, rows: pa.Table) -> None:
        for partition, part in split_by_partition(rows, self._schema.partition_fields):
            ids, count = self._bucket_ids(partition, part)
            if ids is None:
                self._bucket(partition, 0).add(part)
            else:
                for number, own in split_by_bucket(ids, count).cut(part):
                    self._bucket(partition, number).add(own)
        self._make_room()

    def _bucket_ids(self, partition: bytes, rows: pa.Table) -> tuple[np.ndarray | None, int]:
        """The bucket of each row, and a bound of them; None if they all go to bucket 0."""
        options = self._options
        if options.bucket > 0:
            self._check_bucket_count(partition)
            if options.bucket == 1:
                return None, 1
            fields = bucket_key_fields(self._schema, options)
            columns = [rows.column(field.name).combine_chunks() for field in fields]
            types = [field.type for field in fields]
            function = options.bucket_function_type.value
            return bucket_ids(columns, types, options.bucket, function), options.bucket
        if not self._keyed:
            return None, 1
        index = self._indexes.get(partition)
        if index is None:
            index = self._indexes[partition] = self._load_index(partition)
        fields = self._schema.key_fields
        columns = [rows.column(field.name).combine_chunks() for field in fields]
        assignment = index.assign(hash_rows(columns, [field.type for field in fields]))
        return assignment.buckets, int(assignment.buckets.max()) + 1

    def _check_bucket_count(self, partition: bytes) -> None:
        written = self._base_state().bucket_counts.get(partition)
        if written is not None and written != self._options.bucket and not self._overwrite:
            raise InvalidRequest(
                "the partition was written with another number of buckets: overwrite it, or set "
                "the option bucket back",
                table=self._context.identifier,
                partition=dict(self._context.partitions.texts(partition)),
                buckets=written,
                option_bucket=self._options.bucket,
            )

    def _base_state(self) -> _Base:
        if self._base is None:
            self._base = _read_base(self._context)
        return self._base

    def _bucket(self, partition: bytes, number: int) -> _Bucket:
        key = (partition, number)
        found = self._buckets.get(key)
        if found is None:
            counts_on = self._keyed or self._options.bucket > 0
            base = self._base_state().sequences.get(key, -1) + 1
            ignores = self._overwrite or not counts_on
            start = max(0 if ignores else base, self._sequences.get(key, 0) if counts_on else 0)
            found = self._buckets[key] = _Bucket(
                self._context, self._spec, self._spills, key, start
            )
        return found

    def _make_room(self) -> None:
        """Keep the buffers within their share of the budget; empty the largest while they are not."""
        budget = self._context.budget
        limit = int(budget.size_bytes * BUFFER_SHARE)
        if "write-buffer-size" in self._options.texts:
            limit = min(limit, self._options.write_buffer_size_bytes)
        while True:
            held = sum(bucket.size_bytes for bucket in self._buckets.values())
            wanted = -(-held // _LEASE_STEP_BYTES) * _LEASE_STEP_BYTES
            if held <= limit and self._lease.resize(wanted):
                return
            largest = max(self._buckets.values(), key=lambda bucket: bucket.size_bytes)
            if largest.size_bytes == 0:
                return
            largest.empty(spill=self._options.write_buffer_spillable is not False)

    # --- dynamic buckets -------------------------------------------------------------------------

    def _load_index(self, partition: bytes) -> _DynamicPartition:
        context, options = self._context, self._options
        hashes: dict[int, np.ndarray] = {}
        if not self._overwrite:
            for entry in context.history.index_entries(self._base_state().snapshot):
                if entry.partition == partition and entry.file.index_type == HASH_INDEX:
                    path = context.layout.live_index_file(
                        context.partitions.path(partition), entry.bucket, entry.file
                    )
                    hashes[entry.bucket] = decode_hashes(context.store.read(path), path)
        most = options.dynamic_bucket_max_buckets
        rule = DynamicBucketRule(
            target_row_count=options.dynamic_bucket_target_row_num,
            buckets_max=BUCKETS_MAX if most < 0 else most,
            initial_buckets=options.dynamic_bucket_initial_buckets or 1,
        )
        return _DynamicPartition(HashIndexState.of(hashes), rule)

    def _with_indexes(self, messages: list[CommitMessage]) -> Iterator[CommitMessage]:
        """The messages, each with the new hash index of its bucket."""
        context = self._context
        for message in messages:
            index = self._indexes.get(message.partition)
            if index is None or message.bucket not in index.grown:
                yield message
                continue
            content = index.state.hashes_of(message.bucket)
            bucket = self._buckets[message.partition, message.bucket]
            name = index_file_name(context.ambient.new_uuid(), 0)
            data = encode_hashes(content)
            path = context.layout.index_file(
                name, context.partitions.path(message.partition), message.bucket
            )
            context.store.put(path, data)
            bucket.index_paths.append(path)
            file = IndexFile(
                index_type=HASH_INDEX, name=name, size_bytes=len(data), row_count=len(content)
            )
            yield replace(message, new_index_files=(file,))

    def _finish(self, bucket: _Bucket) -> CommitMessage | None:
        files, changelog = bucket.finish()
        if not files and not changelog:
            return None
        partition, number = bucket.key
        return CommitMessage(
            partition=partition,
            bucket=number,
            total_buckets=self._options.bucket,
            new_files=files,
            changelog_files=() if self._overwrite else changelog,
            base_snapshot_id=self._base_state().snapshot_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """What a writer must know of the table it adds to."""

    snapshot: Snapshot | None
    bucket_counts: dict[bytes, int]
    sequences: dict[BucketKey, int]

    @property
    def snapshot_id(self) -> int | None:
        return None if self.snapshot is None else self.snapshot.id


def _read_base(context: TableContext) -> _Base:
    snapshot = context.history.latest_snapshot()
    counts: dict[bytes, int] = {}
    sequences: dict[BucketKey, int] = defaultdict(lambda: -1)
    if snapshot is not None:
        for entry in context.history.live_entries(snapshot):
            counts[entry.partition] = entry.total_buckets
            key = (entry.partition, entry.bucket)
            sequences[key] = max(sequences[key], entry.file.sequence_max)
    return _Base(snapshot=snapshot, bucket_counts=counts, sequences=sequences)


class _DynamicPartition:
    """The hash index of a partition, and the buckets it has grown in since it was loaded."""

    def __init__(self, state: HashIndexState, rule: DynamicBucketRule) -> None:
        self.state = state
        self._rule = rule
        self.grown: set[int] = set()

    def assign(self, hashes: np.ndarray) -> Assignment:
        """The bucket of each row."""
        assignment = assign_dynamic(self.state, hashes, self._rule)
        self.state = assignment.state
        self.grown |= set(assignment.new_hashes)
        return assignment


class _Bucket:
    """The rows of one bucket on their way to files."""

    def __init__(
        self,
        context: TableContext,
        spec: MergeSpec,
        spills: SpillDirectory,
        key: BucketKey,
        next_sequence: int,
    ) -> None:
        schema, options = context.schema, context.options
        self.key = key
        self.next_sequence = next_sequence
        self.size_bytes = 0
        self.index_paths: list[str] = []
        self._keyed = bool(schema.primary_keys)
        self._context = context
        self._spec = spec
        self._engine = str(options.merge_engine)
        self._spills = spills
        self._chunks: list[pa.Table] = []
        self._first_sequence = next_sequence
        self._spilled: list[SpilledRun] = []
        partition, number = key
        self._place = BucketPlace(
            store=context.store,
            layout=context.layout,
            ambient=context.ambient,
            partition_path=context.partitions.path(partition),
            bucket=number,
            names=FileNames(context.ambient.new_uuid()),
        )
        self._data = RollingWriter(self._place, data_shape(schema, options))
        self._changelog: RollingWriter | None = None
        if options.changelog_producer is ChangelogProducer.INPUT:
            self._changelog = RollingWriter(self._place, changelog_shape(schema, options))

    def add(self, rows: pa.Table) -> None:
        """Take in rows, in order of arrival."""
        self._chunks.append(rows)
        self.size_bytes += rows.nbytes
        self.next_sequence += rows.num_rows

    def empty(self, *, spill: bool) -> None:
        """Give back the memory of the buffer: to a sorted run on disk, or to data files."""
        if not self._keyed:
            self._write_appended()
            return
        rows = self._take()
        if not spill:
            self._write_changelog(rows)
            for piece in self._merged(rows):
                self._data.write(piece)
            # The next flush is a run of its own: keys may come again in it.
            self._data.close()
            return
        self._write_changelog(rows)
        piece_bytes = self._context.budget.size_bytes // _SPILL_PIECE_SHARE
        row_bytes = max(1, rows.nbytes // rows.num_rows)
        piece_rows = max(1, min(_PIECE_ROWS, piece_bytes // row_bytes))
        pieces = (
            piece.slice(start, piece_rows)
            for piece in self._merged(rows)
            for start in range(0, piece.num_rows, piece_rows)
        )
        numbers = rows.column(SEQUENCE_NUMBER)
        low, high = numbers[0].as_py(), numbers[rows.num_rows - 1].as_py()
        self._spilled.append(self._spills.write(rows.schema, pieces, low, high))
        # The allocator would keep what sorting took, and the next buffer fills beside it.
        del rows, numbers
        pa.default_memory_pool().release_unused()

    def finish(self) -> tuple[tuple[DataFile, ...], tuple[DataFile, ...]]:
        """Write out everything: data files and changelog files."""
        if not self._keyed:
            self._write_appended()
        elif self._chunks or self._spilled:
            rows = self._take()
            self._write_changelog(rows)
            if self._spilled:
                streams = [self._spilled_slices(run) for run in self._spilled]
                streams.append(self._slices(rows))
                merged = merge_slices(streams, self._engine, self._spec)
            else:
                merged = self._merged(rows)
            for piece in merged:
                self._data.write(piece)
        return self._data.close(), self._changelog.close() if self._changelog else ()

    def abort(self) -> None:
        """Remove what was written."""
        self._chunks = []
        self._data.abort()
        if self._changelog is not None:
            self._changelog.abort()
        for path in self.index_paths:
            self._context.store.delete(path)

    def _take(self) -> pa.Table:
        """The buffered rows, numbered; the buffer is empty after."""
        chunks, self._chunks = self._chunks, []
        self.size_bytes = 0
        if chunks:
            rows = pa.concat_tables(chunks)
        else:
            schema = self._context.schema.arrow.append(pa.field(VALUE_KIND, pa.int8()))
            rows = schema.empty_table()
        first, self._first_sequence = self._first_sequence, self.next_sequence
        numbers = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
        return rows.append_column(SEQUENCE_NUMBER, numbers)

    def _merged(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Buffered rows as a run: sorted by key, each key once."""
        if rows.num_rows:
            yield from MERGE_FUNCTIONS[self._engine]([self._slice(rows, unique=False)], self._spec)

    def _slice(self, rows: pa.Table, *, unique: bool) -> Slice:
        first = self._first_sequence
        keys = order_columns([rows.column(name) for name in self._spec.key])
        return Slice(rows=rows, keys=keys, sequence_min=first, sequence_max=first, unique=unique)

    def _slices(self, rows: pa.Table) -> Iterator[Slice]:
        low = self.next_sequence - rows.num_rows
        for piece in self._merged(rows):
            keys = order_columns([piece.column(name) for name in self._spec.key])
            yield Slice(
                rows=piece, keys=keys, sequence_min=low, sequence_max=max(low, self.next_sequence)
            )

    def _spilled_slices(self, run: SpilledRun) -> Iterator[Slice]:
        for batch in self._spills.read(run):
            keys = order_columns([batch.column(name) for name in self._spec.key])
            yield Slice(
                rows=pa.Table.from_batches([batch]),
                keys=keys,
                sequence_min=run.sequence_min,
                sequence_max=run.sequence_max,
            )

    def _write_appended(self) -> None:
        chunks, self._chunks = self._chunks, []
        self.size_bytes = 0
        for rows in chunks:
            for start in range(0, rows.num_rows, _PIECE_ROWS):
                piece = rows.slice(start, _PIECE_ROWS)
                self._data.write(piece, self._first_sequence)
                self._first_sequence += piece.num_rows

    def _write_changelog(self, rows: pa.Table) -> None:
        """All rows, sorted by key, rows of a key in order of arrival."""
        if self._changelog is None or not rows.num_rows:
            return
        (codes,) = shared_codes([order_columns([rows.column(n) for n in self._spec.key])])
        order = np.argsort(codes, kind="stable")
        for start in range(0, len(order), _PIECE_ROWS):
            self._changelog.write(rows.take(pa.array(order[start : start + _PIECE_ROWS])))
