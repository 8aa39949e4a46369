"""Files of any storage as files on the local disk, for engines that open files by their path.

A remote file is copied to the directory of temporary files, and the copy is deleted afterwards.
`spill.py` deletes copies that a killed process left behind.
"""

from __future__ import annotations

import shutil
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakecore.errors import StorageError
from lakecore.io.parallel import read_all
from lakecore.io.spill import SpillDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.io.stores.store import Store

__all__ = ["local_files", "local_output"]

_COPIED_BYTES = 1 << 20
_ENDING_MAX = 16


@contextmanager
def local_files(store: Store, paths: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The local path of each file, or of its copy, which is deleted when the block ends.

    A copy has the ending of its file, by which engines know the compression. Raises StorageError
    if the local disk has no room.
    """
    with closing(SpillDirectory()) as directory:
        local = [store.local_path(path) or directory.next_path(_ending(path)) for path in paths]
        copies = [
            pair for pair in zip(paths, local, strict=True) if store.local_path(pair[0]) is None
        ]
        read_all(lambda pair: _download(store, *pair), copies)
        yield tuple(local)


@contextmanager
def local_output(store: Store, path: str) -> Iterator[str]:
    """A local path to write a new file to. When the block ends, the file is complete at `path`."""
    local = store.local_path(path)
    if local is not None:
        yield local
        return
    with closing(SpillDirectory()) as directory:
        local = directory.next_path(_ending(path))
        yield local
        with Path(local).open("rb") as source, store.open_output(path) as sink:
            shutil.copyfileobj(source, sink, _COPIED_BYTES)


def _download(store: Store, path: str, local: str) -> None:
    with store.open_input(path) as source:
        try:
            with Path(local).open("wb") as sink:
                while data := source.read(_COPIED_BYTES):
                    sink.write(data)
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(
                "the file cannot be copied to the local disk", path=path, cause=error
            ) from error


def _ending(path: str) -> str:
    _, dot, ending = path.rpartition("/")[2].rpartition(".")
    return ending if dot and ending.isalnum() and len(ending) <= _ENDING_MAX else "copy"
