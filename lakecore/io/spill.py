"""Sorted runs on local disk, as Arrow IPC files, for write buffers that are too large for memory.

The files are in a temporary directory of one writer, and are deleted when the writer closes.
Nothing in a table refers to them. A killed process leaves its directories behind, and the next
process that spills removes them. The name `lakecore-spill-BOOT-PID-...` identifies the owner. The
owner also holds a lock on the file `owner` in the directory; the lock ends with the process, even
if it is killed.

INVARIANT: a directory is removed only if no process holds its lock, and its owner is not a running
process of this machine. The lock also shows owners in other containers, whose processes are not
visible.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from lakecore.errors import StorageError

if sys.platform != "win32":  # Windows has no fcntl: there, no directories of others are removed
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

_PREFIX = "lakecore-spill-"
_OWNER = "owner"
_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpilledRun:
    """A sorted run on local disk, and the range of its sequence numbers."""

    path: str
    row_count: int
    size_bytes: int
    sequence_min: int
    sequence_max: int


class SpillDirectory:
    """The directory in which one writer spills; created at the first spill."""

    def __init__(self, compression: str | None = "zstd") -> None:
        self._options = pa.ipc.IpcWriteOptions(compression=compression)
        self._directory: str | None = None
        self._owner: int | None = None  # the file descriptor that holds the lock
        self._count = 0

    def write(
        self, schema: pa.Schema, tables: Iterable[pa.Table], sequence_min: int, sequence_max: int
    ) -> SpilledRun:
        """Write tables, in order, to disk as one run."""
        try:
            path = self.next_path("arrow")
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
        """The batches of a run, in order; with `numbers`, only the batches at these indexes."""
        with pa.OSFile(run.path) as source:
            reader = pa.ipc.open_file(source)
            for index in range(reader.num_record_batches) if numbers is None else numbers:
                yield reader.get_batch(index)

    def mapped_rows(self, run: SpilledRun) -> pa.Table:
        """The rows of a run, mapped into memory if they are not compressed.

        Raises StorageError if the file is gone. Rows that were returned before stay usable.
        """
        try:
            with pa.memory_map(run.path) as source:
                return pa.ipc.open_file(source).read_all()
        except (OSError, pa.ArrowInvalid) as error:
            raise StorageError("cannot read spilled rows", cause=error) from error

    def mapped(self, array: NDArray[_Number]) -> NDArray[_Number]:
        """A copy of a flat array in a file, mapped into memory; it can be changed.

        The file is deleted with the last reference to the copy, or with the directory.
        """
        if not len(array):
            return array
        try:
            path = self.next_path("array")
            array.tofile(path)
            copy = np.memmap(path, array.dtype, "r+", shape=array.shape)
        except OSError as error:
            raise StorageError("cannot spill an index of keys", cause=error) from error
        with suppress(OSError):
            # Where the system allows it, delete the open file's name; the file stays usable.
            Path(path).unlink()
        return copy

    def next_path(self, ending: str) -> str:
        """The path of a new file, for the caller to write. Creates the directory if needed."""
        if self._directory is None:
            sweep()
            self._directory = tempfile.mkdtemp(prefix=f"{_PREFIX}{_boot()}-{os.getpid()}-")
            self._owner = _lock(Path(self._directory))
        path = str(Path(self._directory) / f"{self._count}.{ending}")
        self._count += 1
        return path

    def schema(self, run: SpilledRun) -> pa.Schema:
        with pa.OSFile(run.path) as source:
            return pa.ipc.open_file(source).schema

    def remove(self, run: SpilledRun) -> None:
        """Delete a run that is no longer needed."""
        with suppress(OSError):
            Path(run.path).unlink()

    def close(self) -> None:
        """Delete everything that was spilled; the directory can be used again."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None


@cache
def sweep() -> None:
    """Delete the spill directories that killed processes left behind; once in a process."""
    with suppress(OSError):
        for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            if _is_left(directory):
                shutil.rmtree(directory, ignore_errors=True)


def _is_left(directory: Path) -> bool:
    """Whether the process that spilled into the directory has ended."""
    boot, _, rest = directory.name.removeprefix(_PREFIX).partition("-")
    pid = rest.partition("-")[0]
    if sys.platform == "win32" or not pid.isdecimal() or (boot == _boot() and _runs(int(pid))):
        return False
    try:
        descriptor = os.open(directory / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # no lock yet, or another user's
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _lock(directory: Path) -> int:
    descriptor = os.open(directory / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if sys.platform != "win32":
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


@cache
def _boot() -> str:
    """An identifier of the current boot of the machine, without dashes."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    except OSError:
        return "unknown"
