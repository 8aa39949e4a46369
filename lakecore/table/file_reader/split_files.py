"""Reads the data files of a split as rows of the table's columns, whatever schema wrote the files.

Memory depends on the batch size.

INVARIANT: in a split whose rows are merged, only conditions on the key prune row groups; in a raw
split, all conditions do (`row_groups.py`).
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import CorruptTable, NotFound, Unsupported
from lakecore.format.binary_row import decode_rows
from lakecore.format.index_files import decode_vectors
from lakecore.io.cache import Cache
from lakecore.io.files.data_files import BatchSize, read_positions, row_group_bounds
from lakecore.io.files.file_checks import check_file, identity_of
from lakecore.merge import chooses_value
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import Slice
from lakecore.model.arrow_arrays import CODED, with_texts
from lakecore.model.files import DataFile, FileSource, Split, VectorRange
from lakecore.model.line_format import line_format
from lakecore.model.row_mask import RowMask
from lakecore.model.rows import KIND_FIELD, ROW_ID, SEQUENCE_FIELD, SEQUENCE_NUMBER
from lakecore.model.types import Field, arrow_type
from lakecore.options import LINE_FORMATS
from lakecore.plan.predicate import columns_of, condition_on
from lakecore.rows.evolution import ColumnMapping, conform_batch, map_fields, stored_fields
from lakecore.rows.line_texts import from_texts, text_fields
from lakecore.rows.utf8 import invalid_rows, is_utf8, text_of, with_utf8
from lakecore.table.file_reader.late_casts import (
    NO_LATE_CASTS,
    UNREAD,
    LateCasts,
    flagged,
    keys_wanted,
    late_casts,
    may_be_unread,
    naming_files,
    with_flags,
)
from lakecore.table.file_reader.read_plan import ReadPlan, unexpired
from lakecore.table.file_reader.row_groups import (
    KeyGroup,
    Places,
    key_groups,
    matching_row_groups,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from lakecore.io.stores.store import Store
    from lakecore.lsm.levels import SortedRun
    from lakecore.model.schema import TableSchema


# --- vector masks --------------------------------------------------------------------------------
# The rows that deletion vectors leave; masks from local index files are cached.

_KNOWN: Cache[tuple[object, ...], RowMask] = Cache(1)


def vector_masks(splits: Iterable[Split], plan: ReadPlan, store: Store) -> dict[str, RowMask]:
    """For each file with a deletion vector, by name, the rows that the vector does not mark.

    An index file is read once, and only for vectors that are not cached, or if it has changed.
    Raises CorruptTable if an index file is missing or damaged.
    """
    held: dict[str, list[tuple[DataFile, VectorRange]]] = defaultdict(list)
    for split in splits:
        for file in split.files if split.vectors else ():
            if file.name in split.vectors:
                index_file, where = split.vectors[file.name]
                path = plan.layout.live_index_file(split.partition_path, split.bucket, index_file)
                held[path].append((file, where))
    found: dict[str, RowMask] = {}
    for path, parts in held.items():
        with missing_is_corrupt(path):
            found |= _masks_of(store, path, parts)
    return found


def _masks_of(
    store: Store, path: str, parts: Iterable[tuple[DataFile, VectorRange]]
) -> Iterator[tuple[str, RowMask]]:
    identity, data = identity_of(store, path), None
    for file, where in parts:
        key = (identity, where.offset, where.length, file.name, file.row_count)
        mask = None if identity is None else _KNOWN.get(key)
        if mask is None:
            data = store.read(path) if data is None else data
            deleted = decode_vectors(data, [where], path, file.row_count)[file.name]
            mask = RowMask.at(deleted, file.row_count, returned=False)
            if identity is not None:
                _KNOWN.put(key, mask, len(mask.bits))
        yield file.name, mask


# --- known values --------------------------------------------------------------------------------
# Values that all rows of a file share, so that the file need not hold them.


def known_values(
    split: Split, file: DataFile, schema: TableSchema, fields: Sequence[Field]
) -> dict[str, pa.Scalar]:
    """The values that all rows of a file share: partition keys, and nulls for missing columns.

    A migrated file may lack columns.

    `schema` is the schema of the file, and `fields` are columns of it.
    """
    known: dict[str, pa.Scalar] = {}
    if not file.sequence_max:
        known = {f.name: pa.scalar(None, arrow_type(f.type)) for f in fields if f.nullable}
    return known | partition_values(split, schema, fields)


def partition_values(
    split: Split, schema: TableSchema, fields: Sequence[Field]
) -> dict[str, pa.Scalar]:
    """For each column of `fields` that is a partition key, its value in the partition."""
    names = [field.name for field in fields if field.name in schema.partition_keys]
    if not names:
        return {}
    row = decode_rows([split.partition], schema.partition_fields)
    return {name: row.column(name)[0] for name in names}


# --- tracking ------------------------------------------------------------------------------------
# The row ids and sequence numbers of rows in a table with row tracking.
#
# https://paimon.apache.org/docs/master/append-table/row-tracking/
#
# A rewritten file holds both as columns. If a file lacks these columns, or a value is null, the
# manifest determines the value: a row id is the first row id of the file plus the position of the
# row, and the sequence number is the largest of the file.


def with_tracking(batch: pa.RecordBatch, file: DataFile, position: int) -> pa.RecordBatch:
    """The batch with row ids and sequence numbers filled in; its first row is at `position`.

    Raises CorruptTable if a row has no id.
    """
    for name in (ROW_ID, SEQUENCE_NUMBER):
        at = batch.schema.get_field_index(name)
        if at < 0 or not batch.column(at).null_count:
            continue
        values = pc.coalesce(batch.column(at), _of_manifest(name, file, position, batch.num_rows))
        batch = batch.set_column(at, batch.schema.field(at), values)
    return batch


def _of_manifest(name: str, file: DataFile, position: int, count: int) -> pa.Array:
    if name == SEQUENCE_NUMBER:
        return pa.repeat(pa.scalar(file.sequence_max, pa.int64()), count)
    if file.first_row_id is None:
        raise CorruptTable("rows of a file have no ids", file=file.name)
    first = file.first_row_id + position
    return pa.array(np.arange(first, first + count, dtype=np.int64))


# --- snapshot numbers ----------------------------------------------------------------------------
# `sequence.snapshot-ordering`: the sequence number of a row is the id of its snapshot.
#
# The commit puts its snapshot id into the manifest entries of the files that writers added, and of
# the files with which a compaction moves postponed rows to real buckets. The sequence numbers in
# these files were assigned earlier and are ignored. Any other compaction stores the snapshot ids of
# its rows in its files (https://paimon.apache.org/docs/master/primary-key-table/sequence-rowkind/).
#
# INVARIANT: a merge never uses the sequence numbers that a writer's file stores.


def numbered_by_snapshot(rows: pa.RecordBatch, file: DataFile) -> pa.RecordBatch:
    """The rows of a file; those of a writer's file get the snapshot id as sequence number.

    Raises Unsupported for a file that does not state whether a write or a compaction made it.
    """
    at = rows.schema.get_field_index(SEQUENCE_NUMBER)
    if file.file_source is None:
        raise Unsupported(
            "a file of a table with sequence.snapshot-ordering does not say what wrote it",
            file=file.name,
        )
    if at < 0 or file.file_source is not FileSource.APPEND:
        return rows
    numbers = pa.repeat(pa.scalar(file.sequence_min, pa.int64()), rows.num_rows)
    return rows.set_column(at, rows.schema.field(at), numbers)


# --- split files ---------------------------------------------------------------------------------

FileRows: TypeAlias = "tuple[np.ndarray | range, pa.RecordBatch]"
"""The position of each row in its file, and the rows."""


@dataclass(frozen=True, slots=True)
class FileSteps:
    """What happens to each batch of the stored columns of a file, which `mappings` state.

    1. Each function of `each` gets the position of the first row, and keeps every row: types,
       packed casts, sequence numbers, row ids, places.
    2. `mask` drops rows.
    3. The functions of `last` may drop rows that no reader wants: late casts, places.
    """

    mappings: Sequence[ColumnMapping]
    each: Sequence[Callable[[pa.RecordBatch, int], pa.RecordBatch]]
    mask: RowMask | None
    last: Sequence[Callable[[pa.RecordBatch], pa.RecordBatch]]

    def __call__(self, batch: pa.RecordBatch, position: int) -> FileRows:
        """The rows of a stored batch whose first row is at this position."""
        for step in self.each:
            batch = step(batch, position)
        positions: np.ndarray | range = range(position, position + batch.num_rows)
        if self.mask is not None:
            positions, batch = self.mask.filter(batch, position)
        for step_of_rest in self.last:
            batch = step_of_rest(batch)
        return positions[: batch.num_rows], batch


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """The files of a split, read according to a plan.

    - `places`: the columns returned as places;
    - `late`: the columns also returned as stored, to be cast later;
    - `coded`: string columns returned dictionary-encoded; no file needs a cast of them.
    """

    split: Split
    plan: ReadPlan
    store: Store
    places: Places | None = None
    late: LateCasts = NO_LATE_CASTS
    coded: frozenset[str] = frozenset()
    _masks: dict[str, RowMask] = field(default_factory=dict, compare=False)

    def path(self, file: DataFile) -> str:
        return self.plan.layout.data_file(self.split.partition_path, self.split.bucket, file)

    @property
    def are_local(self) -> bool:
        """Whether all files are on local disks."""
        return all(self.store.local_path(self.path(file)) for file in self.split.files)

    def rows(
        self, file: DataFile, fields: Sequence[Field], size: BatchSize
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file as columns `fields`; values of old schemas are cast.

        Rows that the file's deletion vector marks are dropped. Raises CorruptTable if the file is
        missing or damaged.
        """
        for _, batch in self.rows_at(file, fields, size):
            yield batch
            del batch

    def rows_at(
        self, file: DataFile, fields: Sequence[Field], size: BatchSize
    ) -> Generator[FileRows, None, None]:
        """The batches of `rows`, each with the position of each row in the file."""
        return self._read(file, self._steps(file, fields), size)

    def check(self) -> None:
        """Raise CorruptTable if a local file, or its deletion vector, is visibly damaged.

        Remote files are not checked: each would be fetched twice.
        """
        plan = self.plan
        for file in self.split.files:
            if self.store.local_path(self.path(file)) is None:
                continue
            path, schema = self.path(file), plan.schemas[file.schema_id]
            # Files may lack partition columns; files migrated from Hive may lack others too.
            names = [name for name in schema.names if name not in schema.partition_keys]
            if file.write_columns is not None or not file.sequence_max:
                names = []
            with missing_is_corrupt(path):
                check_size(self.store, path, file)
                check_file(self.store, path, file.row_count, names, plan.checks)
            self.mask(file)

    def slices(self, run: SortedRun, fields: Sequence[Field], size: BatchSize) -> Iterator[Slice]:
        """The rows of a sorted run, as slices to be merged; see `slices_of`."""
        left = sum(file.row_count for file in run.files)
        expiry = self.plan.expiry
        all_come = self.plan.predicate is None and not self.split.vectors and expiry is None
        for file in run.files:
            left_below = left - file.row_count
            rows = self.rows(file, fields, size)
            rows = rows if expiry is None else unexpired(expiry, rows)
            for part in self.slices_of(file, rows):
                left -= part.keys.length
                yield replace(part, more=left > 0 if all_come else None)
                # Free this part before the next one is read: a row may be large.
                del part
            left = left_below

    def slices_of(self, file: DataFile, batches: Iterable[pa.RecordBatch]) -> Iterator[Slice]:
        """Rows of a file, in their order, to be merged.

        Raises CorruptTable if the first key column is out of order: rows would be missed or
        returned twice. Float keys are not checked: engines disagree on how to sort -0.0 and NaN.
        """
        key = self.plan.merge.key
        looked_at = not pa.types.is_floating(arrow_type(self.plan.schema.field(key[0]).type))
        before: pa.Array | None = None
        for batch in batches:
            if self.plan.options.sequence_snapshot_ordering:
                batch = numbered_by_snapshot(batch, file)  # noqa: PLW2901
            if looked_at and batch.num_rows:
                before = _last_in_order(batch.column(key[0]), before, self.path(file))
            keys = order_columns([batch.column(name) for name in key])
            yield Slice(
                rows=pa.Table.from_batches([batch]),
                keys=keys,
                sequence_min=file.sequence_min,
                sequence_max=file.sequence_max,
                commit_order=self.split.commit_order.get(file.name, 0),
                level=file.level,
            )
            del batch, keys

    def stored_rows(
        self,
        file: DataFile,
        fields: Sequence[Field],
        size: BatchSize,
        *,
        row_groups: Iterable[int] | None = None,
    ) -> Generator[tuple[int, pa.RecordBatch], None, None]:
        """The batches of `rows`, including deleted rows, each with the position of its first row.

        `row_groups` are the row groups to read; None: all that the plan's predicate leaves.
        Raises CorruptTable if the row count differs from the manifest's.
        """
        steps = self._steps(file, fields, all_rows=True)
        for positions, batch in self._read(file, steps, size, row_groups):
            assert isinstance(positions, range), "no row is dropped"
            yield positions.start, batch
            del batch

    def wanted_row_groups(self, file: DataFile) -> list[int] | None:
        """The row groups that remain after pruning by the plan's predicate; None: all.

        Row groups without a selected row are left out, too.
        """
        matching = self._matching_row_groups(file)
        mask = self.mask(file) if file.name in self.split.selected else None
        starts = None if mask is None else self.row_group_starts(file)
        if mask is None or starts is None:
            return matching
        ends = [*starts[1:], file.row_count]
        numbers = range(len(starts)) if matching is None else matching
        return [number for number in numbers if mask.has_any(starts[number], ends[number])]

    def key_groups(self, file: DataFile) -> tuple[KeyGroup, ...]:
        """The row groups of a file with the bounds of their keys, or the file as one group."""
        fields = [self.plan.schema.field(name) for name in self.plan.merge.key]
        mappings = map_fields(fields, self.plan.schemas[file.schema_id].fields)
        path = self.path(file)
        with missing_is_corrupt(path):
            return key_groups(self.store, path, file, {each.read.name: each for each in mappings})

    def _matching_row_groups(self, file: DataFile) -> list[int] | None:
        plan = self.plan
        if plan.predicate is None:
            return None
        names = plan.schema.names if self.split.raw else plan.merge.key
        # The statistics of references say nothing about the values.
        names = tuple(name for name in names if name not in plan.follows)
        condition = condition_on(plan.predicate, names)
        if condition is None:
            return None
        fields = [plan.schema.field(name) for name in sorted(columns_of(condition))]
        own = file.columns_of(plan.schemas[file.schema_id])
        columns = {mapping.read.name: mapping for mapping in map_fields(fields, own)}
        return matching_row_groups(self.store, self.path(file), condition, columns)

    def row_group_starts(self, file: DataFile) -> list[int] | None:
        """The positions at which the row groups of a file begin; None if it has none."""
        path = self.path(file)
        with missing_is_corrupt(path):
            groups = row_group_bounds(self.store, path, ())
        return None if groups is None else [group.first_row for group in groups]

    def _steps(
        self, file: DataFile, fields: Sequence[Field], *, all_rows: bool = False
    ) -> FileSteps:
        """How a file is read. With `all_rows`, no row is dropped, and nothing is cast late."""
        plan, places = self.plan, self.places
        schema = plan.schemas[file.schema_id]
        known: Mapping[str, bool] = {}
        if places is not None:
            held = map_fields(fields, (*schema.fields, SEQUENCE_FIELD, KIND_FIELD))
            known = places.known_nulls(file, schema, held)
        mask = None if all_rows else self.mask(file)
        at_once = all_rows or self.late or UNREAD in fields
        own = NO_LATE_CASTS if at_once else self._late(file, fields, known, mask)
        late = own or self.late
        read = [field for field in (*fields, *own.fields) if field.name not in known]
        mappings = late.map_fields(read, _stored_columns(file, schema, plan))
        if places is not None:
            mappings = places.uncast(mappings)
        names = {field.name for field in read}
        each: list[Callable[[pa.RecordBatch, int], pa.RecordBatch]] = [
            lambda batch, _: self._typed(batch, mappings, file)
        ]
        if late.packed:
            each.append(lambda batch, _: late.pack(batch))
        if plan.options.sequence_snapshot_ordering:
            each.append(lambda batch, _: numbered_by_snapshot(batch, file))
        if names & {ROW_ID, SEQUENCE_NUMBER}:
            each.append(lambda batch, position: with_tracking(batch, file, position))
        if places is not None:
            each.append(lambda batch, position: places.number(batch, file, position))
        last: list[Callable[[pa.RecordBatch], pa.RecordBatch]] = []
        if own:
            last.append(own.cast_batch)
        if places is not None:
            last.append(lambda batch: places.put_into(batch, fields, known))
        return FileSteps(mappings, each, mask, last)

    def _late(
        self,
        file: DataFile,
        fields: Sequence[Field],
        known: Mapping[str, bool],
        mask: RowMask | None,
    ) -> LateCasts:
        """The casts of a file that wait until rows are dropped: none if no row is dropped."""
        wanted = keys_wanted(fields, self.plan)
        # Before a merge, no row is hidden: an older row would reappear.
        row_filter = self.plan.row_filter if self.split.raw else None
        if mask is None and wanted is None and row_filter is None:
            return NO_LATE_CASTS
        read = [
            field
            for field in fields
            if field.name not in known
            and not (self.places is not None and self.places.asks_for_nulls(field))
        ]
        late = late_casts([file], read, self.plan.schemas)
        return replace(late, wanted=wanted, row_filter=row_filter)

    def _read(
        self,
        file: DataFile,
        steps: FileSteps,
        size: BatchSize,
        row_groups: Iterable[int] | None = None,
    ) -> Generator[FileRows, None, None]:
        path, seen = self.path(file), 0
        with missing_is_corrupt(path):
            if not file.sequence_max and self.store.local_path(path) is not None:
                # A migrated file may lack columns, so its columns do not show that it is the right
                # file. Remote files are not checked: that would cost one more request.
                check_size(self.store, path, file)
            if row_groups is None:
                row_groups = self.wanted_row_groups(file)
            for position, batch in self._decoded(file, steps.mappings, size, row_groups):
                seen = position + batch.num_rows
                if seen > file.row_count:
                    raise _other_rows(path, seen, file)
                yield steps(batch, position)
                del batch
            if row_groups is None and seen < file.row_count:
                raise _other_rows(path, seen, file)

    def _decoded(
        self,
        file: DataFile,
        mappings: Sequence[ColumnMapping],
        size: BatchSize,
        row_groups: Iterable[int] | None,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches of the stored columns, with the position of their first row: `read_positions`."""
        fields, path = stored_fields(mappings), self.path(file)
        if file.format in LINE_FORMATS:
            return self._lines(file, fields, size)
        return read_positions(
            self.store,
            path,
            fields=fields,
            batch_rows=size.rows,
            batch_bytes=size.size_bytes,
            few=size.few,
            row_groups=row_groups,
            checks=self.plan.checks,
            known=known_values(self.split, file, self.plan.schemas[file.schema_id], fields),
            coded=frozenset(
                mapping.stored.name
                for mapping in mappings
                if mapping.read.name in self.coded and mapping.stored is not None
            ),
        )

    def _lines(
        self, file: DataFile, fields: Sequence[Field], size: BatchSize
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of a file of lines (CSV, JSON, text). Raises Unsupported if the table has a key.

        In a table with a key, Java reads the columns of such files by position, and gets other
        values than it wrote.
        """
        plan, path = self.plan, self.path(file)
        if plan.schema.primary_keys:
            raise Unsupported(
                "files of lines are read in tables without a primary key",
                format=file.format,
                path=path,
            )
        names = file.write_columns or plan.schemas[file.schema_id].names
        lines = line_format(file.format, names, plan.options)
        assert lines is not None, "a file of lines"
        texts = text_fields(fields, lines.kind) if fields else ()
        for position, batch in read_positions(
            self.store,
            path,
            fields=texts,
            batch_rows=size.rows,
            batch_bytes=size.size_bytes,
            lines=lines,
        ):
            yield position, from_texts(batch, fields, path) if fields else batch
            del batch

    def _typed(
        self, batch: pa.RecordBatch, mappings: Sequence[ColumnMapping], file: DataFile
    ) -> pa.RecordBatch:
        """The stored columns of a batch as the columns that are read."""
        with naming_files((file.name,)):
            flags = any(each.read == UNREAD for each in mappings)
            rows, unread = self._readable(batch, mappings, file, flags=flags)
            if not flags:
                return conform_batch(rows, mappings)
            return with_flags(pa.concat_batches([*flagged(rows, mappings)]), unread)

    def _readable(
        self,
        batch: pa.RecordBatch,
        mappings: Sequence[ColumnMapping],
        file: DataFile,
        *,
        flags: bool,
    ) -> tuple[pa.RecordBatch, Sequence[int]]:
        """The batch with invalid UTF-8 replaced. Raises Unsupported if the merge uses such a value.

        Java compares the bytes of strings, and different invalid bytes have the same replacement.
        With `flags`, such a value becomes null instead, and the places of these rows are returned.
        """
        unread: list[int] = []
        for mapping in mappings:
            if mapping.stored is None:
                continue
            at = batch.schema.get_field_index(mapping.stored.name)
            column = batch.column(at)
            if column.type == CODED:
                if not is_utf8(column.dictionary):
                    shown = with_texts(column, with_utf8)
                    batch = batch.set_column(at, batch.schema.field(at), shown)
                continue
            text = text_of(column, mapping.stored.type, mapping.read.type)
            if text is None or is_utf8(text):
                continue
            name = mapping.read.name
            if flags and may_be_unread(name, self.plan):
                places = invalid_rows(text)
                unread += places
                bad = np.isin(np.arange(len(text)), places)
                shown = pc.if_else(pa.array(bad), pa.scalar(None, column.type), column)
                batch = batch.set_column(at, batch.schema.field(at), shown)
                continue
            if not chooses_value(self.plan.merge, name):
                raise Unsupported(
                    "a string that is not valid UTF-8 cannot be compared or aggregated",
                    column=name,
                    path=self.path(file),
                )
            if text is column:
                batch = batch.set_column(at, batch.schema.field(at), with_utf8(text))
        return batch, unread

    def mask(self, file: DataFile) -> RowMask | None:
        """The rows that deletion vectors and file indexes leave; None: all rows."""
        split, masks = self.split, self._masks
        if not masks and (split.vectors or split.selected):
            found = vector_masks([split], self.plan, self.store)
            for each in split.files if split.selected else ():
                if each.name in split.selected:
                    rows = np.array(split.selected[each.name], np.int64)
                    mask = RowMask.at(rows, each.row_count, returned=True)
                    found[each.name] = mask & found.get(each.name, mask)
            masks.update(found)
        return masks.get(file.name)


def _stored_columns(file: DataFile, schema: TableSchema, plan: ReadPlan) -> tuple[Field, ...]:
    added = (SEQUENCE_FIELD, KIND_FIELD) if plan.schema.primary_keys else ()
    # A file that holds only some columns lacks the partition columns.
    parts = schema.partition_fields if file.write_columns is not None else ()
    return tuple(dict.fromkeys((*file.columns_of(schema), *added, *parts)))


def _last_in_order(column: pa.Array, before: pa.Array | None, path: str) -> pa.Array:
    """Check that the values ascend and follow `before`. Returns a copy of the last value."""
    falls = [pc.less(column[1:], column[:-1])]
    if before is not None:
        falls.append(pc.less(column[:1], before))
    if any(pc.any(fall).as_py() for fall in falls):
        raise out_of_order(path)
    return column.take(pa.array([len(column) - 1]))


def out_of_order(path: str) -> CorruptTable:
    """The error for a file or run whose keys are out of order."""
    return CorruptTable("the keys of a data file are out of order", path=path)


def check_size(store: Store, path: str, file: DataFile) -> None:
    """Raise CorruptTable if the size of a data file differs from the manifest's."""
    with missing_is_corrupt(path):
        size_bytes = store.size(path)
    if size_bytes != file.size_bytes:
        raise CorruptTable(
            "the size of a data file differs from the manifest",
            path=path,
            size_bytes=size_bytes,
            expected_bytes=file.size_bytes,
        )


def _other_rows(path: str, seen: int, file: DataFile) -> CorruptTable:
    few = seen < file.row_count
    return CorruptTable(
        f"a data file has {'fewer' if few else 'more'} rows than the manifest says",
        path=path,
        rows=seen if few else f"{seen} or more",
        expected=file.row_count,
    )


@contextmanager
def missing_is_corrupt(path: str) -> Iterator[None]:
    """Translate NotFound of this file into CorruptTable: a snapshot names the file."""
    try:
        yield
    except NotFound as error:
        raise CorruptTable(
            "a file of the snapshot is missing; the snapshot may have expired since", file=path
        ) from error
