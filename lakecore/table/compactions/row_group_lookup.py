"""Reads rows at positions in many row groups of a file with Polars.

Polars decodes several row groups concurrently, which is faster than reading them one by one. A row
group that is requested again is read again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from lakecore.frames.polars_source import FAILURES, to_batches
from lakecore.io.files.file_checks import check_files
from lakecore.model.types import arrow_schema
from lakecore.table.sections.windows import READER
from lakecore.table.splits.decide import stored_only
from lakecore.table.splits.examine import polars_parts
from lakecore.table.splits.parts import scan_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.model.files import DataFile
    from lakecore.model.types import Field
    from lakecore.table.splits.parts import Part
    from lakecore.table.stored_rows.split_files import SplitFiles

_AT_ONCE = 2
_PARTS_MIN = 2
"""The least number of row groups in a chunk: with fewer, nothing can be read concurrently."""


@dataclass(frozen=True, slots=True)
class RowGroupLookup:
    """A file that Polars can read; `parts` are its row groups, in order."""

    parts: Sequence[Part]
    schema: pa.Schema
    chunk_bytes: int

    def rows(self, groups: Sequence[int], positions: np.ndarray) -> pa.Table | None:
        """The rows at these ascending positions, all within these row groups.

        None if Polars cannot read them; lakecore's own reader then reports the damage.
        """
        with suppress(*FAILURES), ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=READER) as pool:
            chunks = self._chunks(groups)
            tasks = [pool.submit(self._read, chunk, positions) for chunk in chunks]
            try:
                return pa.concat_tables([task.result() for task in tasks])
            finally:
                for task in tasks:
                    task.cancel()
        return None

    def _chunks(self, groups: Sequence[int]) -> Iterator[list[Part]]:
        """The row groups in chunks: adjacent groups, as many as fit in a chunk."""
        chunk: list[Part] = []
        chunk_bytes = 0
        for index in groups:
            part = self.parts[index]
            follows = bool(chunk) and chunk[-1].group.index + 1 == index
            if chunk and not (follows and chunk_bytes + part.size_bytes <= self.chunk_bytes):
                yield chunk
                chunk, chunk_bytes = [], 0
            chunk.append(part)
            chunk_bytes += part.size_bytes
        yield chunk

    def _read(self, chunk: Sequence[Part], positions: np.ndarray) -> pa.Table:
        start = chunk[0].group.first_row
        end = start + sum(part.group.row_count for part in chunk)
        frame = scan_parts(chunk, self.schema, self.schema.names).collect()
        if frame.height != end - start:
            raise pl.exceptions.ShapeError("row groups of other rows than their footer says")
        low, high = np.searchsorted(positions, [start, end])
        taken = frame[positions[low:high] - start]
        return pa.Table.from_batches(to_batches(taken, self.schema, self.chunk_bytes), self.schema)


def row_group_lookup(
    files: SplitFiles, file: DataFile, fields: Sequence[Field], chunk_bytes: int
) -> RowGroupLookup | None:
    """The reader that looks up rows of these columns of a file with Polars.

    None if Polars cannot read the file. Two chunks are in memory at the same time.
    """
    if files.places is not None or files.late:
        return None
    split = replace(files.split, runs=((file,),))
    parts = polars_parts(split, files.plan, files.store, fields)
    if not parts or max(part.size_bytes for part in parts) * _PARTS_MIN > chunk_bytes:
        return None
    check_files(
        files.store,
        [parts[0].path],
        [field.name for field in stored_only(fields)],
        files.plan.checks,
    )
    return RowGroupLookup(parts, arrow_schema(fields), chunk_bytes)
