"""Row ids: the ids of new rows, and the files that hold the columns of the same rows.

https://paimon.apache.org/docs/master/append-table/row-tracking/

With `row-tracking.enabled`, each row has an id that never changes: the first row id of its file
plus its position. With `data-evolution.enabled`, several files may hold columns of the same rows.
These files have the same row ids, and the newest file that has a column provides its values.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.errors import CorruptTable, Unsupported
from lakecore.model.files import DataFile, FileSource
from lakecore.model.manifest import FileKind, ManifestEntry
from lakecore.model.rows import ROW_ID, TRACKING_FIELDS
from lakecore.model.types import with_nullable
from lakecore.plan.predicate import Predicate, condition_on
from lakecore.plan.pruning import may_match

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakecore.model.schema import TableSchema
    from lakecore.options import TableOptions

BLOB = "blob"
"""The format of a file of BLOB values."""


def with_row_ids(
    entries: Sequence[ManifestEntry], first_row_id: int, snapshot_id: int
) -> tuple[list[ManifestEntry], int]:
    """The entries of a commit, with row ids for the rows of new files; and the next free row id.

    The sequence number of a new row is the id of its snapshot. A file that the commit both deletes
    and adds, for example with another index, has no new rows. A BLOB file gets the row ids of the
    nearest file before it that holds other columns of its rows.
    """
    deleted = {entry.file.name for entry in entries if entry.kind is FileKind.DELETE}
    numbered: list[ManifestEntry] = []
    start = first_row_id
    next_blobs: dict[tuple[str, ...] | None, int] = {}
    for entry in entries:
        file = entry.file
        new = entry.kind is FileKind.ADD and file.file_source is FileSource.APPEND
        new = new and file.name not in deleted
        if new and (file.sequence_min == 0 or file.first_row_id is None):
            file = replace(file, sequence_min=snapshot_id, sequence_max=snapshot_id)
        if new and file.first_row_id is None and file.format == BLOB:
            own = next_blobs.get(file.write_columns, start)
            file = replace(file, first_row_id=own)
            next_blobs[file.write_columns] = own + file.row_count
        elif new and file.first_row_id is None and ROW_ID not in (file.write_columns or ()):
            file = replace(file, first_row_id=first_row_id)
            start, next_blobs = first_row_id, {}
            first_row_id += file.row_count
        numbered.append(replace(entry, file=file))
    return numbered, first_row_id


def with_tracking_columns(schema: TableSchema) -> TableSchema:
    """The schema of files whose rows keep their ids.

    A null sequence number stands for the file's own.
    """
    tracking = (replace(f, type=with_nullable(f.type, nullable=True)) for f in TRACKING_FIELDS)
    return replace(schema, fields=(*schema.fields, *tracking))


def by_row_ids(files: Iterable[DataFile]) -> list[tuple[DataFile, ...]]:
    """The files in groups that hold the same rows, in order of the row ids.

    Within a group, the newest file comes first, and files of BLOB values last. Raises CorruptTable
    if a file has no row ids, or if the row ids of two files overlap in part.
    """
    groups = overlapping(files)
    for group in groups:
        whole = [file for file in group if file.format != BLOB]
        if len({_range_of(file) for file in whole}) > 1:
            names = [file.name for file in whole]
            raise CorruptTable("the row ids of two files overlap in part", files=names)
        if not whole or _range_of(whole[0]) != rows_of(group):
            raise CorruptTable("a file of BLOB values has no rows", file=group[-1].name)
    return groups


def overlapping(files: Iterable[DataFile]) -> list[tuple[DataFile, ...]]:
    """The files in groups whose row ids do not overlap, in order of the row ids.

    Within a group, the newest file comes first, and files of BLOB values last. Raises CorruptTable
    if a file has no row ids.
    """
    files = list(files)
    without = next((file for file in files if file.first_row_id is None), None)
    if without is not None:
        raise CorruptTable("a file has no row ids", file=without.name)
    groups: list[list[DataFile]] = []
    end = 0
    for file in sorted(files, key=lambda file: file.first_row_id or 0):
        rows = _range_of(file)
        if not groups or rows.start >= end:
            groups.append([])
        groups[-1].append(file)
        end = max(end, rows.stop)
    for group in groups:
        group.sort(key=_age, reverse=True)
        group.sort(key=lambda file: file.format == BLOB)
    return [tuple(group) for group in groups]


def rows_of(group: Sequence[DataFile]) -> range:
    """The row ids of files whose row ids overlap."""
    ranges = [_range_of(file) for file in group]
    return range(min(rows.start for rows in ranges), max(rows.stop for rows in ranges))


def may_hold_row_ids(files: Sequence[DataFile], predicate: Predicate | None) -> np.ndarray:
    """For each file, whether it may hold a row with a row id that matches the predicate.

    A rewritten file may always match: the file stores the ids of its rows, and the manifest does
    not state them. A file of BLOB values is kept with the files of its rows.
    """
    mask = np.ones(len(files), bool)
    condition = condition_on(predicate, [ROW_ID])
    stated = [at for at, file in enumerate(files) if _states_ids(file) and file.format != BLOB]
    if condition is None or not stated:
        return mask
    first = np.array([files[at].first_row_id for at in stated], np.int64)
    count = np.array([files[at].row_count for at in stated], np.int64)
    low, high, nulls = (
        pa.RecordBatch.from_arrays([pa.array(values)], [ROW_ID])
        for values in (first, first + count - 1, np.zeros(len(stated), np.int64))
    )
    mask[stated] = may_match(condition, low, high, nulls, count)
    kept = [at for at in stated if mask[at]]
    begins = sorted(files[at].first_row_id or 0 for at in kept)
    ends = {
        files[at].first_row_id: (files[at].first_row_id or 0) + files[at].row_count for at in kept
    }
    for at, file in enumerate(files):
        if file.format == BLOB and file.first_row_id is not None:
            found = bisect_right(begins, file.first_row_id) - 1
            mask[at] = found >= 0 and file.first_row_id < ends[begins[found]]
    return mask


def _states_ids(file: DataFile) -> bool:
    return file.first_row_id is not None and ROW_ID not in (file.write_columns or ())


def _range_of(file: DataFile) -> range:
    first = file.first_row_id or 0
    return range(first, first + file.row_count)


def _age(file: DataFile) -> tuple[int, str]:
    return file.sequence_max, file.name


def written_together(
    files: Iterable[DataFile], options: TableOptions
) -> list[tuple[DataFile, ...]]:
    """The files of some snapshots in groups that hold columns of the same rows.

    The files of older snapshots, which hold the other columns, are not among them. Raises
    Unsupported if a compaction joined the files of rows between two of the snapshots.
    """
    groups = overlapping(files)
    for group in groups:
        whole = {_range_of(file) for file in group if file.format != BLOB}
        if whole and whole != {rows_of(group)}:
            raise Unsupported(
                "a compaction joined the files of rows between the snapshots that wrote them; read "
                "the snapshots one by one, by a stream",
                option="data-evolution.enabled",
                files=[file.name for file in group],
                table=options.table,
            )
    return groups


def anchor_of(group: Sequence[DataFile]) -> DataFile:
    """The file that the deletion vector of a group refers to: the oldest that is no BLOB file."""
    return min((file for file in group if file.format != BLOB), key=_age)
