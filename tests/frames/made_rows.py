"""A source of batches that are made as they are asked for, and that remembers what it was asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakecore.frames.source import EngineFile
from lakecore.model.row_mask import RowMask

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.plan.predicate import Predicate


@dataclass(slots=True)
class Asked:
    """One call of `batches`: what was asked, how many rows it gave, whether it was closed."""

    columns: list[str] | None
    predicate: Predicate | None
    limit: int | None
    rows: int = 0
    closed: bool = False


@dataclass(slots=True)
class MadeRows:
    """Rows 0, 1, ...: `id`, `half` of it, `day` (ms), `text`; made in batches, never held."""

    count: int
    batch_rows: int = 131_072
    asked: list[Asked] = field(default_factory=list)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                ("half", pa.float64()),
                ("day", pa.timestamp("ms")),
                ("text", pa.string()),
            ]
        )

    @property
    def last(self) -> Asked:
        return self.asked[-1]

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        asked = Asked(None if columns is None else list(columns), predicate, limit)
        self.asked.append(asked)
        try:
            for start in range(0, self.count, self.batch_rows):
                batch = self._batch(start, columns)
                asked.rows += batch.num_rows
                yield batch
        finally:
            asked.closed = True

    def _batch(self, start: int, columns: Sequence[str] | None) -> pa.RecordBatch:
        ids = np.arange(start, min(start + self.batch_rows, self.count))
        wanted = self.schema.names if columns is None else columns
        made = {
            "id": lambda: pa.array(ids),
            "half": lambda: pa.array(ids * 0.5),
            "day": lambda: pa.array(ids * 86_400_000, pa.timestamp("ms")),
            "text": lambda: pa.array(np.char.mod("row %d", ids % 1000)),
        }
        fields = [self.schema.field(name) for name in wanted]
        return pa.RecordBatch.from_arrays(
            [made[f.name]() for f in fields], schema=pa.schema(fields)
        )


@dataclass(slots=True)
class HeldRows:
    """The batches of a table in memory, whatever the predicate."""

    rows: pa.Table
    files: list[str] | None = None
    bits: bytes | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,  # noqa: ARG002  a source may leave it aside
        limit: int | None = None,  # noqa: ARG002
    ) -> Iterator[pa.RecordBatch]:
        assert self.files is None, "files that can be read as they are are not read as batches"
        names = self.schema.names if columns is None else list(columns)
        yield from self.rows.select(names).to_batches(max_chunksize=3)

    def engine_files(
        self,
        columns: Sequence[str],  # noqa: ARG002
        predicate: Predicate | None = None,  # noqa: ARG002
    ) -> list[EngineFile] | None:
        if self.files is None:
            return None
        counts = [pq.read_metadata(file).num_rows for file in self.files]
        return [
            EngineFile(
                path=file,
                row_count=count,
                mask=None if self.bits is None else RowMask(self.bits, count),
            )
            for file, count in zip(self.files, counts, strict=True)
        ]
