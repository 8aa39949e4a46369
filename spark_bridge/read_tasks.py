"""Cuts splits into pieces, and packs the pieces into tasks.

1. A split larger than the target is cut between keys, so that one big bucket is not one task. It
   may be cut at any key; good ones are the first keys of its files and, in large files, the
   smallest keys of their row groups. A cut is made when the bytes since the last cut exceed the
   target.
2. Each piece keeps the files whose key range overlaps the piece.
3. A large raw file without a key to cut it by is cut between row groups.
4. Pieces are packed into tasks in order; each file counts at least as its open cost. The target is
   `source.split.target-size`, or less, so that a small table still makes enough tasks.

INVARIANT: the pieces of a split hold each row once. Where rows are merged, the pieces cover every
key once, and all rows of a key are in one piece.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore import LakecoreError
from lakecore.distributed import (
    INTEGERS,
    TIMESTAMPS,
    Atomic,
    Root,
    common_ranks,
    decode_rows,
    keys_between,
    map_fields,
    row_group_bounds,
    without_statistics,
)
from spark_bridge.read_job import Piece

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.distributed import DataFile, Key, Layout, Split, Store, TableSchema

TASKS_WANTED = 16
"""A read too small for this many tasks of the target size gets smaller tasks, up to this many."""
FOOTERS_MAX = 256
"""The most footers that planning reads; further files are cut only at their first keys."""
_CUT_TYPES = frozenset({*INTEGERS, *TIMESTAMPS, Root.VARCHAR, Root.DATE, Root.DECIMAL})
"""CHAR is missing: in ORC, the first key of a file ends in blanks that reads remove."""
_FINE = 4
"""The row groups of a file are examined if it is larger than the target divided by this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """The values that cutting needs: sizes, schemas, and the locations of the files."""

    target_bytes: int
    open_cost_bytes: int
    schema: TableSchema
    schemas: Mapping[int, TableSchema]
    layout: Layout
    store: Store


@dataclass(frozen=True, slots=True)
class _Part:
    """A file, or one of its row groups: its smallest key and its size in bytes."""

    low: Key
    size_bytes: int


