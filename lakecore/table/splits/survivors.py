"""Which rows of a section survive its merge, as one bit for each row of each file.

If key, sequence number and kind of each row decide (`decide.py`), the result of the merge does not
depend on the columns or the condition of a query. The bits are computed once from the deciding
columns and cached. Every later read of the same files is a scan by an engine that leaves out rows,
as if deletion vectors marked them. The scan may then apply any condition on values, because it is
already decided which rows survive.

INVARIANT: the key of the cache names everything that the result depends on: the files in their
order, with inode, size and time, their levels (a compaction may move a file to another level),
their deletion vectors, and the rules of the merge.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from lakecore.frames.engine_scan import parquet_scan
from lakecore.frames.polars_source import FAILURES, bytes_in_arrow
from lakecore.frames.source import EngineFile
from lakecore.io.cache import Cache
from lakecore.io.files.data_files import file_columns, row_group_bounds
from lakecore.io.files.file_checks import check_files, identity_of
from lakecore.lsm.levels import SortedRun
from lakecore.model.row_mask import RowMask
from lakecore.model.types import arrow_schema
from lakecore.options import LINE_FORMATS
from lakecore.table.sections.windows import merge_fields
from lakecore.table.splits.decide import (
    decide,
    decided_by_keys,
    file_refusal,
    keys_bytes_max,
    mark_rows,
    no_marks,
    parts_or_reason,
    polars_columns,
    stored_only,
)
from lakecore.table.splits.read_path import (
    Decision,
    Examined,
    FileFacts,
    Reader,
    Reason,
    bytes_to_mark,
    texts_of,
)
from lakecore.table.stored_rows.split_files import SplitFiles, check_size, vector_masks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from lakecore.io.stores.store import Store
    from lakecore.memory import Budget
    from lakecore.model.files import DataFile, Split
    from lakecore.model.types import Field
    from lakecore.table.splits.decide import Marks
    from lakecore.table.splits.read_path import Part
    from lakecore.table.stored_rows.read_plan import ReadPlan

    RowMasks: TypeAlias = Mapping[str, RowMask]
    """The masks of the files of a section, by the name of the file."""


# --- examine -------------------------------------------------------------------------------------
# Reads the facts that `decide` needs: sizes, columns and row groups of local files.


def decide_split(split: Split, plan: ReadPlan, store: Store, budget: Budget) -> Decision:
    """How a split is read: by Polars if that is possible and faster.

    Raises CorruptTable if the size of a file differs from the manifest's, or a footer is damaged.
    """
    decision = decide([split], plan, budget, Reader.POLARS)
    if decision is None:
        sized = texts_of(polars_columns(split, plan).all)
        files = examine([split], plan, store, sized)
        decision = decide([split], plan, budget, Reader.POLARS, Examined(files=files))
    assert decision is not None
    return decision


def polars_parts(
    split: Split, plan: ReadPlan, store: Store, fields: Sequence[Field]
) -> tuple[Part, ...] | None:
    """The row groups of a split with the size of these columns; None if Polars cannot read them."""
    if file_refusal([split], stored_only(fields), plan.schemas) is not None:
        return None
    parts = parts_or_reason(split, plan, fields, examine([split], plan, store, ()))
    return parts if isinstance(parts, tuple) else None


def examine(
    splits: Sequence[Split], plan: ReadPlan, store: Store, sized: Sequence[str] | None
) -> tuple[FileFacts, ...]:
    """The facts of the files, in order. If one file is not local, the facts of that file alone.

    `sized`: the columns whose size each row group states; None: row groups are not examined.
    """
    paths: list[tuple[DataFile, str, str]] = []
    for split in splits:
        for file in split.files:
            path = plan.layout.data_file(split.partition_path, split.bucket, file)
            local = store.local_path(path)
            if local is None:
                return (FileFacts(path=None),)
            # The engine's reader does not know the manifest, so check the size first.
            check_size(store, path, file)
            paths.append((file, path, local))
    return tuple(
        FileFacts(
            path=local,
            # Files that were migrated from Hive have no sequence numbers and may lack columns.
            columns=None if named else frozenset(file_columns(store, path)),
            groups=() if sized is None else tuple(row_group_bounds(store, path, sized) or ()),
        )
        for file, path, local in paths
        for named in (file.sequence_max or file.format in LINE_FORMATS,)
    )


# --- engine files --------------------------------------------------------------------------------
# The files that an engine scans, with masks of the rows that deletion vectors or a merge leave.

NOTHING: RowMasks = MappingProxyType({})


def engine_files(
    splits: Sequence[Split],
    paths: Sequence[str],
    plan: ReadPlan,
    store: Store,
    surviving: RowMasks = NOTHING,
) -> list[EngineFile]:
    """The files of the splits, at these local paths, each with a mask of the rows to return.

    `surviving` has the masks of the files of merged sections. A file of a merged section without a
    surviving row is left out.
    """
    masks = {**vector_masks((split for split in splits if split.raw), plan, store), **surviving}
    files = [file for split in splits for file in split.files]
    found = [
        EngineFile(path=path, row_count=file.row_count, mask=masks.get(file.name))
        for path, file in zip(paths, files, strict=True)
    ]
    if not surviving:
        return found
    return [
        replace(file, mask=None) if file.returned_count == file.row_count else file
        for file in found
        if file.returned_count
    ]


# --- survivors -----------------------------------------------------------------------------------

HELD_TIMES = 2
"""Copies of the deciding columns in memory while they are read or encoded for comparison."""
_WINDOW_ROWS = 1 << 20
_WINDOW_ROW_SHARE = 256
"""The most rows of a window: the budget in bytes divided by this, but at most `_WINDOW_ROWS`."""
_KNOWN: Cache[tuple[object, ...], RowMasks] = Cache(1)


def known_survivors(split: Split, plan: ReadPlan, store: Store) -> RowMasks | None:
    """The bits of the surviving rows of a section, if an earlier read has computed them."""
    identity = _identity(split, plan, store)
    return None if identity is None else _KNOWN.get(identity)


def forget() -> None:
    """Drop all cached bitmaps, for example when memory is needed."""
    _KNOWN.give_back(_KNOWN.size_bytes)


def survivors(split: Split, plan: ReadPlan, store: Store, budget: Budget) -> RowMasks | None:
    """The bits of the surviving rows of a section; None if another reader must merge it.

    The plan has no predicate, so the bits cover all rows. Raises CorruptTable for a file that
    is missing, has a wrong checksum, or whose keys are out of order.
    """
    assert plan.predicate is None, "the bits of a section are those of all its rows"
    if not decided_by_keys(plan):
        return None
    # Compute the identity before the first read: if a file changes later, the identity differs.
    identity = _identity(split, plan, store)
    if identity is None:
        return None
    known = _KNOWN.get(identity)
    if known is not None:
        return known
    fields = _deciding_fields(split, plan)
    if file_refusal([split], stored_only(fields), plan.schemas) is not None:
        return None
    files = examine([split], plan, store, texts_of(fields))
    parts = parts_or_reason(split, plan, fields, files)
    if isinstance(parts, Reason):
        return None
    held_bytes = bytes_to_mark(parts, fields, plan.merge.key)
    if held_bytes > keys_bytes_max(budget):
        return None
    with budget.acquire_up_to(HELD_TIMES * held_bytes, HELD_TIMES * held_bytes):
        paths = list(dict.fromkeys(part.path for part in parts))
        check_files(store, paths, [field.name for field in fields], plan.checks)
        rows = deciding_columns(parts, fields, budget)
        if rows is None:
            return None
        marks = no_marks(split.files, rows)
        for _ in mark_rows(marks, SplitFiles(split, plan, store), window_rows(budget)):
            pass
    found = _masks(split, marks)
    _KNOWN.put(identity, found, sum(len(mask.bits) for mask in found.values()))
    return found


def _deciding_fields(split: Split, plan: ReadPlan) -> tuple[Field, ...]:
    """The columns that decide which rows of a section survive a merge."""
    runs = [SortedRun(files=run) for run in split.runs]
    return merge_fields(runs, replace(plan, columns=()))


def deciding_columns(
    parts: Sequence[Part], fields: Sequence[Field], budget: Budget
) -> pl.DataFrame | None:
    """The deciding columns of the parts, as Polars decodes them.

    None if Polars cannot read them, if they do not fit the budget, or if a value is null that must
    not be.
    """
    schema = arrow_schema(fields)
    paths = list(dict.fromkeys(part.path for part in parts))
    with suppress(*FAILURES):
        rows = parquet_scan(schema, paths, schema.names, casts=False).collect()
        given = [field.name for field in fields if not field.nullable]
        # Strings may share bytes in Polars; their size in Arrow is known only now.
        small = bytes_in_arrow(rows) <= keys_bytes_max(budget)
        whole = rows.height == sum(part.group.row_count for part in parts)
        if small and whole and not any(rows[name].null_count() for name in given):
            return rows
    return None


def window_rows(budget: Budget) -> int:
    """The most rows of a window of deciding columns."""
    return min(_WINDOW_ROWS, budget.size_bytes // _WINDOW_ROW_SHARE)


def _masks(split: Split, marks: Marks) -> dict[str, RowMask]:
    ends = marks.starts[1:].tolist()
    return {
        file.name: RowMask.of(marks.rows[end - file.row_count : end])
        for file, end in zip(split.files, ends, strict=True)
    }


def _identity(split: Split, plan: ReadPlan, store: Store) -> tuple[object, ...] | None:
    """Everything that decides which rows of a section survive; None if files are not local."""
    stored = _stored(split, plan, store)
    if None in stored:
        return None
    by_commit = sorted(split.files, key=lambda file: split.commit_order.get(file.name, 0))
    return (
        plan.layout.root,
        split.partition_path,
        split.bucket,
        tuple(tuple((file.name, file.level) for file in run) for run in split.runs),
        tuple(file.name for file in by_commit),
        tuple(
            (file.name, index.name, where.offset)
            for file in split.files
            if file.name in split.vectors
            for index, where in [split.vectors[file.name]]
        ),
        plan.engine,
        plan.merge,
        plan.schema.id,
        plan.options.sequence_snapshot_ordering,
        stored,
    )


def _stored(split: Split, plan: ReadPlan, store: Store) -> tuple[object, ...]:
    """Values that change if a file of the section is replaced.

    None for a missing or remote file.
    """
    files = SplitFiles(split, plan, store)
    indexes = {index.name: index for index, _ in split.vectors.values()}
    paths = [
        *map(files.path, split.files),
        *(
            plan.layout.live_index_file(split.partition_path, split.bucket, index)
            for index in indexes.values()
        ),
    ]
    return tuple(identity_of(store, path) for path in paths)
