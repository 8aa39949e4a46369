"""Carries out the compaction plan of a bucket. Returns the files as a CommitMessage.

Sections are merged window by window, as in a read, but in key order and with sequence numbers and
kinds. The result is written to files of the output level. Nothing is visible before the commit. If
a compaction fails, its files are removed.

In a table with look-ups, rows of level 0 are merged with the rows of their keys above the output
level, so the lowest level above 0 holds the current row of a key. A changelog is written together
with the files: with `lookup`, for keys with a row in level 0; with `full-compaction`, for rows that
reach the last level. A file that only changes its level is then read for the changelog, but not
rewritten, unless the merge could change its rows: see `must_rewrite`.

With deletion vectors, rows above the output that are no longer the newest are marked.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from lakecore.errors import LakecoreError
from lakecore.frames.source import reading
from lakecore.io.files.data_files import BatchSize
from lakecore.io.files.file_format import Checks
from lakecore.io.freed_memory import release_all_freed, release_freed, reused_memory
from lakecore.lsm.levels import SortedRun
from lakecore.lsm.universal import Rewrite, Section
from lakecore.memory import Share
from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge.changelog import (
    ChangedKeys,
    Equal,
    changed_keys,
    changelog_rows,
    equal_rows,
    equal_values,
)
from lakecore.merge.keys import NONE, order_columns
from lakecore.merge.spec import column_of, filter_rows, of_kinds
from lakecore.model.arrow_arrays import size_of
from lakecore.model.files import CommitMessage, DataFile, FileSource, Split, Vectors
from lakecore.model.rows import KIND_FIELD, LAYER, RETRACTS
from lakecore.options import ChangelogProducer, MergeEngine
from lakecore.plan.pruning import matches_exactly
from lakecore.plan.splits import may_hold_deletions
from lakecore.table.compactions.compact_plan import BucketCompaction, with_older_runs
from lakecore.table.compactions.lookup import LookupPlan, UpperLevels
from lakecore.table.file_reader.late_casts import NO_LATE_CASTS, LateCasts, casts_after_merge
from lakecore.table.file_reader.split_files import SplitFiles
from lakecore.table.reads.source import TableSource
from lakecore.table.run_writer.file_shape import changelog_shape, data_shape, new_place
from lakecore.table.run_writer.rolling_writer import RollingWriter
from lakecore.table.sections.large_rows import Values, places_of
from lakecore.table.sections.merge_runs import Merging, coded_columns, merge_runs
from lakecore.table.sections.windows import batch_size, merge_fields, windows_with
from lakecore.table.vectors import BucketVectors, VectorFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from lakecore.merge.spec import MergeFunction, MergeSpec, Slice
    from lakecore.model.types import Field
    from lakecore.table.context import TableContext
    from lakecore.table.file_reader.read_plan import ReadPlan


# --- compact merge -------------------------------------------------------------------------------
# How a compaction merges if it must look up older rows or write a changelog.
#
# `CompactionMerge` wraps the merge function of the table's engine. For each window:
#
# 1. Keys that have a row in level 0 but none in a level above it are looked up in the levels above
#    the output (`lookup.py`). The rows found are merged with the others. In a first-row table, the
#    rows of a key that is found are dropped. With deletion vectors, the rows found are marked.
# 2. The engine merges. Tombstones stay in the result until the changelog is written.
# 3. The rows of the changelog (`merge/changelog.py`) are written, and the merged rows are returned.
#
# A key with a single row keeps that row unchanged, and the changelog holds the same row. (In
# Paimon, a lookup changelog contains the merge function's result, which is not what a read returns;
# see docs/decisions.) With deletion vectors, reads do not merge. Therefore, if the file is
# rewritten, the merge functions are also applied to single rows: in an aggregation, a -U of a new
# key adds a row.

EXTRA_BATCHES = 6
"""Batches in memory besides the batches of the runs: looked-up rows, changes, sort order."""


class Changes(Protocol):
    """A writer of changelog rows."""

    def write(self, rows: pa.Table, /) -> None:
        """Append rows."""


@dataclass(slots=True, kw_only=True)
class CompactionMerge:
    """The merge function of a compaction.

    - `upper`: the levels above the output; None if there are none or no look-up is needed;
    - `only_marks`: rows of the upper levels cannot change the result, and are only marked in
      deletion vectors;
    - `folds_single`: see `MergeSpec`;
    - `changelog`: the writer of changes; None if there is no changelog;
    - `before_level`: set for a full-compaction changelog, which compares with this level;
    - `compared`, `equal`: see `changelog_rows`;
    - `late`: casts that are applied to rows before they are compared or written.
    """

    chooses_rows: ClassVar = False
    engine: MergeFunction
    upper: UpperLevels | None
    only_marks: bool
    folds_single: bool
    changelog: Changes | None
    before_level: int | None
    compared: Sequence[str] | None
    first_row: bool
    equal: Equal = equal_rows
    late: LateCasts = NO_LATE_CASTS

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        known: np.ndarray | None = None
        keys = changed_keys(window, spec, self.before_level)
        new = keys.without_before
        if self.upper is not None and len(new):
            wanted = order_columns([column_of(window, name, keys.first[new]) for name in spec.key])
            if self.only_marks:
                self.upper.mark(wanted)
            elif self.first_row:
                known = np.zeros(keys.count, bool)
                known[new] = self.upper.known(wanted)
            else:
                found = self.upper.rows(wanted)
                if found:
                    window = [*window, *found]
                    keys = changed_keys(window, spec, self.before_level)
        done = 0
        kept = replace(spec, keep_deletions=True, folds_single=self.folds_single)
        for merged in self.engine(window, kept):
            piece = slice(done, done + merged.num_rows)
            done = piece.stop
            self._write_changes(window, keys, known, piece, merged)
            keep = np.ones(merged.num_rows, bool)
            if known is not None:
                keep &= ~known[piece]
            deletions = None if spec.keep_deletions else of_kinds(merged, RETRACTS)
            if deletions is not None:
                keep &= ~deletions
            yield filter_rows(merged, keep)
        assert done == keys.count, "every key of the window was merged to one row"

    def _write_changes(
        self,
        window: Sequence[Slice],
        keys: ChangedKeys,
        known: np.ndarray | None,
        piece: slice,
        merged: pa.Table,
    ) -> None:
        if self.changelog is None:
            return
        changed, before = keys.changed[piece], keys.before[piece]
        if self.first_row:
            # First-row: existing rows stay, and keys found in upper levels were reported before.
            changed = changed & (before == NONE)
            changed = changed if known is None else changed & ~known[piece]
            self.changelog.write(self.late.cast(filter_rows(merged, changed)))
            return
        if not changed.any():
            return
        before = before[changed]
        held = before != NONE
        at = np.where(held, np.cumsum(held) - 1, NONE)
        rows = _all_rows(window).take(pa.array(before[held]))
        after = filter_rows(merged, changed)
        changes = changelog_rows(rows, after, at, self.compared, self._equal)
        self.changelog.write(self.late.cast(changes))

    def _equal(self, left: pa.Table, right: pa.Table, columns: Sequence[str]) -> np.ndarray:
        cast = self.late.cast
        return self.equal(cast(left), cast(right), columns)


class OlderRowsNeeded(Exception):
    """Raised for rows that cannot be folded without the older rows of their key."""


@dataclass(frozen=True, slots=True)
class WholeFold:
    """A merge function that raises OlderRowsNeeded if `engine` keeps rows of a key apart."""

    chooses_rows: ClassVar = False
    engine: MergeFunction

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        for merged in self.engine(window, spec):
            if LAYER in merged.schema.names:
                raise OlderRowsNeeded
            yield merged


def _all_rows(window: Sequence[Slice]) -> pa.Table:
    return pa.concat_tables([part.rows for part in window])


# --- marking -------------------------------------------------------------------------------------
# Deletion vectors in the compaction of a bucket of a primary-key table.
#
# 1. Rows that are already marked are neither read nor found by a look-up.
# 2. The rows that a look-up finds above the output are marked, because the compaction writes newer
#    rows of their keys. Each key then has at most one unmarked row above level 0.
# 3. The new index file of the bucket has the marks, without the vectors of rewritten files.

_KEY_ROWS = 131_072


class Marking:
    """The deletion vectors of a bucket that is compacted."""

    def __init__(self, context: TableContext, compaction: BucketCompaction) -> None:
        self._compaction = compaction
        self._vectors = BucketVectors.with_vectors(
            context, compaction.partition, compaction.bucket, compaction.vectors
        )
        self.marks: dict[str, list[np.ndarray]] | None = None
        if context.options.deletion_vectors_enabled:
            self.marks = {}

    def of(self, runs: Sequence[Sequence[DataFile]]) -> Vectors:
        """The deletion vectors of these files, by file name."""
        vectors = self._compaction.vectors
        names = [file.name for run in runs for file in run] if vectors else []
        return {name: vectors[name] for name in names if name in vectors}

    @property
    def read(self) -> tuple[tuple[str, str | None], ...] | None:
        """For `CommitMessage.vectors_read`: the files above level 0, each with its index file.

        None without deletion vectors.
        """
        if self.marks is None and not self._vectors.files:
            return None
        files = (*self._compaction.files, *self._compaction.others)
        return self._vectors.index_of(file.name for file in files if file.level > 0)

    def write(self, gone: Collection[str]) -> VectorFiles:
        """Write the new index file if a vector has changed; drops the vectors of `gone` files."""
        self._vectors.drop(gone)
        for name, parts in (self.marks or {}).items():
            self._vectors.mark(name, np.concatenate(parts))
        return self._vectors.write()

    def abort(self) -> None:
        """Remove the index file that was written; if it cannot be removed, it is an orphan."""
        self._vectors.abort()


def mark_keys(
    files: SplitFiles, file: DataFile, upper: UpperLevels, rows_done: Callable[[int], None]
) -> None:
    """Mark the rows of the upper levels whose keys are in this file of level 0."""
    plan = files.plan
    fields = [plan.schema.field(name) for name in plan.merge.key]
    with reading(files.rows(file, fields, BatchSize(_KEY_ROWS))) as batches:
        for batch in batches:
            upper.mark(order_columns(batch.columns))
            rows_done(batch.num_rows)


# --- placed changes ------------------------------------------------------------------------------
# Changelogs and comparison of large rows, which are merged by their positions.


@dataclass(slots=True)
class PlacedChanges:
    """A changelog writer for rows that are merged by position; it reads the values row by row.

    `before` and `after` read the rows before and after a change, each in ascending order.
    """

    writer: RollingWriter
    before: Values
    after: Values

    def write(self, rows: pa.Table) -> None:
        taken = of_kinds(rows, RETRACTS)
        for at in range(rows.num_rows):
            values = self.after if taken is None or not taken[at] else self.before
            for row in values.rows(rows.slice(at, 1)):
                self.writer.write(row)
                del row


@dataclass(slots=True)
class EqualPlaces:
    """Compares rows that are merged by position; reads values only if the positions differ."""

    before: Values
    after: Values

    def __call__(self, left: pa.Table, right: pa.Table, columns: Sequence[str]) -> np.ndarray:
        """A mask of the row indexes at which both tables have equal values; see `equal_rows`."""
        placed = [field for field in self.before.placed if field.name in columns]
        names = {field.name for field in placed}
        same = equal_rows(left, right, [name for name in columns if name not in names])
        for at in np.flatnonzero(same).tolist():
            one, other = left.slice(at, 1), right.slice(at, 1)
            same[at] = all(self._are_equal(one, other, field) for field in placed)
        return same

    def _are_equal(self, one: pa.Table, other: pa.Table, field: Field) -> bool:
        left, right = (rows.column(field.name)[0].as_py() for rows in (one, other))
        if left is None or right is None or left == right:
            return bool(left == right)
        was, became = self.before.value(left, field), self.after.value(right, field)
        equal = bool(equal_values(was, became)[0])
        del was, became
        release_all_freed()
        return equal


# --- compact bucket ------------------------------------------------------------------------------

_KIND_ROWS = 262_144
_LOOKUP_LEAST_BYTES = 8 << 20
_LOOKUP_BATCHES = 8
"""Batches held for a level: keys, rows, the encoded form of each, and the rows taken."""

RowsDone: TypeAlias = "Callable[[int], None]"
"""Is called with the number of rows read since the last call."""


def compact_bucket(
    context: TableContext, compaction: BucketCompaction, rows_done: RowsDone
) -> CommitMessage:
    """Write the compacted files of a bucket and return the message. A failure removes the files."""
    left = compaction.row_count

    def up_to_plan(rows: int) -> None:
        nonlocal left
        rows_done(min(rows, left))
        left -= min(rows, left)

    try:
        return _compact(context, compaction, rows_done=up_to_plan)
    except OlderRowsNeeded:
        return _compact(context, with_older_runs(context, compaction), rows_done=up_to_plan)


def _compact(
    context: TableContext, compaction: BucketCompaction, rows_done: RowsDone
) -> CommitMessage:
    rewriter = _Rewriter(context, compaction, rows_done)
    before: list[DataFile] = []
    after: list[DataFile] = []
    try:
        with reused_memory(context.budget.size_bytes), closing(rewriter):
            for step in compaction.steps:
                if isinstance(step, Rewrite):
                    before += step.files
                    after += rewriter.rewrite(step.sections)
                elif rewriter.must_rewrite(step.file):
                    before.append(step.file)
                    after += rewriter.rewrite([rewriter.alone(step.file)])
                else:
                    before.append(step.file)
                    after.append(replace(step.file, level=compaction.level))
                    rewriter.move(step.file)
            changelog = rewriter.changelog_files()
            kept = {file.name for file in after}
            vectors = rewriter.marking.write({file.name for file in before} - kept)
    except BaseException:
        rewriter.abort()
        raise
    return CommitMessage(
        partition=compaction.partition,
        bucket=compaction.bucket,
        total_buckets=compaction.total_buckets,
        compact_before=tuple(before),
        compact_after=tuple(after),
        compact_changelog_files=changelog,
        compact_index_files=vectors.added,
        compact_deleted_index_files=vectors.deleted,
        vectors_read=rewriter.marking.read,
        compact_unchanged=rewriter.unchanged,
        compact_schema_id=context.schema.id,
        base_snapshot_id=compaction.base_snapshot_id,
    )


class _Rewriter:
    def __init__(
        self, context: TableContext, compaction: BucketCompaction, rows_done: RowsDone
    ) -> None:
        self._context = context
        self._compaction = compaction
        self._rows_done = rows_done
        self._partition_path = context.partitions.path(compaction.partition)
        self._place = new_place(context, self._partition_path, compaction.bucket)
        schema, options, level = context.schema, context.options, compaction.level
        self._shape = replace(data_shape(schema, options, level), source=FileSource.COMPACT)
        self.marking = Marking(context, compaction)
        self._above = tuple(file for file in compaction.others if file.level > level)
        deepest = max(file.level for file in (*compaction.files, *compaction.others))
        self._to_last = level >= max(options.level_count - 1, deepest)
        # The deepest level is not always the last one: the number of levels may have grown.
        self._before_level = deepest or level
        self._plan = self._read_plan()
        self._fields = merge_fields((), self._plan)
        read = self._split_of(tuple((file,) for file in (*compaction.files, *self._above)))
        large = context.budget.is_large(read.row_bytes)
        self._places = places_of(read, self._fields, self._plan) if large else None
        self._late = NO_LATE_CASTS
        if self._places is None:
            self._late = casts_after_merge(read.files, self._fields, self._plan)
        self._values: list[Values] = []
        self._writers: list[RollingWriter] = []
        self._changelog: RollingWriter | None = None
        producers = {ChangelogProducer.LOOKUP, ChangelogProducer.FULL_COMPACTION}
        if compaction.keeps_changelog and options.changelog_producer in producers:
            self._changelog = RollingWriter(self._place, changelog_shape(schema, options, level))
            self._writers.append(self._changelog)
        wanted = self._shape.encoding_bytes * (1 if self._changelog is None else 2)
        wanted = min(wanted, Share.ENCODING.of(context.budget.size_bytes))
        self._encoding = context.budget.acquire_up_to(wanted, 0)
        self._changes, self._equal = self._changed_rows()
        self._upper: UpperLevels | None = None
        if self._above and options.needs_lookup:
            self._upper = self._upper_levels()

    @property
    def unchanged(self) -> tuple[str, ...] | None:
        """The files above level 0 that the compaction leaves as they are; None without look-ups."""
        if not self._context.options.needs_lookup:
            return None
        return tuple(file.name for file in self._compaction.others if file.level > 0)

    def rewrite(self, sections: Sequence[Section]) -> tuple[DataFile, ...]:
        writer = RollingWriter(self._place, self._shape)
        self._writers.append(writer)
        files = [file for section in sections for run in section for file in run.files]
        merge = self._merge(files, rewrites=True)
        coded = frozenset[str]() if merge is not None else self._coded_columns(files)
        for section in sections:
            self._merge_section(section, merge, writer, coded)
        return writer.close()

    def move(self, file: DataFile) -> None:
        """Write the changelog, and mark older rows, for a file that only changes its level."""
        merge = self._merge([file], rewrites=False)
        if merge is None or (merge.changelog is None and merge.upper is None):
            self._rows_done(file.row_count)
        elif merge.upper is not None and merge.only_marks:
            files = SplitFiles(self._split(self.alone(file)), self._plan, self._context.store)
            mark_keys(files, file, merge.upper, self._rows_done)
        else:
            self._merge_section(self.alone(file), merge, None)

    def must_rewrite(self, file: DataFile) -> bool:
        """Whether a file that could just change its level must be rewritten.

        - It holds tombstones that must be dropped, or does not state their number, which readers of
          higher levels rely on.
        - It is in level 0 of a table with look-ups, and has another format than the output, or its
          rows may be merged with rows above: the engine is not deduplicate, Paimon merges because
          of a sequence field, or a row above may be newer.
        """
        return self._must_merge(file) or self._must_count(file)

    def changelog_files(self) -> tuple[DataFile, ...]:
        """Close the changelog and return its files."""
        return () if self._changelog is None else self._changelog.close()

    def close(self) -> None:
        for values in self._values:
            values.close()
        if self._upper is not None:
            self._upper.close()
        self._encoding.release()

    def _must_merge(self, file: DataFile) -> bool:
        options, level = self._context.options, self._compaction.level
        if not options.needs_lookup or file.level != 0 or level == 0:
            return False
        formats = options.file_format_per_level
        default = options.file_format
        if formats.get(0, default) != formats.get(level, default):
            return True
        if self._to_last:
            return False
        return self._must_meet(file)

    def _must_meet(self, file: DataFile) -> bool:
        """Whether rows in upper levels may change the merge result of a file of level 0."""
        options = self._context.options
        plain = options.merge_engine is MergeEngine.DEDUPLICATE and not options.sequence_field
        newest_above = max((above.sequence_max for above in self._above), default=-1)
        return not plain or newest_above >= file.sequence_min

    def _coded_columns(self, files: Sequence[DataFile]) -> frozenset[str]:
        """The string columns whose dictionary codes are merged instead of their values.

        Empty if the output is not Parquet, if large rows are merged by their places in the files,
        or if a cast waits until after the merge.
        """
        parquet = self._shape.write_format.format == "parquet"
        if self._places is not None or self._late or not parquet:
            return frozenset()
        split = self._split_of(tuple((file,) for file in files))
        return coded_columns(split, self._fields, self._plan, self._context.store)

    def _merge(self, files: Sequence[DataFile], *, rewrites: bool) -> CompactionMerge | None:
        """The merge function for these files; None if they merge as in a read."""
        options = self._context.options
        takes_up = self._compaction.level > 0 and any(file.level == 0 for file in files)
        upper = self._upper if takes_up else None
        full = options.changelog_producer is ChangelogProducer.FULL_COMPACTION
        changelog = self._changes if (self._to_last if full else takes_up) else None
        plain = changelog is None and not any(
            self._must_meet(file) for file in files if file.level == 0
        )
        if plain and not options.deletion_vectors_enabled:
            upper = None
        folds_single = options.folds_rows and options.deletion_vectors_enabled
        folds_single &= rewrites and takes_up
        if upper is None and changelog is None and not folds_single:
            return None
        compared: tuple[str, ...] | None = None
        if options.changelog_producer_row_deduplicate:
            ignored = options.changelog_producer_row_deduplicate_ignore_fields
            names = self._context.schema.names
            compared = tuple(name for name in names if name not in ignored)
        return CompactionMerge(
            engine=MERGE_FUNCTIONS[options.merge_engine],
            upper=upper,
            only_marks=plain,
            folds_single=folds_single,
            changelog=changelog,
            before_level=self._before_level if full and changelog is not None else None,
            compared=compared,
            first_row=options.merge_engine is MergeEngine.FIRST_ROW,
            equal=self._equal,
            late=self._late,
        )

    def _changed_rows(self) -> tuple[Changes | None, Equal]:
        """The changelog writer (None: no changelog), and the function that compares rows.

        If large rows are merged by their positions, both read values row by row.
        """
        changelog, places = self._changelog, self._places
        if changelog is None or places is None:
            return changelog, equal_rows
        store = self._context.store
        self._values = [Values(places, self._fields, self._plan, store) for _ in range(4)]
        before, after, *compared = self._values
        return PlacedChanges(changelog, before, after), EqualPlaces(*compared)

    def _merge_section(
        self,
        section: Section,
        merge: CompactionMerge | None,
        writer: RollingWriter | None,
        coded: frozenset[str] = frozenset(),
    ) -> None:
        context, split = self._context, self._split(section)
        left, held_bytes = split.row_count, 0
        plan, store, budget = self._plan, context.store, context.budget
        how, extra = None, 0
        if merge is not None:
            how = windows_with(split, plan, budget, self._places, self._late)
            extra = EXTRA_BATCHES
        function: MergeFunction | None = merge
        if plan.merge.lacks_older:
            assert merge is None, "with older rows missing, nothing is looked up or compared"
            function = WholeFold(MERGE_FUNCTIONS[context.options.merge_engine])
        merging = Merging(function=function, share=Share.WINDOWS, extra_batches=extra, coded=coded)
        merged = merge_runs(split, plan, store, budget, how, merging)
        with reading(merged) as windows:
            for rows in windows:
                if writer is not None:
                    self._write(writer, rows)
                held_bytes += size_of(rows)
                if held_bytes >= Share.RELEASED.of(context.budget.size_bytes):
                    # Allocators keep freed memory for the thread that used it: give it back.
                    release_freed(context.budget.size_bytes)
                    held_bytes = 0
                left -= rows.num_rows
                self._rows_done(rows.num_rows)
                # Free this row before the next one is read: a row may be large.
                del rows
        # Count the rows that the merge removed.
        self._rows_done(left)

    def _write(self, writer: RollingWriter, rows: pa.Table) -> None:
        """Write rows of the work's keys. All rows of a key outside are read, or none."""
        if self._compaction.keys is not None:
            rows = rows.filter(pa.array(matches_exactly(self._compaction.keys, rows)))
        if rows.num_rows:
            writer.write(rows)

    def _must_count(self, file: DataFile) -> bool:
        counted = self._compaction.keep_deletions and file.delete_row_count != 0
        if counted or not may_hold_deletions(file):
            return False
        split = self._split(self.alone(file))
        retracts = [int(kind) for kind in RETRACTS]
        files = SplitFiles(split, self._plan, self._context.store)
        kinds = files.rows(file, [KIND_FIELD], BatchSize(_KIND_ROWS))
        with reading(kinds) as batches:
            return any(np.isin(batch.column(0).to_numpy(), retracts).any() for batch in batches)

    def alone(self, file: DataFile) -> Section:
        return (SortedRun(files=(file,)),)

    def abort(self) -> None:
        """Remove the written files; a file that cannot be removed is an orphan."""
        self.marking.abort()
        for writer in self._writers:
            with suppress(LakecoreError, OSError):
                writer.abort()

    def _read_plan(self) -> ReadPlan:
        context = self._context
        source = TableSource(
            context=context, snapshot=None, table_schema=context.schema, as_stored=True
        )
        runs = tuple((file,) for file in (*self._compaction.files, *self._above))
        plan = source.read_plan([self._split_of(runs)], None)
        keep = self._compaction.keep_deletions
        options = context.options
        lacks_older = options.folds_rows and bool(self._above) and not options.needs_lookup
        merge = replace(plan.merge, keep_deletions=keep, in_key_order=True, lacks_older=lacks_older)
        # Always verify checksums: damaged data must not be rewritten as valid data.
        plan = replace(plan, expiry=self._compaction.expiry, predicate=self._compaction.keys)
        return replace(plan, merge=merge, system_columns=True, checks=Checks.ALWAYS)

    def _upper_levels(self) -> UpperLevels:
        context = self._context
        split = self._split_of(tuple((file,) for file in self._above))
        levels = {file.level for file in self._above}
        wanted = Share.UPPER_LEVELS.of(context.budget.size_bytes)
        lease = context.budget.acquire_up_to(wanted, _LOOKUP_LEAST_BYTES)
        plan = LookupPlan(
            files=SplitFiles(split, self._plan, context.store, self._places, self._late),
            fields=(*self._fields, *self._late.fields),
            size=batch_size(self._fields, lease.size_bytes // (_LOOKUP_BATCHES * len(levels))),
            marks=self.marking.marks,
        )
        return UpperLevels(plan, lease)

    def _split(self, section: Section) -> Split:
        return self._split_of(tuple(run.files for run in section))

    def _split_of(self, runs: tuple[tuple[DataFile, ...], ...]) -> Split:
        compaction = self._compaction
        return Split(
            partition=compaction.partition,
            partition_path=self._partition_path,
            bucket=compaction.bucket,
            total_buckets=compaction.total_buckets,
            runs=runs,
            raw=False,
            commit_order=compaction.order,
            vectors=self.marking.of(runs),
        )
