"""Bitmaps of the rows to return, for engines that scan files with deletion vectors.

The bitmaps of the rows that survive a merge (`survivors.py`) are used in the same way.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from lakecore.frames.source import EngineFile
from lakecore.table.stored_rows.split_files import missing_is_corrupt
from lakecore.table.stored_rows.vector_bits import kept_bits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.io.stores.store import Store
    from lakecore.model.files import DataFile, Split, VectorRange
    from lakecore.table.stored_rows.read_plan import ReadPlan

NOTHING: Mapping[str, bytes] = MappingProxyType({})


def engine_files(
    splits: Sequence[Split],
    paths: Sequence[str],
    plan: ReadPlan,
    store: Store,
    surviving: Mapping[str, bytes] = NOTHING,
) -> list[EngineFile]:
    """The files of the splits, at these local paths, each with a bitmap of the rows to return.

    `surviving` has the bitmaps of the files of merged sections. A file of a merged section without
    a surviving row is left out.
    """
    kept = {**_kept_bits([split for split in splits if split.raw], plan, store), **surviving}
    files = [file for split in splits for file in split.files]
    found = [
        EngineFile(path=path, row_count=file.row_count, kept=kept.get(file.name))
        for path, file in zip(paths, files, strict=True)
    ]
    if not surviving:
        return found
    return [
        replace(file, kept=None) if file.kept_count == file.row_count else file
        for file in found
        if file.kept_count
    ]


def _kept_bits(splits: Sequence[Split], plan: ReadPlan, store: Store) -> dict[str, bytes]:
    """A bitmap for each file with a vector, by file name: a bit is 1 if the row is kept.

    The lowest bit of a byte comes first. An index file is read at most once. Raises CorruptTable if
    it is missing or damaged.
    """
    held: dict[str, list[tuple[DataFile, VectorRange]]] = defaultdict(list)
    for split in splits:
        for file in split.files:
            if file.name in split.vectors:
                index_file, where = split.vectors[file.name]
                path = plan.layout.live_index_file(split.partition_path, split.bucket, index_file)
                held[path].append((file, where))
    found: dict[str, bytes] = {}
    for path, parts in held.items():
        with missing_is_corrupt(path):
            found |= kept_bits(store, path, parts)
    return found
