"""Selects the files, and the rows in them, that may match a condition by their file indexes.

The indexes of a data file are embedded in the manifest, or stored in a file next to it. They are
read only if statistics do not exclude the data file. Indexes of columns that the condition does not
name are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lakecore.errors import CorruptTable
from lakecore.format.file_index.container import decode_container
from lakecore.format.layout import FILE_INDEX_SUFFIX
from lakecore.io.parallel import read_all
from lakecore.plan.file_indexes import column_indexes, rows_that_may_match
from lakecore.table.stored_rows.split_files import missing_is_corrupt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyroaring import BitMap

    from lakecore.format.layout import Layout
    from lakecore.io.history.history import History
    from lakecore.model.files import DataFile, Split
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.schema import TableSchema
    from lakecore.plan.partitions import Partitions
    from lakecore.plan.predicate import Predicate

_FEW_SHARE = 16
"""Matching rows of a file are few if they are at most all its rows divided by this."""


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
                "a file index cannot be read; file-index.read.enabled=false reads without",
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