def make_tasks(splits: Sequence[Split], cutting: Cutting) -> list[tuple[Piece, ...]]:
    """Tasks of about equal weight that together read each row of the splits once."""
    weights = [_weight(split, cutting) for split in splits]
    fair = sum(weights) // TASKS_WANTED
    target = max(1, min(cutting.target_bytes, max(cutting.open_cost_bytes, fair)))
    weighed: list[tuple[Piece, int]] = []
    footers = FOOTERS_MAX
    for split, weight in zip(splits, weights, strict=True):
        pieces = [Piece(split=without_statistics(split))]
        if weight > 2 * target:
            parts, read = _parts(split, cutting, target, footers)
            footers -= read
            if cuts := _cuts(parts, target):
                pieces = _cut(split, cuts, cutting.schema)
            elif split.raw and not split.vectors:
                pieces, read = _cut_files(split, cutting, target, footers)
                footers -= read
        weighed += [(piece, weight // len(pieces)) for piece in pieces]
    return _pack(weighed, target)


def _pack(pieces: Sequence[tuple[Piece, int]], target: int) -> list[tuple[Piece, ...]]:
    tasks: list[list[Piece]] = []
    room = 0
    for piece, weight in pieces:
        if not tasks or weight > room:
            tasks.append([])
            room = target
        tasks[-1].append(piece)
        room -= weight
    return [tuple(task) for task in tasks]


def _weight(split: Split, cutting: Cutting) -> int:
    return sum(max(file.size_bytes, cutting.open_cost_bytes) for file in split.files)


# --- cutting --------------------------------------------------------------------------------------


def _parts(split: Split, cutting: Cutting, target: int, footers: int) -> tuple[list[_Part], int]:
    """The parts of the files between which to cut, and the number of footers that were read."""
    fields = cutting.schema.key_fields
    types = [field.type for field in fields]
    if not fields or not all(isinstance(t, Atomic) and t.root in _CUT_TYPES for t in types):
        return [], 0
    files = split.files
    lows = decode_rows([file.key_min for file in files], fields)
    parts: list[_Part] = []
    read = 0
    for index, file in enumerate(files):
        inside: list[_Part] = []
        if file.size_bytes * _FINE > target and read < footers:
            inside = _row_groups(split, file, cutting)
            read += 1
        low = tuple(column[index] for column in lows.columns)
        parts += inside or [_Part(low, file.size_bytes)]
    return parts, read


def _row_groups(split: Split, file: DataFile, cutting: Cutting) -> list[_Part]:
    """The row groups of a file; empty if the file does not store the smallest key of each."""
    fields = cutting.schema.key_fields
    mappings = map_fields(fields, cutting.schemas[file.schema_id].fields)
    stored = [m.stored.name for m in mappings if m.stored is not None and not m.changed]
    if len(stored) < len(fields):
        return []
    path = cutting.layout.data_file(split.partition_path, split.bucket, file)
    try:
        groups = row_group_bounds(cutting.store, path, stored)
    except LakecoreError:
        return []  # the task that reads the file reports the error
    if not groups:
        return []
    columns: list[pa.Array] = []
    arrow = cutting.schema.arrow
    for field, name in zip(fields, stored, strict=True):
        bounds = [group.bounds[name] for group in groups]
        if any(bound is None for bound in bounds):
            return []
        try:
            values = pa.array([b[0] for b in bounds if b is not None], arrow.field(field.name).type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return []
        columns.append(values)
    return [
        _Part(tuple(column[index] for column in columns), group.size_bytes)
        for index, group in enumerate(groups)
    ]


def _cuts(parts: Sequence[_Part], target: int) -> list[Key]:
    """Keys, in order, that cut the parts into ranges of about `target` bytes."""
    if len(parts) < 2:
        return []
    ranks = _ranks([part.low for part in parts])
    order = np.argsort(ranks, kind="stable")
    sizes = np.array([part.size_bytes for part in parts], np.int64)[order]
    pieces = -(-int(sizes.sum()) // target)
    wanted = np.arange(1, pieces) * (sizes.sum() / pieces)
    at = np.searchsorted(np.cumsum(sizes) - sizes, wanted)
    cuts: list[Key] = []
    last = ranks[order[0]]
    for index in order[np.unique(at[at < len(order)])]:
        if ranks[index] > last:
            cuts.append(parts[index].low)
            last = ranks[index]
    return cuts


def _cut(split: Split, cuts: Sequence[Key], schema: TableSchema) -> list[Piece]:
    """The pieces between the cuts; a cut is the first key of the piece after it."""
    fields = schema.key_fields
    files = split.files
    lows = decode_rows([file.key_min for file in files], fields)
    highs = decode_rows([file.key_max for file in files], fields)
    bounds = [
        pa.array([cut[place] for cut in cuts], column.type)
        for place, column in enumerate(lows.columns)
    ]
    low_ranks, high_ranks, cut_ranks = common_ranks([lows.columns, highs.columns, bounds])
    names = [field.name for field in fields]
    place_of = {file.name: place for place, file in enumerate(files)}
    pieces: list[Piece] = []
    for number in range(len(cuts) + 1):
        first = cuts[number - 1] if number else None
        end = cuts[number] if number < len(cuts) else None
        inside = np.ones(len(files), bool)
        if number:
            inside &= high_ranks >= cut_ranks[number - 1]
        if number < len(cuts):
            inside &= low_ranks < cut_ranks[number]
        runs = tuple(
            kept
            for run in split.runs
            if (kept := tuple(file for file in run if inside[place_of[file.name]]))
        )
        if not runs:
            continue
        part = without_statistics(replace(split, runs=runs))
        pieces.append(Piece(split=part, keys=keys_between(names, first, end)))
    return pieces


def _cut_files(
    split: Split, cutting: Cutting, target: int, footers: int
) -> tuple[list[Piece], int]:
    """The pieces of large files, one piece for all other files, and the number of footers read."""
    pieces: list[Piece] = []
    whole: list[DataFile] = []
    read = 0
    for file in split.files:
        bounds: list[int] = []
        if file.size_bytes > target and read < footers:
            bounds = _row_group_bounds(split, file, cutting, target)
            read += 1
        if len(bounds) < 3:
            whole.append(file)
            continue
        own = without_statistics(replace(split, runs=((file,),)))
        pieces += [Piece(split=own, row_groups=(a, b)) for a, b in pairwise(bounds)]
    if whole:
        pieces.append(Piece(split=without_statistics(replace(split, runs=(tuple(whole),)))))
    return pieces, read


def _row_group_bounds(split: Split, file: DataFile, cutting: Cutting, target: int) -> list[int]:
    """The row groups at which to cut, from 0 to the number of row groups; empty if unknown."""
    path = cutting.layout.data_file(split.partition_path, split.bucket, file)
    try:
        groups = row_group_bounds(cutting.store, path, [])
    except LakecoreError:
        return []  # the task that reads the file reports the error
    if not groups:
        return []
    ends = np.cumsum([group.size_bytes for group in groups])
    pieces = -(-int(ends[-1]) // target)
    at = np.searchsorted(ends, ends[-1] / pieces * np.arange(1, pieces)) + 1
    return [0, *(int(each) for each in np.unique(at) if each < len(groups)), len(groups)]


def _ranks(keys: Sequence[Key]) -> np.ndarray:
    columns = [
        pa.array([key[place] for key in keys], keys[0][place].type) for place in range(len(keys[0]))
    ]
    return common_ranks([columns])[0]
