"""Which live files may hold a matching row: by row ids, value statistics and file indexes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.errors import CorruptTable
from lakecore.format.file_index.container import decode_container
from lakecore.format.layout import FILE_INDEX_SUFFIX, Layout
from lakecore.format.statistics import stats_frame
from lakecore.io.parallel import read_all
from lakecore.model.blob_rules import holds_references
from lakecore.model.rows import ROW_ID, TRACKING_FIELDS
from lakecore.plan.file_indexes import column_indexes, rows_that_may_match
from lakecore.plan.predicate import Predicate, columns_of, condition_on
from lakecore.plan.pruning import may_match
from lakecore.plan.row_ids import may_hold_row_ids
from lakecore.table.file_reader.split_files import missing_is_corrupt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyroaring import BitMap

    from lakecore.io.history import History
    from lakecore.model.files import DataFile, Split
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.schema import TableSchema
    from lakecore.options import TableOptions
    from lakecore.plan.partitions import Partitions


# --- row id ranges -------------------------------------------------------------------------------
# Selects the files whose row ids may match a condition on `_ROW_ID`.
#
# The manifest states the range of the row ids of a file. A rewritten file stores the row ids
# itself, and the manifest does not state their range: such a file is always read.


def keep_row_ids(
    entries: Sequence[ManifestEntry], schema: TableSchema, predicate: Predicate | None
) -> tuple[Sequence[ManifestEntry], int]:
    """The entries whose row ids may match, and the number of entries left out."""
    if predicate is None or ROW_ID not in schema.names:
        return entries, 0
    mask = may_hold_row_ids([entry.file for entry in entries], predicate)
    kept = [entry for entry, keep in zip(entries, mask, strict=True) if keep]
    return kept, len(entries) - len(kept)


def without_references(
    predicate: Predicate | None, schema: TableSchema, options: TableOptions
) -> Predicate | None:
    """The part of a predicate that stored values decide: no references to BLOB values."""
    stored = [field.name for field in schema.fields if not holds_references(field, schema, options)]
    return predicate if len(stored) == len(schema.fields) else condition_on(predicate, stored)


def on_stored_columns(schema: TableSchema, predicate: Predicate | None) -> Predicate | None:
    """The part of a predicate on columns that files store; conditions on row ids are left out."""
    if ROW_ID not in schema.names:
        return predicate
    stored = [field.name for field in schema.fields if field not in TRACKING_FIELDS]
    return condition_on(predicate, stored)


# --- value statistics ----------------------------------------------------------------------------
# Selects the files that may hold a matching row, by the statistics of their value columns.
#
# The statistics of a file are converted to the schema that is read. A column that the file lacks is
# null in all its rows. If the type of a column has changed, its statistics count as unknown, and
# the file may match.


def matching_values(
    files: Sequence[DataFile], history: History, schema: TableSchema, predicate: Predicate | None
) -> np.ndarray:
    """For each file, whether its value statistics allow a matching row.

    A file that holds only some columns is always kept: other files hold the row's other columns.
    """
    mask = np.ones(len(files), bool)
    names = columns_of(predicate) if predicate is not None else ()
    if not names:
        return mask
    assert predicate is not None
    by_schema: dict[int, list[int]] = defaultdict(list)
    for index, file in enumerate(files):
        if file.write_columns is None:
            by_schema[file.schema_id].append(index)
    for schema_id, inside in by_schema.items():
        own = [files[index] for index in inside]
        stats = _stats(own, history.schema(schema_id), schema, sorted(names))
        rows = np.array([file.row_count for file in own], np.int64)
        mask[inside] = may_match(predicate, *stats, rows)
    return mask


def _stats(
    files: Sequence[DataFile], file_schema: TableSchema, schema: TableSchema, names: Sequence[str]
) -> tuple[pa.RecordBatch, pa.RecordBatch, pa.RecordBatch]:
    """Minima, maxima and null counts, each as columns `names` of the table's schema.

    A column that the files lack is all null. The statistics of a column whose type has changed are
    unknown.
    """
    twins = {name: file_schema.by_id.get(schema.field(name).id) for name in names}
    known = [
        twin
        for name, twin in twins.items()
        if twin is not None and _same_values(twin.type, schema.field(name).type)
    ]
    frame = stats_frame(files, file_schema, [field.name for field in known])
    columns: tuple[list[pa.Array], ...] = ([], [], [])
    rows = pa.array([file.row_count for file in files], pa.int64())
    for name in names:
        field, twin = schema.field(name), twins[name]
        unknown = pa.nulls(len(files), schema.arrow.field(field.name).type)
        if twin in known:
            assert twin is not None
            parts = [batch.column(twin.name) for batch in frame]
        else:
            counts = rows if twin is None else pa.nulls(len(files), pa.int64())
            parts = [unknown, unknown, counts]
        for column, part in zip(columns, parts, strict=True):
            column.append(part)
    low, high, nulls = (pa.RecordBatch.from_arrays(c, list(names)) for c in columns)
    return low, high, nulls


def _same_values(old: object, new: object) -> bool:
    """Whether statistics of the old type are valid for the new: only nullability may differ."""
    return str(old).removesuffix(" NOT NULL") == str(new).removesuffix(" NOT NULL")


# --- indexed files -------------------------------------------------------------------------------
# Selects the files, and the rows in them, that may match a condition by their file indexes.
#
# The indexes of a data file are embedded in the manifest, or stored in a file next to it. An index
# is read only if statistics do not exclude the data file. Indexes of columns that the condition
# does not name are ignored.

_FEW_SHARE = 16
"""Matching rows are few if the file has at least this many times as many rows."""


@dataclass(frozen=True, slots=True)
class IndexedFiles:
    """Finds, reads and evaluates the file indexes of a table."""

    history: History
    layout: Layout
    schema: TableSchema
    partitions: Partitions

    def selected(
        self, entries: Sequence[ManifestEntry], looked_at: np.ndarray, predicate: Predicate
    ) -> tuple[np.ndarray, Mapping[str, BitMap]]:
        """For each file, whether it may hold a matching row; and which rows, if they are few.

        The rows are bitmaps by file name. For a file that `looked_at` excludes, the result is false
        and no index is read. Raises CorruptTable for an index that is missing or damaged.
        """
        mask = looked_at.copy()
        few: dict[str, BitMap] = {}
        wanted = [
            index for index in np.flatnonzero(looked_at).tolist() if has_index(entries[index].file)
        ]
        found = read_all(lambda index: self._rows(entries[index], predicate), wanted)
        for index, rows in zip(wanted, found, strict=True):
            if rows is None:
                continue
            file = entries[index].file
            mask[index] = bool(rows)
            if rows and len(rows) * _FEW_SHARE <= file.row_count:
                few[file.name] = rows
        return mask, few

    def _rows(self, entry: ManifestEntry, predicate: Predicate) -> BitMap | None:
        file = entry.file
        container, path = file.embedded_index, ""
        try:
            if container is None:
                name = next(n for n in file.extra_files if n.endswith(FILE_INDEX_SUFFIX))
                partition = self.partitions.path(entry.partition)
                path = self.layout.extra_file(partition, entry.bucket, file, name)
                with missing_is_corrupt(path):
                    container = self.history.store.read(path)
            indexes = column_indexes(
                decode_container(container),
                self.history.schema(file.schema_id),
                self.schema,
                predicate,
            )
            rows = rows_that_may_match(predicate, indexes)
        except CorruptTable as error:
            raise CorruptTable(
                "a file index cannot be read; file-index.read.enabled=false reads without it",
                data_file=file.name,
                index=path or "in the manifest",
                cause=error,
            ) from error
        if rows and rows.max() >= file.row_count:
            raise CorruptTable(
                "a file index names rows that its data file does not have",
                data_file=file.name,
                index=path or "in the manifest",
                rows=file.row_count,
            )
        return rows


def has_index(file: DataFile) -> bool:
    """Whether a data file has file indexes."""
    return file.embedded_index is not None or any(
        name.endswith(FILE_INDEX_SUFFIX) for name in file.extra_files
    )


def selecting(split: Split, rows: Mapping[str, BitMap]) -> Split:
    """The raw split, limited to the selected rows of its files."""
    own = {file.name: rows[file.name] for file in split.files if file.name in rows}
    return replace(split, selected=own) if own else split
