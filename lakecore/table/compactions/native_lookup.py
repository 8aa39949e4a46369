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
from lakecore.model.types import arrow_schema
from lakecore.table.runs.native_files import native_paths
from lakecore.table.runs.native_parts import parts_of, scan_parts
from lakecore.table.runs.split_files import KIND_FIELD, SEQUENCE_FIELD
from lakecore.table.runs.windows import READER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.model.files import DataFile
    from lakecore.model.types import Field
    from lakecore.table.runs.native_parts import Part
    from lakecore.table.runs.split_files import SplitFiles

_AT_ONCE = 2
_PARTS_MIN = 2
"""The least row groups of a chunk: with fewer, nothing can be read concurrently."""


@dataclass(frozen=True, slots=True)
class NativeLookup:
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
        """Adjacent row groups, as many as fit in a chunk."""
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


def native_lookup(
    files: SplitFiles, file: DataFile, fields: Sequence[Field], chunk_bytes: int
) -> NativeLookup | None:
    """How Polars reads these columns of a file; None if it cannot.

    Two chunks are in memory at the same time.
    """
    if files.places is not None or files.late:
        return None
    stored = [field for field in fields if field not in (SEQUENCE_FIELD, KIND_FIELD)]
    split, plan = replace(files.split, runs=((file,),)), files.plan
    schema_of = plan.schemas.__getitem__
    paths = native_paths([split], stored, schema_of, plan.layout, files.store, plan.checks)
    if not paths:
        return None
    parts = parts_of(files, file, paths[0], fields)
    if not parts or max(part.size_bytes for part in parts) * _PARTS_MIN > chunk_bytes:
        return None
    return NativeLookup(parts, arrow_schema(fields), chunk_bytes)
