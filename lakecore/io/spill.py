"""Sorted runs of a write buffer that is too large for memory, as Arrow IPC files on local disk.

They live in a temporary directory of one writer and are gone when it closes; nothing of a table
ever refers to them.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class SpilledRun:
    """One sorted run on local disk, and the range of its sequence numbers."""

    path: str
    row_count: int
    size_bytes: int
    sequence_min: int
    sequence_max: int


class SpillDirectory:
    """Where one writer spills; created at the first spill."""

    def __init__(self, compression: str = "zstd") -> None:
        self._options = pa.ipc.IpcWriteOptions(compression=compression)
        self._directory: str | None = None
        self._count = 0

    def write(
        self, schema: pa.Schema, tables: Iterable[pa.Table], sequence_min: int, sequence_max: int
    ) -> SpilledRun:
        """Put tables, in order, on disk as one run."""
        try:
            if self._directory is None:
                self._directory = tempfile.mkdtemp(prefix="lakecore-spill-")
            path = str(Path(self._directory) / f"{self._count}.arrow")
            self._count += 1
            rows = 0
            with pa.ipc.new_file(path, schema, options=self._options) as writer:
                for table in tables:
                    writer.write_table(table)
                    rows += table.num_rows
            size_bytes = Path(path).stat().st_size
        except OSError as error:
            raise StorageError("cannot spill a write buffer", cause=error) from error
        return SpilledRun(
            path=path,
            row_count=rows,
            size_bytes=size_bytes,
            sequence_min=sequence_min,
            sequence_max=sequence_max,
        )

    def read(
        self, run: SpilledRun, numbers: Sequence[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The batches of a run, in order; some of them, by number, if that is said."""
        with pa.OSFile(run.path) as source:
            reader = pa.ipc.open_file(source)
            for index in range(reader.num_record_batches) if numbers is None else numbers:
                yield reader.get_batch(index)

    def schema(self, run: SpilledRun) -> pa.Schema:
        """The columns of a run."""
        with pa.OSFile(run.path) as source:
            return pa.ipc.open_file(source).schema

    def remove(self, run: SpilledRun) -> None:
        """Give back the disk of a run that is read no more."""
        with suppress(OSError):
            Path(run.path).unlink()

    def close(self) -> None:
        """Remove everything that was spilled; more may be spilled after."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
